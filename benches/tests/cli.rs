//! The command as a user meets it: what it prints, where, and with which exit code.

mod command;
#[path = "cli/quantize.rs"]
mod quantize;

use std::path::PathBuf;
use std::process::{Output, Stdio};

use command::{command, gllm_bench, json};
use gllm_kernels_core::{kernels, Features, IsaLevel, Op};
use serde_json::Value;

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("output is UTF-8")
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
        (&["run", "--op", "qgemv", "--format", "q8_0", "--shape", "4x33"], "33"),
        (&["run", "--op", "vec_dot", "--element", "f64"], "f32"),
        (&["run", "--op", "vec_dot", "--isa", "avx1024"], "avx1024"),
        (&["run", "--op", "qgemv", "--format", "q9_9"], "q2_0"),
        (&["run", "--op", "vec_dot", "--format", "q8_0"], "quantised"),
        (&["run", "--op", "vec_dot", "--threads", "0"], "thread count"),
        (&["run", "--op", "vec_dot", "--min-time=-1"], "min-time"),
        (&["compare", "--peer", "nobody"], "mkl"),
        (&["compare", "--peer", "mkl", "--op", "gemn"], "gemm"),
        (&["compare", "--peer", "mkl", "--op", "gemv", "--element", "bf16"], "it has f32"),
        (&["compare", "--peer", "openblas", "--shape", "64x64x64,3x4"], "3x4"),
        (&["compare", "--peer", "openblas", "--threads", "1,none"], "none"),
        (&["compare", "--peer", "openblas", "--format", "q4_0"], "quantised"),
        (&["compare", "--peer", "openblas", "--op", "gemv", "--shape", "4096x1x64"], "NxK"),
        (&["run", "--op", "qgemv", "--shape", "4096x1x64"], "NxK"),
        (&["run", "--op", "vec_dot,qgemv", "--shape", "1x2x3x4"], "1x2x3x4"),
        (&["run", "--op", "vec_dot,exp", "--element", "i8"], "does not take i8"),
        (&["run", "--op", "vec_dot,exp", "--format", "q8_0"], "no quantised weights"),
        (&["run", "--op", "vec_dot", "--without", "avx512_vni"], "avx512_vnni"),
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
    if !cfg!(feature = "peer-ggml") {
        assert!(refused(&["compare", "--peer", "ggml"], 1).contains("--features peer-ggml"));
    }
}

