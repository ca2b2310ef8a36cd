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
pub(super) struct HeadsArgs {
    pub(super) x: [Address; 3],
    pub(super) bias: [Address; 3],
    pub(super) norm: [Address; 3],
    pub(super) cos: Address,
    pub(super) sin: Address,
    pub(super) queries: Address,
    pub(super) keys: Address,
    pub(super) values: Address,
    pub(super) tables: Address,
    pub(super) sequences: Address,
    pub(super) lengths: Address,
    pub(super) positions: Address,
    pub(super) seen: Address,
    pub(super) stride: [u32; 3],
    pub(super) step: u32,
    pub(super) heads: u32,
    pub(super) kv_heads: u32,
    pub(super) dim: u32,
    pub(super) room: u32,
    pub(super) half: u32,
    pub(super) adjacent: u32,
    pub(super) each: u32,
    pub(super) centred: u32,
    pub(super) behind: u32,
    pub(super) angles: u32,
    pub(super) table_rows: u32,
    pub(super) table_len: u32,
    pub(super) pages: u32,
    pub(super) page_tokens: u32,
    pub(super) ty: u32,
    pub(super) eps: f32,
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
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct RowsArgs {
    pub(super) x: Address,
    pub(super) rows: Address,
    pub(super) out: FormsArgs,
    pub(super) dim: u32,
    pub(super) room: u32,
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
unsafe impl Arguments for PoolArgs {}
// SAFETY: as in decoder.cu.
unsafe impl Arguments for CapArgs {}
// SAFETY: as in decoder.cu.
unsafe impl Arguments for AdvanceArgs {}

/// The kernels, and the bytes of their arguments.
pub(super) const NAMES: [(&str, usize); 9] = [
    ("embed", size_of::<EmbeddingArgs>()),
    ("norm", size_of::<AddNormArgs>()),
    ("heads", size_of::<HeadsArgs>()),
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
