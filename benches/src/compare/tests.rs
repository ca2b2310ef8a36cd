use super::*;

/// A product as anybody would write it, off by `WRONG` thousandths in its last element.
struct Naive<const WRONG: i32>;

fn naive<const WRONG: i32>(
    _: &'static Naive<WRONG>,
    row: &Row<Naive<WRONG>>,
    case: &Case,
) -> Outcome<Routine> {
    let p = Product::new(row, case.shape);
    Ok(Box::new(move |inputs, output| {
        let (a, b) = (numbers::<f32>(inputs[0]), numbers::<f32>(inputs[1]));
        let (step, next) = if p.transposed { (1, p.k) } else { (p.n, 1) };
        let product = (0..p.m * p.n).map(|at| {
            let (i, j) = (at / p.n, at % p.n);
            let wrong = if at + 1 == p.m * p.n { WRONG as f32 / 1000.0 } else { 0.0 };
            wrong + (0..p.k).map(|x| a[i * p.k + x] * b[x * step + j * next]).sum::<f32>()
        });
        for (to, c) in output.chunks_exact_mut(4).zip(product) {
            to.copy_from_slice(&c.to_ne_bytes());
        }
    }))
}

impl<const WRONG: i32> Peer for Naive<WRONG> {
    const NAME: &'static str = "plain";
    const ROWS: &'static [Row<Self>] = &[row("gemm"), row("gemm_bt"), row("gemm_prepacked"), row("gemv")];
    fn open(_: Option<&Path>) -> Outcome<&'static Self> {
        Ok(&Self)
    }
    fn version(&self) -> String {
        "0".to_owned()
    }
    fn set_threads(&self, _: usize) -> Outcome {
        Ok(())
    }
}

const fn row<const WRONG: i32>(op: &'static str) -> Row<Naive<WRONG>> {
    Row { op, element: ElementType::F32, function: "naive", make: naive, check: Check::Product }
}

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

/// Every pair that the requested operators make with this peer.
fn all_agree<P: Peer>(threads: &[usize]) {
    let mut ops: Vec<&str> = P::ROWS.iter().map(|r| r.op).collect();
    ops.dedup();
    for op in ops {
        let shape = if op == "gemv" { "37x1x41" } else { "37x23x41" };
        let (ops, shapes) = (words(op), words(shape));
        let plan = plan::<P>(Request { threads, ..request(&ops, &shapes) }).unwrap();
        assert!(!plan.version.is_empty());
        let pairs: Vec<Comparison> = plan.pairs.collect::<Outcome<_>>().unwrap();
        assert_eq!(pairs.len(), plan.len);
        for pair in pairs {
            assert_eq!((pair.op, pair.m, pair.k), (op, 37, 41));
            assert!(pair.ours > 0.0 && pair.peer > 0.0 && pair.ratio > 0.0, "{pair:?}");
            assert!(pair.max_diff < 1e-6 && pair.kernel.contains("gem"), "{pair:?}");
        }
    }
}

#[test]
fn a_right_peer_is_timed() {
    all_agree::<Naive<0>>(&[1, 2]);
}

#[test]
fn a_wrong_result_is_not_timed() {
    for op in ["gemm", "gemm_bt"] {
        let (ops, shapes) = (words(op), words("5x7x11"));
        let mut plan = plan::<Naive<1>>(request(&ops, &shapes)).unwrap();
        let text = refusal(plan.pairs.next().unwrap());
        assert!(text.contains(op) && text.contains("wrong result: naive of plain: output 34 is"), "{text}");
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
    assert!(plan.version.contains("0.") && plan.version.contains("CPU_REPACK"), "{}", plan.version);
    let pairs: Vec<Comparison> = plan.pairs.collect::<Outcome<_>>().unwrap();
    assert_eq!(pairs.len(), plan.len);
    for pair in &pairs {
        assert!(pair.ours > 0.0 && pair.ratio > 0.0 && pair.kernel.contains("qgemv"), "{pair:?}");
        assert!(pair.max_diff > 0.0 && pair.max_diff < 0.01, "{pair:?}");
    }
    for op in <ggml::Ggml as Peer>::OPS {
        let of = |format: &str, buffer: &str| {
            let found = |p: &&Comparison| p.op == *op && p.format == format && p.function.contains(buffer);
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
    let jobs = jobs::<ggml::Ggml>(request).unwrap();
    assert_eq!(jobs.len(), 2);
    assert!(jobs
        .iter()
        .all(|(row, case)| row.function.contains("packed") && case.format == Some(formats[0])));
    let none = Request { formats: &formats[1..], ..request };
    assert!(refusal(super::jobs::<ggml::Ggml>(none)).contains("ggml"));
}

#[test]
fn requests_have_defaults() {
    let jobs = jobs::<Naive<0>>(request(&[], &[])).unwrap();
    assert_eq!(jobs.len(), PRODUCTS.len());
    assert!(jobs.iter().all(|(row, _)| row.op == "gemm"));
    let ops = words("gemm_bt gemv");
    assert_eq!(super::jobs::<Naive<0>>(request(&ops, &[])).unwrap().len(), PRODUCTS.len() + MATRICES.len());
    assert_eq!(Naive::<0>::threads(&[]).unwrap(), one_and_all());
    assert_eq!(Naive::<0>::threads(&[3]).unwrap(), [3]);
}

#[test]
fn what_is_unknown_is_told() {
    let none = [];
    assert!(refusal(compare("nobody", request(&none, &none))).contains("openblas"));
    let text = refusal(jobs::<Naive<0>>(request(&words("gemn"), &none)));
    assert!(text.contains("gemm") && text.contains("plain"), "{text}");
    let request = Request { elements: &[ElementType::F16], ..request(&none, &none) };
    assert!(refusal(jobs::<Naive<0>>(request)).contains("f32"));
    assert!(refusal(jobs::<Naive<0>>(self::request(&none, &words("3x4")))).contains("MxNxK"));
    let request = Request { formats: &[gllm_kernels_core::QuantFormat::Q4_0], ..self::request(&none, &none) };
    assert!(refusal(jobs::<Naive<0>>(request)).contains("no quantised weights"));
    let request = Request { function: Some("nothing"), ..self::request(&none, &none) };
    assert!(refusal(jobs::<Naive<0>>(request)).contains("plain has no function"));
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
