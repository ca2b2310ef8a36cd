//! How assembly sees the formats.

/// Calls `$then!` with `$args` and, for every format, what assembly has to know of its
/// [`Packing`](crate::quant::packed::Packing), as words that choose instructions: the bits of both planes (`row`: one bit for
/// four columns of a row); what indices stand for,
/// the binary logarithm of what is added to make codes unsigned (`none`: they are; 9: it is 9), and how sums of their
/// products with activations fit 16 bits: those of a half step do (`words`), two products do (`each`), or only
/// if magnitudes are multiplied (`signed`); how scales come, whether there are offsets, the columns of a group.
macro_rules! expand_all_packings {
    ($then:ident! $args:tt) => {
        $then! {
            $args
            #[cfg(feature = "legacy")] q4_0 = Q4_0 { bits: (4 0), values: linear 3 words, scales: halves none 32 }
            #[cfg(feature = "legacy")] q4_1 = Q4_1 { bits: (4 0), values: linear none words, scales: halves min 32 }
            #[cfg(feature = "legacy")] q5_0 = Q5_0 { bits: (4 1), values: linear 4 words, scales: halves none 32 }
            #[cfg(feature = "legacy")] q5_1 = Q5_1 { bits: (4 1), values: linear none words, scales: halves min 32 }
            #[cfg(feature = "legacy")] q8_0 = Q8_0 { bits: (8 0), values: linear 7 signed, scales: halves none 32 }
            #[cfg(feature = "legacy")] q8_1 = Q8_1 { bits: (8 0), values: linear 7 signed, scales: halves none 32 }
            #[cfg(feature = "legacy")] q1_0 = Q1_0 { bits: (1 0), values: table 0 words, scales: halves none 32 }
            #[cfg(feature = "legacy")] q2_0 = Q2_0 { bits: (2 0), values: linear 0 words, scales: halves none 32 }
            #[cfg(feature = "k")] q2_k = Q2K { bits: (2 0), values: linear none words, scales: factors min 16 }
            #[cfg(feature = "k")] q3_k = Q3K { bits: (2 1), values: linear 2 words, scales: factors none 16 }
            #[cfg(feature = "k")] q4_k = Q4K { bits: (4 0), values: linear none words, scales: factors min 32 }
            #[cfg(feature = "k")] q5_k = Q5K { bits: (4 1), values: linear none words, scales: factors min 32 }
            #[cfg(feature = "k")] q6_k = Q6K { bits: (4 2), values: linear 5 each, scales: factors none 16 }
            #[cfg(feature = "k")] q8_k = Q8K { bits: (8 0), values: linear 7 signed, scales: whole none 32 }
            #[cfg(feature = "iq")] iq2_xxs = Iq2Xxs { bits: (2 1), values: table 6 each, scales: factors none 32 }
            #[cfg(feature = "iq")] iq2_xs = Iq2Xs { bits: (2 1), values: table 6 each, scales: factors none 16 }
            #[cfg(feature = "iq")] iq2_s = Iq2S { bits: (2 1), values: table 6 each, scales: factors none 16 }
            #[cfg(feature = "iq")] iq3_xxs = Iq3Xxs { bits: (4 0), values: table 6 each, scales: factors none 32 }
            #[cfg(feature = "iq")] iq3_s = Iq3S { bits: (4 0), values: table 4 words, scales: factors none 32 }
            #[cfg(feature = "iq")] iq1_s = Iq1S { bits: (2 0), values: linear 0 words, scales: factors min 32 }
            #[cfg(feature = "iq")] iq1_m = Iq1M { bits: (2 row), values: table 9 words, scales: factors none 16 }
            #[cfg(feature = "iq")] iq4_nl = Iq4Nl { bits: (4 0), values: table 7 signed, scales: halves none 32 }
            #[cfg(feature = "iq")] iq4_xs = Iq4Xs { bits: (4 0), values: table 7 signed, scales: factors none 32 }
            #[cfg(feature = "ternary")] tq1_0 = Tq1_0 { bits: (2 0), values: linear 0 words, scales: whole none 32 }
            #[cfg(feature = "ternary")] tq2_0 = Tq2_0 { bits: (2 0), values: linear 0 words, scales: whole none 32 }
            #[cfg(feature = "mx")] mxfp4 = Mxfp4 { bits: (4 0), values: table 4 words, scales: e8m0 none 32 }
            #[cfg(feature = "mx")] nvfp4 = Nvfp4 { bits: (4 0), values: table 4 words, scales: ue4m3 none 16 }
        }
    };
}
