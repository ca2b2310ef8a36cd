//! Timing: contenders take turns, so that whatever disturbs the machine disturbs all of them alike.

use std::time::{Duration, Instant};

/// Something that runs so many rounds of its work, and tells how many seconds they took.
pub type Contender<'a> = &'a mut dyn FnMut(u64) -> f64;

/// Samples of each contender that a median is taken of.
pub const SAMPLES: usize = 7;

/// Seconds that `work` takes.
pub fn seconds(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64().max(1e-9)
}

/// Rounds that fill `slice` (at least one), found by running; so it is also the warm-up.
fn calibrate(work: Contender<'_>, slice: f64) -> u64 {
    let mut rounds = 1;
    loop {
        let time = work(rounds);
        // Work that takes no time at all has to end too.
        if time >= slice || rounds >= 1 << 40 {
            return rounds;
        }
        if time >= slice / 8.0 {
            return (rounds as f64 * slice / time).ceil() as u64;
        }
        rounds *= 4;
    }
}

/// Seconds per round of every contender: `samples` each, taken in turn. Every contender runs for at
/// least `min_time` in total, warm-up not counted.
pub fn interleave(work: &mut [Contender<'_>], min_time: Duration, samples: usize) -> Vec<Vec<f64>> {
    interleave_after(&mut || (), work, min_time, samples)
}

/// [`interleave`], with something to be done before each turn.
pub fn interleave_after(
    prepare: &mut dyn FnMut(),
    work: &mut [Contender<'_>],
    min_time: Duration,
    samples: usize,
) -> Vec<Vec<f64>> {
    let slice = min_time.as_secs_f64() / samples as f64;
    let rounds: Vec<u64> = work.iter_mut().map(|w| calibrate(w, slice)).collect();
    let mut times = vec![Vec::with_capacity(samples); work.len()];
    for _ in 0..samples {
        for ((w, &n), out) in work.iter_mut().zip(&rounds).zip(&mut times) {
            prepare();
            // Short rounds live in a cache that the previous contender has just used.
            if n > 1 {
                w(1);
            }
            out.push(w(n) / n as f64);
        }
    }
    times
}

/// The median; 0 of nothing.
pub fn median(values: &[f64]) -> f64 {
    let mut v = values.to_vec();
    v.sort_by(f64::total_cmp);
    match v.len() {
        0 => 0.0,
        n if n % 2 == 1 => v[n / 2],
        n => (v[n / 2 - 1] + v[n / 2]) / 2.0,
    }
}

/// The median of `a[i] / b[i]`: pairs were taken one after the other.
pub fn median_ratio(a: &[f64], b: &[f64]) -> f64 {
    median(&a.iter().zip(b).map(|(a, b)| a / b).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0]), 2.5);
        assert_eq!(median_ratio(&[2.0, 9.0, 4.0], &[1.0, 3.0, 2.0]), 2.0);
    }

    #[test]
    fn all_contenders_run_long_enough() {
        let (mut a, mut b) = (0, 0);
        let mut short = |n: u64| seconds(|| (0..n).for_each(|_| a += std::hint::black_box(1)));
        let mut long = |n: u64| {
            b += n;
            seconds(|| std::thread::sleep(Duration::from_micros(200 * n)))
        };
        let times = interleave(&mut [&mut short, &mut long], Duration::from_millis(5), 5);
        assert_eq!((times[0].len(), times[1].len()), (5, 5));
        assert!(median(&times[1]) >= 200e-6);
        assert!(a > 1000 && b >= 6, "{a} {b}");
    }
}
