//! Side by side with other libraries, in one run. A library is an entry in [`PEERS`], an operator a
//! row in it.

use std::env;
use std::ffi::c_int;
use std::path::PathBuf;
use std::time::Duration;

use gllm_kernels_core::ElementType;
use gllm_kernels_std::{AlignedVec, Runtime};
use libloading::Library;
use serde::Serialize;

use crate::arena::Arena;
use crate::error::{unknown, Failure, Outcome};
use crate::measure::{interleave, median, median_ratio, seconds};
use crate::run::timed_calls;
use crate::workload::{Case, Entry, Shape};

/// Pairs of samples; the machine's mood changes, ratios of neighbours less.
const PAIRS: usize = 25;

/// Another library.
#[derive(Debug)]
pub struct Peer {
    /// What `--peer` calls it.
    pub name: &'static str,
    /// Its files, newest first.
    files: &'static [&'static str],
    /// How to get it.
    install: &'static str,
    /// Environment it is to be loaded in.
    environment: &'static [(&'static str, &'static str)],
    /// Its operators.
    rows: &'static [Row],
}

/// The peer's side: runs so many rounds, and tells how many seconds they took.
type Theirs = Box<dyn FnMut(u64) -> f64>;

/// One pair to time.
#[derive(Debug)]
struct Row {
    /// Our operator.
    op: &'static str,
    /// The peer's function.
    symbol: &'static str,
    /// Makes the peer's side: it runs so many rounds on data of its own.
    make: fn(&'static Library, &str, Shape) -> Result<Theirs, libloading::Error>,
}

/// Every library we know how to call.
pub static PEERS: &[Peer] = &[Peer {
    name: "mkl",
    files: &["libmkl_rt.so.3", "libmkl_rt.so.2", "libmkl_rt.so"],
    install: "pip install mkl",
    environment: &[("MKL_THREADING_LAYER", "SEQUENTIAL"), ("MKL_NUM_THREADS", "1")],
    rows: &[
        Row { op: "exp", symbol: "vmsExp", make: vml },
        Row { op: "tanh", symbol: "vmsTanh", make: vml },
        Row { op: "silu", symbol: "vmsExp", make: vml },
        Row { op: "silu", symbol: "vmsTanh", make: vml },
        Row { op: "gelu", symbol: "vmsTanh", make: vml },
        Row { op: "gelu", symbol: "vmsErf", make: vml },
        Row { op: "gelu", symbol: "vmsCdfNorm", make: vml },
        Row { op: "gelu_tanh", symbol: "vmsTanh", make: vml },
    ],
}];

/// MKL's `vms<Function>(n, x, y, mode)` in high-accuracy mode.
fn vml(library: &'static Library, symbol: &str, shape: Shape) -> Result<Theirs, libloading::Error> {
    type Function = unsafe extern "C" fn(c_int, *const f32, *mut f32, i64);
    const HIGH_ACCURACY: i64 = 2;
    // SAFETY: the prototype is that of oneMKL's reference for the LP64 interface, the default.
    let function = unsafe { library.get::<Function>(symbol.as_bytes()) }?;
    let n = shape.n.min(c_int::MAX as usize);
    let mut x = AlignedVec::<f32>::zeroed(n);
    for (i, x) in x.iter_mut().enumerate() {
        *x = (i * 7919 % 65521) as f32 / 65521.0 * 20.0 - 10.0;
    }
    let mut y = AlignedVec::<f32>::zeroed(n);
    Ok(Box::new(move |rounds| {
        seconds(|| {
            for _ in 0..rounds {
                // SAFETY: n elements each.
                unsafe { function(n as c_int, x.as_ptr(), y.as_mut_ptr(), HIGH_ACCURACY) };
            }
        })
    }))
}

/// One compared pair.
#[derive(Debug, Serialize)]
pub struct Comparison {
    /// Our operator.
    pub op: &'static str,
    /// The other library.
    pub peer_name: &'static str,
    /// Its function.
    pub function: &'static str,
    /// Elements.
    pub n: usize,
    /// Our instruction set level.
    pub isa: &'static str,
    /// Our nanoseconds per call, median.
    pub ours: f64,
    /// Theirs.
    pub peer: f64,
    /// Their time over ours, median of neighbouring pairs: above 1, ours is faster.
    pub ratio: f64,
}

impl Peer {
    fn find(name: &str) -> Outcome<&'static Self> {
        PEERS
            .iter()
            .find(|p| p.name == name)
            .ok_or_else(|| unknown("peer", name, PEERS.iter().map(|p| p.name)))
    }

