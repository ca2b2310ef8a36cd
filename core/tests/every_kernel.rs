//! One test per kernel of the registry, named like the kernel. What this machine lacks is listed as
//! ignored; it runs on a machine that has it.
//!
//! With `GLLM_TEST_BRIEF` in the environment only the kernels that a CPU takes because it lacks a feature that better ones
//! need, and where it has none but those of the level, also what is compiled for the level, of formats with one: it must have
//! no other instructions. `GLLM_TEST_ONLY` is a list of words: only kernels whose names contain one of them.

use gllm_kernels_core::{kernels, Features, KernelInfo, QuantFormat};
use libtest_mimic::{Arguments, Failed, Trial};

#[global_allocator]
static ALLOCATOR: gllm_testkit::Counting = gllm_testkit::Counting;

/// The registry as such: rows, names, checkers.
mod registry {
    use std::collections::HashSet;

    use gllm_kernels_core::{kernels, ElementType, IsaLevel, KernelInfo, Kernels, Op, QuantFormat};

    /// Levels that this build has kernels for, whatever the machine.
    fn levels() -> Vec<IsaLevel> {
        let target = match () {
            () if cfg!(target_arch = "x86_64") => vec![IsaLevel::Avx512, IsaLevel::Avx2],
            () if cfg!(target_arch = "aarch64") => vec![IsaLevel::Neon],
            () => vec![],
        };
        target.into_iter().chain([IsaLevel::Scalar]).collect()
    }

    pub fn is_complete() -> Result<(), String> {
        let mut want = 0;
        for &op in Op::ALL {
            // int8 has matrix products alone; to products of quantised activations the storage type makes no difference, and
            // linear attention is in f32.
            let products = [Op::Gemm, Op::GemmBias, Op::GemmBt, Op::GemmPrepacked, Op::PackB].contains(&op);
            let plain =
                [Op::QgemvQ8, Op::PackQ, Op::QgemvPacked, Op::Qgemm, Op::GatedDeltaRule, Op::CausalConv1d]
                    .contains(&op);
            for element in ElementType::ALL {
                if element == ElementType::I8 && !products || element != ElementType::F32 && plain {
                    continue;
                }
                for level in levels() {
                    let rows = || kernels().filter(|r| (r.op, r.element, r.level) == (op, element, level));
                    let of = |format| rows().filter(|r| r.format == format).count();
                    // Either one kernel that every CPU of this level has (and others), or one for each
                    // format of weights (and others, for each as well that is not plain floating point).
                    let basic = |f| rows().any(|r| r.format == f && r.requires == level.requires());
                    let formats = QuantFormat::ALL.iter().filter(|&&f| basic(Some(f))).count();
                    let each = of(Some(QuantFormat::ALL[0]));
                    let rows_of = |f: QuantFormat| if f.is_float() { each.min(1) } else { each };
                    let alike = QuantFormat::ALL.iter().all(|&f| of(Some(f)) == rows_of(f));
                    if ![(true, 0), (false, QuantFormat::ALL.len())].contains(&(basic(None), formats))
                        || !alike
                    {
                        let have: Vec<_> = rows().map(|r| r.name).collect();
                        return Err(format!("{} {element} {level}: rows {have:?}", op.name()));
                    }
                    want += of(None) + QuantFormat::ALL.iter().map(|&f| rows_of(f)).sum::<usize>();
                }
            }
        }
        match kernels().count() {
            n if n == want => Ok(()),
            n => Err(format!("{n} rows instead of {want}")),
        }
    }

    /// Whether the end of a name says what the CPU must have beyond the level.
    fn feature(row: &KernelInfo, end: &str) -> bool {
        let more = row.requires.without(row.level.requires()).to_string();
        match end {
            "" => more == "none",
            // Assembly that needs nothing more is told from generated code by its main instruction.
            "_maddubs" | "_smull" => more == "none" && [Op::QgemvPacked, Op::Qgemm].contains(&row.op),
            // `avx512_bf16` behind `avx512` is `_bf16`, and so is `bf16` behind `neon`. Of several features one is named.
            _ => more.split(' ').any(|feature| format!("_{feature}").ends_with(end)),
        }
    }

