//! Attention.

use crate::check;
use crate::element::Element;
use crate::error::KernelError;
use crate::ops::attention::forms::{self, Places, DECODED_GAP};
use crate::ops::attention::tile::HIGHEST;
use crate::ops::attention::{
    AppendArgs, AttendArgs, Attended, Gathered, JoinArgs, KeysArgs, KvHead, KvPiece, KV_BLOCK,
};
use crate::scratch::{Scratch, ScratchReq};
use crate::table::Kernels;
use crate::view::{MatMut, MatRef};

#[cfg(feature = "rows")]
/// # Attention
///
/// Queries and outputs are f32. Keys and values are of type `E`, or in 8 bits (`_q8_0`, where `E` makes no difference). A block has
/// [`KV_BLOCK`] positions of one KV head: keys, dimension by dimension with the positions side by side, then values, position by
/// position. Heads may have any number of elements; if it is a multiple of 16, no memory is lost to padding. A head is its number of elements, or a
/// [`KvHead`] whose values are longer or shorter than its keys, or are the first elements of its keys, which are then all that blocks hold.
///
/// The positions of a sequence are attended to piece by piece, and each piece gives a partial result. It depends on that piece, the
/// query and its span alone. So pieces can be divided among threads, and partial results that are joined in the same order give the
/// same bits.
impl<E: Element> Kernels<E> {
    /// Elements of a block of a head.
    ///
    /// # Errors
    /// `BadValue` if values are more elements of a key than it has; `SizeOverflow`.
    pub fn kv_block_len(&self, head: impl Into<KvHead>) -> Result<usize, KernelError> {
        let overflow = KernelError::SizeOverflow { what: "KV block" };
        let head = head.into();
        if head.latent && head.values > head.dim {
            return Err(KernelError::BadValue {
                arg: "values",
                got: head.values,
                expected: "at most the elements of a key",
            });
        }
        let width = head.stored().checked_next_multiple_of(KV_BLOCK);
        let row = width.and_then(|width| width.checked_add(head.dim));
        row.and_then(|row| row.checked_mul(KV_BLOCK)).ok_or(overflow)
    }

    /// Bytes of a block of a head in 8 bits. The keys of a position, and its values, have a code of
    /// a byte for each element, and a scale of two bytes for each 32 elements, of which the last ones may be fewer. For
    /// heads of 64 that is 2176 bytes, where 16-bit floats take 4096.
    ///
    /// # Errors
    /// Those of [`kv_block_len`](Self::kv_block_len).
    pub fn kv_block_len_q8_0(&self, head: impl Into<KvHead>) -> Result<usize, KernelError> {
        let head = head.into();
        // Four bytes for each element are more than codes and scales take: if they do not overflow, nothing below does.
        self.kv_block_len(head)?.checked_mul(4).ok_or(KernelError::SizeOverflow { what: "KV block" })?;
        Ok(Places::from(head).end())
    }

    /// Writes the keys and values of tokens to a block, at consecutive places from `place` on, narrowed to `E`. `keys`
    /// and `values` have a row for each token. `values` without columns are those of a [`KvHead`] whose keys have them.
    ///
    /// # Errors
    /// `DimMismatch` unless `keys` and `values` have the same number of rows; `ShortSlice` if the tokens do not fit the block,
    /// `WrongLength` unless it has [`kv_block_len`](Self::kv_block_len) elements; `BadValue` if rows are not contiguous; `SizeOverflow`.
    pub fn kv_append(
        &self,
        place: usize,
        keys: MatRef<'_, f32>,
        values: MatRef<'_, f32>,
        block: &mut [E],
    ) -> Result<(), KernelError> {
        let args = append_args(place, keys, values, block, self.kv_block_len(stored(keys, values))?)?;
        // SAFETY: the arguments are those of views and of a block that is exclusive; the table's instruction set is present.
        unsafe { (self.table.kv_append)(&args) };
        Ok(())
    }

    /// [`kv_append`](Self::kv_append) in 8 bits: in groups of 32 elements of a row `x = d * q`, with `d = max |x| / 127`, kept in f16, and `q = x *
    /// (127 / max |x|)`, rounded to nearest even; as Q8_0 has it. A group with a NaN or an infinity is NaN as a whole, one of magnitudes
    /// below 1e-36 is zero; magnitudes above 8.3e6 overflow the scale.
    ///
    /// # Errors
    /// Those of [`kv_append`](Self::kv_append), for blocks of [`kv_block_len_q8_0`](Self::kv_block_len_q8_0) bytes.
    pub fn kv_append_q8_0(
        &self,
        place: usize,
        keys: MatRef<'_, f32>,
        values: MatRef<'_, f32>,
        block: &mut [u8],
    ) -> Result<(), KernelError> {
        let args = append_args(place, keys, values, block, self.kv_block_len_q8_0(stored(keys, values))?)?;
        // SAFETY: the arguments are those of views and of a block that is exclusive; the table's instruction set is
        // present.
        unsafe { (self.table.kv_append_q8_0)(&args) };
        Ok(())
    }

