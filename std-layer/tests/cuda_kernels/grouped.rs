//! AWQ and GPTQ.

use gllm_kernels_std::core::{
    f16, AwqRef, Element, ElementType, GptqParts, GptqRef, GptqZeros, IsaLevel, KernelError, Kernels, MatMut,
};
use gllm_kernels_std::cuda::{CudaError, Float, GroupedLayout, GroupedParts, GroupedView};
use gllm_testkit::data::Source;

use super::{compare, source, text, trial, Gpu, Outcome, Trials};

/// One matrix, on the host.
struct Matrix {
    layout: GroupedLayout,
    group: usize,
    words: Vec<u32>,
    zeros: Vec<u32>,
    scales: Vec<f16>,
    order: Option<Vec<u32>>,
    outputs: usize,
    inputs: usize,
}

/// Integer `at` of a string of bits, word `i` of which is `word(i)`.
fn string(bits: usize, at: usize, word: impl Fn(usize) -> u32) -> u32 {
    (0..bits).map(|b| (at * bits + b, b)).map(|(bit, b)| (word(bit / 32) >> (bit % 32) & 1) << b).sum()
}

impl Matrix {
    /// By definition: `w[n, k]`.
    fn weight(&self, n: usize, k: usize) -> f64 {
        let group = self.order.as_ref().map_or(k / self.group, |o| o[k] as usize);
        let awq = |row: &[u32]| row[n / 8] >> (4 * [0, 4, 1, 5, 2, 6, 3, 7][n % 8]) & 15;
        let (q, z) = match self.layout {
            GroupedLayout::Awq => {
                let row = self.outputs / 8;
                (awq(&self.words[k * row..]), awq(&self.zeros[group * row..]))
            }
            GroupedLayout::Gptq { bits, zeros } => {
                let bits = bits as usize;
                let q = string(bits, k, |w| self.words[w * self.outputs + n]);
                let z = string(bits, n, |w| self.zeros[group * self.outputs * bits / 32 + w]);
                (q, (z + u32::from(zeros == GptqZeros::V1)) & ((1 << bits) - 1))
            }
        };
        (f64::from(q) - f64::from(z)) * f64::from(self.scales[group * self.outputs + n].to_f32())
    }

    /// What the core decodes; it has no formats of 1 bit.
    fn decoded<T: Element>(&self) -> Result<Option<Vec<T>>, KernelError> {
        let k = Kernels::<T>::forced(IsaLevel::Scalar)?;
        let mut y = vec![T::from_f32(0.0); self.outputs * self.inputs];
        let out = MatMut::new(&mut y, self.inputs, self.outputs)?;
        match self.layout {
            GroupedLayout::Awq => {
                let (words, zeros) = (&self.words, &self.zeros);
                let w = AwqRef::new(words, zeros, &self.scales, self.outputs, self.inputs, self.group)?;
                k.dequant_awq(w, out)?;
            }
            GroupedLayout::Gptq { bits: 1, .. } => return Ok(None),
            GroupedLayout::Gptq { bits, zeros } => {
                let g_idx = self.order.as_deref();
                let (qweight, qzeros, scales) = (&self.words[..], &self.zeros[..], &self.scales[..]);
                let parts = GptqParts { bits, group: self.group, zeros, qweight, qzeros, scales, g_idx };
                k.dequant_gptq(GptqRef::new(parts, self.outputs, self.inputs)?, out)?;
            }
        }
        Ok(Some(y))
    }
}

fn check<T: Float>(layout: GroupedLayout, bits: usize, ordered: bool) -> Outcome {
    let gpu = Gpu::new()?;
    let mut source = source("grouped");
    let mut shapes =
        vec![(32usize, 32usize, 32usize), (96, 64, 64), (64, 544, 16), (32, 1120, 2000), (288, 96, 48)];
    // Outputs that are no multiple of 32, where the integers of fewer fill words; inputs that are none.
    if bits.is_power_of_two() {
        shapes.push((32 + 32 / bits, 2080, 128));
    }
    if layout == GroupedLayout::Awq {
        shapes.push((40, 1064, 72));
    }
    for (outputs, inputs, group) in shapes {
        let groups = inputs.div_ceil(group);
        let mut words = |n: usize| (0..n).map(|_| source.below(1 << 32) as u32).collect::<Vec<_>>();
        let (qweight, zeros) = (words(inputs * outputs * bits / 32), words(groups * outputs * bits / 32));
        // The first half at random, then runs of 40 inputs, some of which begin and end within 32.
        let order =
            (0..inputs).map(|k| if k < inputs / 2 { source.below(groups) } else { k / 40 % groups } as u32);
        let order = order.collect();
        let m = Matrix {
            layout,
            group,
            words: qweight,
            zeros,
            scales: source.uniform(groups * outputs, -0.1, 0.1),
            order: ordered.then_some(order),
            outputs,
            inputs,
        };
        let (words, zeros, scales) = (gpu.put(&m.words)?, gpu.put(&m.zeros)?, gpu.put(&m.scales)?);
        let order = m.order.as_ref().map(|o| gpu.put(o)).transpose()?;
        let parts = GroupedParts {
            layout,
            group,
            qweight: words.view(),
            qzeros: zeros.view(),
            scales: scales.view(),
            g_idx: order.as_ref().map(|o| o.view()),
        };
        let w = GroupedView::new(parts, outputs, inputs).map_err(text)?;
        let shape = format!("{outputs} x {inputs} / {group}");

        let mut y = gpu.room::<T>(inputs * outputs)?;
        gpu.ops.dequant_grouped(&gpu.stream, w, &mut y).map_err(text)?;
        let got = gpu.get(&y)?;
        let all = (0..inputs).flat_map(|k| (0..outputs).map(move |n| (n, k)));
        let weights: Vec<f64> = all.map(|(n, k)| m.weight(n, k)).collect();
        compare(&got, &weights, |_| 0.0).map_err(|e| format!("{shape}: {e}"))?;
        if let Some(core) = m.decoded::<T>().map_err(text)? {
            if got != core {
                return Err(format!("{shape}: not what the core decodes"));
            }
        }

        if T::TYPE != ElementType::F32 {
            products::<T>(&gpu, &mut source, w, &weights).map_err(|e| format!("{shape}: {e}"))?;
        }
        for batch in [1, 2, 8] {
            let x: Vec<T> = source.normals(batch * inputs);
            let on_x = gpu.put(&x)?;
            let mut y = gpu.room::<f32>(batch * outputs)?;
            gpu.ops.gemv_grouped(&gpu.stream, w, &on_x, &mut y).map_err(text)?;
            let (mut want, mut error) = (Vec::new(), Vec::new());
            for x in x.chunks(inputs) {
                for n in 0..outputs {
                    let terms =
                        x.iter().enumerate().map(|(k, x)| weights[k * outputs + n] * f64::from(x.to_f32()));
                    want.push(terms.clone().sum::<f64>());
                    // What a lane adds, then the sums of lanes and of warps.
                    let sums = inputs.div_ceil(512) * 32 + 3 + 16;
                    error.push(terms.map(f64::abs).sum::<f64>() * sums as f64 * 2f64.powi(-24));
                }
            }
            compare(&gpu.get(&y)?, &want, |i| error[i]).map_err(|e| format!("{shape} x {batch}: {e}"))?;
        }
    }
    Ok(())
}

