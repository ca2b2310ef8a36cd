//! How the work of each kernel is divided among blocks: functions of shapes alone, which kernels rely on.

use std::ffi::c_uint;

use super::error::{Capability, CudaError};

/// How many blocks of how many threads, with how many bytes of shared memory each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub(crate) grid: [usize; 3],
    pub(crate) threads: usize,
    pub(crate) shared: usize,
}

/// The limits of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) grid: [u32; 3],
    pub(crate) threads: u32,
    pub(crate) shared: u32,
}

impl Geometry {
    /// The geometry in the driver's units, or the limit of the GPU that it exceeds.
    pub(crate) fn within(
        &self,
        kernel: &str,
        limits: &Limits,
    ) -> Result<([c_uint; 3], c_uint, c_uint), CudaError> {
        let limit = |what, asked: usize, limit: u32| match c_uint::try_from(asked) {
            Ok(n) if n <= limit => Ok(n),
            _ => Err(CudaError::Geometry { kernel: kernel.into(), what, asked, limit: limit as usize }),
        };
        let x = limit("blocks in x", self.grid[0], limits.grid[0])?;
        let y = limit("blocks in y", self.grid[1], limits.grid[1])?;
        let z = limit("blocks in z", self.grid[2], limits.grid[2])?;
        let threads = limit("threads in a block", self.threads, limits.threads)?;
        Ok(([x, y, z], threads, limit("bytes of shared memory", self.shared, limits.shared)?))
    }
}

const F32: usize = size_of::<f32>();

/// 32 bytes of an operand a thread; beyond some waves of blocks, they loop.
pub(crate) fn elementwise(elements: usize, size: usize, multiprocessors: usize) -> Geometry {
    let blocks = elements.div_ceil(32 * 256 / size);
    Geometry { grid: [blocks.min(multiprocessors * 32), 1, 1], threads: 256, shared: 0 }
}

/// One block for each row of `bytes` bytes, and whether its threads hold the row in registers, up to four times 16 bytes each. That is so for rows that can be
/// moved 16 bytes at a time, and that 1024 threads can hold. Shared memory has 32 numbers for sums of warps.
pub(crate) fn by_row(rows: usize, bytes: usize, aligned: bool) -> (bool, Geometry) {
    let held = aligned && bytes <= 1024 * 64;
    let threads = bytes.div_ceil(if held { 64 } else { 16 }).clamp(1, 1024).next_multiple_of(32);
    (held, Geometry { grid: [rows, 1, 1], threads, shared: 32 * F32 })
}

/// A thread a pair or an element that stays, blocks of y a token; both loop.
pub(crate) fn rope(heads: usize, (head_dim, rot_dim): (usize, usize), tokens: usize) -> Geometry {
    let work = heads * (head_dim - rot_dim / 2);
    Geometry { grid: [work.div_ceil(256).min(64), tokens.min(32768), 1], threads: 256, shared: 0 }
}

/// A block a row; rows without columns need none.
pub(crate) fn embed(rows: usize, cols: usize) -> Geometry {
    Geometry { grid: [if cols == 0 { 0 } else { rows }, 1, 1], threads: 256, shared: 0 }
}

/// A warp a job, with `shared` bytes of its own; beyond some waves of blocks, they loop.
pub(crate) fn warps(jobs: usize, shared: usize, multiprocessors: usize) -> Geometry {
    let grid = [jobs.div_ceil(8).min(multiprocessors * 32), 1, 1];
    Geometry { grid, threads: 8 * 32, shared: shared * 8 }
}

/// Columns of weights in blocks that a warp takes at a time.
pub(crate) const CHUNK: usize = 1024;

/// Decoding: a warp has `CHUNK` codes, and scales and offsets of their groups.
pub(crate) fn dequant(rows: usize, cols: usize, group: usize, multiprocessors: usize) -> Geometry {
    warps(rows * cols.div_ceil(CHUNK), CHUNK + 2 * F32 * CHUNK / group, multiprocessors)
}