    /// Reads the keys of a block, as they were narrowed: the first `keys.cols()` elements of each, in the order of their places.
    ///
    /// # Errors
    /// `DimMismatch` unless `keys` has [`KV_BLOCK`] rows; `BadValue` if it has more columns than a key elements, or rows that are not contiguous;
    /// `WrongLength` unless the block has [`kv_block_len`](Self::kv_block_len) elements; the errors of that function.
    pub fn kv_keys(
        &self,
        head: impl Into<KvHead>,
        block: &[E],
        keys: MatMut<'_, f32>,
    ) -> Result<(), KernelError> {
        let head = head.into();
        let args = keys_args(head, block, keys, self.kv_block_len(head)?)?;
        // SAFETY: the arguments are checked: a whole block, and an exclusive row for each of its places; the table's instruction set is present.
        unsafe { (self.table.kv_keys)(&args) };
        Ok(())
    }

    /// [`kv_keys`](Self::kv_keys) of a block in 8 bits.
    ///
    /// # Errors
    /// Those of [`kv_keys`](Self::kv_keys), for blocks of [`kv_block_len_q8_0`](Self::kv_block_len_q8_0) bytes.
    pub fn kv_keys_q8_0(
        &self,
        head: impl Into<KvHead>,
        block: &[u8],
        keys: MatMut<'_, f32>,
    ) -> Result<(), KernelError> {
        let head = head.into();
        let args = keys_args(head, block, keys, self.kv_block_len_q8_0(head)?)?;
        // SAFETY: the arguments are checked: a whole block, and an exclusive row for each of its places; the table's instruction set is present.
        unsafe { (self.table.kv_keys_q8_0)(&args) };
        Ok(())
    }

    /// Copies the keys and values of place `from` to place `to`. `blocks` are one behind the other; place `p` is that of number `p % 16` in
    /// block `p / 16`.
    ///
    /// # Errors
    /// `NotWhole` unless `blocks` are whole blocks of [`kv_block_len`](Self::kv_block_len) elements; `ShortSlice` if they lack one of the places;
    /// those of that function.
    pub fn kv_move(
        &self,
        head: impl Into<KvHead>,
        blocks: &mut [E],
        from: usize,
        to: usize,
    ) -> Result<(), KernelError> {
        let head = head.into();
        let len = check_move(blocks.len(), self.kv_block_len(head)?, from.max(to))?;
        forms::copy(blocks, len, [from, to], forms::strips(head));
        Ok(())
    }

    /// [`kv_move`](Self::kv_move) in 8 bits.
    ///
    /// # Errors
    /// Those of [`kv_move`](Self::kv_move), for blocks of [`kv_block_len_q8_0`](Self::kv_block_len_q8_0) bytes.
    pub fn kv_move_q8_0(
        &self,
        head: impl Into<KvHead>,
        blocks: &mut [u8],
        from: usize,
        to: usize,
    ) -> Result<(), KernelError> {
        let head = head.into();
        let len = check_move(blocks.len(), self.kv_block_len_q8_0(head)?, from.max(to))?;
        forms::copy(blocks, len, [from, to], forms::strips_q8_0(head));
        Ok(())
    }

    /// Scratch memory for [`attend`](Self::attend) and [`attend_q8_0`](Self::attend_q8_0) with this many queries and blocks.
    ///
    /// # Errors
    /// `SizeOverflow`.
    pub fn attend_scratch(
        &self,
        rows: usize,
        head: impl Into<KvHead>,
        blocks: usize,
    ) -> Result<ScratchReq, KernelError> {
        let [scores, room, decoded, values] = attend_sizes(rows, head.into(), blocks)?;
        let numbers = ScratchReq::array::<f32>(scores)?.and(ScratchReq::array::<f32>(room)?)?;
        let numbers = numbers.and(ScratchReq::array::<f32>(decoded)?)?;
        numbers.and(ScratchReq::array::<f32>(values)?)?.and(ScratchReq::array::<[f32; 2]>(rows)?)
    }

