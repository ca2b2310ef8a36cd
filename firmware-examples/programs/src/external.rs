//! Weights in the layouts of other checkpoints: 32 outputs, 32 inputs and more, any numbers.

use gllm_kernels_core::{
    f16, AwqRef, Fp8Format, Fp8Ref, Fp8Scaling, GptqParts, GptqRef, GptqZeros, KernelError, ScaleSlice,
    SqueezeLlmParts, SqueezeLlmRef,
};

use crate::Random;

/// Outputs, and inputs.
pub const SIDE: usize = 32;
/// Inputs that share a scale.
const GROUP: usize = 16;

/// Inputs of products with SqueezeLLM's weights, whose kernels read whole words of several rows at a time.
pub const DEEP: usize = 512;

/// As many as `DEEP` integers of 4 bits for each output take.
static WORDS: [u32; SIDE * DEEP / 8] = {
    let (mut words, mut random, mut i) = ([0; SIDE * DEEP / 8], Random(17), 0);
    while i < words.len() {
        words[i] = random.bits() << 16 ^ random.bits();
        i += 1;
    }
    words
};
/// Numbers below 2 in both formats of FP8.
static BYTES: [u8; SIDE * SIDE] = {
    let (mut bytes, mut i) = ([0; SIDE * SIDE], 0);
    while i < bytes.len() {
        bytes[i] = WORDS[i / 4].to_le_bytes()[i % 4] & 0xbf;
        i += 1;
    }
    bytes
};
/// From 1/16 to 1/8.
static SCALES: [f16; SIDE * SIDE / GROUP] = {
    let (mut scales, mut i) = ([f16::ZERO; SIDE * SIDE / GROUP], 0);
    while i < scales.len() {
        scales[i] = f16::from_bits(0x2c00 | (WORDS[i] & 0x3ff) as u16);
        i += 1;
    }
    scales
};
static TABLE: [f32; SIDE * 16] = {
    let (mut table, mut i) = ([0.0; SIDE * 16], 0);
    while i < table.len() {
        table[i] = (WORDS[i % WORDS.len()] >> (i / WORDS.len()) & 0xff) as f32 / 128.0 - 1.0;
        i += 1;
    }
    table
};

/// FP8.
pub fn fp8(format: Fp8Format) -> Result<Fp8Ref<'static>, KernelError> {
    let scaling = Fp8Scaling::Block { rows: SIDE, cols: GROUP };
    Fp8Ref::new(&BYTES, format, SIDE, SIDE, ScaleSlice::F16(&SCALES[..SIDE / GROUP]), scaling)
}

/// AWQ.
pub fn awq() -> Result<AwqRef<'static>, KernelError> {
    let zeros = &WORDS[..SIDE / GROUP * SIDE / 8];
    AwqRef::new(&WORDS[..SIDE * SIDE / 8], zeros, &SCALES, SIDE, SIDE, GROUP)
}

/// GPTQ of so many bits.
pub fn gptq(bits: u32) -> Result<GptqRef<'static>, KernelError> {
    let words = |integers: usize| &WORDS[..integers * bits as usize / 32];
    let (qweight, qzeros) = (words(SIDE * SIDE), words(SIDE / GROUP * SIDE));
    let (group, zeros) = (GROUP, GptqZeros::V1);
    GptqRef::new(GptqParts { bits, group, zeros, qweight, qzeros, scales: &SCALES, g_idx: None }, SIDE, SIDE)
}

/// SqueezeLLM of so many bits and inputs.
pub fn squeezellm(bits: u32, inputs: usize) -> Result<SqueezeLlmRef<'static>, KernelError> {
    let (qweight, lookup_table) = (&WORDS[..SIDE * inputs * bits as usize / 32], &TABLE[..SIDE << bits]);
    SqueezeLlmRef::new(SqueezeLlmParts { bits, qweight, lookup_table, outliers: None }, SIDE, inputs)
}
