//! An activation on every f32 there is, against f64: `exhaustive OP ISA [FIRST LAST]`, with the first and
//! the last bit pattern in hexadecimal. Prints the largest error in ulp and where it is; exits with 1 if
//! the documented bound is exceeded.
//!
//! `cargo run --release -p gllm-testkit --example exhaustive -- gelu avx2`

use std::process::ExitCode;

use gllm_kernels_core::{IsaLevel, Kernels, Op};
use gllm_testkit::elementwise::{activation, Activation};
use gllm_testkit::numeric::ulp_error;

/// Inputs per call.
const CHUNK: u64 = 1 << 14;

#[derive(Clone, Copy)]
struct Worst {
    error: f64,
    x: f32,
    y: f32,
}

/// The share of thread `first` of `threads` in `from ..= to`.
fn share(
    k: &Kernels<f32>,
    a: &Activation<f32>,
    (from, to): (u64, u64),
    first: u64,
    threads: u64,
) -> Result<Worst, String> {
    let mut worst = Worst { error: 0.0, x: 0.0, y: 0.0 };
    let mut start = from + first * CHUNK;
    while start <= to {
        let end = to.min(start + CHUNK - 1);
        let x: Vec<f32> = (start..=end).map(|bits| f32::from_bits(bits as u32)).collect();
        let mut y = vec![0.0; x.len()];
        (a.run)(k, &x, &mut y).map_err(|e| e.to_string())?;
        for (&x, &y) in x.iter().zip(&y) {
            let exact = (a.exact)(f64::from(x));
            // Zeros carry the sign of the limit.
            let zero = exact as f32 == 0.0 && y == 0.0;
            let sign = zero && y.is_sign_negative() != exact.is_sign_negative();
            let error = if sign { f64::INFINITY } else { ulp_error(y, exact) };
            if error > worst.error {
                worst = Worst { error, x, y };
            }
        }
        start += threads * CHUNK;
    }
    Ok(worst)
}

fn run(args: &[String]) -> Result<bool, String> {
    let [op, level, range @ ..] = args else {
        return Err("usage: exhaustive OP ISA [FIRST LAST]".into());
    };
    let a = Op::from_name(op).and_then(activation::<f32>).ok_or("exp, tanh, silu, gelu or gelu_tanh")?;
    let level =
        IsaLevel::ALL.into_iter().find(|l| l.to_string() == *level).ok_or("unknown instruction set")?;
    let k = Kernels::<f32>::forced(level).map_err(|e| e.to_string())?;
    let hex = |s: &String| u32::from_str_radix(s, 16).map(u64::from).map_err(|e| format!("{s}: {e}"));
    let range = match range {
        [] => (0, u64::from(u32::MAX)),
        [first, last] => (hex(first)?, hex(last)?),
        _ => return Err("FIRST and LAST, or neither".into()),
    };
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let (k, a) = (&k, &a);
    let found: Vec<Result<Worst, String>> = std::thread::scope(|s| {
        let running: Vec<_> = (0..threads).map(|t| s.spawn(move || share(k, a, range, t, threads))).collect();
        running.into_iter().map(|t| t.join().unwrap_or_else(|_| Err("a thread panicked".into()))).collect()
    });
    let mut worst = Worst { error: 0.0, x: 0.0, y: 0.0 };
    for w in found {
        let w = w?;
        if w.error > worst.error {
            worst = w;
        }
    }
    let Worst { error, x, y } = worst;
    let bits = x.to_bits();
    println!("{op} {level}: at most {error:.4} ulp, at {x:e} ({bits:08x}) = {y:e}; allowed {}", a.ulps);
    Ok(error <= a.ulps)
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}
