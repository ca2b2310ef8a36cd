//! The command as a user meets it: what it prints, where, and with which exit code.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use gllm_kernels_core::{kernels, Op};
use serde_json::Value;

/// The command, run by the emulator that runs this test, if one does.
fn command() -> Command {
    let binary = env!("CARGO_BIN_EXE_gllm-bench");
    let runner = std::env::var("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER");
    let runner = runner.ok().filter(|_| cfg!(target_arch = "aarch64"));
    let mut words = runner.iter().flat_map(|r| r.split_whitespace()).chain([binary]);
    let mut command = Command::new(words.next().unwrap_or(binary));
    command.args(words);
    command
}

fn gllm_bench(args: &[&str]) -> Output {
    command().args(args).output().expect("the binary was built")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("output is UTF-8")
}

fn json(args: &[&str]) -> Value {
    let output = gllm_bench(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("output is JSON")
}

/// Fails with this code, one line on standard error, and nothing on standard output.
fn refused(args: &[&str], code: i32) -> String {
    let output = gllm_bench(args);
    assert_eq!(output.status.code(), Some(code), "{args:?}");
    assert_eq!(stdout(&output), "", "{args:?}");
    let text = String::from_utf8(output.stderr).expect("messages are UTF-8");
    assert_eq!(text.trim_end().lines().count(), 1, "{args:?}: {text}");
    text
}

/// A path in the build's folder for temporary files.
fn temporary(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()))
}

#[test]
fn mistakes_are_told_in_one_line() {
    let near = refused(&["run", "--op", "vec_dto", "--shape", "8"], 2);
    assert!(near.contains("vec_dto") && near.contains("vec_dot"), "{near}");
    for (args, word) in [
        (&["run", "--op", "vec_dot", "--shape", "4x4x4"][..], "4x4x4"),
        (&["run", "--op", "vec_dot", "--shape", "0"], "at least 1"),
        (&["run", "--op", "vec_dot", "--shape", "many"], "many"),
        (&["run", "--op", "vec_dot", "--shape", "99999999999999"], "GiB"),
        (&["run", "--shape", "1x2x3x4"], "1x2x3x4"),
        (&["run", "--op", "gemm", "--shape", "512"], "MxNxK"),
        (&["run", "--op", "qgemv", "--shape", "4x33"], "33"),
        (&["run", "--op", "vec_dot", "--element", "f64"], "f32"),
        (&["run", "--op", "vec_dot", "--isa", "avx1024"], "avx1024"),
        (&["run", "--op", "qgemv", "--format", "q9_9"], "q4_0"),
        (&["run", "--op", "vec_dot", "--format", "q8_0"], "quantised"),
        (&["run", "--op", "vec_dot", "--threads", "0"], "thread count"),
        (&["run", "--op", "vec_dot", "--min-time=-1"], "min-time"),
        (&["compare", "--peer", "nobody"], "mkl"),
        (&["compare", "--peer", "mkl", "--op", "gemn"], "gemm"),
        (&["compare", "--peer", "mkl", "--op", "gemv", "--element", "bf16"], "it has f32"),
        (&["compare", "--peer", "openblas", "--shape", "64x64x64,3x4"], "3x4"),
        (&["compare", "--peer", "openblas", "--threads", "1,none"], "none"),
        (&["verify", "--op", "nothing"], "nothing"),
    ] {
        let text = refused(args, 2);
        assert!(text.contains(word), "{args:?}: {text}");
    }
    assert_eq!(gllm_bench(&["--no-such-option"]).status.code(), Some(2));
    assert_eq!(gllm_bench(&["no-such-command"]).status.code(), Some(2));
}

