use super::*;

use plain::{Plain, WRONG};

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn request<'a>(ops: &'a [String], shapes: &'a [String]) -> Request<'a> {
    Request {
        ops,
        elements: &[ElementType::F32],
        formats: &[],
        function: None,
        shapes,
        threads: &[],
        caps: gllm_kernels_std::caps(),
        min_time: Duration::from_millis(2),
        library: None,
    }
}

fn refusal<T>(outcome: Outcome<T>) -> String {
    match outcome {
        Ok(_) => panic!("not refused"),
        Err(e) => e.to_string(),
    }
}

/// Every pair of a plan, measured.
fn measured(mut plan: Plan) -> Vec<(Pair, Measured)> {
    let pairs = plan.opened.pairs.into_iter().enumerate();
    pairs.map(|(i, pair)| (pair, (plan.measure)(i).unwrap())).collect()
}

/// Every pair that the requested operators make with this peer.
fn all_agree<P: Peer>(threads: &[usize]) {
    let mut ops: Vec<&str> = P::ROWS.iter().map(|r| r.op).collect();
    ops.dedup();
    for op in ops {
        let (shape, size) = if op == "gemv" { ("37x41", 37) } else { ("37x23x41", 37 * 23) };
        let (ops, shapes) = (words(op), words(shape));
        let plan = plan::<P>(Request { threads, ..request(&ops, &shapes) }).unwrap();
        assert!(!plan.opened.version.is_empty());
        for (pair, timed) in measured(plan) {
            assert_eq!((&*pair.op, pair.m * pair.n, pair.k), (op, size, 41));
            assert!(timed.ours > 0.0 && timed.peer > 0.0 && timed.ratio > 0.0, "{pair:?} {timed:?}");
            assert!(timed.max_diff < 1e-6 && timed.kernel.contains("gem"), "{pair:?} {timed:?}");
            let flops = 2.0 * (size * 41) as f64;
            assert!((timed.ours_gflops * timed.ours / flops - 1.0).abs() < 1e-9, "{timed:?}");
            assert!((timed.peer_gflops * timed.peer / flops - 1.0).abs() < 1e-9, "{timed:?}");
        }
    }
}

#[test]
fn a_right_peer_is_timed() {
    all_agree::<Plain>(&[1, 2]);
}

#[test]
fn a_wrong_result_is_not_timed() {
    for op in ["gemm", "gemm_bt"] {
        let (ops, shapes) = (words(op), vec![format!("5x7x{WRONG}"), format!("5x7x{}", WRONG + 1)]);
        let mut plan = plan::<Plain>(request(&ops, &shapes)).unwrap();
        let text = refusal((plan.measure)(0));
        assert!(text.contains("wrong result: naive of plain: output 34 is"), "{text}");
        // The next one is.
        (plan.measure)(1).unwrap();
    }
}

#[cfg(feature = "peers")]
#[test]
fn rust_crates_agree() {
    all_agree::<rust::Faer>(&[1]);
    all_agree::<rust::Gemm>(&[1]);
    all_agree::<rust::MatrixMultiply>(&[1]);
}

/// Every format that ggml multiplies, from either buffer, with each of our operators.
#[cfg(feature = "peer-ggml")]
#[test]
fn ggml_agrees() {
    use gllm_kernels_core::QuantFormat;
    let (ops, shapes) = ([], words("64x512"));
    let threads = &[1, 2];
    let min_time = Duration::from_micros(1);
    let plan = plan::<ggml::Ggml>(Request { threads, min_time, ..request(&ops, &shapes) }).unwrap();
    let version = &plan.opened.version;
    assert!(version.contains("0.") && version.contains("CPU_REPACK"), "{version}");
    let pairs = measured(plan);
    for (pair, timed) in &pairs {
        assert!(
            timed.ours > 0.0 && timed.ratio > 0.0 && timed.kernel.contains("qgemv"),
            "{pair:?} {timed:?}"
        );
        assert!(timed.max_diff > 0.0 && timed.max_diff < 0.01, "{pair:?} {timed:?}");
    }
    for op in <ggml::Ggml as Peer>::OPS {
        let of = |format: &str, buffer: &str| {
            let found =
                |(p, _): &&(Pair, Measured)| p.op == *op && p.format == format && p.function.contains(buffer);
            pairs.iter().filter(found).count()
        };
        for format in QuantFormat::ALL.iter().map(|f| f.name()) {
            // Types of activations.
            let weights = !matches!(format, "q8_1" | "q8_k");
            assert_eq!(of(format, "default"), if weights { threads.len() } else { 0 }, "{format}");
        }
        assert_eq!(of("q4_0", "packed"), threads.len());
        assert_eq!(of("q8_0", "packed"), if cfg!(target_arch = "x86_64") { 0 } else { threads.len() });
    }
}