    pub fn names_are_well_formed() -> Result<(), String> {
        let mut seen = HashSet::new();
        for row in kernels() {
            let form = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            let format = row.format.map_or("", |f| f.name());
            let middle = row
                .name
                .strip_prefix(row.op.name())
                .and_then(|n| n.split_once("__"))
                .filter(|(_, isa)| isa.strip_prefix(row.level.name()).is_some_and(|f| feature(row, f)))
                .ok_or_else(|| format!("{}: not <op>_<types>__<isa>", row.name))?
                .0;
            // Packing takes weights in a format alone.
            let element = row.op == Op::PackQ || middle.split('_').any(|t| t == row.element.name());
            let types = element && middle.contains(format);
            if !row.name.chars().all(form) || !types {
                return Err(format!("{}: not <op>_<types>__<isa>", row.name));
            }
            if !seen.insert(row.name) {
                return Err(format!("{}: two rows", row.name));
            }
            if Op::from_name(row.op.name()) != Some(row.op) {
                return Err(format!("{}: not found by name", row.op.name()));
            }
        }
        Ok(())
    }

    pub fn every_row_has_a_checker() -> Result<(), String> {
        let without: Vec<_> =
            kernels().filter(|r| gllm_testkit::checker_of(r).is_none()).map(|r| r.name).collect();
        if without.is_empty() {
            Ok(())
        } else {
            Err(format!("no checker for {}", without.join(", ")))
        }
    }

    pub fn levels_are_tested() -> Result<(), String> {
        let best = Kernels::<f32>::detect().level();
        match gllm_testkit::data::levels().first() {
            Some(&first) if first == best => Ok(()),
            first => Err(format!("best level is {best}, tests start with {first:?}")),
        }
    }
}

/// Whether a CPU with these features takes this kernel, and one with all features of the level another one.
fn stands_in(row: &KernelInfo, here: Features) -> bool {
    let mut alike = kernels()
        .filter(|r| (r.op, r.element, r.format, r.level) == (row.op, row.element, row.format, row.level));
    let best = alike.clone().next();
    let taken = alike.find(|r| here.contains(r.requires));
    best.map(|r| r.name) != Some(row.name) && taken.map(|r| r.name) == Some(row.name)
}

/// Whether this is a kernel of the only level that a CPU with these features has, for one format.
fn is_baseline(row: &KernelInfo, here: Features) -> bool {
    here == row.level.requires() && row.requires == here && row.format.is_none_or(|f| f == QuantFormat::Q4K)
}

fn main() {
    let here = gllm_testkit::caps().features();
    let emulated = gllm_testkit::amx::emulated();
    if emulated != Features::NONE {
        eprintln!("Emulated on this CPU: {emulated}.");
    }
    let plain =
        |name: &str, f: fn() -> Result<(), String>| Trial::test(name, move || f().map_err(Failed::from));
    let mut trials = vec![
        plain("registry_is_complete", registry::is_complete),
        plain("names_are_well_formed", registry::names_are_well_formed),
        plain("every_row_has_a_checker", registry::every_row_has_a_checker),
        plain("levels_are_tested", registry::levels_are_tested),
    ];
    let only = std::env::var("GLLM_TEST_ONLY").unwrap_or_default();
    let chosen = |row: &KernelInfo| {
        (only.is_empty() || only.split_whitespace().any(|word| row.name.contains(word)))
            && (gllm_testkit::effort() > 0 || stands_in(row, here) || is_baseline(row, here))
    };
    for row in kernels().filter(|row| chosen(row)) {
        let run = move || {
            let outcome = gllm_testkit::timed(row.name, || gllm_testkit::check(row));
            outcome.map(|_| ()).map_err(Failed::from)
        };
        let trial = Trial::test(row.name, run).with_kind(row.level.name());
        trials.push(trial.with_ignored_flag(!here.contains(row.requires)));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