/// How many of the four warps of a block share the columns of a row, as a power of two: until there are about as many warps, for two rows each, as a large GPU has at a time. If there are
/// more of them in any case, as many as leave a warp seven pieces of `CHUNK` columns.
pub(crate) fn qgemv_split(rows: usize, cols: usize) -> u32 {
    let (pairs, pieces) = (rows.div_ceil(2).max(1), cols.div_ceil(CHUNK));
    let warps = if pairs <= 3072 { 3072 / pairs } else { pieces / 7 };
    warps.min(pieces).clamp(1, 4).ilog2()
}

/// Products of weights whose `CHUNK` columns have so many bytes with `n` vectors: 2^split of the four warps of a block share the columns of two rows, or of one from four vectors on, and each has two pieces
/// of each row in shared memory. Blocks of y have vectors of their own.
pub(crate) fn qgemv(rows: usize, split: u32, n: usize, bytes: usize, blocks: usize) -> Geometry {
    let each = if n <= 2 { 2 } else { 1 };
    let room = (bytes + 15).next_multiple_of(16);
    Geometry {
        grid: [rows.div_ceil((4 >> split) * each), blocks, 1],
        threads: 4 * 32,
        shared: 4 * 2 * each * room,
    }
}

/// The same with several vectors on tensor cores: a block has 16 rows, whose columns its eight warps share, and of each row a warp has two pieces of 256 columns in shared memory, and beside them what
/// belongs to groups of `group` weights, a scale and perhaps an offset, and to groups of the vectors.
pub(crate) fn qgemv_tiles(
    rows: usize,
    bytes: usize,
    (group, offsets): (usize, bool),
    blocks: usize,
) -> Geometry {
    // Eight lanes find a row each in different banks.
    let room = ((bytes / 4 + 15).next_multiple_of(16) + 31) / 64 * 64 + 32;
    let groups = 32 / group;
    let beside = 8 * (8 * 8 * groups + 16) + 16 * 9 * groups * F32 * if offsets { 2 } else { 1 };
    Geometry { grid: [rows.div_ceil(16), blocks, 1], threads: 8 * 32, shared: 8 * (2 * 16 * room + beside) }
}

/// Products of dense weights with `n` vectors: a block has four rows, whose columns its four warps share. Blocks of y have vectors of their own.
pub(crate) fn gemv(rows: usize, n: usize, blocks: usize) -> Geometry {
    Geometry { grid: [rows.div_ceil(4), blocks, 1], threads: 4 * 32, shared: 4 * 4 * n * F32 }
}

/// Decoding of grouped integers: threads along outputs, blocks of y along inputs; both loop.
pub(crate) fn grouped_dequant(outputs: usize, inputs: usize) -> Geometry {
    Geometry { grid: [outputs.div_ceil(256).min(1024), inputs.min(4096), 1], threads: 256, shared: 0 }
}

/// Products of grouped integers with `n` vectors: a block has 32 outputs, whose inputs its 16 warps share, each with 32 numbers of every vector.
pub(crate) fn grouped_gemv(outputs: usize, n: usize) -> Geometry {
    Geometry { grid: [outputs.div_ceil(32), 1, 1], threads: 512, shared: 512 * n * F32 }
}

/// A block a row, four columns a thread, and where warps meet.
pub(crate) fn by_fours(rows: usize, cols: usize) -> Geometry {
    let threads = cols.div_ceil(4).clamp(1, 1024).next_multiple_of(32);
    Geometry { grid: [rows, 1, 1], threads, shared: 32 * F32 }
}

/// A row's norm: the same, but where multiprocessors have nothing else to do, blocks of y share its columns behind the sums, 1024 of them each.
pub(crate) fn norm(rows: usize, cols: usize, multiprocessors: usize) -> Geometry {
    let shares = cols.div_ceil(1024).max(1);
    let shares = if rows * shares <= multiprocessors { shares } else { 1 };
    Geometry { grid: [rows, shares, 1], ..by_fours(rows, cols) }
}

/// Four columns a thread, in blocks of 1024 columns.
pub(crate) fn fours(rows: usize, cols: usize) -> Geometry {
    Geometry { grid: [rows, cols.div_ceil(1024), 1], threads: 256, shared: 0 }
}

/// A warp a head of a row, with room for it in shared memory.
pub(crate) fn heads(rows: usize, heads: usize, head_dim: usize) -> Geometry {
    Geometry { grid: [rows, heads.div_ceil(4), 1], threads: 4 * 32, shared: 4 * head_dim * F32 }
}