#[test]
fn what_is_missing_is_told_in_one_line() {
    let foreign = if cfg!(target_arch = "aarch64") { "avx2" } else { "neon" };
    let text = refused(&["run", "--op", "vec_dot", "--isa", foreign], 1);
    assert!(text.contains(foreign), "{text}");
    let text = refused(&["inspect", "/no/such/file.gguf"], 1);
    assert!(text.contains("/no/such/file.gguf"), "{text}");
    let broken = temporary("broken.gguf");
    std::fs::write(&broken, b"GGUF\x03\0\0\0").unwrap();
    let text = refused(&["inspect", broken.to_str().unwrap()], 1);
    std::fs::remove_file(&broken).unwrap();
    assert!(text.contains("byte"), "{text}");
    refused(&["run", "--op", "vec_dot", "--shape", "64", "--html", "/no/such/folder/report.html"], 1);
    for (peer, install) in [("mkl", "pip install mkl"), ("openblas", "pip install scipy-openblas32")] {
        let text = refused(&["compare", "--peer", peer, "--library", "/no/such/library.so"], 1);
        assert!(text.contains("/no/such/library.so") && text.contains(install), "{text}");
    }
    if !cfg!(feature = "peers") {
        assert!(refused(&["compare", "--peer", "faer"], 1).contains("--features peers"));
    }
}

#[test]
fn help_is_complete() {
    let output = gllm_bench(&["--help"]);
    assert!(output.status.success());
    let text = stdout(&output);
    for word in [
        "info", "list", "run", "compare", "inspect", "verify", "--html", "GFLOP/s", "GB/s", "max_err",
        "Examples",
    ] {
        assert!(text.contains(word), "no {word} in --help");
    }
    let text = stdout(&gllm_bench(&["run", "--help"]));
    for word in
        ["--op", "--format", "--element", "--shape", "--threads", "--isa", "--min-time", "--json", "seconds"]
    {
        assert!(text.contains(word), "no {word} in run --help");
    }
}

#[test]
fn list_is_the_registry() {
    let rows = json(&["list", "--json"]);
    let names: Vec<&str> = rows.as_array().unwrap().iter().map(|r| r["kernel"].as_str().unwrap()).collect();
    assert_eq!(names, kernels().map(|k| k.name).collect::<Vec<_>>());
    let text = stdout(&gllm_bench(&["list"]));
    assert_eq!(text.lines().count(), names.len());
}

#[test]
fn info_describes_the_machine() {
    let machine = &json(&["info", "--json"])["machine"];
    assert!(!machine["cpu"].as_str().unwrap().is_empty());
    assert!(machine["cores"].as_u64().unwrap() >= 1);
    assert!(machine["levels"].as_array().unwrap().contains(&Value::from("scalar")));
    assert!(machine["caches"]["l1d"].as_u64().unwrap() > 0);
    assert!(stdout(&gllm_bench(&["info"])).contains("caches"));
}

#[test]
fn run_prints_every_field() {
    let rows = json(&["run", "--op", "vec_dot", "--shape", "5000", "--min-time", "0.002", "--json"]);
    let row = &rows.as_array().unwrap()[0];
    for field in ["kernel", "op", "element", "format", "isa", "bound"] {
        assert!(row[field].is_string(), "{field}");
    }
    for field in ["m", "n", "k", "threads", "ns", "gflops", "gbs", "limit", "efficiency", "max_err"] {
        assert!(row[field].is_number(), "{field}");
    }
    assert_eq!(
        (row["op"].as_str(), row["n"].as_u64(), row["threads"].as_u64()),
        (Some("vec_dot"), Some(5000), Some(1))
    );
    assert!(["compute", "memory"].contains(&row["bound"].as_str().unwrap()));
    assert!(kernels().any(|k| Some(k.name) == row["kernel"].as_str()));
    let ns = row["ns"].as_f64().unwrap();
    assert!(ns > 0.0);
    let gbs = 2.0 * 4.0 * 5000.0 / ns;
    assert!((row["gbs"].as_f64().unwrap() / gbs - 1.0).abs() < 1e-6);
}

