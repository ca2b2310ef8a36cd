//! The library behind `gllm-bench`, which measures how close kernels come to the limits of a machine.
//!
//! A command is a file of [`commands`]: its options, what it does with them, and what it prints. The other
//! modules do the work.

pub mod arena;
pub mod cli;
pub mod commands;
pub mod compare;
pub mod error;
pub mod help;
pub mod html;
pub mod inspect;
pub mod limits;
pub mod machine;
pub mod measure;
pub mod model;
pub mod options;
pub mod output;
pub mod progress;
pub mod quantize;
pub mod report;
pub mod run;
pub mod speed;
pub mod table;
pub mod tokenizer;
pub mod workload;