/// The rule of linear attention, of `runs` of rows: a block has up to 32 values of a head, each a row of the state that four threads share. It has twice so many
/// tokens in shared memory: of each a key and a query, a value for each row and four more, and two factors.
pub(crate) fn rule(runs: usize, (heads, value_size): (usize, usize), tokens: usize) -> Geometry {
    let rows = value_size.min(32).next_multiple_of(8);
    let shared = 2 * tokens * (2 * 128 + rows + 4 + 2) * F32;
    Geometry { grid: [heads * value_size.div_ceil(rows), runs, 1], threads: 4 * rows, shared }
}

/// A thread a channel of a run of rows.
pub(crate) fn keep(runs: usize, channels: usize) -> Geometry {
    Geometry { grid: [runs, channels.div_ceil(256), 1], threads: 256, shared: 0 }
}

/// Heads of `dim` elements that a block gates: whole groups of 32 columns, and 1024 columns at most if these are so many; or all.
pub(crate) fn heads_together(heads: usize, dim: usize) -> usize {
    let step = 32 >> dim.trailing_zeros().min(5);
    (1024 / dim / step * step).max(step).min(heads)
}

/// Four columns a thread, in blocks that have some heads `together`: their numbers, one for each, and where warps meet.
pub(crate) fn gates(rows: usize, (heads, dim): (usize, usize), together: usize) -> Geometry {
    let cols = together * dim;
    let Geometry { threads, .. } = by_fours(rows, cols);
    Geometry { grid: [rows, heads.div_ceil(together), 1], threads, shared: (cols + together + 32) * F32 }
}

/// A thread a row.
pub(crate) fn threads(rows: usize) -> Geometry {
    Geometry { grid: [rows.div_ceil(256), 1, 1], threads: 256, shared: 0 }
}

/// A block a token.
pub(crate) fn kv_append(tokens: usize) -> Geometry {
    Geometry { grid: [tokens, 1, 1], threads: 256, shared: 0 }
}

/// A block for the keys of each head, and one for its values if there are any.
pub(crate) fn kv_move(kv_heads: usize, values: bool) -> Geometry {
    Geometry { grid: [kv_heads, 1 + usize::from(values), 1], threads: 128, shared: 0 }
}

/// A block for what is cached of a row, whose numbers meet in shared memory, and blocks of eight warps for its heads.
pub(crate) fn latent_rows(rows: usize, heads: usize, row: usize) -> Geometry {
    let shared = (row.next_multiple_of(32) + 32) * F32;
    Geometry { grid: [rows, 1 + heads.div_ceil(8), 1], threads: 256, shared }
}

/// Latent attention and wide heads: a block has 16 heads of a query that share a KV head, and 16 rows of the cache, of `row` elements at most, and where these are.
pub(crate) fn wide(
    (queries, parts): (usize, usize),
    (heads, kv_heads): (usize, usize),
    row: usize,
) -> Geometry {
    let blocks = kv_heads * (heads / kv_heads).div_ceil(16);
    let shared = 16 * (row * F32 + 2 * size_of::<u32>());
    Geometry { grid: [parts, blocks, queries], threads: 256, shared }
}

/// Elements of a head that need no kernel for wide heads.
pub(crate) const NARROW: usize = 256;

/// Parts of the tokens of each sequence that there is room for: of 256 or more.
pub(crate) fn decode_room(queries: usize, tokens: usize, multiprocessors: usize) -> usize {
    let wanted = (multiprocessors * 32).div_ceil(queries.max(1));
    tokens.div_ceil(256).clamp(1, wanted.clamp(1, 128))
}

/// Parts of the tokens of each sequence where there are so many blocks for each: as many as multiprocessors have at once.
pub(crate) fn decode_parts(blocks: usize, multiprocessors: usize) -> usize {
    (multiprocessors * 4 / blocks.max(1)).max(1)
}

