//! The properties of the machine: its CPU, caches, memory and operating system.

use std::fs;

use gllm_kernels_core::{CacheSizes, Caps, Features, IsaLevel};
use serde::Serialize;

/// The machine in a few words and numbers.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Processor model, as it calls itself.
    pub cpu: String,
    /// `x86_64`, `aarch64`, ...
    pub arch: &'static str,
    /// Operating system.
    pub os: &'static str,
    /// Processors this process may use.
    pub cores: usize,
    /// Best instruction set with kernels.
    pub isa: &'static str,
    /// Every instruction set level that kernels can be forced to, best first.
    pub levels: Vec<&'static str>,
    /// Optional features that kernels may use.
    pub features: Vec<&'static str>,
    /// Cache sizes in bytes; 0 where there is none.
    pub caches: Caches,
    /// Main memory in bytes, where the operating system tells.
    pub memory: Option<u64>,
    /// Processes that wanted to run during the last minute; timings suffer if it is not near 0.
    pub load: Option<f64>,
}

/// Cache sizes in bytes.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Caches {
    /// First level, data.
    pub l1d: usize,
    /// Second level.
    pub l2: usize,
    /// Third level.
    pub l3: usize,
    /// Line size.
    pub line: usize,
}

impl From<CacheSizes> for Caches {
    fn from(c: CacheSizes) -> Self {
        Self { l1d: c.l1d, l2: c.l2, l3: c.l3, line: c.line }
    }
}

impl Machine {
    /// Finds out.
    pub fn detect(caps: Caps) -> Self {
        let has = |f: Features| caps.features().contains(f);
        Self {
            cpu: cpu_name(),
            arch: std::env::consts::ARCH,
            os: std::env::consts::OS,
            cores: cores(),
            isa: caps.level().name(),
            levels: IsaLevel::ALL.iter().filter(|l| has(l.requires())).map(|l| l.name()).collect(),
            features: Features::ALL.iter().filter(|(f, _)| has(*f)).map(|(_, name)| *name).collect(),
            caches: caps.caches().into(),
            memory: memory(),
            load: load(),
        }
    }
}

/// Processors this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

fn load() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}

/// Main memory in bytes, where the operating system tells.
pub fn memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// CPUID leaves 0x80000002 to 4.
#[cfg(target_arch = "x86_64")]
fn cpu_name() -> String {
    use std::arch::x86_64::__cpuid;
    if __cpuid(0x8000_0000).eax < 0x8000_0004 {
        return "unknown x86-64".to_owned();
    }
    let words = (0x8000_0002..=0x8000_0004).flat_map(|leaf| {
        let r = __cpuid(leaf);
        [r.eax, r.ebx, r.ecx, r.edx]
    });
    let bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).take_while(|&b| b != 0).collect();
    let text = String::from_utf8_lossy(&bytes);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Linux's `/proc/cpuinfo`: part numbers from the Arm ARM's MIDR_EL1, each from its core's manual.
#[cfg(not(target_arch = "x86_64"))]
fn cpu_name() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find(|l| l.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    if let Some(model) = field("model name").or_else(|| field("Model")) {
        return model;
    }
    let (implementer, part) = (field("CPU implementer"), field("CPU part"));
    let name = match (implementer.as_deref(), part.as_deref()) {
        (Some("0x41"), Some(part)) => match part {
            "0xd03" => "Cortex-A53",
            "0xd05" => "Cortex-A55",
            "0xd07" => "Cortex-A57",
            "0xd08" => "Cortex-A72",
            "0xd0b" => "Cortex-A76",
            "0xd0c" => "Neoverse N1",
            "0xd40" => "Neoverse V1",
            "0xd49" => "Neoverse N2",
            "0xd4f" => "Neoverse V2",
            "0xd8e" => "Neoverse N3",
            "0xd84" => "Neoverse V3",
            _ => "Arm",
        },
        (Some("0x61"), _) => "Apple",
        (Some("0xc0"), _) => "Ampere",
        _ => "unknown",
    };
    match part {
        Some(part) => format!("{name} (part {part})"),
        None => format!("{name} {}", std::env::consts::ARCH),
    }
}
