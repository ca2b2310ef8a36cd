//! Every shader is valid, and can be compiled for every interface, on machines without any of them.

use gllm_kernels_core::{QuantFormat, RopePairing};
use wgpu::naga;

use super::{CacheShape, Format, HeadNorm, OfStreams, Shader, Sight};
use crate::backend::KvType;
use crate::model::{Gate, LinearAttention, Pooling, Recurrence, Rule, ShortConvolution};

/// Shaders as models use them: of all that they are made for each value once, and both ends of sizes.
fn all() -> Vec<Shader> {
    let quant = QuantFormat::ALL.iter().map(|&format| Format::Quant(format));
    let formats: Vec<_> = [Format::F32].into_iter().chain(quant).filter(|f| f.is_supported()).collect();
    let mut all = vec![
        Shader::Gather,
        Shader::Round,
        Shader::Cap,
        Shader::Advance,
        Shader::Argmax,
        Shader::Sample,
        Shader::LogProbabilities,
        Shader::Sort,
        Shader::Scale,
        Shader::Glu { gate: Gate::Xielu, gated: false },
    ];
    for &format in &formats {
        let embed = |(token_type, add, drafts)| Shader::Embed { format, token_type, add, drafts };
        // What is added has nothing to do with formats, either.
        let ways = [(false, false, false), (true, false, false), (false, true, false), (false, true, true)];
        all.extend(ways.map(embed).into_iter().take(match format {
            Format::F32 | Format::Quant(QuantFormat::F16) => 4,
            _ => 1,
        }));
        // Biases have nothing to do with formats: some of the shaders have them.
        let many = |(experts, f16, bias)| Shader::LinearMany { format, experts, f16, bias };
        let both = [(false, false, true), (true, false, true), (false, true, false), (true, true, false)];
        // Weights in f32 are not multiplied in f16.
        all.extend(both.map(many).into_iter().take(if format == Format::F32 { 2 } else { 4 }));
        let few = |(n, lanes, experts, bias)| Shader::LinearFew { format, n, lanes, experts, bias };
        let rows = [
            (1, 4, false, false),
            (2, 8, false, false),
            (4, 16, false, false),
            (8, 32, false, true),
            (1, 4, true, false),
            (1, 32, true, true),
        ];
        all.extend(rows.map(few));
        let rounded = |(lanes, experts, bias)| Shader::LinearRounded { format, lanes, experts, bias };
        let both = [(4, false, false), (32, false, true), (4, true, false), (32, true, true)];
        all.extend(both.map(rounded).into_iter().filter(|_| format.has_codes()));
    }
    let routes = [(false, false, false), (true, false, false), (false, true, false), (false, false, true)];
    all.extend(routes.map(|(biased, factors, best)| Shader::Route { biased, factors, best }));
    let combine = |(shared, gated, scaled)| Shader::Combine { shared, gated, scaled };
    let ways = [(false, false, false), (true, false, false), (true, true, false), (true, false, true)];
    all.extend(ways.map(combine));
    all.extend([Pooling::Mean, Pooling::First, Pooling::Last].map(|pooling| Shader::Pool { pooling }));
    let norm = |(add, post, layer, stays)| Shader::Norm { add, post, layer, stays };
    let norms = [(false, false), (true, false), (true, true)].map(|(add, post)| (add, post, false, false));
    all.extend(norms.map(norm));
    let of_encoders = [(false, true), (true, true), (true, false)];
    all.extend(of_encoders.map(|(add, layer)| norm((add, false, layer, true))));
    all.extend([false, true].map(|add| norm((add, false, true, false))));
    let passes = [(false, false), (true, false), (true, true)];
    all.extend(passes.map(|(add, post)| Shader::Pass { add, post }));
    all.extend([Shader::NormHeads, Shader::Sum, Shader::Sparse]);
    let of_streams = [
        OfStreams::Split,
        OfStreams::Predict,
        OfStreams::AddLowRank,
        OfStreams::Correct,
        OfStreams::AddToOthers,
        OfStreams::Take,
        OfStreams::Merge,
    ];
    all.extend([2, 4, 8].into_iter().flat_map(|count| of_streams.map(|of| Shader::Streams { of, count })));
    let gates = [Gate::Silu, Gate::GeluTanh, Gate::Gelu, Gate::ClampedSwiglu, Gate::ReluSquared];
    all.extend(gates.into_iter().flat_map(|gate| [true, false].map(|gated| Shader::Glu { gate, gated })));
    all.extend(gates.map(|gate| Shader::GateBy { gate }));
    for (key_heads, value_heads, key_size, taps, tiled, space) in [
        (2, 6, 32, 4, true, None),
        (16, 32, 128, 4, false, None),
        (1, 1, 256, 8, false, None),
        (3, 3, 5, 2, true, None),
        (8, 128, 128, 4, false, Some(64)),
        (1, 3, 6, 2, false, Some(5)),
    ] {
        let rule = match space {
            None => Rule::Delta { decay_heads: value_heads / key_heads },
            Some(_) => Rule::StateSpace,
        };
        let value_size = space.unwrap_or(key_size);
        let of =
            LinearAttention { rule, key_heads, value_heads, key_size, value_size, taps, tiled, normed: true };
        let convolve = Shader::Convolve { of: Recurrence::Linear(of), bias: space.is_some() };
        all.extend([convolve, Shader::Delta { of }, Shader::DeltaNorm { of }]);
    }
    for (channels, taps) in [(2048, 3), (100, 8)] {
        let of = Recurrence::Convolution(ShortConvolution { channels, taps });
        all.extend([Shader::Convolve { of, bias: false }, Shader::Keep { of }]);
    }
    for kind in [KvType::F16, KvType::Bf16, KvType::F32] {
        for (heads, kv_heads, pairs) in [(9, 3, 32), (32, 8, 64), (4, 1, 128), (4, 4, 8), (14, 2, 40)] {
            // Gates have nothing to do with the type of the cache.
            let gates = kind == KvType::F16 && kv_heads < 4;
            let shape = CacheShape { kind, heads, kv_heads, pairs, latent: None, page_tokens: 64, gates };
            let both = [(false, false), (false, true), (true, false), (true, true)];
            let attend =
                |(pieces, sinks, slopes, sight)| Shader::Attend { shape, pieces, sinks, slopes, sight };
            all.extend(both.map(|(pieces, sinks)| attend((pieces, sinks, false, Sight::Before))));
            // Texts are whole where there are no pieces.
            all.extend([false, true].map(|slopes| attend((false, false, slopes, Sight::Whole))));
            all.extend(both.map(|(pieces, sinks)| attend((pieces, sinks, false, Sight::Path))));
            all.extend([Sight::Before, Sight::Path].map(|sight| attend((true, false, true, sight))));
            all.extend([false, true].map(|drafts| Shader::Join { shape, drafts }));
            all.push(Shader::Move { shape });
            let plain = HeadNorm::default();
            let each = HeadNorm { centred: true, each: true, ..plain };
            let behind = HeadNorm { behind: true, ..plain };
            let norms = [plain, each, behind, HeadNorm { values: true, ..plain }].map(Some);
            let without = [false, true].map(|bias| (bias, None));
            for (bias, norm) in without.into_iter().chain(norms.map(|norm| (false, norm))) {
                let pairings = [RopePairing::Adjacent, RopePairing::HalfSplit];
                // Bounds are those of a model without biases and norms.
                let bounded = !bias && norm.is_none();
                let heads = |pairing, drafts| Shader::Heads { shape, bias, bounded, norm, pairing, drafts };
                all.extend(pairings.map(|pairing| heads(pairing, false)));
                all.push(heads(RopePairing::HalfSplit, true));
            }
        }
        for (heads, pairs, values, plain) in [(16, 288, 256, 128), (5, 40, 32, 24)] {
            let latent = Some(values);
            let shape = CacheShape { kind, heads, kv_heads: 1, pairs, latent, page_tokens: 64, gates: false };
            for (pieces, sight) in [(false, Sight::Before), (true, Sight::Before), (true, Sight::Path)] {
                all.push(Shader::Attend { shape, pieces, sinks: false, slopes: false, sight });
            }
            let pairings = [(RopePairing::Adjacent, false), (RopePairing::HalfSplit, true)];
            all.extend(pairings.map(|(pairing, drafts)| Shader::Latent { shape, plain, pairing, drafts }));
            all.extend([false, true].map(|drafts| Shader::Join { shape, drafts }));
            all.push(Shader::Move { shape });
        }
    }
    all
}

