//! Prints every kernel of this build: name, operator, operand types, instruction set.
//!
//! `ci/spec-table` makes the kernel table of SPEC/01 from it.

fn main() {
    for k in gllm_kernels_core::kernels() {
        match k.format {
            Some(f) => println!("{}\t{}\t{}x{f}\t{}", k.name, k.op.name(), k.element, k.level),
            None => println!("{}\t{}\t{}\t{}", k.name, k.op.name(), k.element, k.level),
        }
    }
}