    /// Attention of the rows of `queries` to a piece of the cache of their KV head. The partial result is joined to `all`, which has
    /// those of earlier pieces. With `s(p) = q . key(p)`, for the positions `p` that the query sees, it consists of `m = max s(p)`,
    /// `sum exp(s(p) - m)` and `sum exp(s(p) - m) * value(p)`. The caller scales queries beforehand, and divides values by sums at
    /// the end. Where the piece has a [cap](KvPiece::softcap), or [biases](KvPiece::alibi), they are applied to `q . key(p)`. Of the
    /// [tree](KvPiece::tree) that it has a part of, a query sees the drafts on its path.
    ///
    /// Sums are formed in f32, by fused multiply-adds in the order of dimensions and positions, so the error of a score is at most about `dim *
    /// 2^-24 * sum |q_i key_i|`. A query without any position in the piece leaves its row as it is.
    ///
    /// # Errors
    /// `NotWhole` unless queries are whole heads; `BadValue` if values are more elements of a key than it has; `DimMismatch` unless `queries`, spans, `all`, and biases and paths, if there are any, have the same number of rows; `WrongLength` unless each block has
    /// [`kv_block_len`](Self::kv_block_len) elements; `BadValue` if `first` is not a multiple of [`KV_BLOCK`], or if the piece
    /// has 2^24 positions or more; `ScratchTooSmall`; `SizeOverflow`.
    pub fn attend(
        &self,
        head: impl Into<KvHead>,
        queries: &[f32],
        piece: KvPiece<'_, E>,
        all: Attended<'_>,
        scratch: Scratch<'_>,
    ) -> Result<(), KernelError> {
        let head = head.into();
        let args = attend_args(head, queries, piece, all, scratch, self.kv_block_len(head)?)?;
        // SAFETY: the arguments are checked: a span, sums and a row of values for each query, whole blocks; `all` is exclusive;
        // the table's instruction set is present.
        unsafe { (self.table.attend)(&args) };
        Ok(())
    }

    /// [`attend`](Self::attend) to blocks in 8 bits, as [`kv_append_q8_0`](Self::kv_append_q8_0) writes them. Queries and exponentials stay in f32: the
    /// result is that of the numbers that codes and scales stand for, within the rounding of sums.
    ///
    /// # Errors
    /// Those of [`attend`](Self::attend), for blocks of [`kv_block_len_q8_0`](Self::kv_block_len_q8_0) bytes.
    pub fn attend_q8_0(
        &self,
        head: impl Into<KvHead>,
        queries: &[f32],
        piece: KvPiece<'_, u8>,
        all: Attended<'_>,
        scratch: Scratch<'_>,
    ) -> Result<(), KernelError> {
        let head = head.into();
        let args = attend_args(head, queries, piece, all, scratch, self.kv_block_len_q8_0(head)?)?;
        // SAFETY: the arguments are checked: a span, sums and a row of values for each query, whole blocks; `all` is
        // exclusive; the table's instruction set is present.
        unsafe { (self.table.attend_q8_0)(&args) };
        Ok(())
    }

    /// Joins the partial results of further pieces to those of earlier ones, as [`attend`](Self::attend) does: if
    /// `new` is the partial result of a single piece, the result has the bits that [`attend`](Self::attend) to that piece gives.
    ///
    /// # Errors
    /// `DimMismatch` unless both have the same number of rows, of `dim` values each.
    pub fn attend_join(&self, dim: usize, all: Attended<'_>, new: Attended<'_>) -> Result<(), KernelError> {
        let rows = all.sums.len();
        check_attended(rows, dim, &all)?;
        check_attended(rows, dim, &new)?;
        let gathered =
            |a: Attended<'_>| Gathered { sums: a.sums.as_mut_ptr(), values: a.values.as_mut_ptr() };
        let args = JoinArgs { rows, dim, all: gathered(all), new: gathered(new), stride: dim };
        // SAFETY: both have so many rows, and are exclusive; the table's instruction set is present.
        unsafe { (self.table.attend_join)(&args) };
        Ok(())
    }
}

/// How many f32 of scratch memory attention needs: for scores, for the rows of a tile, for values that keys have, and for sums of values.
fn attend_sizes(rows: usize, head: KvHead, blocks: usize) -> Result<[usize; 4], KernelError> {
    let overflow = KernelError::SizeOverflow { what: "scratch size" };
    let positions = blocks.checked_mul(KV_BLOCK).ok_or(overflow)?;
    let scores = positions.checked_mul(rows).ok_or(overflow)?;
    let room = positions.checked_mul(HIGHEST.min(rows)).ok_or(overflow)?;
    let width = head.values.checked_next_multiple_of(KV_BLOCK).ok_or(overflow)?;
    let decoded = || positions.checked_mul(width.checked_add(DECODED_GAP)?);
    let decoded = if head.latent { decoded().ok_or(overflow)? } else { 0 };
    Ok([scores, room, decoded, rows.checked_mul(width).ok_or(overflow)?])
}