/// Every operator, element and format runs, on portable code too.
#[test]
fn everything_runs() {
    let options = ["--element", "f32,f16,bf16,i8", "--min-time", "0.0005", "--threads", "2", "--json"];
    let mut seen: Vec<String> = Vec::new();
    for shape in ["1024", "8x64", "8x1x64", "8x16x32", "40x16x32"] {
        let rows = json(&[&["run", "--shape", shape], &options[..]].concat());
        seen.extend(rows.as_array().unwrap().iter().map(|r| r["kernel"].as_str().unwrap().to_owned()));
    }
    for &op in Op::ALL {
        assert!(
            seen.iter().any(|k| kernels().any(|row| row.name == k && row.op == op)),
            "{} did not run",
            op.name()
        );
    }
    json(&["run", "--op", "vec_add", "--isa", "scalar", "--shape", "100", "--min-time", "0.0005", "--json"]);
}

#[test]
fn inspect_knows_checkpoints() {
    let tensor = |name: &str, dtype: &str, shape: &str, from: usize, to: usize| {
        format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{from},{to}]}}"#)
    };
    let mut header = format!(
        "{{{},{},{},{},{}}}",
        tensor("a.qweight", "I32", "[8,8]", 0, 256),
        tensor("a.qzeros", "I32", "[1,1]", 256, 260),
        tensor("a.scales", "F16", "[1,8]", 260, 276),
        tensor("b.weight", "F8_E4M3", "[2,12]", 276, 300),
        tensor("ids", "I64", "[1]", 300, 308)
    );
    header += &" ".repeat(header.len().wrapping_neg() % 8);
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    // 0x3a3a is an f16 of ordinary size, 0x3a an E4M3 number.
    file.resize(file.len() + 308, 0x3a);
    let path = temporary("model").with_extension("safetensors");
    std::fs::write(&path, file).unwrap();
    let found = json(&["inspect", path.to_str().unwrap(), "--json", "--threads", "2"]);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(found["format"], "safetensors");
    let tensors = found["tensors"].as_array().unwrap();
    let facts = |i: usize| (tensors[i]["name"].as_str().unwrap(), tensors[i]["type"].as_str().unwrap());
    assert_eq!([facts(0), facts(1), facts(2)], [("a", "gptq-4"), ("b.weight", "f8_e4m3"), ("ids", "i64")]);
    for t in &tensors[..2] {
        assert!(t["supported"] == true && t["decode_err"] == 0.0, "{t}");
        assert!(t["gemv_err"].as_f64().unwrap() < 1e-6, "{t}");
    }
    assert!(tensors[2]["supported"] == false && tensors[2]["reason"].is_string());
    assert_eq!(tensors.len(), 3);
}

#[test]
fn html_stands_alone() {
    let path = temporary("report.html");
    let file = path.to_str().unwrap();
    let run = ["run", "--op", "vec_dot,relu", "--shape", "4096", "--min-time", "0.001", "--html", file];
    assert!(gllm_bench(&run).status.success());
    let page = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.contains("<svg") && page.contains("vec_dot"));
    for outside in ["http://", "https://", "src=", "@import", "url(", "<link"] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn verify_runs_chosen_kernels() {
    let rows = json(&["verify", "--op", "vec_max", "--isa", "scalar", "--json"]);
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 3);
    assert!(rows.iter().all(|r| r["ok"] == true && r["cases"].as_u64() > Some(0)));
}

#[test]
fn no_colours_in_a_pipe() {
    for args in [&["info"][..], &["run", "--op", "relu", "--shape", "64", "--min-time", "0.001"], &["--help"]]
    {
        assert!(!stdout(&gllm_bench(args)).contains('\x1b'), "{args:?}");
    }
}

/// A reader that goes away is no reason to fail, let alone to panic.
#[cfg(unix)]
#[test]
fn a_closed_pipe_is_no_error() {
    let mut child =
        command().args(["list", "--json"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