/// Every shader, with and without what not every adapter has.
fn both() -> Vec<(Shader, bool)> {
    let differs =
        |(shader, subgroups): &(Shader, bool)| !subgroups || shader.text(true) != shader.text(false);
    all().into_iter().flat_map(|shader| [(shader, false), (shader, true)]).filter(differs).collect()
}

/// Whether it computes in f16.
fn is_f16(shader: Shader) -> bool {
    matches!(shader, Shader::LinearMany { f16: true, .. })
}

/// Parses and validates a shader.
fn valid((shader, subgroups): (Shader, bool)) -> (naga::Module, naga::valid::ModuleInfo) {
    let text = shader.text(subgroups).unwrap();
    let module = naga::front::wgsl::parse_str(&text)
        .unwrap_or_else(|e| panic!("{shader:?}: {}", e.emit_to_string(&text)));
    let flags = naga::valid::ValidationFlags::all();
    // Every adapter has this one: `unpack2x16float` belongs to WGSL itself.
    let mut capabilities = naga::valid::Capabilities::SHADER_FLOAT16_IN_FLOAT32;
    capabilities.set(naga::valid::Capabilities::SUBGROUP, subgroups);
    capabilities.set(naga::valid::Capabilities::SHADER_FLOAT16, is_f16(shader));
    let info = naga::valid::Validator::new(flags, capabilities)
        .subgroup_stages(naga::valid::ShaderStages::COMPUTE)
        .subgroup_operations(naga::valid::SubgroupOperationSet::all())
        .validate(&module)
        .unwrap_or_else(|e| panic!("{shader:?}: {}", e.emit_to_string(&text)));
    (module, info)
}

