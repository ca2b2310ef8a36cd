//! Arguments of every kind, all unknown at compile time.

use gllm_kernels_core::{
    Activation, AwqRef, CacheSizes, Caps, Element, Features, Fp8Format, Fp8Ref, Fp8Scaling, GemmPlan,
    GptqParts, GptqRef, IsaLevel, KernelError, Kernels, MatMut, MatRef, Op, Operand, PackedQ, Precision,
    Prefetcher, QgemmPlan, QuantFormat, QuantRef, QuantWeights, RopeFreqs, RopePositions, RopeShape,
    ScaleSlice, Scratch, Softmax, SqueezeLlmParts, SqueezeLlmRef,
};

/// What an entry may pass on. The caller, who does not exist, filled it in.
pub struct Args<'a, E: Element> {
    pub k: Kernels<E>,
    pub x: &'a [E],
    pub y: &'a [E],
    pub z: &'a mut [E],
    pub cos: &'a [f32],
    pub sin: &'a [f32],
    pub g: &'a mut [f32],
    pub h: &'a mut [f32],
    pub buf: &'a mut [u8],
    pub rope_shape: RopeShape,
    pub rope_freqs: RopeFreqs<'a>,
    pub rope_positions: RopePositions<'a>,
    pub w: Option<&'a [E]>,
    pub b: Option<&'a [E]>,
    pub softmax: Softmax,
    pub spans: &'a [[usize; 2]],
    pub ids: &'a [u32],
    pub sums: &'a mut [[f32; 2]],
    pub bytes: &'a [u8],
    pub p: &'a [i8],
    pub q: &'a [i8],
    pub i: &'a mut [i32],
    pub codes: &'a mut [i8],
    pub n: [usize; 4],
    pub s: [f32; 4],
    pub flag: bool,
    pub activation: Activation,
    pub caps: Caps,
    pub caches: CacheSizes,
    pub prefetcher: Prefetcher,
    pub features: Features,
    pub level: IsaLevel,
    pub op: Op,
    pub error: KernelError,
    pub text: &'a str,
    pub format: QuantFormat,
    pub number: u32,
    pub gptq: GptqParts<'a>,
    pub squeezellm: SqueezeLlmParts<'a>,
    pub fp8: Fp8Format,
    pub scales: ScaleSlice<'a>,
    pub scaling: Fp8Scaling,
}

impl<'a, E: Element> Args<'a, E> {
    /// A matrix view with unknown shape and strides.
    pub fn left(&self) -> Result<MatRef<'a, E>, KernelError> {
        MatRef::with_strides(self.x, self.n[0], self.n[1], self.n[2], self.n[3])
    }
    /// Another one.
    pub fn right(&self) -> Result<MatRef<'a, E>, KernelError> {
        MatRef::with_strides(self.y, self.n[1], self.n[2], self.n[3], self.n[0])
    }
    /// Quantised weights of unknown shape and format.
    pub fn quant(&self) -> Result<QuantRef<'a>, KernelError> {
        QuantRef::new(self.bytes, self.format, self.n[0], self.n[1])
    }
    /// Packed ones.
    pub fn packed(&self) -> Result<PackedQ<'a>, KernelError> {
        self.k.packed_q(self.format, self.n[0], self.n[1], self.bytes)
    }
    /// One or the other.
    pub fn weights(&self) -> Result<QuantWeights<'a>, KernelError> {
        if self.flag {
            self.quant().map(QuantWeights::from)
        } else {
            self.packed().map(QuantWeights::from)
        }
    }
    /// A product of these by the kernels of `op`.
    pub fn product(&mut self, op: Op) -> Result<(), KernelError> {
        let (w, x) = (self.weights()?, self.left()?);
        let plan = self.qgemm()?.with_kernel(op)?;
        let y = MatMut::with_strides(self.g, self.n[0], self.n[2], self.n[1], self.n[3])?;
        plan.run(y, w, x, None, Scratch::new(self.buf))
    }
    /// A plan for products with some of these.
    pub fn qgemm(&self) -> Result<QgemmPlan<E>, KernelError> {
        let precision = match self.n[0] {
            0 => Precision::Integer,
            1 => Precision::Exact,
            2 => Precision::Bf16,
            _ => Precision::Fast,
        };
        let [m, n, k, part] = self.n;
        let plan = self.k.qgemm_plan(self.format, m, n, k, precision)?;
        Ok(plan.activation(self.activation).resized(part, n))
    }
    /// FP8 weights of unknown shape, format and scaling.
    pub fn fp8(&self) -> Result<Fp8Ref<'a>, KernelError> {
        Fp8Ref::new(self.bytes, self.fp8, self.n[0], self.n[1], self.scales, self.scaling)
    }
    /// AWQ weights of unknown shape.
    pub fn awq(&self) -> Result<AwqRef<'a>, KernelError> {
        let GptqParts { qweight, qzeros, scales, group, .. } = self.gptq;
        AwqRef::new(qweight, qzeros, scales, self.n[0], self.n[1], group)
    }
    /// GPTQ weights of unknown shape.
    pub fn gptq(&self) -> Result<GptqRef<'a>, KernelError> {
        GptqRef::new(self.gptq, self.n[0], self.n[1])
    }
    /// SqueezeLLM weights of unknown shape.
    pub fn squeezellm(&self) -> Result<SqueezeLlmRef<'a>, KernelError> {
        SqueezeLlmRef::new(self.squeezellm, self.n[0], self.n[1])
    }
    /// A writable matrix view with unknown shape and strides.
    pub fn out(&mut self) -> Result<MatMut<'_, f32>, KernelError> {
        MatMut::with_strides(self.g, self.n[0], self.n[2], self.n[1], self.n[3])
    }

    /// A plan of unknown shape, and operands that may or may not fit it.
    pub fn gemm(&mut self) -> Result<Gemm<'_, E>, KernelError> {
        Ok(Gemm {
            plan: self.k.gemm_plan(self.n[0], self.n[1], self.n[2])?.alpha(self.s[0]).beta(self.s[1]),
            a: self.left()?,
            b: self.right()?,
            c: MatMut::with_strides(self.g, self.n[0], self.n[2], self.n[1], self.n[3])?,
            scratch: Scratch::new(self.buf),
        })
    }

    /// The same of int8.
    pub fn gemm_int8(&mut self) -> Result<Gemm<'_, i8, i32>, KernelError> {
        let [m, n, k, stride] = self.n;
        Ok(Gemm {
            plan: Kernels::<i8>::with(self.caps).gemm_plan(m, n, k)?,
            a: MatRef::with_strides(self.p, m, k, stride, n)?,
            b: MatRef::with_strides(self.q, k, n, stride, m)?,
            c: MatMut::with_strides(self.i, m, n, stride, k)?,
            scratch: Scratch::new(self.buf),
        })
    }
}

/// What a matrix product takes.
pub struct Gemm<'a, E: Operand, C = f32> {
    pub plan: GemmPlan<E>,
    pub a: MatRef<'a, E>,
    pub b: MatRef<'a, E>,
    pub c: MatMut<'a, C>,
    pub scratch: Scratch<'a>,
}