/// Matrix products are those with what [`Ops::dequant_grouped`](gllm_kernels_std::cuda::Ops::dequant_grouped) decodes.
fn products<T: Float>(gpu: &Gpu, source: &mut Source, w: GroupedView<'_>, weights: &[f64]) -> Outcome {
    let (n, k) = (w.outputs(), w.inputs());
    let narrow: Vec<T> = (0..n * k).map(|i| T::from_f32(weights[i % k * n + i / k] as f32)).collect();
    for m in [1, 130] {
        let x: Vec<T> = source.normals(m * k);
        let on_x = gpu.put(&x)?;
        let mut y = gpu.room::<f32>(m * n)?;
        gpu.ops.gemm_grouped(&gpu.stream, w, &on_x, &mut y).map_err(text)?;
        let (want, error) = super::gemm::want(&x, &narrow, n, k);
        compare(&gpu.get(&y)?, &want, |i| error[i]).map_err(|e| format!("{m} rows: {e}"))?;
    }
    Ok(())
}

/// What a view refuses.
fn refusals() -> Outcome {
    let gpu = Gpu::new()?;
    let (words, scales) = (gpu.put(&[0u32; 128])?, gpu.put(&[f16::ZERO; 32])?);
    let layout = GroupedLayout::Gptq { bits: 4, zeros: GptqZeros::V2 };
    let zeros = words.range(0..4).map_err(text)?;
    let parts = GroupedParts {
        layout,
        group: 32,
        qweight: words.view(),
        qzeros: zeros,
        scales: scales.view(),
        g_idx: None,
    };
    let view = |parts, outputs, inputs| GroupedView::new(parts, outputs, inputs).map(|_| ());
    let cases = [
        (view(parts, 32, 32), Ok(())),
        (view(parts, 32, 64), Err("qweight")),
        (view(GroupedParts { qzeros: words.view(), ..parts }, 32, 32), Err("qzeros")),
        (view(GroupedParts { g_idx: Some(zeros), ..parts }, 32, 32), Err("g_idx")),
        (view(GroupedParts { group: 0, ..parts }, 32, 32), Err("group")),
        (
            view(
                GroupedParts { layout: GroupedLayout::Gptq { bits: 5, zeros: GptqZeros::V2 }, ..parts },
                32,
                32,
            ),
            Err("bits"),
        ),
        (view(parts, 36, 32), Err("block")),
        (view(parts, 32, 33), Err("block")),
    ];
    for (i, (got, want)) in cases.into_iter().enumerate() {
        let got = got.map_err(|e: CudaError| e.to_string());
        let right = match (&got, want) {
            (Ok(()), Ok(())) => true,
            (Err(e), Err(part)) => e.contains(part),
            _ => false,
        };
        if !right {
            return Err(format!("case {i}: {got:?} instead of {want:?}"));
        }
    }
    Ok(())
}

pub fn trials(trials: &mut Trials) {
    let mut layouts = vec![("awq".to_string(), GroupedLayout::Awq, 4, false)];
    for bits in [1, 2, 3, 4, 8] {
        for (zeros, ordered) in [(GptqZeros::V1, false), (GptqZeros::V2, true)] {
            let name = format!("gptq_{bits}_{zeros:?}");
            layouts.push((name, GroupedLayout::Gptq { bits, zeros }, bits as usize, ordered));
        }
    }
    for (name, layout, bits, ordered) in layouts {
        super::each_type!(trials, name, check(layout, bits, ordered));
    }
    trials.push(trial("grouped_refusals", refusals));
}
