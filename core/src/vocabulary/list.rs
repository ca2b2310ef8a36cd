//! The list of formats, from which all enumerations of them come.

/// Calls `$then!` with `$args` and every format. Those whose weights are floating-point numbers come first: their names, how many
/// weights are in how many bytes, GGUF type numbers, and what they are. Of each format of quantised weights: its name, its
/// marker type, the file in `quant/` that defines it, its GGUF type number, and what it is. Each of these belongs to a Cargo feature.
macro_rules! expand_all_formats {
    ($then:ident! $args:tt) => {
        $then! {
            $args
            floats {
                f16 = F16: 1 in 2, gguf 1, "IEEE 754 binary16: no blocks.";
                bf16 = Bf16: 1 in 2, gguf 30, "bfloat16: no blocks.";
                e4m3 = E4m3: 128 in 132, gguf 1000, "128 weights of E4M3, one f32 factor; GGUF has no such type.";
            }
            #[cfg(feature = "legacy")] q4_0 = Q4_0: legacy, gguf 2, "32 weights of 4 bits, one scale.";
            #[cfg(feature = "legacy")] q4_1 = Q4_1: legacy, gguf 3, "32 weights of 4 bits, one scale and minimum.";
            #[cfg(feature = "legacy")] q5_0 = Q5_0: legacy, gguf 6, "32 weights of 5 bits, one scale.";
            #[cfg(feature = "legacy")] q5_1 = Q5_1: legacy, gguf 7, "32 weights of 5 bits, one scale and minimum.";
            #[cfg(feature = "legacy")] q8_0 = Q8_0: legacy, gguf 8, "32 weights of 8 bits, one scale.";
            #[cfg(feature = "legacy")] q8_1 = Q8_1: legacy, gguf 9, "32 activations of 8 bits, one scale, and their sum.";
            #[cfg(feature = "k")] q2_k = Q2K: k, gguf 10, "256 weights of 2 bits, scales and minima of 4 bits for each 16.";
            #[cfg(feature = "k")] q3_k = Q3K: k, gguf 11, "256 weights of 3 bits, scales of 6 bits for each 16.";
            #[cfg(feature = "k")] q4_k = Q4K: k, gguf 12, "256 weights of 4 bits, scales and minima of 6 bits for each 32.";
            #[cfg(feature = "k")] q5_k = Q5K: k, gguf 13, "256 weights of 5 bits, scales and minima of 6 bits for each 32.";
            #[cfg(feature = "k")] q6_k = Q6K: k, gguf 14, "256 weights of 6 bits, scales of 8 bits for each 16.";
            #[cfg(feature = "k")] q8_k = Q8K: k, gguf 15, "256 activations of 8 bits, one f32 scale, and sums of 16.";
            #[cfg(feature = "iq")] iq2_xxs = Iq2Xxs: iq, gguf 16, "256 weights in eights of a codebook of 256, scales for each 32.";
            #[cfg(feature = "iq")] iq2_xs = Iq2Xs: iq, gguf 17, "256 weights in eights of a codebook of 512, scales for each 16.";
            #[cfg(feature = "iq")] iq3_xxs = Iq3Xxs: iq, gguf 18, "256 weights in fours of a codebook of 256, scales for each 32.";
            #[cfg(feature = "iq")] iq1_s = Iq1S: iq, gguf 19, "256 weights in eights of a codebook of 2048, scales for each 32.";
            #[cfg(feature = "iq")] iq4_nl = Iq4Nl: iq, gguf 20, "32 weights of a codebook of 16, one scale.";
            #[cfg(feature = "iq")] iq3_s = Iq3S: iq, gguf 21, "256 weights in fours of a codebook of 512, scales for each 32.";
            #[cfg(feature = "iq")] iq2_s = Iq2S: iq, gguf 22, "256 weights in eights of a codebook of 1024, scales for each 16.";
            #[cfg(feature = "iq")] iq4_xs = Iq4Xs: iq, gguf 23, "256 weights of a codebook of 16, scales of 6 bits for each 32.";
            #[cfg(feature = "iq")] iq1_m = Iq1M: iq, gguf 29, "256 weights in eights of a codebook of 2048, scales for each 16.";
            #[cfg(feature = "ternary")] tq1_0 = Tq1_0: ternary, gguf 34, "256 weights of -1, 0 or 1, five in a byte, one scale.";
            #[cfg(feature = "ternary")] tq2_0 = Tq2_0: ternary, gguf 35, "256 weights of -1, 0 or 1, four in a byte, one scale.";
            #[cfg(feature = "mx")] mxfp4 = Mxfp4: mx, gguf 39, "32 weights of E2M1, a power of two as scale.";
            #[cfg(feature = "mx")] nvfp4 = Nvfp4: mx, gguf 40, "64 weights of E2M1, scales of 8 bits for each 16.";
            #[cfg(feature = "legacy")] q1_0 = Q1_0: legacy, gguf 41, "128 weights of 1 or -1, one scale.";
            #[cfg(feature = "legacy")] q2_0 = Q2_0: legacy, gguf 42, "64 weights of 2 bits, one scale.";
        }
    };
}
