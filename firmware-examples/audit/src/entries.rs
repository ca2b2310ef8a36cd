//! THE enumeration: one row for every public function, named like it.

use core::fmt::{self, Write};
use core::hint::black_box;

use gllm_kernels_core::{
    bf16, blocks, codebooks, f16, kernels, single, Alibi, Attended, Caps, ConvFilter, DeltaGates, Element,
    ElementType, GemmPlan, IsaLevel, Kernels, KvHead, KvPiece, KvTree, MatMut, MatRef, Op, QgemmPlan,
    QuantFormat, Right, Scratch, ScratchReq, StorePolicy,
};

use crate::args::Args;

/// Exports `audit_<name>_<element>` for every row; what the row computes is kept.
macro_rules! audit {
    ($($name:ident($a:ident) => $call:expr;)*) => {
        $(mod $name {
            use super::*;

            fn call<E: Element>($a: &mut Args<'_, E>) {
                let _ = black_box($call);
            }
            #[export_name = concat!("audit_", stringify!($name), "_f32")]
            extern "C" fn call_f32(args: &mut Args<'_, f32>) {
                call(args);
            }
            #[export_name = concat!("audit_", stringify!($name), "_f16")]
            extern "C" fn call_f16(args: &mut Args<'_, f16>) {
                call(args);
            }
            #[export_name = concat!("audit_", stringify!($name), "_bf16")]
            extern "C" fn call_bf16(args: &mut Args<'_, bf16>) {
                call(args);
            }
        })*

        const ROWS: &[&str] = &[$(stringify!($name)),*];
    };
}

