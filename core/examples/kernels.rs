//! Prints every row of this build's registry: name, operator, storage type, quantised format, instruction set, and the kernel
//! that does its work.
//!
//! `ci/spec-table` makes the kernel table of SPEC/01 from it.

fn main() {
    for k in gllm_kernels_core::kernels() {
        let format = k.format.map_or("-", |f| f.name());
        println!("{}\t{}\t{}\t{format}\t{}\t{}", k.name, k.op.name(), k.element, k.level, k.kernel());
    }
}