    /// Loads the library, for the rest of the process.
    fn load(&self) -> Outcome<&'static Library> {
        for (name, value) in self.environment {
            env::set_var(name, value);
        }
        let anywhere = self.files.iter().map(PathBuf::from);
        let folders = folders();
        let known = folders.iter().flat_map(|f| self.files.iter().map(move |file| f.join(file)));
        for path in anywhere.chain(known.filter(|p| p.exists())) {
            // SAFETY: a well-known library, which runs its usual initialisation.
            if let Ok(library) = unsafe { Library::new(&path) } {
                return Ok(Box::leak(Box::new(library)));
            }
        }
        Err(Failure::Failed(format!(
            "{} not found ({}); install it with: {}",
            self.name,
            self.files.join(", "),
            self.install
        )))
    }
}

/// Where pip, conda and vendors' installers put libraries that the loader does not search.
fn folders() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = Vec::new();
    for variable in ["VIRTUAL_ENV", "CONDA_PREFIX", "MKLROOT"] {
        folders.extend(env::var_os(variable).map(|v| PathBuf::from(v).join("lib")));
    }
    // Beside every folder of programs, Python's among them.
    if let Some(path) = env::var_os("PATH") {
        folders.extend(env::split_paths(&path).filter_map(|bin| Some(bin.parent()?.join("lib"))));
    }
    if let Some(home) = env::home_dir() {
        folders.push(home.join(".local/lib"));
        let versions = std::fs::read_dir(home.join(".pyenv/versions"));
        folders.extend(versions.into_iter().flatten().flatten().map(|v| v.path().join("lib")));
    }
    folders.extend(["/usr/local/lib", "/opt/intel/oneapi/mkl/latest/lib"].map(PathBuf::from));
    folders
}

/// Times every chosen pair.
pub fn compare(peer: &str, ops: &[String], n: usize, min_time: Duration) -> Outcome<Vec<Comparison>> {
    let peer = Peer::find(peer)?;
    for op in ops {
        if !peer.rows.iter().any(|r| r.op == op) {
            return Err(unknown(&format!("operator of {}", peer.name), op, peer.rows.iter().map(|r| r.op)));
        }
    }
    if n == 0 || n > c_int::MAX as usize {
        return Err(Failure::Usage(format!("impossible shape {n}: from 1 to {} elements", c_int::MAX)));
    }
    let library = peer.load()?;
    let caps = gllm_kernels_std::caps();
    let rt = Runtime::new(1).map_err(|e| Failure::Failed(e.to_string()))?;
    let mut arena = Arena::new(0);
    let mut out = Vec::new();
    for row in peer.rows.iter().filter(|r| ops.is_empty() || ops.iter().any(|o| o == r.op)) {
        let shape = Shape { m: 1, n, k: 1 };
        let entry = Entry::find(row.op)?;
        let case = Case { element: ElementType::F32, format: None, shape };
        let mut ours = entry.make(case, caps, &rt, &mut arena)?;
        ours.verify().map_err(|e| Failure::Failed(format!("{}: wrong result: {e}", row.op)))?;
        let mut theirs = (row.make)(library, row.symbol, shape)
            .map_err(|e| Failure::Failed(format!("{}: {e}", peer.name)))?;
        let mut refusal = None;
        let mut calls = |rounds: u64| timed_calls(&mut *ours, rounds, &mut refusal);
        let times = interleave(&mut [&mut calls, &mut *theirs], min_time, PAIRS);
        if let Some(e) = refusal {
            return Err(crate::workload::refused(row.op, e));
        }
        out.push(Comparison {
            op: row.op,
            peer_name: peer.name,
            function: row.symbol,
            n,
            isa: caps.level().name(),
            ours: median(&times[0]) * 1e9,
            peer: median(&times[1]) * 1e9,
            ratio: median_ratio(&times[1], &times[0]),
        });
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_an_operator() {
        for row in PEERS.iter().flat_map(|p| p.rows) {
            assert!(Entry::find(row.op).is_ok(), "{}", row.op);
        }
    }
}
