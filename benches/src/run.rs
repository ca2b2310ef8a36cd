//! Verifies and times workloads against the limit that binds them.

use std::time::Duration;

use gllm_kernels_core::{Caps, KernelError};
use gllm_kernels_std::Runtime;
use serde::Serialize;

use crate::arena::Arena;
use crate::error::{Failure, Outcome};
use crate::limits::{moved, peak_ops, peak_work, Limits};
use crate::measure::{interleave, median, seconds, Contender};
use crate::options::start;
use crate::workload::{refused, Case, Entry, Workload};

/// One measured operator.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    /// Registry name of the kernel that ran.
    pub kernel: String,
    /// Operator.
    pub op: &'static str,
    /// Storage type.
    pub element: &'static str,
    /// Weight format; for dense operators the storage type.
    pub format: &'static str,
    /// Instruction set level.
    pub isa: &'static str,
    /// Rows; 1 for vectors.
    pub m: usize,
    /// Columns or elements.
    pub n: usize,
    /// Inner dimension; 1 where there is none.
    pub k: usize,
    /// Threads.
    pub threads: usize,
    /// Nanoseconds per call, median.
    pub ns: f64,
    /// 10^9 operations per second; a multiply-add is two.
    pub gflops: f64,
    /// 10^9 bytes per second.
    pub gbs: f64,
    /// Which limit binds: `compute` or `memory`.
    pub bound: &'static str,
    /// That limit, in GFLOP/s or GB/s; measured in turn with the operator.
    pub limit: f64,
    /// The instruction or access pattern that reached it.
    pub limit_by: &'static str,
    /// Achieved fraction of the limit: 1 is all of it.
    pub efficiency: f64,
    /// Largest relative error; see `gllm-bench --help`.
    pub max_err: f64,
    /// Bytes of all operands.
    pub working_set: u64,
    /// `--shape` that asks for this.
    pub shape: String,
}

/// What to measure.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// Operator.
    pub entry: &'static Entry,
    /// Storage type, weight format, sizes.
    pub case: Case,
}

/// How to measure.
#[derive(Debug)]
pub struct Session {
    /// Limits, measured on the way.
    pub limits: Limits,
    arena: Arena,
    /// Least time to spend on the samples of an operator.
    pub min_time: Duration,
    /// Samples of each contender.
    pub samples: usize,
}

impl Session {
    /// Nothing is measured yet.
    pub fn new(limits: Limits, min_time: Duration, samples: usize) -> Self {
        Self { limits, arena: Arena::new(0), min_time, samples }
    }

    /// Verifies, then times `job` with the kernels that `caps` allows, on the threads of `rt`, or on as many as it
    /// can use.
    pub fn measure(&mut self, job: Job, caps: Caps, rt: &Runtime) -> Outcome<Record> {
        let Job { entry, case } = job;
        let one = entry.on_one_thread().then(|| start(1)).transpose()?;
        let rt = one.as_ref().unwrap_or(rt);
        let Case { element, format, shape } = case;
        let cost = (entry.cost)(&case);
        let mut workload = entry.make(case, caps, rt, &mut self.arena)?;
        let max_err = workload.verify().map_err(|e| {
            Failure::Failed(format!("{} {element} {}: wrong result: {e}", entry.name, caps.level()))
        })?;
        let kernel = entry.kernel(&case, caps, &*workload);

        let working_set = cost.working_set as usize;
        let peak = self.limits.of_products(entry.arithmetic(&case), rt);
        let compute_time = cost.flops / self.limits.peak(peak, rt);
        let memory_time = cost.moved / self.limits.bandwidth(cost.traffic, working_set, rt);
        let (times, limit_units, by);
        if compute_time > memory_time {
            let mut limit = peak_work(peak, rt);
            times = race(&mut *workload, &mut [&mut limit], entry.name, self.min_time, self.samples)?;
            limit_units = peak_ops(peak, rt);
            by = vec![peak.instruction];
        } else {
            let mut passes = self.limits.contenders(cost.traffic, working_set, rt);
            by = passes.iter().map(|(p, _)| p.name).collect();
            let mut works: Vec<_> = passes.iter_mut().map(|(_, p)| p.work()).collect();
            let mut limits: Vec<Contender<'_>> = works.iter_mut().map(|w| w as Contender<'_>).collect();
            times = race(&mut *workload, &mut limits, entry.name, self.min_time, self.samples)?;
            limit_units = moved(cost.traffic, working_set);
        }

        let seconds = median(&times[0]);
        let rates = times[1..].iter().map(|t| limit_units / median(t) / 1e9);
        let (limit, limit_by) =
            rates.zip(by).fold((0.0, ""), |best, now| if now.0 > best.0 { now } else { best });
        let (gflops, gbs) = (cost.flops / seconds / 1e9, cost.moved / seconds / 1e9);
        let (bound, reached) = if compute_time > memory_time { ("compute", gflops) } else { ("memory", gbs) };
        Ok(Record {
            kernel: kernel.to_owned(),
            op: entry.name,
            element: element.name(),
            format: format.map_or(element.name(), |f| f.name()),
            isa: caps.level().name(),
            m: shape.m,
            n: shape.n,
            k: shape.k,
            threads: rt.threads(),
            ns: seconds * 1e9,
            gflops,
            gbs,
            bound,
            limit,
            limit_by,
            efficiency: reached / limit,
            max_err,
            working_set: cost.working_set as u64,
            shape: shape.text(entry.sizes),
        })
    }
}

/// Times `workload` (first) in turn with its limits.
fn race(
    workload: &mut dyn Workload,
    limits: &mut [Contender<'_>],
    name: &str,
    min_time: Duration,
    samples: usize,
) -> Outcome<Vec<Vec<f64>>> {
    let mut refusal = None;
    let mut calls = |rounds: u64| timed_calls(workload, rounds, &mut refusal);
    let mut contenders: Vec<Contender<'_>> = vec![&mut calls];
    for limit in limits {
        contenders.push(&mut **limit);
    }
    let times = interleave(&mut contenders, min_time, samples);
    match refusal {
        Some(e) => Err(refused(name, e)),
        None => Ok(times),
    }
}

/// Calls on the same operands before they are set up anew, where a call changes its input: repeated
/// for ever, most functions end in zeros, infinities or denormals, which have timings of their own.
const FRESH: u64 = 8;

/// Seconds that `rounds` calls take, without the setting up.
pub fn timed_calls(workload: &mut dyn Workload, rounds: u64, refusal: &mut Option<KernelError>) -> f64 {
    let fresh = if workload.changes_input() { FRESH } else { rounds };
    let mut time = 0.0;
    let mut left = rounds;
    while left > 0 {
        let n = left.min(fresh);
        if workload.changes_input() {
            workload.set_up();
        }
        time += seconds(|| {
            for _ in 0..n {
                if let Err(e) = workload.call() {
                    *refusal = Some(e);
                }
            }
        });
        left -= n;
    }
    time
}
