//! Finds out what the CPU has, multiplies matrices with static scratch memory, runs every other operator, and compares
//! all with the scalar kernels.
#![no_std]
#![no_main]

mod ops;

fw_rt::program!(ops::run);
