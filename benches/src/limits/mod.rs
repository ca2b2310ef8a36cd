//! The limits of the machine: arithmetic peaks and bandwidths, each measured when it is first needed.

use std::collections::HashMap;
use std::time::Duration;

use gllm_kernels_core::Caps;
use gllm_kernels_std::Runtime;
use serde::Serialize;

use crate::arena::Arena;
use crate::measure::{interleave, seconds};

pub mod compute;
pub mod gpu;
pub mod memory;

use compute::{Arithmetic, Peak};
use memory::{patterns, Pattern, Span, Traffic, PAGE};

/// Working sets larger than this per thread are shared out in pieces to whoever is free; smaller
/// ones belong to a thread, in whose cache they stay.
const OWNED: usize = 4 << 20;

/// Piece of a shared working set.
const PIECE: usize = 1 << 20;

/// Patterns that are measured next to an operator: the best of a first look.
const FINALISTS: usize = 2;

/// A level of memory, and the working set that lies in it, by thread count.
type Place = (&'static str, Box<dyn Fn(usize) -> usize>);

/// Where a bandwidth limit comes from: traffic, working set, threads.
type Key = (Traffic, usize, usize);

/// Measures limits; remembers which patterns are worth measuring.
#[derive(Debug)]
pub struct Limits {
    caps: Caps,
    arena: Arena,
    ranked: HashMap<Key, Ranked>,
    peaks: HashMap<(&'static str, usize), f64>,
}

#[derive(Debug, Clone)]
struct Ranked {
    finalists: Vec<&'static Pattern>,
    bytes_per_second: f64,
}

/// One measured limit.
#[derive(Clone, Debug, Serialize)]
pub struct Limit {
    /// `compute`, `product` or `memory`.
    pub kind: &'static str,
    /// Arithmetic: element and instruction set. A product: what is multiplied. Memory: where the data lies and what
    /// is done to it.
    pub name: String,
    /// The instruction or access pattern that reached it.
    pub by: &'static str,
    /// Threads.
    pub threads: usize,
    /// Bytes of all buffers together; memory only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_set: Option<usize>,
    /// In `unit`.
    pub value: f64,
    /// `GFLOP/s`, `Gop/s` or `GB/s`.
    pub unit: &'static str,
}

impl Limits {
    /// Nothing is measured yet.
    pub fn new(caps: Caps) -> Self {
        Self { caps, arena: Arena::new(0), ranked: HashMap::new(), peaks: HashMap::new() }
    }

    /// The capabilities limits are measured for.
    pub fn caps(&self) -> Caps {
        self.caps
    }

    /// Bytes per second of `traffic` on a working set; measured once.
    pub fn bandwidth(&mut self, traffic: Traffic, working_set: usize, rt: &Runtime) -> f64 {
        self.rank(traffic, working_set, rt).bytes_per_second
    }

    fn rank(&mut self, traffic: Traffic, working_set: usize, rt: &Runtime) -> Ranked {
        let key = (traffic, working_set, rt.threads());
        if let Some(known) = self.ranked.get(&key) {
            return known.clone();
        }
        let mut passes: Vec<_> =
            patterns(traffic).map(|p| (p, self.pass(p, working_set, rt), Vec::new())).collect();
        // Two short looks at each; the first also warms up.
        for _ in 0..2 {
            for (_, pass, times) in &mut passes {
                let times_now = interleave(&mut [&mut pass.work()], Duration::from_millis(2), 1);
                times.push(times_now[0][0]);
            }
        }
        let moved = moved(traffic, working_set);
        let mut by_time: Vec<_> =
            passes.into_iter().map(|(p, _, times)| (times.into_iter().fold(f64::MAX, f64::min), p)).collect();
        by_time.sort_by(|a, b| a.0.total_cmp(&b.0));
        let ranked = Ranked {
            bytes_per_second: moved / by_time[0].0,
            finalists: by_time.iter().take(FINALISTS).map(|(_, p)| *p).collect(),
        };
        self.ranked.insert(key, ranked.clone());
        ranked
    }

    /// The patterns to time next to an operator, ready to run. They borrow the limits: their memory
    /// stays where it is as long as they exist.
    pub fn contenders<'s>(
        &'s mut self,
        traffic: Traffic,
        working_set: usize,
        rt: &'s Runtime,
    ) -> Vec<(&'static Pattern, Pass<'s>)> {
        let finalists = self.rank(traffic, working_set, rt).finalists;
        finalists.into_iter().map(|p| (p, self.pass(p, working_set, rt))).collect()
    }

    /// All passes that are alive at once must have the same traffic and working set: the first makes
    /// room, the others find it.
    fn pass<'r>(&mut self, pattern: &'static Pattern, working_set: usize, rt: &'r Runtime) -> Pass<'r> {
        let len = buffer_len(pattern.traffic, working_set);
        self.arena.reserve(3 * len.max(working_set / 3) + 3 * PAGE);
        let mut carver = self.arena.carve();
        // As an operator's operands: inputs first. Unused ones stay empty.
        let (a, b, y) = match pattern.traffic {
            Traffic::Read => (len, 0, 0),
            Traffic::Copy | Traffic::Accumulate => (len, 0, len),
            Traffic::Triad => (len, len, len),
            Traffic::Update => (0, 0, len),
            Traffic::Expand => (len / 4, 0, len),
        };
        let mut take = |n| carver.take::<u8>(n).as_mut_ptr();
        let (a, b, y) = (take(a), take(b), take(y));
        Pass { pattern, span: Span { a, b, y, len }, rt }
    }

    /// A peak's operations per second; measured once per thread count.
    pub fn peak(&mut self, peak: &'static Peak, rt: &Runtime) -> f64 {
        *self.peaks.entry((peak.name, rt.threads())).or_insert_with(|| {
            let mut work = peak_work(peak, rt);
            let times = interleave(&mut [&mut work], Duration::from_millis(20), 20);
            // The fastest: whatever disturbs a sample makes it slower. Many short ones: one of them is undisturbed.
            peak_ops(peak, rt) / times[0].iter().copied().fold(f64::MAX, f64::min)
        })
    }

    /// The peak that binds products of a type: the highest of those that the type allows on this machine.
    pub fn of_products(&mut self, of: Arithmetic, rt: &Runtime) -> &'static Peak {
        let (mut best, mut highest) = (None, 0.0);
        for peak in Peak::of_products(of, self.caps) {
            let now = self.peak(peak, rt);
            if now > highest {
                (best, highest) = (Some(peak), now);
            }
        }
        best.expect("every machine has arithmetic in f32")
    }

    /// The whole table of limits, for one thread and for all.
    pub fn table(&mut self, runtimes: &[Runtime], mut tick: impl FnMut(&str)) -> Vec<Limit> {
        let mut out = Vec::new();
        for peak in Peak::available(self.caps) {
            tick(peak.name);
            for rt in runtimes {
                out.push(Limit {
                    kind: "compute",
                    name: peak.name.to_owned(),
                    by: peak.instruction,
                    threads: rt.threads(),
                    working_set: None,
                    value: self.peak(peak, rt) / 1e9,
                    unit: peak.multiplies.unit(),
                });
            }
        }
        for of in Arithmetic::OF_PRODUCTS {
            for rt in runtimes {
                let peak = self.of_products(of, rt);
                out.push(Limit {
                    kind: "product",
                    name: format!("products of {}", of.name()),
                    by: peak.instruction,
                    threads: rt.threads(),
                    working_set: None,
                    value: self.peak(peak, rt) / 1e9,
                    unit: of.unit(),
                });
            }
        }
        for (place, size) in self.places() {
            for traffic in [Traffic::Read, Traffic::Copy, Traffic::Triad, Traffic::Update] {
                tick(&format!("{place} {}", traffic.name()));
                for rt in runtimes {
                    let working_set = size(rt.threads());
                    let ranked = self.rank(traffic, working_set, rt);
                    out.push(Limit {
                        kind: "memory",
                        name: format!("{place} {}", traffic.name()),
                        by: ranked.finalists[0].name,
                        threads: rt.threads(),
                        working_set: Some(working_set),
                        value: ranked.bytes_per_second / 1e9,
                        unit: "GB/s",
                    });
                }
            }
        }
        out
    }

    /// Rows that [`Self::table`] announces.
    pub fn table_len(&self) -> usize {
        Peak::available(self.caps).count() + self.places().len() * 4
    }

    /// Levels of memory with a working set that lies in each, by thread count.
    fn places(&self) -> Vec<Place> {
        let c = self.caps.caches();
        let mut places: Vec<Place> =
            vec![("L1", Box::new(move |t| t * c.l1d / 2)), ("L2", Box::new(move |t| t * c.l2 / 2))];
        if c.l3 > 0 {
            // Not a part of L3's size: virtual machines report that of a whole processor.
            places.push(("L3", Box::new(move |t| (t * c.share()).min(c.l3 / 2))));
        }
        places.push(("DRAM", Box::new(|_| DRAM)));
        places
    }
}