/// Attention of single queries, `width` that share a KV head a block. Of each it has 256 numbers, and for each warp a weight of each token of a
/// batch, then `head_dim` sums and two numbers, in fours. A batch has as many tokens as four lots of eight dimensions in each lane make.
pub(crate) fn decode(
    (sequences, parts): (usize, usize),
    (heads, kv_heads): (usize, usize),
    (head_dim, width): (usize, usize),
) -> Geometry {
    let blocks = kv_heads * (heads / kv_heads).div_ceil(width);
    let batch = 32 / head_dim.div_ceil(32).next_power_of_two();
    let shared = width * (256 + 4 * batch.max(head_dim + 4)) * F32;
    Geometry { grid: [parts, blocks, sequences], threads: 4 * 32, shared }
}

/// On tensor cores: a block has up to 16 rows, which are heads of one query or of several, two tiles of `columns` of 32 rows of the cache, with room for 64 that turn if it
/// is the kernel for most, and of its own rows scores of eight warps, exponentials, and a number.
pub(crate) fn wide_tiles(
    (queries, parts): (usize, usize),
    (heads, kv_heads): (usize, usize),
    columns: usize,
) -> Geometry {
    let blocks = kv_heads * (heads / kv_heads).div_ceil(16);
    let tile = 32 * (columns + if columns > 256 { 64 } else { 0 }) * size_of::<u16>();
    let shared = 2 * tile + 16 * (8 * 32 * F32 + (32 + 8) * size_of::<u16>() + F32);
    Geometry { grid: [parts, blocks, queries], threads: 256, shared }
}

/// Tokens of a piece of attention: pieces are counted from the beginning of a sequence, so that sums depend on nothing else.
pub(crate) const KV_PIECE: usize = 256;

/// Tokens in front of piece `index`, of pieces of `piece` tokens: the first eight have a fourth of them, and the next eight a half.
pub(crate) fn kv_begin(index: usize, piece: usize) -> usize {
    match index {
        0..=8 => index * (piece / 4),
        9..=16 => (2 * index - 8) * (piece / 4),
        _ => (4 * index - 40) * (piece / 4),
    }
}

/// Pieces of `piece` tokens that a sequence of so many tokens has.
pub(crate) fn kv_pieces(tokens: usize, piece: usize) -> usize {
    match tokens.div_ceil(piece / 4) {
        parts @ 0..=8 => parts,
        parts @ 9..=24 => parts.div_ceil(2) + 4,
        parts => parts.div_ceil(4) + 10,
    }
}

/// Attention of single queries on tensor cores, with a kernel for heads of `dim` whose numbers have so many bytes: a block for each query, which may leave
/// it to that of one before it, and of each KV head for 16 heads. It has 16 queries in 16 bits, with 16 bytes between them, and each of its two warps three
/// times keys and values of 16 tokens, in whose place are at the end `dim` sums and four numbers of each query.
pub(crate) fn decode_tiles(
    (queries, parts): (usize, usize),
    (heads, kv_heads): (usize, usize),
    (dim, bytes): (usize, usize),
) -> Geometry {
    let blocks = kv_heads * (heads / kv_heads).div_ceil(16);
    let shared = 2 * 3 * 2 * 16 * dim * bytes + 16 * (dim + 8) * size_of::<u16>();
    Geometry { grid: [parts, blocks, queries], threads: 2 * 32, shared }
}

/// A block for 32 dimensions of a query, whose eight warps have sums of each.
pub(crate) fn join(queries: usize, head_dim: usize) -> Geometry {
    Geometry { grid: [queries, head_dim.div_ceil(32), 1], threads: 8 * 32, shared: 8 * 32 * F32 }
}

/// Pieces of rows: a block joins 128 columns, and has of their heads two numbers each, and what eight warps have of each column.
pub(crate) fn join_rows(rows: usize, cols: usize) -> Geometry {
    Geometry { grid: [rows, cols.div_ceil(128), 1], threads: 8 * 32, shared: (2 + 8) * 128 * F32 }
}

/// Attention of many queries, with a kernel for heads of `dim`: a block has some queries of a head and some keys and values, of 16
/// bytes whose number is odd, or which change places by rows. Blocks of x loop.
pub(crate) fn prefill(dim: usize, queries: usize, heads: usize, sequences: usize) -> Geometry {
    let (rows, tokens) = if dim <= 128 { (128, 64) } else { (64, 32) };
    let chunks = dim / 8;
    let pitch = if chunks.is_multiple_of(8) { chunks } else { chunks | 1 };
    let shared = (rows + 2 * tokens) * pitch * 16;
    Geometry { grid: [queries.div_ceil(rows), heads, sequences], threads: 128, shared }
}