#[test]
fn every_format_has_a_shader() {
    for &format in QuantFormat::ALL {
        assert!(Format::Quant(format).is_supported(), "{format}");
    }
}

#[test]
fn every_shader_is_valid() {
    let all = both();
    all.iter().for_each(|&shader| drop(valid(shader)));
    let subgroups = all.iter().filter(|(_, subgroups)| *subgroups).count();
    assert!(subgroups > 0 && all.len() - subgroups > 100);
}

/// What an adapter allows at least: workgroups of 256 threads, with 16 KiB of memory.
#[test]
fn workgroups_are_small() {
    for shader in both() {
        let (module, _) = valid(shader);
        let mut layouts = naga::proc::Layouter::default();
        layouts.update(module.to_ctx()).unwrap();
        let of_workgroup = |v: &&naga::GlobalVariable| v.space == naga::AddressSpace::WorkGroup;
        let variables = module.global_variables.iter().map(|v| v.1).filter(of_workgroup);
        let bytes: u32 = variables.map(|v| layouts[v.ty].size).sum();
        let [x, y, z] = module.entry_points[0].workgroup_size;
        assert!(x * y * z <= super::super::device::THREADS, "{shader:?}: {x} x {y} x {z} threads");
        assert!(bytes <= 16 << 10, "{shader:?}: {bytes} bytes");
    }
}

/// What drivers get: SPIR-V for Vulkan, Metal's language, and DirectX's.
#[cfg(feature = "wgpu-shaders")]
#[test]
fn every_shader_compiles_for_every_interface() {
    use naga::back::hlsl::ShaderModel;
    for shader in both() {
        let (module, info) = valid(shader);
        let spirv = naga::back::spv::Options { lang_version: (1, 3), ..Default::default() };
        let words = naga::back::spv::write_vec(&module, &info, &spirv, None);
        assert!(words.is_ok_and(|words| !words.is_empty()), "{shader:?}: SPIR-V");
        let metal = naga::back::msl::Options {
            lang_version: (2, 4),
            fake_missing_bindings: true,
            ..Default::default()
        };
        let text = naga::back::msl::write_string(&module, &info, &metal, &Default::default());
        assert!(
            text.as_ref().is_ok_and(|t| t.0.contains("kernel void main_")),
            "{shader:?}: {:?}",
            text.err()
        );
        let directx = naga::back::hlsl::Options {
            shader_model: if is_f16(shader.0) { ShaderModel::V6_2 } else { ShaderModel::V6_0 },
            fake_missing_bindings: true,
            ..Default::default()
        };
        let mut text = String::new();
        let pipeline = Default::default();
        let written =
            naga::back::hlsl::Writer::new(&mut text, &directx, &pipeline).write(&module, &info, None);
        assert!(written.is_ok(), "{shader:?}: {:?}", written.err());
        assert!(text.contains("numthreads"), "{shader:?}");
    }
}

/// A pattern of options, and what remains.
#[test]
fn lines_depend_on_options() {
    let mut composer = crate::backend::wgpu::composer::Composer { text: String::new(), options: vec!["A"] };
    composer.push("one\n//#if A\ntwo\n//#if B\nthree\n//#else\nfour\n//#endif\n//#else\nfive\n//#endif\nsix");
    assert_eq!(composer.text, "one\ntwo\nfour\nsix\n");
}
