//! Whatever shape is asked for, from nothing to more than any memory has: blocks take each piece of work once, none is idle, and what a
//! GPU does not have is an error.

use gllm_kernels_core::QuantFormat;
use gllm_testkit::data::Source;

use super::*;
use crate::cuda::KvCache;

/// The least that GPUs of compute capability 7.5 to 12.0 have.
const LIMITS: Limits = Limits { grid: [(1 << 31) - 1, 65535, 65535], threads: 1024, shared: 64 << 10 };

/// The least that GPUs have where tensor cores multiply integers: that is 8.6.
const AMPERE: Limits = Limits { shared: 99 << 10, ..LIMITS };

/// What compute capability 9.0 has.
const HOPPER: Limits = Limits { shared: 227 << 10, ..LIMITS };

/// How the blocks of an axis take pieces of work.
#[derive(Clone, Copy, Debug)]
enum Axis {
    /// So many, each block so many side by side.
    Tiles(usize, usize),
    /// So many, each block so many side by side and then those that many further as all blocks have: at most so many blocks.
    Loops(usize, usize, usize),
}
use Axis::{Loops, Tiles};

const ONE: Axis = Tiles(1, 1);

impl Axis {
    /// How often each piece is taken, for few of them.
    fn taken(self, blocks: usize) -> Vec<u32> {
        let (Tiles(n, each) | Loops(n, each, _)) = self;
        let mut taken = vec![0; n];
        for block in 0..blocks {
            let step = if matches!(self, Tiles(..)) { n.max(1) } else { blocks * each };
            for first in (block * each..n).step_by(step) {
                taken[first..n.min(first + each)].iter_mut().for_each(|t| *t += 1);
            }
        }
        taken
    }

    fn check(self, blocks: usize, name: &str) {
        let (Tiles(n, each) | Loops(n, each, _)) = self;
        let (wide, step) = (blocks as u128 * each as u128, each as u128);
        match self {
            _ if n == 0 => return assert_eq!(blocks, 0, "{name}: {self:?}"),
            Loops(_, _, most) => assert!((1..=most).contains(&blocks), "{name}: {blocks} for {self:?}"),
            Tiles(..) => assert!(wide >= n as u128, "{name}: {blocks} for {self:?}"),
        }
        // The last block has something to do.
        assert!(wide - step < n as u128, "{name}: {blocks} for {self:?}");
        if n <= 4096 {
            assert!(self.taken(blocks).iter().all(|&t| t == 1), "{name}: {blocks} for {self:?}");
        }
    }
}

fn check(name: &str, geometry: Geometry, axes: [Axis; 3]) {
    check_within(name, geometry, axes, &LIMITS);
}

fn check_within(name: &str, geometry: Geometry, axes: [Axis; 3], limits: &Limits) {
    let Geometry { grid, threads, shared } = geometry;
    // An axis without work takes the others' with it.
    if !axes.iter().any(|a| matches!(a, Tiles(0, _) | Loops(0, ..))) {
        axes.iter().zip(grid).for_each(|(axis, blocks)| axis.check(blocks, name));
    } else {
        assert!(grid.contains(&0), "{name}: {grid:?} for {axes:?}");
    }
    assert!(threads > 0 && threads.is_multiple_of(32) && threads <= 1024, "{name}: {threads} threads");
    assert!(shared <= limits.shared as usize, "{name}: {shared} bytes of shared memory");
    let fits = grid.iter().zip(limits.grid).all(|(&blocks, limit)| blocks <= limit as usize);
    match geometry.within(name, limits) {
        Ok((driver, ..)) => {
            assert!(fits && driver.map(|n| n as usize) == grid, "{name}: {driver:?} for {grid:?}")
        }
        Err(CudaError::Geometry { kernel, what, asked, limit }) => {
            assert!(
                !fits && kernel == name && asked > limit && what.starts_with("blocks in"),
                "{name}: {grid:?}"
            );
        }
        Err(other) => panic!("{name}: {other}"),
    }
}

/// Few, around powers of two, or anything below 2^31.
fn size(source: &mut Source) -> usize {
    match source.below(4) {
        0 => source.below(10),
        1 => source.below(4096),
        2 => ((1usize << source.below(31)) + source.below(3)).saturating_sub(1),
        _ => source.below((1 << 31) - 1) >> source.below(31),
    }
}