audit! {
    // Vectors.
    vec_dot(a) => a.k.vec_dot(a.x, a.y);
    vec_sum(a) => a.k.vec_sum(a.x);
    vec_max(a) => a.k.vec_max(a.x);
    vec_add(a) => a.k.vec_add(a.x, a.y, a.z);
    vec_add_inplace(a) => a.k.vec_add_inplace(a.x, a.z);
    vec_mul(a) => a.k.vec_mul(a.x, a.y, a.z);
    vec_mul_inplace(a) => a.k.vec_mul_inplace(a.x, a.z);
    vec_scale(a) => a.k.vec_scale(a.s[0], a.x, a.z);
    vec_scale_inplace(a) => a.k.vec_scale_inplace(a.s[0], a.z);
    vec_axpy(a) => a.k.vec_axpy(a.s[0], a.x, a.z);

    // Matrices.
    gemv(a) => a.left().and_then(|m| a.k.gemv(a.s[0], m, a.x, a.s[1], a.g));
    gemm(a) => a.gemm().and_then(|g| g.plan.run(g.c, g.a, g.b, None, g.scratch));
    gemm_bias(a) => {
        let bias = a.cos;
        a.gemm().and_then(|g| g.plan.run(g.c, g.a, g.b, Some(bias), g.scratch))
    };
    gemm_fused(a) => {
        let (bias, activation) = (a.cos, a.activation);
        a.gemm().and_then(|g| g.plan.activation(activation).run(g.c, g.a, g.b, Some(bias), g.scratch))
    };
    gemm_bt(a) => a.gemm().and_then(|g| g.plan.run(g.c, g.a, Right::Transposed(g.b), None, g.scratch));
    gemm_skinny(a) => {
        a.n[0] %= 33;
        a.gemm().and_then(|g| g.plan.run(g.c, g.a, g.b, None, g.scratch))
    };
    accumulate(a) => a.gemm_int8().and_then(|g| g.plan.accumulate().run(g.c, g.a, g.b, None, g.scratch));
    gemm_bt_int8(a) => a.gemm_int8().and_then(|g| g.plan.run(g.c, g.a, Right::Transposed(g.b), None, g.scratch));
    prepacked_int8(a) => {
        let k = Kernels::<i8>::with(a.caps);
        let b = k.packed_b(a.bytes, a.n[0], a.n[1]).and_then(|b| b.col_range(a.n[2], a.n[3]));
        b.and_then(|b| a.gemm_int8().and_then(|g| g.plan.run(g.c, g.a, b, None, g.scratch)))
    };
    pack_b_int8(a) => {
        let b = MatRef::with_strides(a.p, a.n[0], a.n[1], a.n[2], a.n[3]);
        b.and_then(|b| Kernels::<i8>::with(a.caps).pack_b(b, a.buf).map(|b| b.k()))
    };
    resized(a) => a.k.gemm_plan(a.n[0], a.n[1], a.n[2]).and_then(|p| p.resized(a.n[2], a.n[3])).map(|p| p.shape());
    gemm_prepacked(a) => {
        let b = a.k.packed_b(a.bytes, a.n[0], a.n[1]).and_then(|b| b.col_range(a.n[2], a.n[3]));
        b.and_then(|b| a.gemm().and_then(|g| g.plan.run(g.c, g.a, b, None, g.scratch)))
    };
    gemm_prepacked_bias(a) => {
        let b = a.k.packed_b(a.bytes, a.n[0], a.n[1]);
        let bias = a.cos;
        b.and_then(|b| a.gemm().and_then(|g| g.plan.run(g.c, g.a, b, Some(bias), g.scratch)))
    };
    gemm_in_place(a) => a.gemm().map(|g| g.plan.in_place(g.b));
    gemm_sizes(a) => a.k.gemm_plan(a.n[0], a.n[1], a.n[2]).map(|p| {
        (p.scratch(), p.scratch_packed(), p.tile(), GemmPlan::<E>::scratch_bound(a.n[0], a.n[1], a.n[2]), p.kernel_name())
    });
    pack_b(a) => a.right().and_then(|b| a.k.pack_b(b, a.buf)).map(|b| (b.k(), b.n(), b.col_step()));
    packed_b_size(a) => a.k.packed_b_size(a.n[0], a.n[1]);

    // Activations.
    relu(a) => a.k.relu(a.x, a.z);
    relu_inplace(a) => a.k.relu_inplace(a.z);
    exp(a) => a.k.exp(a.x, a.z);
    exp_inplace(a) => a.k.exp_inplace(a.z);
    tanh(a) => a.k.tanh(a.x, a.z);
    tanh_inplace(a) => a.k.tanh_inplace(a.z);
    silu(a) => a.k.silu(a.x, a.z);
    silu_inplace(a) => a.k.silu_inplace(a.z);
    gelu(a) => a.k.gelu(a.x, a.z);
    gelu_inplace(a) => a.k.gelu_inplace(a.z);
    gelu_tanh(a) => a.k.gelu_tanh(a.x, a.z);
    gelu_tanh_inplace(a) => a.k.gelu_tanh_inplace(a.z);
    swiglu(a) => a.k.swiglu(a.x, a.y, a.z);
    swiglu_inplace(a) => a.k.swiglu_inplace(a.z, a.y);
    geglu(a) => a.k.geglu(a.x, a.y, a.z);
    geglu_inplace(a) => a.k.geglu_inplace(a.z, a.y);

    // Rows.
    softmax(a) => a.k.softmax(a.x, a.z);
    softmax_inplace(a) => a.k.softmax_inplace(a.z);
    softmax_rows(a) => a.k.softmax_rows(a.n[0], a.softmax, a.x, a.z);
    softmax_rows_inplace(a) => a.k.softmax_rows_inplace(a.n[0], a.softmax, a.z);
    softmax_masked_rows(a) => {
        let valid = &a.n[..];
        a.k.softmax_masked_rows(a.n[0], a.s[0], valid, a.x, a.z)
    };
    softmax_masked_rows_inplace(a) => {
        let valid = &a.n[..];
        a.k.softmax_masked_rows_inplace(a.n[0], a.s[0], valid, a.z)
    };
    rms_norm(a) => a.k.rms_norm(a.x, a.w, a.s[0], a.z);
    rms_norm_inplace(a) => a.k.rms_norm_inplace(a.w, a.s[0], a.z);
    rms_norm_rows(a) => a.k.rms_norm_rows(a.n[0], a.x, a.w, a.s[0], a.z);
    rms_norm_rows_inplace(a) => a.k.rms_norm_rows_inplace(a.n[0], a.w, a.s[0], a.z);
    layer_norm(a) => a.k.layer_norm(a.x, a.w, a.b, a.s[0], a.z);
    layer_norm_inplace(a) => a.k.layer_norm_inplace(a.w, a.b, a.s[0], a.z);
    layer_norm_rows(a) => a.k.layer_norm_rows(a.n[0], a.x, a.w, a.b, a.s[0], a.z);
    layer_norm_rows_inplace(a) => a.k.layer_norm_rows_inplace(a.n[0], a.w, a.b, a.s[0], a.z);
    rope(a) => a.k.rope(a.rope_shape, a.cos, a.sin, a.x, a.z);
    rope_inplace(a) => a.k.rope_inplace(a.rope_shape, a.cos, a.sin, a.z);
    attend(a) => {
        let blocks = [a.x, a.y];
        let softcap = a.flag.then_some(a.s[0]);
        let alibi = [Alibi { slope: a.s[0], position: a.n[1] }; 3];
        let paths = [a.n[3] as u64; 3];
        let tree = Some(KvTree { first: a.n[2], paths: &paths });
        let piece = KvPiece { blocks: &blocks, first: a.n[1], spans: a.spans, softcap, alibi: &alibi, tree, next: &blocks };
        let all = Attended { sums: a.sums, values: a.g };
        (a.k.attend(a.n[0], a.cos, piece, all, Scratch::new(a.buf)), a.k.attend_scratch(a.n[0], a.n[1], a.n[2]))
    };
    attend_q8_0(a) => {
        let blocks = [a.bytes, a.bytes];
        let softcap = a.flag.then_some(a.s[0]);
        let alibi = [Alibi { slope: a.s[0], position: a.n[1] }; 3];
        let paths = [a.n[3] as u64; 3];
        let tree = Some(KvTree { first: a.n[2], paths: &paths });
        let piece = KvPiece { blocks: &blocks, first: a.n[1], spans: a.spans, softcap, alibi: &alibi, tree, next: &blocks };
        a.k.attend_q8_0(a.n[0], a.cos, piece, Attended { sums: a.sums, values: a.g }, Scratch::new(a.buf))
    };
    attend_join(a) => {
        let mut sums = [[0.0; 2]; 3];
        let mut all = Attended { sums: a.sums, values: a.g };
        all.clear();
        a.k.attend_join(a.n[0], all.reborrow(), Attended { sums: &mut sums, values: a.h })
    };
    kv_append(a) => {
        let rows = |x| MatRef::with_strides(x, a.n[0], a.n[1], a.n[2], a.n[3]);
        let appended = rows(a.cos).and_then(|keys| a.k.kv_append(a.n[1], keys, rows(a.sin)?, a.z));
        let head = KvHead { dim: a.n[0], values: a.n[1], latent: a.flag };
        (appended, a.k.kv_block_len(head))
    };
    kv_append_q8_0(a) => {
        let rows = |x| MatRef::with_strides(x, a.n[0], a.n[1], a.n[2], a.n[3]);
        let appended = rows(a.cos).and_then(|keys| a.k.kv_append_q8_0(a.n[1], keys, rows(a.sin)?, a.buf));
        (appended, a.k.kv_block_len_q8_0(a.n[0]))
    };
    kv_keys(a) => MatMut::with_strides(a.g, a.n[1], a.n[2], a.n[3], 1).and_then(|keys| a.k.kv_keys(a.n[0], a.z, keys));
    kv_keys_q8_0(a) => {
        MatMut::with_strides(a.g, a.n[1], a.n[2], a.n[3], 1).and_then(|keys| a.k.kv_keys_q8_0(a.n[0], a.buf, keys))
    };
    kv_move(a) => a.k.kv_move(a.n[0], a.z, a.n[1], a.n[2]);
    kv_move_q8_0(a) => a.k.kv_move_q8_0(a.n[0], a.buf, a.n[1], a.n[2]);
    gated_delta_rule(a) => {
        let [m, n, stride, step] = a.n;
        let gates = DeltaGates { decay: a.cos, beta: a.sin, corrected: m > n };
        let rows = |x| MatRef::with_strides(x, m, n, stride, step);
        let (state, y) = (MatMut::with_strides(a.g, n, m, stride, step), MatMut::with_strides(a.h, m, n, step, stride));
        rows(a.cos).and_then(|q| {
            Kernels::<f32>::with(a.caps).gated_delta_rule(state?, q, rows(a.sin)?, q.t(), gates, y?)
        })
    };
    causal_conv1d(a) => {
        let [m, n, stride, step] = a.n;
        let (state, y) = (MatMut::with_strides(a.g, n, m, stride, step), MatMut::with_strides(a.h, m, n, step, stride));
        let (x, w) = (MatRef::with_strides(a.cos, m, n, stride, step), MatRef::with_strides(a.sin, n, m, stride, step));
        x.and_then(|x| {
            let filter = ConvFilter { w: w?, bias: (m > n).then_some(a.cos), silu: stride > step };
            Kernels::<f32>::with(a.caps).causal_conv1d(state?, x, filter, y?)
        })
    };
    rope_table(a) => a.rope_freqs.table(a.rope_positions, a.g, a.h);

    // Quantised weights.
    surely_finite(a) => a.quant().map(|w| a.k.surely_finite(w));
    gather(a) => {
        let (table, y) = (a.left(), MatMut::with_strides(a.z, a.n[0], a.n[2], a.n[1], a.n[3]));
        table.and_then(|table| a.k.gather(table, a.ids, y?))
    };
    gather_q(a) => {
        let (table, y) = (a.quant(), MatMut::with_strides(a.g, a.n[0], a.n[2], a.n[1], a.n[3]));
        let packed = a.k.packed_q(a.format, a.n[0], a.n[1], a.bytes);
        let flag = a.flag;
        y.and_then(|y| if flag { a.k.gather_q(table?, a.ids, y) } else { a.k.gather_q(packed?, a.ids, y) })
    };
    dequant(a) => a.quant().and_then(|w| a.k.dequant(w, a.z));
    unpack(a) => a.quant().and_then(|w| a.k.unpack(w, a.codes, a.g, a.h));
    one_format(a) => {
        let x = MatRef::with_strides(a.cos, a.n[0], a.n[1], a.n[2], a.n[3]);
        let y = MatMut::with_strides(a.g, a.n[0], a.n[2], a.n[1], a.n[3]);
        let one = single::ALL.get(a.n[3]).zip(x.ok()).zip(y.ok());
        let run = one.map(|(((_, open, product), x), y)| {
            open(a.n[0], a.n[1], a.bytes).and_then(|w| product(a.caps, y, w, x, Scratch::new(a.buf)))
        });
        (run, single::q4_0::open(a.n[0], a.n[1], a.bytes).is_ok(), single::scratch(a.n[0], a.n[1]))
    };
    codebook(a) => {
        let e = a.number as u8;
        let block = blocks::BlockIq1M { qs: [e; 32], qh: [e; 16], scales: [blocks::U16([e; 2]); 4] };
        (codebooks::signs(e), codebooks::e8m0_half(e), codebooks::ue4m3_half(e), block.d())
    };
    quantize(a) => a.k.quantize(a.format, a.x, a.flag.then_some(a.cos), a.buf);
    dequant_fp8(a) => {
        let [m, n, stride, step] = a.n;
        a.fp8().and_then(|w| a.k.dequant_fp8(w, MatMut::with_strides(a.z, m, n, stride, step)?))
    };
    qgemv_fp8(a) => a.fp8().and_then(|w| w.output_range(a.n[2], a.n[3])).and_then(|w| a.k.qgemv_fp8(w, a.x, a.g));
    dequant_awq(a) => {
        let [m, n, stride, step] = a.n;
        a.awq().and_then(|w| a.k.dequant_awq(w, MatMut::with_strides(a.z, m, n, stride, step)?))
    };
    qgemv_awq(a) => a.awq().and_then(|w| w.output_range(a.n[2], a.n[3])).and_then(|w| a.k.qgemv_awq(w, a.x, a.g));
    dequant_gptq(a) => {
        let [m, n, stride, step] = a.n;
        a.gptq().and_then(|w| a.k.dequant_gptq(w, MatMut::with_strides(a.z, m, n, stride, step)?))
    };
    qgemv_gptq(a) => a.gptq().and_then(|w| w.output_range(a.n[2], a.n[3])).and_then(|w| a.k.qgemv_gptq(w, a.x, a.g));
    dequant_squeezellm(a) => {
        let [m, n, stride, step] = a.n;
        a.squeezellm().and_then(|w| a.k.dequant_squeezellm(w, MatMut::with_strides(a.z, m, n, stride, step)?))
    };
    qgemv_squeezellm(a) => {
        a.squeezellm().and_then(|w| w.output_range(a.n[2], a.n[3])).and_then(|w| a.k.qgemv_squeezellm(w, a.x, a.g))
    };
    squeezellm_ref(a) => a.squeezellm().map(|w| (w.outputs(), w.inputs(), w.size(), w.bits()));
    awq_ref(a) => a.awq().map(|w| (w.outputs(), w.inputs(), w.size()));
    gptq_ref(a) => a.gptq().map(|w| (w.outputs(), w.inputs(), w.size(), w.bits()));
    fp8_to_blocks(a) => a.fp8().and_then(|w| w.output_range(a.n[2], a.n[3])).and_then(|w| w.to_blocks(a.buf));
    fp8_ref(a) => a.fp8().map(|w| (w.outputs(), w.inputs(), w.size(), w.format()));
    from_raw_parts(a) => {
        // SAFETY: nothing is read or written.
        let view = unsafe { MatMut::from_raw_parts(a.g.as_mut_ptr(), [a.n[0], a.n[1]], [a.n[2], a.n[3]]) };
        (view.rows(), view.cols())
    };
    pack_q(a) => a.quant().and_then(|w| a.k.pack_q(w, a.buf)).map(|p| (p.rows(), p.cols(), p.bytes(), p.format()));
    packed_q(a) => (
        a.format.packed_size(a.n[0], a.n[1]),
        a.k.packed_q_room(a.format, a.n[0], a.n[1], a.buf).map(|room| room.len()),
    );
    pack_q_rows(a) => a.quant().and_then(|w| a.k.pack_q_rows(w, a.buf));
    decode_row(a) => {
        let p = a.k.packed_q(a.format, a.n[0], a.n[1], a.bytes).and_then(|p| p.row_range(a.n[2], a.n[3]));
        p.and_then(|p| p.decode_row(a.n[2], a.g))
    };
    qgemm(a) => {
        let (x, plan) = (a.left(), a.qgemm());
        let w = a.weights().and_then(|w| w.row_range(a.n[2], a.n[3]));
        let y = MatMut::with_strides(a.g, a.n[0], a.n[2], a.n[1], a.n[3]);
        plan.and_then(|plan| plan.run(y?, w?, x?, Some(a.cos), Scratch::new(a.buf)))
    };
    qgemv(a) => a.product(Op::Qgemv);
    qgemv_q8(a) => a.product(Op::QgemvQ8);
    qgemv_packed(a) => a.product(Op::QgemvPacked);
    quantize_activations(a) => {
        let (x, plan) = (a.left(), a.qgemm());
        plan.and_then(|plan| plan.packed(a.flag).prepare(x?, a.buf)).map(|q| {
            let sums = |q: Option<(&[i8; 32], f32)>| q.map(|(q, d)| f32::from(q[7]) * d);
            let blocks = q.block(a.n[0], a.n[1]).map(|(q, d)| f32::from(q[3][7]) * d);
            (sums(q.group(a.n[0], a.n[1])), blocks, q.exact(a.n[0]).map(|x| x.len()), q.rows(), q.cols(), q.as_matrix().is_some())
        })
    };
    prepare_rows(a) => {
        let (x, plan) = (a.left(), a.qgemm().map(|plan| plan.packed(a.flag)));
        plan.and_then(|plan| plan.prepare_rows(x?, a.buf).map(|()| plan.prepared_row_step()))
    };
    prepared(a) => {
        let (x, plan) = (a.left(), a.qgemm().map(|plan| plan.packed(a.flag)));
        let w = a.weights();
        let y = MatMut::with_strides(a.g, a.n[0], a.n[2], a.n[1], a.n[3]);
        plan.and_then(|plan| plan.run(y?, w?, plan.prepared(x?, a.bytes)?, None, Scratch::new(a.buf)))
    };
    prepares_as(a) => (a.qgemm().map(|plan| plan.prepares_as(&plan.resized(a.n[2], a.n[3]))), QgemmPlan::<E>::prepared_bound(a.n[0], a.n[1]));
    rounds_weights(a) => a.qgemm().map(|plan| plan.rounds_weights());
    plan_kernels(a) => (
        a.gemm().map(|g| g.plan.kernels().level()),
        a.qgemm().map(|plan| plan.kernels().level()),
    );
    qgemm_plan(a) => a.qgemm().map(|plan| (plan.resized(a.n[3], a.n[2]).shape(), plan.precision(), plan.scratch(), plan.prepared_size(), plan.scratch_prepared()));
    quant_weights(a) => a.weights().map(|w| (w.rows(), w.is_packed()));
    quant_ref(a) => a.quant().map(|w| (w.rows(), w.cols(), w.row_bytes(), w.as_bytes().len(), w.format()));
    quant_format(a) => (a.format.row_bytes(a.n[0]), a.format.block_len(), a.format.block_bytes(), a.format.gguf_type(), a.format.name(), a.format.group_len(), a.format.has_offsets(), a.format.element(), a.format.is_float());
    get(a) => blocks::Half([a.bytes.first().copied().unwrap_or(0); 2]).get();
    from_gguf(a) => (QuantFormat::from_gguf(a.number), QuantFormat::from_name(a.text));

    // Selection. These reach every kernel of every instruction set.
    detect(a) => (Kernels::<E>::detect(), a.x);
    with(a) => Kernels::<E>::with(a.caps);
    forced(a) => Kernels::<E>::forced(a.level);
    with_qgemv(a) => kernels().nth(a.n[0]).map(|row| a.k.with_qgemv(row));
    with_gemm(a) => kernels().nth(a.n[0]).map(|row| a.k.with_gemm(row));
    kernel(a) => a.k.kernel(a.op, Some(a.format)).or(a.k.kernel(a.op, None)).map(|row| row.name);
    with_stores(a) => a.k.with_stores(if a.flag { StorePolicy::Auto } else { StorePolicy::Streamed }).stores();
    level(a) => a.k.level();
    caps(a) => a.k.caps();
    stream_from(a) => a.k.stream_from();

    // Capabilities.
    restricted_to(a) => a.caps.restricted_to(a.level);
    without(a) => a.caps.without(a.features).level();
    // SAFETY: never called.
    with_features(a) => unsafe { a.caps.with_features(a.features) };
    // SAFETY: never called.
    of_this_core(a) => (unsafe { Caps::of_this_core() }.common(a.caps).level(), a.x);
    with_caches(a) => (a.caps.with_caches(a.caches).caches().last_level(), a.caches.share());
    with_prefetcher(a) => a.caps.with_prefetcher(a.prefetcher).prefetcher();
    features(a) => (a.caps.features().union(a.features).intersection(a.features), a.features.contains(a.features));
    requires(a) => (a.level.requires(), a.level.name(), a.level.lanes());
    from_name(a) => (Op::from_name(a.text), IsaLevel::from_name(a.text), a.op.name());
    kernels(a) => kernels().map(|k| k.name.len()).fold(a.n[0], usize::wrapping_add);

    // Views and scratch.
    new(a) => (MatRef::new(a.x, a.n[0], a.n[1]).map(|m| m.as_ptr()), MatMut::new(a.z, a.n[0], a.n[1]).map(|mut m| m.as_mut_ptr()));
    row_range(a) => a.left().and_then(|m| m.t().row_range(a.n[0], a.n[1]));
    split_rows(a) => {
        let at = a.n[3];
        a.out().and_then(|mut c| c.reborrow().t().split_rows(at).map(|(top, end)| (top.rows(), end.cols())))
    };
    strides(a) => a.right().map(|b| (b.rows(), b.cols(), b.row_stride(), b.col_stride()));
    empty(_a) => Scratch::empty();
    array(a) => ScratchReq::array::<E>(a.n[0]).and_then(|r| r.and(ScratchReq::array::<u8>(a.n[1])?)).map(|r| (r.size(), r.align(), r.size_unaligned()));

    // Elements and text.
    to_f32(a) => a.x.first().map(|x| E::from_f32(x.to_f32() + a.s[0]));
    size(a) => ElementType::ALL.iter().map(|t| t.size()).fold(a.n[0], usize::wrapping_add);
    display(a) => write!(Sink, "{}{}{}{}{:?}{:?}", a.error, a.caps.features(), a.level, E::TYPE, a.k, a.op);
}

/// Somewhere to write text that the compiler cannot drop.
struct Sink;
impl Write for Sink {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        if black_box(s).is_empty() {
            Err(fmt::Error)
        } else {
            Ok(())
        }
    }
}

/// Whether `names` lists `name`.
const fn lists(names: &[&str], name: &str) -> bool {
    let mut i = 0;
    while i < names.len() {
        let (a, b) = (names[i].as_bytes(), name.as_bytes());
        let mut j = 0;
        while j < a.len() && j < b.len() && a[j] == b[j] {
            j += 1;
        }
        if j == a.len() && j == b.len() {
            return true;
        }
        i += 1;
    }
    false
}

// An operator without a row does not compile; the message is its name.
const _: () = {
    let mut i = 0;
    while i < Op::ALL.len() {
        if !lists(ROWS, Op::ALL[i].name()) {
            panic!("{}", Op::ALL[i].name());
        }
        i += 1;
    }
};
