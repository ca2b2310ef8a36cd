//! Finds out what the CPU has, multiplies matrices with static scratch memory, runs every other operator, and compares
//! all with the scalar kernels.
#![no_std]
#![no_main]

fw_rt::program!(programs::ops::run);