fn each(mut test: impl FnMut(&mut Source)) {
    let mut source = Source::new(7);
    (0..3000).for_each(|_| test(&mut source));
}

#[test]
fn elements_and_rows() {
    each(|s| {
        let (n, m, processors) = (size(s), size(s), 1 + s.below(200));
        for bytes in [2, 4] {
            let most = processors * 32;
            check("elementwise", elementwise(n, bytes, processors), [Loops(n, 8192 / bytes, most), ONE, ONE]);
            let (held, geometry) = by_row(n, m * bytes, s.below(2) == 0);
            check("by_row", geometry, [Tiles(n, 1), ONE, ONE]);
            assert!(geometry.shared == 128 && (!held || geometry.threads * 64 >= m * bytes));
        }
        check("embed", embed(n, m), [Tiles(n, 1), Tiles(m.min(1), 1), ONE]);
        check("kv_append", kv_append(n), [Tiles(n, 1), ONE, ONE]);
        check("kv_move", kv_move(n, true), [Tiles(n, 1), Tiles(2, 1), ONE]);
        check("sample", sample(n, m), [Tiles(n, 1), Tiles(m, SCORES_OF_BLOCK), ONE]);
        check("log_probabilities", log_probabilities(n), [Tiles(n, 1), ONE, ONE]);
        check("by_fours", by_fours(n, m), [Tiles(n, 1), ONE, ONE]);
        check("join_rows", join_rows(n, m), [Tiles(n, 1), Tiles(m, 128), ONE]);
        let shares = if n * m.div_ceil(1024) <= processors { m.div_ceil(1024).max(1) } else { 1 };
        check("norm", norm(n, m, processors), [Tiles(n, 1), Tiles(shares, 1), ONE]);
        check("fours", fours(n, m), [Tiles(n, 1), Tiles(m, 1024), ONE]);
        check("heads", heads(n, m, 16 * (1 + s.below(16))), [Tiles(n, 1), Tiles(m, 4), ONE]);
        let (heads, size) = (1 + s.below(256), 1 + s.below(128));
        let geometry = rule(n, (heads, size), 1 + s.below(16));
        let rows = geometry.threads / 4;
        check("rule", geometry, [Tiles(heads * size.div_ceil(rows), 1), Tiles(n, 1), ONE]);
        // Four threads have 128 numbers of a row of the state, and those that exchange sums are in the same warp.
        assert!(
            geometry.threads.is_multiple_of(32) && rows <= size.next_multiple_of(8),
            "{size}: {geometry:?}"
        );
        let together = heads_together(heads, size);
        assert!(together == heads || (together * size).is_multiple_of(32), "{heads} of {size}: {together}");
        let geometry = gates(n, (heads, size), together);
        check("gates", geometry, [Tiles(n, 1), Tiles(heads, together), ONE]);
        assert!(geometry.shared >= (together * (size + 1) + 32) * F32, "{heads} of {size}: {geometry:?}");
        check("threads", threads(n), [Tiles(n, 256), ONE, ONE]);
        let (experts, used) = (1 + s.below(4096), 1 + s.below(32));
        for routes in [false, true] {
            let geometry = sort(n, (experts, used), routes);
            check("sort", geometry, [ONE, ONE, ONE]);
            let room = (2 + geometry.threads / 32) * experts * size_of::<u32>();
            assert!(geometry.shared >= room, "{experts}: {geometry:?}");
        }
        let geometry = route(n, (experts, used));
        check("route", geometry, [Tiles(n, geometry.threads / 32), ONE, ONE]);
    });
}

#[test]
fn rotations() {
    each(|s| {
        let (dim, tokens) = (1 + s.below(1024), size(s));
        let (heads, turned) = (s.below(1 << 20), s.below(dim / 2 + 1) * 2);
        let work = heads * (dim - turned / 2);
        check(
            "rope",
            rope(heads, (dim, turned), tokens),
            [Loops(work, 256, 64), Loops(tokens, 1, 32768), ONE],
        );
    });
}