#[cfg(feature = "peer-ggml")]
#[test]
fn a_part_of_ggml_can_be_chosen() {
    let (ops, shapes) = (words("qgemv"), words("8x256 16x512"));
    let formats = [gllm_kernels_core::QuantFormat::Q4_0, gllm_kernels_core::QuantFormat::Tq2_0];
    let request = Request { formats: &formats, function: Some("packed"), ..request(&ops, &shapes) };
    let jobs = jobs::<ggml::Ggml>(request).unwrap().jobs;
    assert_eq!(jobs.len(), 2);
    assert!(jobs
        .iter()
        .all(|(row, case)| row.function.contains("packed") && case.format == Some(formats[0])));
    let none = Request { formats: &formats[1..], ..request };
    assert!(refusal(super::jobs::<ggml::Ggml>(none)).contains("ggml"));
}

#[test]
fn requests_have_defaults() {
    let jobs = jobs::<Plain>(request(&[], &[])).unwrap().jobs;
    assert_eq!(jobs.len(), PRODUCTS.len());
    assert!(jobs.iter().all(|(row, _)| row.op == "gemm"));
    let ops = words("gemm_bt gemv");
    assert_eq!(super::jobs::<Plain>(request(&ops, &[])).unwrap().jobs.len(), PRODUCTS.len() + MATRICES.len());
    assert_eq!(Plain::threads(&[]).unwrap(), one_and_all());
    assert_eq!(Plain::threads(&[3]).unwrap(), [3]);
}

#[test]
fn what_is_unknown_is_told() {
    let none = [];
    assert!(refusal(compare("nobody", request(&none, &none))).contains("openblas"));
    let text = refusal(jobs::<Plain>(request(&words("gemn"), &none)));
    assert!(text.contains("gemm") && text.contains("plain"), "{text}");
    let request = Request { elements: &[ElementType::F16], ..request(&none, &none) };
    assert!(refusal(jobs::<Plain>(request)).contains("f32"));
    assert!(refusal(jobs::<Plain>(self::request(&none, &words("3x4")))).contains("MxNxK"));
    let request = Request { formats: &[gllm_kernels_core::QuantFormat::Q4_0], ..self::request(&none, &none) };
    assert!(refusal(jobs::<Plain>(request)).contains("no quantised weights"));
    let request = Request { function: Some("nothing"), ..self::request(&none, &none) };
    assert!(refusal(jobs::<Plain>(request)).contains("plain has no function"));
}

/// What an option applies to is compared, the rest is left out and named.
#[test]
fn options_choose_among_the_operators() {
    let (ops, shapes) = (words("gemm gemv"), words("8x9x10 3x4"));
    let jobs = jobs::<Plain>(request(&ops, &shapes)).unwrap();
    let made: Vec<_> = jobs.jobs.iter().map(|(row, case)| (row.op, case.shape.m, case.shape.n)).collect();
    assert_eq!(made, [("gemm", 8, 9), ("gemv", 1, 3)]);
    let left_out: Vec<String> = jobs.left_out.iter().map(Failure::to_string).collect();
    assert_eq!(left_out.len(), 2);
    assert!(
        left_out[0].contains("`3x4` for gemm") && left_out[1].contains("`8x9x10` for gemv"),
        "{left_out:?}"
    );
}

fn every_row_has_an_operator_of<P: Peer>() {
    for row in P::ROWS {
        assert!(Entry::find(row.op).is_ok_and(|e| !e.in_place()), "{}", row.op);
    }
}

#[test]
fn every_row_has_an_operator() {
    every_row_has_an_operator_of::<mkl::Mkl>();
    every_row_has_an_operator_of::<openblas::OpenBlas>();
    #[cfg(feature = "peer-ggml")]
    every_row_has_an_operator_of::<ggml::Ggml>();
}