/// Checks the arguments of attention, whose blocks must have `len` cells, and brings them into the form that kernels
/// take.
fn attend_args<'a, C>(
    head: KvHead,
    queries: &'a [f32],
    piece: KvPiece<'a, C>,
    all: Attended<'a>,
    mut scratch: Scratch<'a>,
    len: usize,
) -> Result<AttendArgs<'a, C>, KernelError> {
    let rows = check::rows("queries", queries.len(), "a head", head.dim)?;
    let KvPiece { blocks, first, spans, alibi, tree, .. } = piece;
    check_attended(rows, head.values, &all)?;
    check::dim("spans.len() != rows", spans.len(), rows)?;
    if !alibi.is_empty() {
        check::dim("alibi.len() != rows", alibi.len(), rows)?;
    }
    if let Some(tree) = tree {
        check::dim("tree.paths.len() != rows", tree.paths.len(), rows)?;
    }
    if !first.is_multiple_of(KV_BLOCK) {
        return Err(KernelError::BadValue { arg: "first", got: first, expected: "a multiple of 16" });
    }
    if blocks.len() >= (1 << 24) / KV_BLOCK {
        return Err(KernelError::BadValue {
            arg: "blocks.len()",
            got: blocks.len(),
            expected: "fewer than 2^20",
        });
    }
    for of in blocks {
        check::len("block", of.len(), len)?;
    }
    let [scores, room, decoded, values] = attend_sizes(rows, head, blocks.len())?;
    Ok(AttendArgs {
        rows,
        head,
        queries: queries.as_ptr(),
        piece,
        scores: scratch.take::<f32>(scores)?.as_mut_ptr(),
        room: scratch.take::<f32>(room)?.as_mut_ptr(),
        decoded: scratch.take::<f32>(decoded)?.as_mut_ptr(),
        new: Gathered {
            values: scratch.take::<f32>(values)?.as_mut_ptr(),
            sums: scratch.take::<[f32; 2]>(rows)?.as_mut_ptr(),
        },
        all: Gathered { sums: all.sums.as_mut_ptr(), values: all.values.as_mut_ptr() },
    })
}

/// The head that keys and values are of.
fn stored(keys: MatRef<'_, f32>, values: MatRef<'_, f32>) -> KvHead {
    KvHead { dim: keys.cols(), values: values.cols(), latent: values.cols() == 0 }
}

/// Checks the arguments of an append to a block, which must have `len` cells, and brings them into the form that
/// kernels take.
fn append_args<C>(
    place: usize,
    keys: MatRef<'_, f32>,
    values: MatRef<'_, f32>,
    block: &mut [C],
    len: usize,
) -> Result<AppendArgs<C>, KernelError> {
    let tokens = keys.rows();
    check::len("block", block.len(), len)?;
    check::dim("values.rows() != keys.rows()", values.rows(), tokens)?;
    check::contiguous("keys.col_stride()", keys.col_stride(), keys.cols())?;
    check::contiguous("values.col_stride()", values.col_stride(), values.cols())?;
    let need = place.saturating_add(tokens);
    if need > KV_BLOCK {
        return Err(KernelError::ShortSlice { arg: "block", need, got: KV_BLOCK });
    }
    Ok(AppendArgs {
        tokens,
        head: stored(keys, values),
        place,
        keys: keys.as_ptr(),
        values: values.as_ptr(),
        strides: [keys.row_stride(), values.row_stride()],
        block: block.as_mut_ptr(),
    })
}

/// Checks the arguments of reading keys, whose block must have `len` cells, and brings them into the form that kernels take.
fn keys_args<'a, C>(
    head: KvHead,
    block: &'a [C],
    mut keys: MatMut<'_, f32>,
    len: usize,
) -> Result<KeysArgs<'a, C>, KernelError> {
    let n = keys.cols();
    check::len("block", block.len(), len)?;
    check::dim("keys.rows() != 16", keys.rows(), KV_BLOCK)?;
    if n > head.dim {
        return Err(KernelError::BadValue {
            arg: "keys.cols()",
            got: n,
            expected: "at most the elements of a key",
        });
    }
    check::contiguous("keys.col_stride()", keys.col_stride(), n)?;
    Ok(KeysArgs { head, block, n, stride: keys.row_stride(), keys: keys.as_mut_ptr() })
}

/// Checks that there are whole blocks of `len` cells, and a place of this number; yields `len`.
fn check_move(cells: usize, len: usize, place: usize) -> Result<usize, KernelError> {
    let blocks = check::rows("blocks", cells, "a block", len)?;
    let got = blocks.saturating_mul(KV_BLOCK);
    if place >= got {
        return Err(KernelError::ShortSlice { arg: "blocks", need: place.saturating_add(1), got });
    }
    Ok(len)
}

/// Checks that there are `rows` sums, and as many rows of `dim` values.
fn check_attended(rows: usize, dim: usize, of: &Attended<'_>) -> Result<(), KernelError> {
    check::dim("sums.len() != rows", of.sums.len(), rows)?;
    check::dim("values.len() != rows * dim", of.values.len(), rows.saturating_mul(dim))
}