#[test]
fn weights() {
    each(|s| {
        let (rows, parts, processors) = (size(s), size(s) / 32, 1 + s.below(200));
        let most = processors * 32;
        let (inputs, outputs) = (size(s), size(s));
        check("prepare", warps(rows * parts, 0, processors), [Loops(rows * parts, 8, most), ONE, ONE]);
        let axes = [Loops(outputs, 256, 1024), Loops(inputs, 1, 4096), ONE];
        check("grouped_dequant", grouped_dequant(outputs, inputs), axes);
        for n in [1, 8] {
            check("grouped_gemv", grouped_gemv(outputs, n), [Tiles(outputs, 32), ONE, ONE]);
        }
        let axes = [Tiles(inputs, 128), Tiles(outputs, 128), ONE];
        check("gemm", gemm(inputs, outputs, Tile::narrow(128, 3), 1), axes);
        let axes = [Tiles(inputs, 128), Tiles(outputs, 256), ONE];
        check_within("gemm", gemm(inputs, outputs, Tile::WIDE, 1), axes, &HOPPER);
        let axes = [Tiles(inputs, 128), Tiles(outputs, 128), ONE];
        check_within("gemm", gemm(inputs, outputs, Tile::WIDE_BLOCKS, 1), axes, &HOPPER);
        let few = 1 + s.below(64);
        let of = |capability| Tile::few(Capability(capability));
        for (tile, limits, rows, columns, depth) in [
            (of(75), &LIMITS, 32, 32, 256),
            (of(80), &HOPPER, 32, 128, 256),
            (of(86), &AMPERE, 32, 64, 256),
            (of(100), &HOPPER, 64, 128, 256),
            (Tile::FEW_DENSE, &HOPPER, 64, 128, 64),
            (Tile::FEW_BLOCKS, &HOPPER, 64, 256, 256),
        ] {
            let parts = gemm_parts((few, outputs, inputs), tile, processors);
            assert!((1..=inputs.div_ceil(depth).clamp(1, 32)).contains(&parts), "{parts} parts of {inputs}");
            let axes = [Tiles(few, rows), Tiles(outputs, columns), Tiles(parts, 1)];
            check_within("gemm_few", gemm(few, outputs, tile, parts), axes, limits);
        }
        check("gemm_join", gemm_join(few * outputs, processors), [Loops(few * outputs, 256, most), ONE, ONE]);
        for n in [1, 2, 4, 8] {
            check("gemv", gemv(outputs, n, 3), [Tiles(outputs, 4), Tiles(3, 1), ONE]);
        }
        for format in QuantFormat::ALL.iter().filter(|f| !f.is_float()) {
            let jobs = rows * (parts * 32).div_ceil(1024);
            let geometry = dequant(rows, parts * 32, format.group_len(), processors);
            check("dequant", geometry, [Loops(jobs, 8, most), ONE, ONE]);
            let bytes = CHUNK / format.block_len() * format.block_bytes();
            for (n, each) in [(1, 2), (2, 2), (4, 1), (8, 1)] {
                let split = qgemv_split(rows, inputs);
                assert!(split <= 2 && 1 << split <= inputs.div_ceil(CHUNK).max(1), "{split} for {inputs}");
                let geometry = qgemv(rows, split, n, bytes, 3);
                check("qgemv", geometry, [Tiles(rows, (4 >> split) * each), Tiles(3, 1), ONE]);
                // Each of four warps has two pieces of each row, which start up to 15 bytes late.
                assert!(geometry.shared >= 4 * 2 * each * (bytes + 15));
            }
            let axes = [Tiles(rows, 16), Tiles(3, 1), ONE];
            check_within(
                "qgemv_tiles",
                qgemv_tiles(rows, bytes, (format.group_len(), format.has_offsets()), 3),
                axes,
                &AMPERE,
            );
        }
    });
}

#[test]
fn parts_of_columns() {
    let parts = |shape, tile| gemm_parts(shape, tile, 132);
    // A block for nearly every multiprocessor, unless sums would take longer; none is divided where there are many.
    for (m, n, k, tile, want) in [
        (16, 4096, 14336, Tile::FEW_BLOCKS, 8),
        (16, 28672, 4096, Tile::FEW_BLOCKS, 1),
        (128, 4096, 14336, Tile::WIDE_BLOCKS, 4),
        (128, 28672, 4096, Tile::WIDE_BLOCKS, 1),
        (16, 4096, 14336, Tile::FEW_DENSE, 8),
        (16, 28672, 4096, Tile::FEW_DENSE, 1),
        (64, 6144, 4096, Tile::FEW_DENSE, 5),
        (512, 4096, 14336, Tile::WIDE, 2),
        (512, 28672, 4096, Tile::WIDE, 1),
        (4096, 4096, 4096, Tile::WIDE, 1),
        (0, 0, 0, Tile::WIDE, 1),
    ] {
        assert_eq!(parts((m, n, k), tile), want, "{m} x {n} x {k}");
    }
}

