//! The codebooks of the CUDA kernels are those of the core.

use std::fmt::Write;

use gllm_kernels_std::core::codebooks::{
    FP4_VALUES, IQ1_GRID, IQ2_S_GRID, IQ2_XS_GRID, IQ2_XXS_GRID, IQ3_S_GRID, IQ3_XXS_GRID, IQ4_VALUES,
};

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/cuda/kernels/codebooks.cuh");

fn table(out: &mut String, ty: &str, name: &str, entries: impl ExactSizeIterator<Item = String>) {
    writeln!(out, "TABLE {ty} {name}[{}] = {{", entries.len()).unwrap();
    let entries: Vec<String> = entries.collect();
    for line in entries.chunks(if ty == "u64" { 8 } else { 12 }) {
        writeln!(out, "    {},", line.join(", ")).unwrap();
    }
    out.push_str("};\n");
}

/// What `codebooks.cuh` has to be.
fn header() -> String {
    let mut out = "// What the codes of the codebook formats stand for: written from the core's tables by the test cuda_codebooks.\n\
                   #pragma once\n\n#include \"simt.cuh\"\n\n"
        .to_string();
    for (name, values) in [("IQ4_VALUES", IQ4_VALUES), ("FP4_VALUES", FP4_VALUES)] {
        let words: Vec<String> = values
            .chunks_exact(4)
            .map(|c| {
                format!("{:#010x}", u32::from_le_bytes([c[0] as u8, c[1] as u8, c[2] as u8, c[3] as u8]))
            })
            .collect();
        writeln!(out, "#define {name} {}", words.join(", ")).unwrap();
    }
    let hex8 = |w: &u64| format!("{w:#018x}");
    let hex4 = |w: &u32| format!("{w:#010x}");
    out.push_str("\n// 8 v + 9 of each weight.\n");
    let eights = |w: &u64| u64::from_le_bytes(w.to_le_bytes().map(|v| (8 * i32::from(v as i8) + 9) as u8));
    table(&mut out, "u64", "IQ1_TABLE", IQ1_GRID.iter().map(eights).map(|w| hex8(&w)));
    table(&mut out, "u64", "IQ2_XXS_GRID", IQ2_XXS_GRID.iter().map(hex8));
    table(&mut out, "u64", "IQ2_XS_GRID", IQ2_XS_GRID.iter().map(hex8));
    table(&mut out, "u64", "IQ2_S_GRID", IQ2_S_GRID.iter().map(hex8));
    table(&mut out, "u32", "IQ3_XXS_GRID", IQ3_XXS_GRID.iter().map(hex4));
    table(&mut out, "u32", "IQ3_S_GRID", IQ3_S_GRID.iter().map(hex4));
    out
}

#[test]
fn codebooks_are_the_cores() {
    let have = std::fs::read_to_string(PATH).unwrap_or_default();
    assert!(have == header(), "write {PATH} anew: cargo test --test cuda_codebooks -- --ignored");
}

#[test]
#[ignore = "writes the header"]
fn write() {
    std::fs::write(PATH, header()).unwrap();
}