/// The working set that stands for main memory.
pub const DRAM: usize = 256 << 20;

/// Longest buffer of a working set, in whole pages.
fn buffer_len(traffic: Traffic, working_set: usize) -> usize {
    ((working_set as f64 / traffic.buffers()) as usize / PAGE * PAGE).max(PAGE)
}

/// Bytes that one pass over a working set moves.
pub fn moved(traffic: Traffic, working_set: usize) -> f64 {
    buffer_len(traffic, working_set) as f64 * traffic.moved()
}

/// One pattern on the limits' own memory. The memory stays the `Limits`' and is never read for its
/// contents.
#[derive(Debug)]
pub struct Pass<'r> {
    pattern: &'static Pattern,
    span: Span,
    rt: &'r Runtime,
}

struct Shared(Span);
// SAFETY: pieces of the span are disjoint, each is handled by one thread at a time.
unsafe impl Sync for Shared {}

impl Shared {
    /// Pages `from..to` of the span.
    fn piece(&self, from: usize, to: usize, traffic: Traffic) -> Span {
        let s = self.0;
        let (start, len) = (from * PAGE, (to - from) * PAGE);
        let input = if traffic == Traffic::Expand { start / 4 } else { start };
        // Unused buffers are never touched: their pointers may go anywhere.
        Span { a: s.a.wrapping_add(input), b: s.b.wrapping_add(start), y: s.y.wrapping_add(start), len }
    }
}

