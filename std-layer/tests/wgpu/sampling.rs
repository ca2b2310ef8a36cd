//! Tokens from logits.

use gllm_kernels_std::backend::{Backend, BackendError, SampleRow};
use gllm_kernels_std::model::{sample, Sampling};
use gllm_testkit::data::Source;

use super::backend;

/// Every combination of parameters, on logits of every kind: the token that the definition chooses.
#[test]
fn sampling_is_its_definition() {
    let Some(backend) = backend() else { return };
    let mut source = Source::new(3);
    for n in [1, 2, 31, 255, 256, 257, 1000, 5000] {
        for kind in 0..6 {
            let rows = 7;
            let mut logits: Vec<f32> = source.normals::<f32>(n * rows).iter().map(|x| x * 5.0).collect();
            match kind {
                1 => logits.iter_mut().for_each(|x| *x = x.round()),
                2 => logits.iter_mut().step_by(3).for_each(|x| *x = f32::NAN),
                3 => logits.iter_mut().step_by(2).for_each(|x| *x = f32::NEG_INFINITY),
                4 => logits.fill([f32::NAN, f32::NEG_INFINITY, 0.0, -0.0][n % 4]),
                5 => logits.iter_mut().step_by(n).for_each(|x| *x = f32::INFINITY),
                _ => {}
            }
            let handle = backend.upload_logits(&logits, n).unwrap();
            let history: Vec<u32> = (0..40).map(|_| source.below(n.min(20) + 2) as u32).collect();
            for _ in 0..8 {
                let all: Vec<(Sampling, u64)> = (0..rows).map(|_| some_sampling(&mut source, n)).collect();
                let ways: Vec<_> = all
                    .iter()
                    .map(|(sampling, counter)| SampleRow { sampling, history: &history, counter: *counter })
                    .collect();
                let got = backend.sample_from_tensor(&handle, &ways).unwrap();
                for (((row, way), got), i) in logits.chunks(n).zip(&ways).zip(got).zip(0..) {
                    let want = sample(&mut row.to_vec(), &history, way.counter, 0, way.sampling).unwrap();
                    assert_eq!(got, want, "{n} logits of kind {kind}, row {i}: {:?}", way.sampling);
                }
            }
        }
    }
}

/// The definition in f64, with rows of every length, tokens of all rows in any order, large logits, and none at all.
#[test]
fn probabilities_are_their_definition() {
    let Some(backend) = backend() else { return };
    let mut source = Source::new(4);
    for (n, scale) in [(1, 1.0), (2, 5.0), (255, 5.0), (257, 300.0), (5000, 5.0), (50_000, 1.0)] {
        let rows = 11;
        let mut logits: Vec<f32> = source.normals::<f32>(n * rows).iter().map(|x| x * scale).collect();
        // Two largest ones in a row.
        logits[n - 1] = logits[..n].iter().copied().fold(f32::MIN, f32::max);
        let handle = backend.upload_logits(&logits, n).unwrap();
        let chosen: Vec<_> = (0..40).map(|_| (source.below(rows), source.below(n) as u32)).collect();
        let got = backend.log_probabilities(&handle, &chosen).unwrap();
        assert_eq!(got.len(), chosen.len());
        for (&(row, token), got) in chosen.iter().zip(got) {
            let row: Vec<f64> = logits[row * n..][..n].iter().map(|&x| f64::from(x)).collect();
            let most = row.iter().copied().fold(f64::MIN, f64::max);
            let sum: f64 = row.iter().map(|x| (x - most).exp()).sum();
            let want = row[token as usize] - most - sum.ln();
            assert!(
                (f64::from(got) - want).abs() <= 1e-5 + 3e-7 * want.abs(),
                "{n}: {got} instead of {want}"
            );
        }
        assert!(backend.log_probabilities(&handle, &[]).unwrap().is_empty());
        for outside in [(rows, 0), (0, n as u32)] {
            let refused = backend.log_probabilities(&handle, &[(0, 0), outside]);
            assert!(matches!(refused, Err(BackendError::Tokens(_))), "{refused:?}");
        }
    }
}

/// Any parameters, and a number of random numbers.
fn some_sampling(source: &mut Source, n: usize) -> (Sampling, u64) {
    let token = source.below(n) as u32;
    let mut pick = |all: &[f32]| all[source.below(all.len())];
    let sampling = Sampling {
        repetition: pick(&[1.0, 1.3, 0.5, 1e30]),
        frequency: pick(&[0.0, 0.4, -0.7]),
        presence: pick(&[0.0, 1.1, -2.0]),
        temperature: pick(&[0.0, 1e-30, 0.1, 0.8, 1.0, 3.0, 1e30]),
        top_p: pick(&[1.0, 2.0, 0.95, 0.5, 1e-9]),
        min_p: pick(&[0.0, 0.05, 0.3, 1.0]),
        last_n: [0, 7, usize::MAX][source.below(3)],
        logit_bias: [vec![], vec![(token, 8.0)], vec![(token, f32::NEG_INFINITY), (0, 1.5), (token, 2.0)]]
            [source.below(3)]
        .clone(),
        top_k: [0, 1, 2, 40, n, n + 5, 300][source.below(7)],
        seed: source.below(1 << 50) as u64,
    };
    (sampling, source.below(1 << 40) as u64)
}
