//! The four layers of macros. Textual scope: declared before everything that uses them.

#[macro_use]
mod define_ops;
#[macro_use]
mod quant_primitive;
#[macro_use]
mod expand_all;
#[macro_use]
mod expand_asm;