impl<'r> Pass<'r> {
    /// Runs so many passes.
    pub fn work(&mut self) -> impl FnMut(u64) -> f64 + use<'_, 'r> {
        let (rt, pattern) = (self.rt, self.pattern);
        let pages = self.span.len / PAGE;
        let shared = Shared(self.span);
        move |rounds| {
            let shared = &shared;
            // SAFETY: `Limits::pass` carved buffers of `len` bytes; pieces lie inside; the pattern was
            // chosen by detection.
            let run = |from, to| unsafe { (pattern.pass)(shared.piece(from, to, pattern.traffic)) };
            let threads = rt.threads().min(pages);
            if self.span.len <= OWNED * threads {
                return seconds(|| {
                    rt.for_each(threads, |t| {
                        for _ in 0..rounds {
                            run(pages * t / threads, pages * (t + 1) / threads);
                        }
                    });
                });
            }
            seconds(|| {
                let step = PIECE / PAGE;
                for _ in 0..rounds {
                    if threads == 1 {
                        run(0, pages);
                    } else {
                        rt.for_each(pages.div_ceil(step), |i| run(i * step, ((i + 1) * step).min(pages)));
                    }
                }
            })
        }
    }
}

/// Pieces per thread of a peak's work: enough for a busy core to matter little.
const SHARES: u64 = 4;

/// Rounds that count as one of the contender's.
const ROUNDS: u64 = 1000;

/// A contender that runs a peak's loop on every thread.
pub fn peak_work<'r>(peak: &'static Peak, rt: &'r Runtime) -> impl FnMut(u64) -> f64 + 'r {
    move |rounds| {
        let shares = if rt.threads() == 1 { 1 } else { rt.threads() as u64 * SHARES };
        let each = rounds * ROUNDS * rt.threads() as u64 / shares;
        // SAFETY: callers take peaks from `Peak::available`.
        seconds(|| rt.for_each(shares as usize, |_| unsafe { peak.run(each) }))
    }
}

/// Operations in one round of [`peak_work`].
pub fn peak_ops(peak: &Peak, rt: &Runtime) -> f64 {
    peak.ops * ROUNDS as f64 * rt.threads() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use gllm_kernels_core::Features;

    /// The limit of a product is the best that its type allows here, and not that of f32 alone.
    #[test]
    fn products_have_the_best_peak_of_their_type() {
        let all = gllm_kernels_std::caps();
        let rt = Runtime::new(1).unwrap();
        for caps in [all, all.without(Features::AMX), all.without(Features::AVX512_BF16 | Features::BF16)] {
            let mut limits = Limits::new(caps);
            for of in Arithmetic::OF_PRODUCTS {
                let best = limits.of_products(of, &rt);
                assert!([of, Arithmetic::F32].contains(&best.multiplies), "{of:?}: {}", best.name);
                for peak in Peak::available(caps).filter(|p| [of, Arithmetic::F32].contains(&p.multiplies)) {
                    let (best, other) = (limits.peak(best, &rt), limits.peak(peak, &rt));
                    assert!(best >= other, "{of:?}: {} reaches {other}", peak.name);
                }
            }
        }
        // Twice as many operations an instruction, and as many instructions.
        let features = all.features();
        for (of, feature) in
            [(Arithmetic::Bf16, Features::AVX512_BF16), (Arithmetic::Int8, Features::AVX512_VNNI)]
        {
            if features.contains(feature) {
                // On a busy machine it may take several attempts.
                let found = (0..20).any(|_| Limits::new(all).of_products(of, &rt).multiplies == of);
                assert!(found, "{of:?}");
            }
        }
    }

    /// Every loop runs, on numbers that stay ordinary.
    #[test]
    fn peaks_are_positive() {
        let rt = Runtime::new(2).unwrap();
        let caps = gllm_kernels_std::caps();
        let mut limits = Limits::new(caps);
        for peak in Peak::available(caps) {
            assert!(limits.peak(peak, &rt) > 1e8, "{}", peak.name);
        }
    }
}
