//! The formats of weights that shaders decode.

use gllm_kernels_core::{codebooks, QuantFormat};

/// Columns of a part of a row, as shaders take them.
pub(super) const PART: usize = 32;

/// How weights lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Format {
    /// f32.
    F32,
    /// What core has.
    Quant(QuantFormat),
}

impl Format {
    /// Shader code of its own that decodes it. `None` if there is none.
    pub(super) fn source(self) -> Option<&'static str> {
        macro_rules! text {
            ($name:literal) => {
                include_str!(concat!("wgsl/formats/", $name, ".wgsl"))
            };
        }
        Some(match self {
            Self::F32 => text!("f32"),
            Self::Quant(format) => match format {
                QuantFormat::F16 => text!("f16"),
                QuantFormat::Bf16 => text!("bf16"),
                QuantFormat::E4m3 => text!("e4m3"),
                QuantFormat::Q4_0 => text!("q4_0"),
                QuantFormat::Q4_1 => text!("q4_1"),
                QuantFormat::Q5_0 => text!("q5_0"),
                QuantFormat::Q5_1 => text!("q5_1"),
                QuantFormat::Q8_0 => text!("q8_0"),
                QuantFormat::Q8_1 => text!("q8_1"),
                QuantFormat::Q1_0 => text!("q1_0"),
                QuantFormat::Q2_0 => text!("q2_0"),
                QuantFormat::Q2K => text!("q2_k"),
                QuantFormat::Q3K => text!("q3_k"),
                QuantFormat::Q4K => text!("q4_k"),
                QuantFormat::Q5K => text!("q5_k"),
                QuantFormat::Q6K => text!("q6_k"),
                QuantFormat::Q8K => text!("q8_k"),
                QuantFormat::Tq1_0 => text!("tq1_0"),
                QuantFormat::Tq2_0 => text!("tq2_0"),
                QuantFormat::Iq1S => text!("iq1_s"),
                QuantFormat::Iq1M => text!("iq1_m"),
                QuantFormat::Iq2Xxs => text!("iq2_xxs"),
                QuantFormat::Iq2Xs => text!("iq2_xs"),
                QuantFormat::Iq2S => text!("iq2_s"),
                QuantFormat::Iq3Xxs => text!("iq3_xxs"),
                QuantFormat::Iq3S => text!("iq3_s"),
                QuantFormat::Iq4Nl => text!("iq4_nl"),
                QuantFormat::Iq4Xs => text!("iq4_xs"),
                QuantFormat::Mxfp4 => text!("mxfp4"),
                QuantFormat::Nvfp4 => text!("nvfp4"),
                _ => return None,
            },
        })
    }

    /// The codebook that lies in front of its blocks: what codes stand for, a signed byte for each weight.
    pub(super) fn book(self) -> Vec<u32> {
        let eights = |grid: &[u64]| grid.iter().flat_map(|&w| [w as u32, (w >> 32) as u32]).collect();
        let bytes = |values: &[i8; 16]| {
            let word = |c: &[i8]| u32::from_le_bytes([c[0] as u8, c[1] as u8, c[2] as u8, c[3] as u8]);
            values.chunks_exact(4).map(word).collect()
        };
        let Self::Quant(format) = self else { return Vec::new() };
        match format {
            // 8 v + 9 of each weight: its offset of an eighth is added, or subtracted, in whole numbers.
            QuantFormat::Iq1S | QuantFormat::Iq1M => {
                let eighths = |v: u8| (8 * i32::from(v as i8) + 9) as u8;
                let grid: Vec<u64> = codebooks::IQ1_GRID
                    .iter()
                    .map(|w| u64::from_le_bytes(w.to_le_bytes().map(eighths)))
                    .collect();
                eights(&grid)
            }
            QuantFormat::Iq2Xxs => eights(&codebooks::IQ2_XXS_GRID),
            QuantFormat::Iq2Xs => eights(&codebooks::IQ2_XS_GRID),
            QuantFormat::Iq2S => eights(&codebooks::IQ2_S_GRID),
            QuantFormat::Iq3Xxs => codebooks::IQ3_XXS_GRID.to_vec(),
            QuantFormat::Iq3S => codebooks::IQ3_S_GRID.to_vec(),
            QuantFormat::Iq4Nl | QuantFormat::Iq4Xs => bytes(&codebooks::IQ4_VALUES),
            QuantFormat::Mxfp4 | QuantFormat::Nvfp4 => bytes(&codebooks::FP4_VALUES),
            _ => Vec::new(),
        }
    }

    /// Whether it has blocks: of codes, which are whole numbers, or of floating point.
    pub(super) fn has_blocks(self) -> bool {
        matches!(self, Self::Quant(format) if format.element().is_none())
    }

    /// Whether it has blocks of codes.
    pub(super) fn has_codes(self) -> bool {
        matches!(self, Self::Quant(format) if !format.is_float())
    }

    /// Whether groups of codes have an offset beside their scale.
    pub(super) fn has_offsets(self) -> bool {
        matches!(self, Self::Quant(format) if format.has_offsets())
    }

    /// Whether shaders can decode it.
    pub(super) fn is_supported(self) -> bool {
        self.source().is_some()
    }

    /// Its name, for messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Quant(format) => format.name(),
        }
    }
}
