//! The types of cached keys and values, and the core's kernels for each.

use std::marker::PhantomData;

use gllm_kernels_core::{
    bf16, f16, Attended, Element, KernelError, KvHead, KvPiece, MatMut, MatRef, Scratch,
};

use crate::backend::KvType;

/// Core's kernels for a type of cached numbers.
pub(super) trait Cached {
    /// The elements of the cache's blocks.
    type Cell;
    /// Cells of a block.
    fn len(head: KvHead) -> Result<usize, KernelError>;
    /// Writes keys and values of tokens to a block, from place `place` on.
    fn append(
        place: usize,
        keys: MatRef<'_, f32>,
        values: MatRef<'_, f32>,
        block: &mut [Self::Cell],
    ) -> Result<(), KernelError>;
    /// Copies what place `from` has to place `to`, in blocks one behind the other.
    fn relocate(head: KvHead, blocks: &mut [Self::Cell], from: usize, to: usize) -> Result<(), KernelError>;
    /// Reads the keys of a block.
    fn read(head: KvHead, block: &[Self::Cell], keys: MatMut<'_, f32>) -> Result<(), KernelError>;
    /// Attention to a piece of the cache, added to `all`.
    fn attend(
        head: KvHead,
        queries: &[f32],
        piece: KvPiece<'_, Self::Cell>,
        all: Attended<'_>,
        scratch: Scratch<'_>,
    ) -> Result<(), KernelError>;
}

/// Numbers of type `E`.
pub(super) struct Plain<E>(PhantomData<E>);

impl<E: Element> Cached for Plain<E> {
    type Cell = E;

    fn len(head: KvHead) -> Result<usize, KernelError> {
        crate::kernels::<E>().kv_block_len(head)
    }
    fn append(
        place: usize,
        keys: MatRef<'_, f32>,
        values: MatRef<'_, f32>,
        block: &mut [E],
    ) -> Result<(), KernelError> {
        crate::kernels::<E>().kv_append(place, keys, values, block)
    }
    fn relocate(head: KvHead, blocks: &mut [E], from: usize, to: usize) -> Result<(), KernelError> {
        crate::kernels::<E>().kv_move(head, blocks, from, to)
    }
    fn read(head: KvHead, block: &[E], keys: MatMut<'_, f32>) -> Result<(), KernelError> {
        crate::kernels::<E>().kv_keys(head, block, keys)
    }
    fn attend(
        head: KvHead,
        queries: &[f32],
        piece: KvPiece<'_, E>,
        all: Attended<'_>,
        scratch: Scratch<'_>,
    ) -> Result<(), KernelError> {
        crate::kernels::<E>().attend(head, queries, piece, all, scratch)
    }
}

/// Codes of 8 bits, with a scale for each 32.
pub(super) struct Q8_0;

impl Cached for Q8_0 {
    type Cell = u8;

    fn len(head: KvHead) -> Result<usize, KernelError> {
        crate::kernels::<f32>().kv_block_len_q8_0(head)
    }
    fn append(
        place: usize,
        keys: MatRef<'_, f32>,
        values: MatRef<'_, f32>,
        block: &mut [u8],
    ) -> Result<(), KernelError> {
        crate::kernels::<f32>().kv_append_q8_0(place, keys, values, block)
    }
    fn relocate(head: KvHead, blocks: &mut [u8], from: usize, to: usize) -> Result<(), KernelError> {
        crate::kernels::<f32>().kv_move_q8_0(head, blocks, from, to)
    }
    fn read(head: KvHead, block: &[u8], keys: MatMut<'_, f32>) -> Result<(), KernelError> {
        crate::kernels::<f32>().kv_keys_q8_0(head, block, keys)
    }
    fn attend(
        head: KvHead,
        queries: &[f32],
        piece: KvPiece<'_, u8>,
        all: Attended<'_>,
        scratch: Scratch<'_>,
    ) -> Result<(), KernelError> {
        crate::kernels::<f32>().attend_q8_0(head, queries, piece, all, scratch)
    }
}

impl KvType {
    /// Copies what place `from` of a KV head has to place `to`, in `memory` of whole blocks that begins on a cache line.
    pub(super) fn relocate(
        self,
        head: KvHead,
        memory: &mut [u8],
        from: usize,
        to: usize,
    ) -> Result<(), KernelError> {
        fn plain<E: Element>(
            head: KvHead,
            memory: &mut [u8],
            from: usize,
            to: usize,
        ) -> Result<(), KernelError> {
            // SAFETY: all bytes are numbers.
            let (_, blocks, _) = unsafe { memory.align_to_mut::<E>() };
            Plain::<E>::relocate(head, blocks, from, to)
        }
        match self {
            Self::F16 => plain::<f16>(head, memory, from, to),
            Self::Bf16 => plain::<bf16>(head, memory, from, to),
            Self::F32 => plain::<f32>(head, memory, from, to),
            Self::Q8_0 => Q8_0::relocate(head, memory, from, to),
        }
    }

    /// Bytes of a block of 16 positions of a KV head.
    pub(super) fn block_bytes(self, head: KvHead) -> Result<usize, KernelError> {
        fn bytes<C: Cached>(head: KvHead) -> Result<usize, KernelError> {
            let overflow = KernelError::SizeOverflow { what: "KV block" };
            C::len(head)?.checked_mul(size_of::<C::Cell>()).ok_or(overflow)
        }
        match self {
            Self::F16 => bytes::<Plain<f16>>(head),
            Self::Bf16 => bytes::<Plain<bf16>>(head),
            Self::F32 => bytes::<Plain<f32>>(head),
            Self::Q8_0 => bytes::<Q8_0>(head),
        }
    }
}
