//! The memory map, the runtime's section layout and the log's table of strings, for the linker.

fn main() {
    let map = concat!(env!("CARGO_MANIFEST_DIR"), "/../memory.ld");
    for arg in [&format!("-T{map}"), "-Timage.ld", "-Tdefmt.x", "--gc-sections"] {
        println!("cargo::rustc-link-arg={arg}");
    }
    println!("cargo::rerun-if-changed={map}");
}
