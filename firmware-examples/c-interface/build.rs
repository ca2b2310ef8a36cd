//! The header is made from the source. The committed one must be the same: `GLLM_WRITE_HEADER=1` makes it so.

use std::path::Path;

fn main() {
    let root = env!("CARGO_MANIFEST_DIR");
    let header = Path::new(root).join("gllm_kernels.h");
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-changed=gllm_kernels.h");
    println!("cargo::rerun-if-env-changed=GLLM_WRITE_HEADER");
    let mut made = Vec::new();
    let config = cbindgen::Config::from_file(Path::new(root).join("cbindgen.toml")).expect("cbindgen.toml");
    cbindgen::generate_with_config(root, config).expect("the header").write(&mut made);
    if std::env::var_os("GLLM_WRITE_HEADER").is_some() {
        std::fs::write(&header, &made).expect("gllm_kernels.h");
    }
    if std::fs::read(&header).ok().as_ref() != Some(&made) {
        println!("cargo::error=gllm_kernels.h is not what the source says: build with GLLM_WRITE_HEADER=1");
    }
}
