//! How models rotate, and which positions their layers see.

use gllm_kernels_std::backend::CpuBackend;
use gllm_kernels_std::model::{Generator, Options};

use super::*;

#[test]
fn positions_are_scaled_as_the_file_says() {
    let with = |pairs: &[(&str, Value<'static>)]| {
        let mut draft = Draft::of("llama");
        for (key, value) in pairs {
            draft.set(&format!("llama.rope.{key}"), *value);
        }
        draft
    };
    let rope = |pairs: &[_]| config(&with(pairs)).ropes[0].clone();
    let factor = ("scaling.factor", Value::F32(4.0));
    let kind = |k| ("scaling.type", Value::String(k));
    assert_eq!(rope(&[factor]).scaling, RopeScaling::Linear { factor: 4.0 });
    assert_eq!(rope(&[kind("linear"), factor]).scaling, RopeScaling::Linear { factor: 4.0 });
    assert_eq!(rope(&[("scale_linear", Value::F32(2.0))]).scaling, RopeScaling::Linear { factor: 2.0 });
    assert_eq!(rope(&[kind("none"), factor]).scaling, RopeScaling::None);
    let yarn = |beta_fast, original_context| RopeScaling::Yarn {
        factor: 4.0,
        beta_fast,
        beta_slow: 1.0,
        original_context,
    };
    assert_eq!(rope(&[kind("yarn"), factor]).scaling, yarn(32.0, 128.0));
    let more =
        [("scaling.original_context_length", Value::U32(64)), ("scaling.yarn_beta_fast", Value::F32(16.0))];
    let scaled = rope(&[kind("yarn"), factor, more[0], more[1]]);
    assert_eq!((scaled.scaling, scaled.attention_factor), (yarn(16.0, 64.0), None));
    let scaled = rope(&[kind("yarn"), factor, ("scaling.attn_factor", Value::F32(2.0))]);
    assert_eq!(scaled.attention_factor, Some(2.0 * (0.1 * 4f64.ln() + 1.0)));
    let scaled = rope(&[kind("yarn"), factor, ("scaling.yarn_log_multiplier", Value::F32(0.5))]);
    assert_eq!(scaled.attention_factor, Some((0.1 * 4f64.ln() + 1.0) / (0.05 * 4f64.ln() + 1.0)));
    assert_eq!(bad_value(&with(&[kind("dynamic"), factor])).0, "llama.rope.scaling.type");
    match refused(&with(&[kind("yarn")])) {
        ModelError::MissingKey { key } => assert_eq!(key, "llama.rope.scaling.factor"),
        other => panic!("{other}"),
    }

    // Divisors of frequencies, as Llama 3 has them.
    let mut draft = Draft::of("llama");
    draft.tensor("rope_freqs.weight", &[8], GgmlType::F32).fill = 2.0;
    assert_eq!(config(&draft).ropes[0].factors, Some(vec![2.0; 8]));
    draft.tensors.last_mut().unwrap().fill = 0.0;
    assert!(refused(&draft).to_string().contains("rope_freqs.weight"));
    draft.tensors.last_mut().unwrap().dims = vec![7];
    assert!(refused(&draft).to_string().contains("rope_freqs.weight"));

    // Two lists of them, for short texts and for long ones.
    let mut draft = with(&[kind("longrope"), ("scaling.original_context_length", Value::U32(64))]);
    draft.tensor("rope_factors_short.weight", &[8], GgmlType::F32).fill = 2.0;
    assert!(refused(&draft).to_string().contains("rope_factors_long.weight"));
    draft.tensor("rope_factors_long.weight", &[8], GgmlType::F32).fill = 3.0;
    let c = config(&draft);
    assert_eq!((&c.ropes[0].factors, c.ropes[0].scaling), (&Some(vec![2.0; 8]), RopeScaling::None));
    assert_eq!(c.for_texts_of(64).ropes[0].factors, Some(vec![2.0; 8]));
    assert_eq!(c.for_texts_of(65).ropes[0].factors, Some(vec![3.0; 8]));
    draft.tensors.last_mut().unwrap().fill = f32::INFINITY;
    assert!(refused(&draft).to_string().contains("rope_factors_long.weight"));

    // Gemma's local layers keep their frequencies, whatever the others do.
    let mut draft = Draft::of("gemma3");
    draft.set("gemma3.rope.scaling.factor", Value::F32(8.0));
    let scalings: Vec<_> = config(&draft).ropes.iter().map(|r| r.scaling).collect();
    assert_eq!(scalings, [RopeScaling::Linear { factor: 8.0 }, RopeScaling::None]);
    draft.remove("gemma3.attention.sliding_window");
    assert_eq!(config(&draft).layer, [Layer::default(); 7]);
}

/// Scores have a temperature of 1 up to the length of the first training, or to another one that a file says; texts may be longer.
#[test]
fn temperatures_of_scores() {
    for name in ["mistral3", "mistral4"] {
        let mut draft = Draft::of(name);
        let length = |draft: &Draft| config(draft).temperature.map(|of| (of.scale, of.length));
        assert_eq!(length(&draft), None);
        draft.set(&format!("{name}.attention.temperature_scale"), Value::F32(0.1));
        assert_eq!(length(&draft), Some((0.1, 128)));
        draft.set(&format!("{name}.rope.scaling.original_context_length"), Value::U32(40));
        assert_eq!(length(&draft), Some((0.1, 40)));
        assert_eq!((config(&draft).longest, config(&draft).context), (None, 128));
        draft.set(&format!("{name}.attention.temperature_length"), Value::U32(30));
        assert_eq!(length(&draft), Some((0.1, 30)));
        let of = config(&draft).temperature.unwrap();
        assert_eq!([0, 29].map(|position| of.factor(position)), [1.0; 2]);
        for (position, stretches) in [(30, 1.0f64), (59, 1.0), (60, 2.0), (3_000_000, 100_000.0)] {
            let want = 1.0 + 0.1 * (1.0 + stretches).ln();
            assert!((f64::from(of.factor(position)) - want).abs() < 1e-6, "{position}");
        }
    }
}

/// Llama 4's layers see chunks of positions: texts end with the first one, and a cache refuses more.
#[test]
fn texts_that_are_too_long() {
    let mut draft = Draft::of("llama4");
    assert_eq!((config(&draft).longest, config(&draft).context), (Some(8191), 128));
    draft.set("llama4.attention.temperature_length", Value::U32(40));
    draft.set("llama4.attention.temperature_scale", Value::F32(0.1));
    assert_eq!((config(&draft).longest, config(&draft).context), (Some(40), 40));
    assert_eq!(config(&draft).temperature, None);
    let bytes = draft.bytes();
    let model = Model::from_bytes(&bytes).unwrap();
    let options = Options { max_tokens: Some(100), ..Options::default() };
    let mut generator = Generator::new(CpuBackend::new(1).unwrap(), &model, options).unwrap();
    assert!(generator.logits(&[3; 40]).is_ok());
    let said = generator.logits(&[3; 41]).unwrap_err().to_string();
    assert!(said.contains("41") && said.contains("40"), "{said}");
}

/// Which layers see a window alone, as llama.cpp has it.
#[test]
fn windows_are_those_of_the_architecture() {
    // Files of other families may name a window (Qwen 2 does, and does not use it): it is not theirs.
    for name in ["llama", "qwen2", "qwen3"] {
        let mut draft = Draft::of(name);
        draft.set(&format!("{name}.attention.sliding_window"), Value::U32(8));
        let c = config(&draft);
        assert_eq!((windows(&c), c.ropes.len()), (vec![None], 1), "{name}");
    }
    let locals = |pattern: Option<u32>, window| {
        let mut draft = Draft::of("gemma3");
        draft.set("gemma3.attention.sliding_window", Value::U32(window));
        if let Some(period) = pattern {
            draft.set("gemma3.attention.sliding_window_pattern", Value::U32(period));
        }
        let c = config(&draft);
        assert!(c.layer.iter().all(|l| l.rope == usize::from(l.window.is_some())));
        c.layer.iter().map(|l| l.window == Some(window as usize)).collect::<Vec<_>>()
    };
    assert_eq!(locals(None, 8), [true, true, true, true, true, false, true]);
    assert_eq!(locals(Some(3), 8), [true, true, false, true, true, false, true]);
    assert_eq!(locals(Some(1), 8), [false; 7]);
    assert_eq!(locals(Some(0), 8), [true; 7]);
    assert_eq!(locals(None, 0), [false; 7]);
    let mut draft = Draft::of("gpt-oss");
    draft.set("gpt-oss.attention.sliding_window_pattern", Value::U32(4));
    let local: Vec<_> = config(&draft).layer.iter().map(|l| l.window.is_some()).collect();
    assert_eq!(local, [true, true, true, false, true, true, true]);
    // Layers with a window may rotate otherwise, but are scaled alike.
    draft.set("gpt-oss.rope.freq_base_swa", Value::F32(5e5));
    draft.set("gpt-oss.rope.scaling.factor", Value::F32(4.0));
    let c = config(&draft);
    assert_eq!(c.ropes.iter().map(|r| r.theta).collect::<Vec<_>>(), [1e6, 5e5]);
    assert_eq!(c.ropes[0].scaling, c.ropes[1].scaling);
    assert!(c.layer.iter().all(|l| l.rope == usize::from(l.window.is_some())));
    // The first files of Gemma 2 have no window; Phi's layers have all the same one, or none.
    let mut draft = Draft::of("gemma2");
    draft.remove("gemma2.attention.sliding_window");
    assert_eq!(windows(&config(&draft)), [Some(4096), None]);
    let mut draft = Draft::of("phi3");
    draft.set("phi3.attention.sliding_window", Value::U32(0));
    assert_eq!(windows(&config(&draft)), [None]);
    const PATTERN: &str = "gemma3.attention.sliding_window_pattern";
    let mut draft = Draft::of("gemma3");
    draft.set(PATTERN, Value::String("all"));
    assert_eq!(bad_value(&draft).0, PATTERN);
    // Files may say it of each layer.
    let each = [true, false, false, true, true, false, true];
    draft.set_array(PATTERN, ValueType::Bool, &each.map(Value::Bool));
    assert_eq!(config(&draft).layer.iter().map(|l| l.window.is_some()).collect::<Vec<_>>(), each);
    draft.set_array(PATTERN, ValueType::Bool, &each.map(Value::Bool)[1..]);
    let (key, _, expected) = bad_value(&draft);
    assert!(key == PATTERN && expected.contains("7 layers"), "{key}: {expected}");
    draft.set_array(PATTERN, ValueType::U32, &[Value::U32(1); 7]);
    assert_eq!(bad_value(&draft).0, PATTERN);
}

/// How layers with windows, and those without, rotate in Exaone 4 and OLMo 3.
#[test]
fn rotations_of_layers_with_windows() {
    let mut draft = Draft::of("olmo2");
    draft.set("olmo2.rope.scaling.type", Value::String("linear"));
    draft.set("olmo2.rope.scaling.factor", Value::F32(4.0));
    let c = config(&draft);
    assert_eq!([0, 1].map(|i| c.ropes[i].theta), [1e6; 2]);
    let scaling = RopeScaling::Linear { factor: 4.0 };
    assert_eq!([0, 1].map(|i| c.ropes[i].scaling), [scaling, RopeScaling::None]);
    assert!(c.layer.iter().all(|layer| layer.rope == usize::from(layer.window.is_some())));
    // OLMo 2, and the small Exaone 4: no windows, and all layers rotate.
    for name in ["olmo2", "exaone4"] {
        let mut draft = Draft::of(name);
        draft.remove(&format!("{name}.attention.sliding_window"));
        let c = config(&draft);
        assert_eq!((c.ropes.len(), c.layer), (1, vec![Layer::default(); 7]), "{name}");
    }
    let mut draft = Draft::of("exaone4");
    draft.set("exaone4.rope.freq_base_swa", Value::F32(5e5));
    let c = config(&draft);
    assert_eq!(c.ropes.iter().map(|rope| (rope.theta, rope.dims)).collect::<Vec<_>>(), [(5e5, 16), (5e5, 0)]);
}