#[test]
fn attention() {
    each(|s| {
        let (sequences, tokens, dim) = (size(s), size(s), 16 * (1 + s.below(16)));
        let (kv_heads, group) = (1 + s.below(64), 1 + s.below(40));
        let heads = kv_heads * group;
        let processors = 1 + s.below(200);
        let room = decode_room(sequences * heads, tokens, processors);
        assert!(
            (1..=128).contains(&room) && (room == 1 || tokens.div_ceil(room) > 128),
            "room for {room} parts of {tokens}"
        );
        let parts = decode_parts(sequences * kv_heads, processors);
        assert!(parts == 1 || parts * sequences * kv_heads <= 4 * processors, "{parts} for {processors}");
        let parts = parts.min(room);
        for width in [1, 4] {
            let geometry = decode((sequences, parts), (heads, kv_heads), (dim, width));
            let blocks = kv_heads * group.div_ceil(width);
            check("decode", geometry, [Tiles(parts, 1), Tiles(blocks, 1), Tiles(sequences, 1)]);
            // As the kernel divides heads.
            let mut taken = vec![0; heads];
            for block in 0..blocks {
                let (per, kv) = (group.div_ceil(width), block / group.div_ceil(width));
                let first = kv * group + block % per * width;
                taken[first..first + width.min((kv + 1) * group - first)].iter_mut().for_each(|t| *t += 1);
            }
            assert!(taken.iter().all(|&t| t == 1), "{heads} heads, {kv_heads} of keys");
        }
        let blocks = kv_heads * group.div_ceil(16);
        for (width, bytes) in [(64, 1), (64, 2), (128, 1), (128, 2)] {
            let geometry = decode_tiles((sequences, parts), (heads, kv_heads), (width, bytes));
            let axes = [Tiles(parts, 1), Tiles(blocks, 1), Tiles(sequences, 1)];
            check_within("decode_tiles", geometry, axes, &AMPERE);
            // What two warps leave.
            assert!(geometry.shared >= 2 * 16 * (width + 4) * 4);
        }
        let wide = wide((sequences, parts), (heads, kv_heads), KvCache::WIDE);
        check("wide", wide, [Tiles(parts, 1), Tiles(blocks, 1), Tiles(sequences, 1)]);
        for columns in [256, 512] {
            let tiles = wide_tiles((sequences, parts), (heads, kv_heads), columns);
            let axes = [Tiles(parts, 1), Tiles(blocks, 1), Tiles(sequences, 1)];
            check_within("wide_tiles", tiles, axes, &AMPERE);
        }
        let rows = latent_rows(sequences, heads, dim);
        check("latent_rows", rows, [Tiles(sequences, 1), Tiles(heads + 8, 8), ONE]);
        check("join", join(sequences * heads, dim), [Tiles(sequences * heads, 1), Tiles(dim, 32), ONE]);
        for dim in [64, 80, 96, 128, 256] {
            let rows = if dim <= 128 { 128 } else { 64 };
            let axes = [Tiles(tokens, rows), Tiles(heads, 1), Tiles(sequences, 1)];
            check("prefill", prefill(dim, tokens, heads, sequences), axes);
        }
        for number in [(64, 1), (64, 2), (128, 1), (128, 2), (256, 2)] {
            let axes = [Tiles(tokens, 128), Tiles(heads, 1), Tiles(sequences, 1)];
            check_within("prefill_wide", prefill_wide(number, tokens, heads, sequences), axes, &HOPPER);
        }
    });
}

/// As many pieces as begin before the last token, where `kv_begin` says what `piece_begin` of `attention.cuh` does.
#[test]
fn pieces() {
    for (tokens, piece) in (0..20_000).map(|n| (n, KV_PIECE)).chain((0..5000).map(|n| (n, 4 * 640))) {
        let begin = |p| kv_begin(p, piece);
        let n = kv_pieces(tokens, piece);
        assert!(begin(n) >= tokens && (n == 0 || begin(n - 1) < tokens), "{tokens} tokens in {n} pieces");
    }
}
