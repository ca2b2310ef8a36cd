//! The memory map and the runtime's section layout, for the linker.

fn main() {
    let map = concat!(env!("CARGO_MANIFEST_DIR"), "/../memory.ld");
    println!("cargo::rustc-link-arg-bins=-T{map}");
    println!("cargo::rustc-link-arg-bins=-Timage.ld");
    println!("cargo::rustc-link-arg-bins=--gc-sections");
    println!("cargo::rerun-if-changed={map}");
}
