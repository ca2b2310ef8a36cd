//! Detection, restriction and forced levels.

use std::collections::BTreeSet;
use std::sync::Barrier;

use gllm_kernels_core::{
    bf16, f16, kernels, CacheSizes, Caps, Element, ElementType, Features, IsaLevel, KernelError, KernelInfo,
    Kernels, Op, Operand, Precision, Prefetcher, QuantFormat, StorePolicy,
};

/// Private to the library.
#[path = "../src/isa/detect/amd.rs"]
mod amd;

#[test]
fn detection_gives_one_answer_to_everybody() {
    let first = Caps::detect();
    let start = Barrier::new(8);
    std::thread::scope(|s| {
        for _ in 0..8 {
            s.spawn(|| {
                start.wait();
                for _ in 0..1000 {
                    assert_eq!(Caps::detect(), first);
                }
            });
        }
    });
    assert!(first.features().contains(Caps::BASELINE.features()));
    let c = first.caches();
    assert!(c.l1d >= 4096 && c.l2 >= c.l1d && c.line.is_power_of_two() && c.line >= 16, "{c:?}");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn detection_agrees_with_the_standard_library() {
    use std::arch::is_x86_feature_detected as has;
    let f = Caps::detect().features();
    let avx2 = has!("avx2") && has!("fma") && has!("f16c");
    assert_eq!(f.contains(Features::AVX2), avx2);
    let avx512 = has!("avx512f") && has!("avx512bw") && has!("avx512vl") && has!("avx512dq");
    assert_eq!(f.contains(Features::AVX512), avx2 && avx512);
    assert_eq!(f.contains(Features::AVX512_VNNI), has!("avx512vnni"));
    assert_eq!(f.contains(Features::AVX512_BF16), has!("avx512bf16"));
    assert_eq!(f.contains(Features::AVX512_FP16), has!("avx512fp16"));
    assert_eq!(f.contains(Features::AVX_VNNI), has!("avxvnni"));
    // Only the operating system can grant tiles.
    assert_eq!(f.intersection(Features::AMX), Features::NONE);
}

fn forced<E: Element>() {
    let caps = Caps::detect();
    for level in IsaLevel::ALL {
        let there = caps.features().contains(level.requires());
        match Kernels::<E>::forced(level) {
            Ok(k) => {
                assert!(there);
                assert_eq!(k.level(), level);
                assert_eq!(k.caps().level(), level);
                assert_eq!(k.caps().caches(), caps.caches());
            }
            Err(e) => {
                assert!(!there, "{level}: {e}");
                let missing = level.requires().without(caps.features());
                assert_eq!(e, KernelError::IsaUnavailable { want: level, have: caps.level(), missing });
            }
        }
    }
    assert_eq!(Kernels::<E>::with(Caps::SCALAR).level(), IsaLevel::Scalar);
    assert_eq!(Kernels::<E>::detect().level(), caps.level());
}

#[test]
fn forced_levels_are_what_was_asked_for() {
    forced::<f32>();
    forced::<gllm_kernels_core::f16>();
    forced::<gllm_kernels_core::bf16>();
}

#[test]
fn restriction_leaves_nothing_of_higher_levels() {
    let caps = Caps::detect();
    let scalar = caps.restricted_to(IsaLevel::Scalar).unwrap();
    assert_eq!(scalar.features(), Features::NONE);
    assert_eq!(scalar.caches(), caps.caches());
    if let Ok(avx2) = caps.restricted_to(IsaLevel::Avx2) {
        let wide = Features::AVX512 | Features::AVX512_VNNI | Features::AVX512_BF16 | Features::AVX512_FP16;
        assert_eq!(avx2.features().intersection(wide | Features::AMX), Features::NONE);
        assert_eq!(avx2.level(), IsaLevel::Avx2);
        let e = avx2.restricted_to(IsaLevel::Avx512).unwrap_err();
        let (want, have) = (IsaLevel::Avx512, IsaLevel::Avx2);
        assert_eq!(e, KernelError::IsaUnavailable { want, have, missing: Features::AVX512 });
    }
    for level in IsaLevel::ALL {
        assert_eq!(caps.restricted_to(level).is_ok(), caps.features().contains(level.requires()));
        if level != IsaLevel::Scalar {
            let e = Caps::SCALAR.restricted_to(level).unwrap_err();
            let (have, missing) = (IsaLevel::Scalar, level.requires());
            assert_eq!(e, KernelError::IsaUnavailable { want: level, have, missing });
        }
    }
}

#[test]
fn taking_features_away_lowers_the_level() {
    let caps = Caps::detect();
    assert_eq!(caps.without(Features::NONE), caps);
    // AVX-512 kernels use AVX2 too.
    assert_eq!(caps.without(Features::AVX2 | Features::NEON).level(), IsaLevel::Scalar);
    let k = Kernels::<f32>::with(caps.without(Features::AVX512));
    assert!(k.level() < IsaLevel::Avx512);
    let (x, mut y) = ([-1.0, 2.0], [0.0; 2]);
    k.relu(&x, &mut y).unwrap();
    assert_eq!(y, [0.0, 2.0]);
}

/// The plan for rounded activations computes with the kernels that the caller has chosen.
#[test]
fn plans_keep_the_chosen_kernels() {
    let (op, format) = (Op::QgemvPacked, QuantFormat::Q8_0);
    // What does not depend on the storage type: kernels in assembly, capabilities, store policy.
    fn rest<E: Element>(k: Kernels<E>) -> String {
        let text = format!("{k:?}");
        text.split_once(", tier: ").expect("there are tiers").1.to_owned()
    }
    let mut chosen = BTreeSet::new();
    for level in IsaLevel::ALL {
        let Ok(k) = Kernels::<f32>::forced(level) else { continue };
        let own = |row: &&KernelInfo| {
            (row.op, row.format, row.element, row.level) == (op, Some(format), ElementType::F32, level)
        };
        for k in kernels().filter(own).filter_map(|row| k.with_qgemv(row).ok()) {
            let k = k.with_stores(StorePolicy::Streamed);
            let plan = k.qgemm_plan(format, 9, 4, 32, Precision::Bf16).unwrap();
            assert_eq!(plan.kernels().stores(), StorePolicy::Streamed);
            assert_eq!(rest(plan.kernels()), rest(k), "{level}");
            chosen.insert(rest(k));
        }
    }
    assert!(chosen.len() > 1, "there is no choice here");
}

/// What is kept must be right on every core: only x86-64 has that.
#[test]
fn a_core_has_what_is_detected() {
    // SAFETY: there is an operating system.
    let core = unsafe { Caps::of_this_core() };
    assert_eq!(core, Caps::detect());
    assert_eq!(core.common(core), core);
    assert_eq!(core.common(Caps::SCALAR).features(), Features::NONE);
    assert_eq!(Caps::SCALAR.common(core), Caps::SCALAR);
}

/// Every set of features of this architecture, whatever this CPU has.
fn every_cpu() -> Vec<Caps> {
    let x86 = Features::AVX2 | Features::AVX512 | Features::AVX512_VNNI | Features::AVX512_BF16;
    let x86 = x86 | Features::AVX512_FP16 | Features::AVX_VNNI | Features::AMX;
    let own = |&&(feature, _): &&(Features, &str)| x86.contains(feature) == cfg!(target_arch = "x86_64");
    let all: Vec<Features> = Features::ALL.iter().filter(own).map(|&(feature, _)| feature).collect();
    let sets = 0..1u32 << all.len();
    let sets = sets.map(|set| {
        let chosen = all.iter().enumerate().filter(|(i, _)| set >> i & 1 == 1);
        chosen.fold(Features::NONE, |set, (_, &feature)| set | feature)
    });
    // SAFETY: kernels are chosen by these, and none is called.
    sets.map(|set| unsafe { Caps::SCALAR.with_features(set) }).collect()
}

/// Places in the registry, which has the best kernels first, of what is chosen for `op`; by format, if it takes any.
fn ranks<E: Operand>(caps: Caps, op: Op, rows: &[(&'static str, Op)]) -> Vec<usize> {
    let k = Kernels::<E>::with(caps);
    let formats = QuantFormat::ALL.iter().map(|&f| Some(f)).chain([None]);
    let chosen = formats.filter_map(|format| k.kernel(op, format));
    chosen.map(|row| rows.iter().position(|&(name, _)| name == row.name).expect("a row")).collect()
}

#[test]
fn a_feature_more_never_chooses_a_slower_kernel() {
    let rows: Vec<_> = kernels().map(|row| (row.name, row.op)).collect();
    let quantised = [Op::QgemvPacked, Op::QgemvQ8, Op::Qgemm];
    let of = |caps| {
        let mut all: Vec<_> = quantised.into_iter().flat_map(|op| ranks::<f32>(caps, op, &rows)).collect();
        all.extend(ranks::<f32>(caps, Op::Gemm, &rows));
        all.extend(ranks::<f16>(caps, Op::Gemm, &rows));
        all.extend(ranks::<bf16>(caps, Op::Gemm, &rows));
        all.extend(ranks::<i8>(caps, Op::Gemm, &rows));
        all
    };
    let cpus: Vec<_> = every_cpu().into_iter().map(|caps| (caps, of(caps))).collect();
    for (caps, chosen) in &cpus {
        for &(feature, _) in Features::ALL.iter().filter(|&&(feature, _)| caps.features().contains(feature)) {
            let fewer = caps.without(feature);
            let (_, others) = cpus.iter().find(|(caps, _)| *caps == fewer).expect("a subset");
            assert_eq!(chosen.len(), others.len());
            for (&ours, &other) in chosen.iter().zip(others) {
                let names = [rows[ours].0, rows[other].0];
                assert!(
                    ours <= other,
                    "{}: {} where it has {} without {feature}",
                    caps.features(),
                    names[0],
                    names[1]
                );
            }
        }
    }
}

#[test]
fn feature_sets_are_sets() {
    for (i, &(a, name)) in Features::ALL.iter().enumerate() {
        assert_eq!(a.to_string(), name);
        assert!(!Features::NONE.contains(a) && a.contains(Features::NONE) && a.contains(a));
        for &(b, _) in &Features::ALL[i + 1..] {
            assert_eq!(a.intersection(b), Features::NONE);
            let both = a | b;
            assert!(both.contains(a) && both.contains(b));
            assert_eq!(both.without(a), b);
        }
    }
    assert_eq!(Features::NONE.to_string(), "none");
    assert_eq!((Features::AVX2 | Features::AVX512).to_string(), "avx2 avx512");
}

#[test]
fn levels_have_names() {
    for level in IsaLevel::ALL {
        assert_eq!(IsaLevel::from_name(level.name()), Some(level));
        assert_eq!(level.to_string(), level.name());
    }
    assert_eq!(IsaLevel::from_name("AVX2"), None);
    assert_eq!(IsaLevel::from_name(""), None);
}

#[test]
fn unknown_cache_sizes_become_defaults() {
    let zero = CacheSizes { l1d: 0, l2: 0, l3: 0, line: 0 };
    assert_eq!(Caps::SCALAR.with_caches(zero).caches(), CacheSizes::DEFAULT);
    let odd = CacheSizes { l1d: 1, l2: usize::MAX, l3: usize::MAX, line: 3 };
    let k = Kernels::<f32>::with(Caps::detect().with_caches(odd));
    assert_eq!(k.caps().caches(), odd);
    assert!(k.stream_from() > 1 << 40);
    assert_eq!(odd.last_level(), usize::MAX);
    assert_eq!(CacheSizes::DEFAULT.last_level(), CacheSizes::DEFAULT.l2);
}

#[test]
fn the_prefetcher_can_be_chosen() {
    let caps = Caps::detect();
    for p in Prefetcher::ALL {
        let chosen = caps.with_prefetcher(p);
        assert_eq!(chosen.prefetcher(), p);
        assert_eq!((chosen.features(), chosen.caches()), (caps.features(), caps.caches()));
        assert_eq!(Kernels::<f32>::with(chosen).caps().prefetcher(), p);
    }
}

#[test]
fn signatures_of_amd() {
    // Genoa, Raphael, Phoenix and Bergamo are Zen 4; Milan, Vermeer, Rembrandt and Cezanne are Zen 3, and Rome is Zen 2; Turin, Turin
    // with dense cores, and Granite Ridge are Zen 5.
    let all: [(_, &[u32]); 4] = [
        (0, &[0x83_0f10]),
        (3, &[0xa0_0f11, 0xa2_0f10, 0xa4_0f41, 0xa5_0f00]),
        (4, &[0xa1_0f11, 0xa6_0f12, 0xa7_0f41, 0xaa_0f02]),
        (5, &[0xb0_0f21, 0xb1_0f10, 0xb4_0f40]),
    ];
    for (generation, signatures) in all {
        assert!(signatures.iter().all(|&signature| amd::zen(signature) == generation));
    }
}
