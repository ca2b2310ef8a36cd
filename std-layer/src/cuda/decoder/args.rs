//! Arguments of the kernels of decoder.cu, field by field as declared there.

use crate::cuda::attention::DecodeArgs;
use crate::cuda::kernels::{File, Name};
use crate::cuda::module::Arguments;
use crate::cuda::sys::Address;

#[derive(Clone, Copy)]
#[repr(C)]
pub(in crate::cuda) struct FormsArgs {
    pub(super) rows: Address,
    pub(super) half: Address,
    pub(super) codes: Address,
    pub(super) groups: Address,
    pub(super) exact: Address,
    pub(super) sums: Address,
    pub(super) half_type: u32,
    pub(super) cols: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct EmbeddingArgs {
    pub(super) table: Address,
    pub(super) ids: Address,
    pub(super) y: Address,
    pub(super) rows: u32,
    pub(super) cols: u32,
    pub(super) ty: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct PositionsArgs {
    pub(super) lengths: Address,
    pub(super) seen: Address,
    pub(super) positions: Address,
    pub(super) temperatures: Address,
    pub(super) table: Address,
    pub(super) rows: u32,
    pub(super) each: u32,
    pub(super) entries: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct AddNormArgs {
    pub(super) x: Address,
    pub(super) rows: Address,
    pub(super) y: Address,
    pub(super) delta: Address,
    pub(super) bias: Address,
    pub(super) post: Address,
    pub(super) w: Address,
    pub(super) b: Address,
    pub(super) out: FormsArgs,
    pub(super) eps: f32,
    pub(super) scale: f32,
    pub(super) centred: u32,
    pub(super) stays: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(in crate::cuda) struct HeadsArgs {
    pub(in crate::cuda) x: [Address; 3],
    pub(in crate::cuda) bias: [Address; 3],
    pub(in crate::cuda) norm: [Address; 3],
    pub(in crate::cuda) cos: Address,
    pub(in crate::cuda) sin: Address,
    pub(in crate::cuda) temperatures: Address,
    pub(in crate::cuda) queries: Address,
    pub(in crate::cuda) keys: Address,
    pub(in crate::cuda) values: Address,
    pub(in crate::cuda) tables: Address,
    pub(in crate::cuda) sequences: Address,
    pub(in crate::cuda) lengths: Address,
    pub(in crate::cuda) positions: Address,
    pub(in crate::cuda) seen: Address,
    pub(in crate::cuda) stride: [u32; 3],
    pub(in crate::cuda) step: u32,
    pub(in crate::cuda) heads: u32,
    pub(in crate::cuda) kv_heads: u32,
    pub(in crate::cuda) dim: u32,
    pub(in crate::cuda) room: u32,
    pub(in crate::cuda) half: u32,
    pub(in crate::cuda) adjacent: u32,
    pub(in crate::cuda) each: u32,
    pub(in crate::cuda) centred: u32,
    pub(in crate::cuda) behind: u32,
    pub(in crate::cuda) angles: u32,
    pub(in crate::cuda) table_rows: u32,
    pub(in crate::cuda) table_len: u32,
    pub(in crate::cuda) pages: u32,
    pub(in crate::cuda) page_tokens: u32,
    pub(in crate::cuda) ty: u32,
    pub(in crate::cuda) eps: f32,
    pub(in crate::cuda) bound: f32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct JoinRowsArgs {
    pub(super) decode: DecodeArgs,
    pub(super) rows: Address,
    pub(super) out: FormsArgs,
    pub(super) dim: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct GateArgs {
    pub(super) gate: Address,
    pub(super) up: Address,
    pub(super) experts: Address,
    pub(super) bias: [Address; 2],
    pub(super) out: FormsArgs,
    pub(super) strides: [u32; 2],
    pub(super) activation: u32,
    pub(super) numbers: [f32; 2],
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct RowsArgs {
    pub(super) x: Address,
    pub(super) rows: Address,
    pub(super) factors: Address,
    pub(super) out: FormsArgs,
    pub(super) dim: u32,
    pub(super) room: u32,
    pub(super) step: u32,
    pub(super) heads: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(in crate::cuda) struct SegmentsArgs {
    pub(in crate::cuda) table: Address,
    pub(in crate::cuda) matrices: u32,
    pub(in crate::cuda) rows: u32,
    pub(in crate::cuda) most: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct PoolArgs {
    pub(super) x: Address,
    pub(super) starts: Address,
    pub(super) y: Address,
    pub(super) cols: u32,
    pub(super) how: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct CapArgs {
    pub(super) x: Address,
    pub(super) n: u64,
    pub(super) cap: f32,
}

#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(super) struct AdvanceArgs {
    pub(super) sequences: Address,
    pub(super) lengths: Address,
    pub(super) tokens: Address,
    pub(super) history: Address,
    pub(super) history_lengths: Address,
    pub(super) counters: Address,
    pub(super) stops: Address,
    pub(super) rows: u32,
    pub(super) room: u32,
    pub(super) stop_count: u32,
}

// SAFETY: as in decoder.cu.
unsafe impl Arguments for EmbeddingArgs {}
// SAFETY: as in decoder.cu.
unsafe impl Arguments for PositionsArgs {}
// SAFETY: as in decoder.cu.
unsafe impl Arguments for AddNormArgs {}
// SAFETY: as in decoder.cu.
unsafe impl Arguments for HeadsArgs {}
// SAFETY: as in decoder.cu.
unsafe impl Arguments for JoinRowsArgs {}
// SAFETY: as in decoder.cu.
unsafe impl Arguments for GateArgs {}
// SAFETY: as in decoder.cu.
unsafe impl Arguments for RowsArgs {}
// SAFETY: as in decoder.cu.
unsafe impl Arguments for SegmentsArgs {}
// SAFETY: as in decoder.cu.
unsafe impl Arguments for PoolArgs {}
// SAFETY: as in decoder.cu.
unsafe impl Arguments for CapArgs {}
// SAFETY: as in decoder.cu.
unsafe impl Arguments for AdvanceArgs {}

/// The kernels, and the bytes of their arguments.
pub(super) const NAMES: [(&str, usize); 14] = [
    ("embed", size_of::<EmbeddingArgs>()),
    ("positions", size_of::<PositionsArgs>()),
    ("norm", size_of::<AddNormArgs>()),
    ("heads_d128", size_of::<HeadsArgs>()),
    ("heads_d256", size_of::<HeadsArgs>()),
    ("heads_d512", size_of::<HeadsArgs>()),
    ("latent", size_of::<HeadsArgs>()),
    ("segments", size_of::<SegmentsArgs>()),
    ("join", size_of::<JoinRowsArgs>()),
    ("gate", size_of::<GateArgs>()),
    ("rows", size_of::<RowsArgs>()),
    ("pool", size_of::<PoolArgs>()),
    ("cap", size_of::<CapArgs>()),
    ("advance", size_of::<AdvanceArgs>()),
];

pub(in crate::cuda) fn list(to: &mut dyn FnMut(File, Name, usize)) {
    for (name, bytes) in NAMES {
        to(File::decoder, Name("decoder", name, ""), bytes);
    }
}