#[test]
fn help_is_complete() {
    let output = gllm_bench(&["--help"]);
    assert!(output.status.success());
    let text = stdout(&output);
    for word in [
        "info", "list", "run", "compare", "inspect", "quantize", "verify", "--html", "GFLOP/s", "GB/s",
        "max_err", "Examples",
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
    assert_eq!(text.lines().count(), names.len() + 1);
    // What a kernel needs beside its level counts, too.
    let there = gllm_kernels_std::caps().features();
    for (row, kernel) in rows.as_array().unwrap().iter().zip(kernels()) {
        assert_eq!(row["available"], there.contains(kernel.requires), "{row}");
        assert_eq!(row["missing"].as_array().unwrap().is_empty(), there.contains(kernel.requires), "{row}");
    }
}

#[test]
fn info_describes_the_machine() {
    let all = json(&["info", "--json"]);
    let machine = &all["machine"];
    assert!(!machine["cpu"].as_str().unwrap().is_empty());
    assert!(machine["cores"].as_u64().unwrap() >= 1);
    assert!(machine["levels"].as_array().unwrap().contains(&Value::from("scalar")));
    assert!(machine["caches"]["l1d"].as_u64().unwrap() > 0);
    // Every backend is named until one is chosen, each with a reason.
    let backends = all["backends"].as_array().unwrap();
    let (chosen, passed_over) = backends.split_last().unwrap();
    assert_eq!(chosen["chosen"], true);
    assert!(passed_over.iter().all(|b| b["chosen"] == false));
    let text = stdout(&gllm_bench(&["info"]));
    for backend in backends {
        assert!(text.contains(backend["name"].as_str().unwrap()));
        assert!(text.contains(backend["about"].as_str().unwrap()));
    }
    assert!(text.contains("caches"));
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
    for shape in ["1024", "8x64", "1x8x64", "8x16x32", "40x16x32"] {
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
    // What was measured, when, and with what.
    let command = run.join(" ");
    for words in
        [&*format!("gllm-bench {command}"), &*format!("version {}", env!("CARGO_PKG_VERSION")), " UTC"]
    {
        assert!(page.contains(words), "{words}");
    }
    for outside in ["http://", "https://", "src=", "@import", "url(", "<link"] {
        assert!(!page.contains(outside), "{outside}");
    }
}

/// What the machine cannot run is listed, and no failure.
#[test]
fn verify_lists_what_it_cannot_run() {
    let there = gllm_kernels_std::caps().features();
    let rows = json(&["verify", "--op", "vec_max,pack_b", "--json"]);
    let mut rows = rows.as_array().unwrap().iter();
    for kernel in kernels().filter(|k| [Op::VecMax, Op::PackB].contains(&k.op)) {
        let row = rows.next().unwrap();
        assert_eq!(row["kernel"], kernel.name);
        let runs = there.contains(kernel.requires);
        assert_eq!((row["ok"] == true, row["missing"].is_null()), (runs, runs), "{row}");
    }
    assert!(rows.next().is_none());

    // Every feature is missing: portable code alone is left.
    let every: Vec<&str> = Features::ALL.iter().map(|&(_, name)| name).collect();
    let output = gllm_bench(&["verify", "--op", "vec_max", "--without", &every.join(",")]);
    let text = stdout(&output);
    assert!(output.status.success(), "{text}");
    let (ran, listed): (Vec<&str>, Vec<&str>) =
        text.lines().filter(|l| l.contains("vec_max")).partition(|l| l.starts_with("ok"));
    assert!(ran.len() == 3 && ran.iter().all(|l| l.contains("__scalar")), "{text}");
    assert!(listed.iter().all(|l| l.contains("not run: this machine has no ")), "{text}");
    assert_eq!(listed.len() + 3, kernels().filter(|k| k.op == Op::VecMax).count());
    if listed.is_empty() {
        return;
    }
    assert!(text.lines().last().unwrap().contains(&format!("{} not run", listed.len())), "{text}");
    let level = IsaLevel::ALL[0].name();
    let nothing = ["verify", "--op", "vec_max", "--isa", level, "--without", &every.join(",")];
    let output = gllm_bench(&nothing);
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
}

/// Features are taken away from what is described, run and compared.
#[test]
fn features_can_be_taken_away() {
    let features = |without: &[&str]| -> Vec<String> {
        let machine = json(&[&["info", "--json"], without].concat())["machine"].clone();
        let names = machine["features"].as_array().unwrap();
        names.iter().map(|name| name.as_str().unwrap().to_owned()).collect()
    };
    let all = features(&[]);
    let shape = ["--op", "gemm", "--shape", "64x64x64", "--min-time", "0.001", "--threads", "1", "--json"];
    for feature in &all {
        let without = ["--without", feature.as_str()];
        assert!(!features(&without).contains(feature), "{feature}");
        let run = json(&[&["run", "--element", "f32,bf16,i8"], &shape[..], &without].concat());
        for row in run.as_array().unwrap() {
            let kernel = kernels().find(|k| k.name == row["kernel"].as_str().unwrap()).unwrap();
            let lost = Features::ALL.iter().find(|(_, name)| name == feature).unwrap().0;
            assert!(!kernel.requires.contains(lost), "{row}");
        }
        if cfg!(debug_assertions) {
            let pairs = json(&[&["compare", "--peer", "plain"], &shape[..], &without].concat());
            let kernel = kernels().find(|k| k.name == pairs[0]["kernel"].as_str().unwrap()).unwrap();
            let lost = Features::ALL.iter().find(|(_, name)| name == feature).unwrap().0;
            assert!(!kernel.requires.contains(lost), "{pairs}");
        }
    }
}

/// A library that crashes costs the pair at which it does, and no other.
#[cfg(debug_assertions)]
#[test]
fn a_crash_of_the_other_library_is_told() {
    // At K = 13 this peer ends its process, at K = 17 its result is wrong.
    let shapes =
        ["compare", "--peer", "plain", "--shape", "8x8x8,8x8x13,8x8x17,8x8x13,8x8x16", "--threads", "1"];
    let options = ["--min-time", "0.001"];
    let output = gllm_bench(&[&shapes[..], &options, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("3 of 5 pairs could not be compared"), "{told}");
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.iter().map(|r| r["k"].as_u64().unwrap()).collect::<Vec<_>>(), [8, 13, 17, 13, 16]);
    for (row, error) in
        rows.iter().zip([None, Some("crashed: "), Some("wrong result"), Some("crashed: "), None])
    {
        assert_eq!(row["ratio"].is_number(), error.is_none(), "{row}");
        match error {
            None => assert!(row["ours_gflops"].as_f64() > Some(0.0) && row["error"].is_null(), "{row}"),
            Some(text) => assert!(row["error"].as_str().unwrap().contains(text), "{row}"),
        }
    }
    let text = stdout(&gllm_bench(&[&shapes[..], &options].concat()));
    assert!(text.contains("GFLOP/s") && !text.contains("GB/s"), "{text}");
    let ends = if cfg!(unix) { "signal 6 SIGABRT" } else { "crashed" };
    let crash = "8x8x13, 1 thread: naive of plain crashed";
    assert_eq!(text.lines().filter(|l| l.contains(crash) && l.contains(ends)).count(), 2, "{text}");
    // What is in memory is told in bytes.
    let both =
        ["compare", "--peer", "plain", "--op", "gemm,gemv", "--shape", "8x8x8,64x64", "--threads", "1"];
    let text = stdout(&gllm_bench(&[&both[..], &options].concat()));
    let line = |start: &str| text.lines().find(|l| l.starts_with(start)).unwrap_or_else(|| panic!("{text}"));
    assert!(
        line("gemm ").matches("GFLOP/s").count() == 2 && line("gemv ").matches("GB/s").count() == 2,
        "{text}"
    );
}

/// An option chooses among the operators that are named: what it does not apply to runs as it is or is left out.
#[test]
fn a_part_that_applies_runs() {
    let run = |options: &[&str]| {
        let output = gllm_bench(&[&["run", "--min-time", "0.001", "--json"], options].concat());
        assert!(output.status.success(), "{options:?}");
        let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
        let ran =
            rows.as_array().unwrap().iter().map(|r| format!("{} {} {}", r["op"], r["format"], r["shape"]));
        (ran.collect::<Vec<_>>().join("; ").replace('"', ""), String::from_utf8(output.stderr).unwrap())
    };
    let (ran, told) = run(&["--op", "vec_dot,qgemv_packed", "--format", "q4_k", "--shape", "256"]);
    assert_eq!(ran, "vec_dot f32 256");
    assert!(told.contains("left out") && told.contains("qgemv_packed"), "{told}");
    let (ran, told) = run(&["--op", "gemm,qgemm,qgemv", "--format", "q4_k,q8_0", "--shape", "2x16x256"]);
    assert_eq!(ran, "gemm f32 2x16x256; qgemm q8_0 2x16x256; qgemm q4_k 2x16x256");
    assert_eq!(told.lines().count(), 1, "{told}");
    let (ran, told) = run(&["--op", "gemm,gemm_fused", "--element", "i8,bf16", "--shape", "8x8x8"]);
    assert_eq!(ran, "gemm i8 8x8x8; gemm bf16 8x8x8; gemm_fused bf16 8x8x8");
    assert!(told.contains("gemm_fused does not take i8"), "{told}");
}

/// The limit of a product is the best peak of what it multiplies.
#[test]
fn products_have_limits_of_their_own() {
    let report = json(&["info", "--limits", "--json"]);
    let limits = report["limits"].as_array().unwrap();
    let products: Vec<&Value> = limits.iter().filter(|l| l["kind"] == "product").collect();
    let names: Vec<&str> = products.iter().map(|l| l["name"].as_str().unwrap()).collect();
    for of in ["f32", "f16", "bf16", "int8"] {
        assert!(names.contains(&format!("products of {of}").as_str()), "{names:?}");
    }
    let shape = ["--op", "gemm", "--shape", "512x512x512", "--min-time", "0.01", "--json"];
    let features = gllm_kernels_std::caps().features();
    for (element, feature, instructions) in [
        ("bf16", Features::AVX512_BF16, ["vdpbf16ps zmm", "tdpbf16ps"]),
        ("i8", Features::AVX512_VNNI, ["vpdpbusd zmm", "tdpbssd"]),
        ("f32", Features::AVX512, ["vfmadd231ps zmm", "vfmadd231ps ymm"]),
    ] {
        if features.contains(feature) {
            // On a busy machine it may take several attempts.
            let found = (0..5).any(|_| {
                let rows = json(&[&["run", "--element", element], &shape[..]].concat());
                instructions.contains(&rows[0]["limit_by"].as_str().unwrap())
            });
            assert!(found, "{element}");
        }
    }
}

/// Lines fit a terminal, whatever there is to say; a pipe gets all of them in full.
#[test]
fn tables_fit_the_terminal() {
    let lines = |width: &str, args: &[&str]| {
        let output = command().args(args).env("COLUMNS", width).output().unwrap();
        let text = stdout(&output);
        let longest = text.lines().map(|l| l.chars().count()).max().unwrap();
        (longest, text)
    };
    let run = ["run", "--op", "vec_dot,quantize_activations", "--shape", "4096", "--min-time", "0.001"];
    let (full, text) = lines("", &run);
    assert!(full > 80 && text.contains("max_err") && !text.contains("no room"), "{text}");
    for width in [40, 60, 80] {
        let (longest, text) = lines(&width.to_string(), &run);
        assert!(longest <= width, "{width}: {text}");
        assert!(text.contains("no room for: ") && text.contains("operator") && text.contains('%'), "{text}");
    }
    for args in [
        &["--help"][..],
        &["run", "--help"],
        &["compare", "--help"],
        &["inspect", "--help"],
        &["quantize", "--help"],
        &["verify", "--help"],
    ] {
        let (longest, text) = lines("80", args);
        assert!(longest <= 80, "{args:?}: {text}");
        // Indented lines go on indented: what had not fitted into the line before it.
        let goes_on = |l: &str, next: &str| {
            next.split_whitespace().next().is_some_and(|word| l.len() + 1 + word.len() > 80)
        };
        let inside = |l: &str| l.starts_with("  gllm-bench ") || l.starts_with("  cargo ");
        for (line, next) in text.lines().zip(text.lines().skip(1)) {
            let indented = next.starts_with("   ");
            let new = inside(next) || !goes_on(line, next);
            assert!(!inside(line) || new || indented, "{args:?}: {line} / {next}");
        }
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
