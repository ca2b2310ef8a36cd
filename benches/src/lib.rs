//! How close a machine comes to its limit: what `gllm-bench` is made of.

pub mod arena;
pub mod cli;
pub mod commands;
pub mod compare;
pub mod error;
pub mod html;
pub mod inspect;
pub mod limits;
pub mod machine;
pub mod measure;
pub mod progress;
pub mod quantize;
pub mod report;
pub mod run;
pub mod workload;