/// The same by `wgmma`, with numbers of so many bytes: a block has 128 queries of a head, and keys and values of two or three steps, which start at a
/// multiple of 1024 bytes, and of each step which tokens are there.
pub(crate) fn prefill_wide(
    (dim, bytes): (usize, usize),
    queries: usize,
    heads: usize,
    sequences: usize,
) -> Geometry {
    let tokens = if dim == 128 { 128 } else { 64 };
    let steps = if bytes == 1 || dim > 128 { 2 } else { 3 };
    let shared = (128 + 2 * steps * tokens) * dim * size_of::<u16>() + 1024 + steps * 8 * size_of::<u16>();
    Geometry { grid: [queries.div_ceil(128), heads, sequences], threads: 256, shared }
}

/// What a block of a matrix product computes, with how many threads and bytes of shared memory, where pieces of so many columns of both operands are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tile {
    pub(crate) rows: usize,
    columns: usize,
    depth: usize,
    threads: usize,
    shared: usize,
    /// Blocks that a multiprocessor has at a time.
    at_once: usize,
}

/// Rows up to which products take small tiles: those of usual size would multiply zeros for longer than it takes to read the weights.
pub(crate) const MAX_SMALL_TILE_ROWS: usize = 64;

impl Tile {
    /// By `mma`: `rows` x 128, from so many pieces of 32 columns, each with eight that stay empty.
    pub(crate) const fn narrow(rows: usize, pieces: usize) -> Self {
        let shared = pieces * (rows + 128) * (32 + 8) * size_of::<u16>();
        Self { rows, columns: 128, depth: 32, threads: 128, shared, at_once: 1 }
    }

    /// In f32, from three pieces of 32 columns, each with four that stay empty. It is the number of warps that arithmetic needs that limits the blocks at a time, not the room.
    pub(crate) const SINGLE: Self =
        Self { rows: 32, columns: 32, depth: 32, threads: 64, shared: 3 * 64 * (32 + 4) * F32, at_once: 4 };

    /// Of few rows, by `mma`, as kernels for a compute capability without `wgmma` have it: in as much shared memory as blocks there have at most.
    pub(crate) const fn few(capability: Capability) -> Self {
        let (rows, columns, kib) = match capability.0 {
            100 => (64, 128, 224),
            80 | 87 => (32, 128, 160),
            ..80 => (32, 32, 64),
            _ => (32, 64, 96),
        };
        Self { rows, columns, depth: 256, threads: 4 * columns, shared: kib << 10, at_once: 1 }
    }

    /// By `wgmma`, with dense weights: from four pieces of 64 columns, which start at a multiple of 1024 bytes.
    const fn wgmma(rows: usize, columns: usize, at_once: usize) -> Self {
        let shared = 4 * (rows + columns) * 64 * size_of::<u16>() + 1024;
        Self { rows, columns, depth: 64, threads: 256, shared, at_once }
    }
    /// Of many rows.
    pub(crate) const WIDE: Self = Self::wgmma(128, 256, 1);
    /// Of few rows.
    pub(crate) const FEW_DENSE: Self = Self::wgmma(64, 128, 2);

    /// Of few rows with weights in blocks: as many pieces of 256 columns as find room.
    pub(crate) const FEW_BLOCKS: Self =
        Self { rows: 64, columns: 256, depth: 256, threads: 512, shared: 226 << 10, at_once: 1 };
    /// Of many rows with weights in blocks: decoded weights and X of some steps of 128 columns, and as many pieces of W as find room.
    pub(crate) const WIDE_BLOCKS: Self =
        Self { rows: 128, columns: 128, depth: 128, threads: 512, shared: 227 << 10, at_once: 1 };
}

/// Matrix products: a block computes a tile. The blocks along z divide the columns.
pub(crate) fn gemm(m: usize, n: usize, tile: Tile, parts: usize) -> Geometry {
    let grid = [m.div_ceil(tile.rows), n.div_ceil(tile.columns), parts];
    Geometry { grid, threads: tile.threads, shared: tile.shared }
}

