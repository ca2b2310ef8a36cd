//! Options that several commands have, and what their values mean.

use std::time::Duration;

use clap::Args;
use gllm_kernels_core::{Caps, ElementType, Features, IsaLevel, Op, QuantFormat};
use gllm_kernels_std::Runtime;

use crate::error::{unknown, Failure, Outcome};
use crate::machine::cores;

/// Which kernels may run.
#[derive(Args, Clone, Debug, Default)]
pub struct Selection {
    /// Instruction set level of the kernels: scalar, neon, avx2, avx512. Default: the best.
    #[arg(long, value_name = "LEVEL")]
    pub isa: Option<String>,
    #[command(flatten)]
    /// Features to do without.
    pub without: Without,
}

impl Selection {
    /// What these kernels may use of this CPU.
    pub fn caps(&self) -> Outcome<Caps> {
        let caps = self.without.caps()?;
        let Some(name) = &self.isa else { return Ok(caps) };
        caps.restricted_to(level(name)?).map_err(|e| Failure::Failed(e.to_string()))
    }

    /// Restricts everything that this process computes on the CPU to these kernels.
    pub fn apply(&self) -> Outcome {
        gllm_kernels_std::restrict(self.caps()?)
            .map_err(|used| Failure::Failed(format!("kernels of {} are in use already", used.level().name())))
    }
}

/// CPU features that are not to be used.
#[derive(Args, Clone, Debug, Default)]
pub struct Without {
    /// CPU features to do without, comma-separated, as `gllm-bench info` names them: for example
    /// amx_int8,amx_bf16. An instruction set level that needs one of them is not used either.
    #[arg(long = "without", value_name = "FEATURE", value_delimiter = ',')]
    pub features: Vec<String>,
}

impl Without {
    /// What is left of this CPU.
    pub fn caps(&self) -> Outcome<Caps> {
        let mut absent = Features::NONE;
        for name in &self.features {
            let found = Features::ALL.iter().find(|(_, known)| known == name);
            let names = || Features::ALL.iter().map(|&(_, name)| name);
            absent = absent | found.ok_or_else(|| unknown("CPU feature", name, names()))?.0;
        }
        let caps = gllm_kernels_std::detected().without(absent);
        // Features that only a missing level may use go with it.
        caps.restricted_to(caps.level()).map_err(|e| Failure::Failed(e.to_string()))
    }
}

/// The instruction set level of this name.
pub fn level(name: &str) -> Outcome<IsaLevel> {
    IsaLevel::from_name(name)
        .ok_or_else(|| unknown("instruction set", name, IsaLevel::ALL.iter().map(|l| l.name())))
}

/// The storage types of these names; f32 without a name.
pub fn elements(names: &[String]) -> Outcome<Vec<ElementType>> {
    let known = || ElementType::ALL.into_iter();
    let find = |name: &String| {
        let found = known().find(|e| e.name() == name);
        found.ok_or_else(|| unknown("element type", name, known().map(|e| e.name())))
    };
    if names.is_empty() {
        return Ok(vec![ElementType::F32]);
    }
    names.iter().map(find).collect()
}

/// The weight formats of these names.
pub fn formats(names: &[String]) -> Outcome<Vec<QuantFormat>> {
    let find = |name: &String| {
        QuantFormat::from_name(&name.to_lowercase())
            .ok_or_else(|| unknown("format", name, QuantFormat::ALL.iter().map(|f| f.name())))
    };
    names.iter().map(find).collect()
}

/// The operators of the registry of these names.
pub fn operators(names: &[String]) -> Outcome<Vec<Op>> {
    let find = |name: &String| {
        Op::from_name(name).ok_or_else(|| unknown("operator", name, Op::ALL.iter().map(|o| o.name())))
    };
    names.iter().map(find).collect()
}

/// A number of threads, or `all`.
pub fn threads(text: &str) -> Outcome<usize> {
    match text.parse() {
        _ if text == "all" => Ok(cores()),
        Ok(n @ 1..=1024) => Ok(n),
        _ => Err(Failure::Usage(format!(
            "impossible thread count `{text}`: a number from 1 to 1024, or `all`"
        ))),
    }
}

/// As many threads as `text` says, ready to work.
pub fn runtime(text: &str) -> Outcome<Runtime> {
    start(threads(text)?)
}

/// So many threads, ready to work.
pub fn start(threads: usize) -> Outcome<Runtime> {
    Runtime::new(threads).map_err(|e| Failure::Failed(e.to_string()))
}

/// `--min-time`.
pub fn min_time(seconds: f64) -> Outcome<Duration> {
    if seconds > 0.0 && seconds <= 600.0 {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err(Failure::Usage(format!("impossible --min-time {seconds}: seconds, above 0, at most 600")))
    }
}