/// Into how many parts the columns of a product are best divided. Multiprocessors compute one block after the other, and what a block does with a piece of the columns takes about as long
/// as 48 KiB do from memory, with few rows or with many; beginning and ending takes it about as long again. Parts take another kernel, which adds their sums: these are written and read again.
pub(crate) fn gemm_parts((m, n, k): (usize, usize, usize), tile: Tile, multiprocessors: usize) -> usize {
    let blocks = m.div_ceil(tile.rows).saturating_mul(n.div_ceil(tile.columns)).max(1);
    let (pieces, each) = (k.div_ceil(tile.depth).max(1), m.saturating_mul(n).saturating_mul(2 * F32));
    let time = |parts: usize| {
        let waves = blocks.saturating_mul(parts).div_ceil(multiprocessors * tile.at_once);
        let sums =
            if parts > 1 { 3 + each.saturating_mul(parts) / (multiprocessors * (48 << 10)) } else { 0 };
        waves.saturating_mul(pieces.div_ceil(parts) + 1).saturating_add(sums)
    };
    (1..=pieces.min(32)).min_by_key(|&parts| time(parts)).unwrap_or(1)
}

/// Sums of parts of the columns, a thread for each; beyond some waves of blocks, they loop.
pub(crate) fn gemm_join(elements: usize, multiprocessors: usize) -> Geometry {
    Geometry { grid: [elements.div_ceil(256).min(multiprocessors * 32), 1, 1], threads: 256, shared: 0 }
}

/// Bytes of shared memory that are enough for a block of few registers on any GPU, and leave room for others.
const SHARED: usize = 48 << 10;

/// Bytes of shared memory that a warp takes to route a row: a number of each expert, two of 64 that may be chosen, and one of each that is.
fn route_room((experts, used): (usize, usize)) -> usize {
    (experts + 2 * 64 + used) * size_of::<u32>()
}

/// Routing: a warp a row; as many in a block as find room in shared memory, up to eight.
pub(crate) fn route(rows: usize, experts: (usize, usize)) -> Geometry {
    let room = route_room(experts);
    let warps = (SHARED / room).clamp(1, 8);
    Geometry { grid: [rows.div_ceil(warps), 1, 1], threads: warps * 32, shared: warps * room }
}

/// Sorting by expert: one block, whose warps share the pairs, and before that the rows, if these have yet to be routed. There are at least as many as ways to cut segments, if they find room in
/// shared memory: it has two numbers of each expert, and for each warp one of each expert, or what it takes to route a row.
pub(crate) fn sort(rows: usize, experts: (usize, usize), routes: bool) -> Geometry {
    let own = 2 * size_of::<u32>() * experts.0;
    let each = if routes { route_room(experts) } else { size_of::<u32>() * experts.0.max(1) };
    let warps = rows.clamp(3, 32).min(SHARED.saturating_sub(own) / each).max(1);
    Geometry { grid: [1, 1, 1], threads: warps * 32, shared: own + warps * each }
}

/// Scores of a row that a block prepares, for which a token is chosen later, and each of its warps.
pub(crate) const SCORES_OF_BLOCK: usize = 4096;
pub(crate) const SCORES_OF_WARP: usize = SCORES_OF_BLOCK / 32;

/// A token of each row: blocks of y share the row's scores. A block has where warps meet, and for each of 2048 digits what tokens with it are
/// worth, or how often its tokens occur.
pub(crate) fn sample(rows: usize, vocabulary: usize) -> Geometry {
    let grid = [rows, vocabulary.div_ceil(SCORES_OF_BLOCK), 1];
    Geometry { grid, threads: 1024, shared: 64 * 4 + 33 * 8 + 2 * 4 + 2048 * 8 + 2048 * (4 + 4) + 16 * 16 }
}

/// A block a result, and where its warps meet.
pub(crate) fn log_probabilities(results: usize) -> Geometry {
    Geometry { grid: [results, 1, 1], threads: 1024, shared: 32 * F32 }
}

#[cfg(test)]
#[path = "geometry_tests.rs"]
mod tests;
