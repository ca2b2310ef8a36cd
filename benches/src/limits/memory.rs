//! Ways to move memory: the loops whose best rate is a bandwidth limit.
//!
//! Every loop works on whole 4 KiB pages and is compiled for the widest registers of the machine.
//! Which way is fastest depends on the machine and on the level of cache, so several are tried:
//! one page after the other or several side by side, stores through the caches or past them.

/// What an operator does to memory, per pass over its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Traffic {
    /// Reads only.
    Read,
    /// Reads one buffer, writes another.
    Copy,
    /// Reads two buffers, writes a third.
    Triad,
    /// Reads and overwrites one buffer.
    Update,
    /// Reads one buffer; reads and overwrites another.
    Accumulate,
    /// Reads little and writes much: one byte for every four written.
    Expand,
}

impl Traffic {
    /// Every kind.
    pub const ALL: [Self; 6] =
        [Self::Read, Self::Copy, Self::Triad, Self::Update, Self::Accumulate, Self::Expand];

    /// Lower-case name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Copy => "copy",
            Self::Triad => "triad",
            Self::Update => "update",
            Self::Accumulate => "accumulate",
            Self::Expand => "expand",
        }
    }

    /// Working set in units of the longest buffer.
    pub fn buffers(self) -> f64 {
        match self {
            Self::Read | Self::Update => 1.0,
            Self::Copy | Self::Accumulate => 2.0,
            Self::Triad => 3.0,
            Self::Expand => 1.25,
        }
    }

    /// Bytes moved per byte of the longest buffer; reads and writes count once each.
    pub fn moved(self) -> f64 {
        match self {
            Self::Read => 1.0,
            Self::Copy | Self::Update => 2.0,
            Self::Triad | Self::Accumulate => 3.0,
            Self::Expand => 1.25,
        }
    }
}

/// The smallest piece a loop handles.
pub const PAGE: usize = 4096;

/// Operands of one pass. Buffers that a traffic does not use may be dangling.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// First input.
    pub a: *const u8,
    /// Second input.
    pub b: *const u8,
    /// Output.
    pub y: *mut u8,
    /// Bytes of the longest buffer, a multiple of [`PAGE`].
    pub len: usize,
}

/// One way to produce a traffic.
#[derive(Clone, Copy, Debug)]
pub struct Pattern {
    /// What it is called in reports.
    pub name: &'static str,
    /// What it does.
    pub traffic: Traffic,
    /// One pass.
    pub pass: unsafe fn(Span),
}

/// A register and how it meets memory; `BYTES` divides [`PAGE`], addresses are aligned to it.
trait Wide {
    const BYTES: usize;
    type V: Copy;
    unsafe fn zero() -> Self::V;
    unsafe fn load(p: *const u8) -> Self::V;
    unsafe fn xor(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn store(p: *mut u8, v: Self::V);
    unsafe fn stream(p: *mut u8, v: Self::V);
}

macro_rules! wide {
    ($(
        $(#[$cfg:meta])*
        $name:ident($v:ty, $bytes:literal) {
            zero: $zero:expr,
            load($lp:ident): $load:expr,
            xor($xa:ident, $xb:ident): $xor:expr,
            store($sp:ident, $sv:ident): $store:expr,
            stream($np:ident, $nv:ident): $stream:expr,
        }
    )*) => {$(
        $(#[$cfg])*
        struct $name;
        $(#[$cfg])*
        // SAFETY of the bodies: the caller passes valid aligned addresses and has the instructions.
        #[allow(unused_unsafe, clippy::undocumented_unsafe_blocks)]
        impl Wide for $name {
            const BYTES: usize = $bytes;
            type V = $v;
            #[inline(always)]
            unsafe fn zero() -> $v { unsafe { $zero } }
            #[inline(always)]
            unsafe fn load($lp: *const u8) -> $v { unsafe { $load } }
            #[inline(always)]
            unsafe fn xor($xa: $v, $xb: $v) -> $v { unsafe { $xor } }
            #[inline(always)]
            unsafe fn store($sp: *mut u8, $sv: $v) { unsafe { $store } }
            #[inline(always)]
            unsafe fn stream($np: *mut u8, $nv: $v) { unsafe { $stream } }
        }
    )*};
}

#[cfg(target_arch = "aarch64")]
use std::arch::aarch64::*;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

wide! {
    #[cfg(target_arch = "x86_64")]
    Zmm(__m512i, 64) {
        zero: _mm512_setzero_si512(),
        load(p): _mm512_load_si512(p.cast()),
        xor(a, b): _mm512_xor_si512(a, b),
        store(p, v): _mm512_store_si512(p.cast(), v),
        stream(p, v): _mm512_stream_si512(p.cast(), v),
    }
    #[cfg(target_arch = "x86_64")]
    Ymm(__m256i, 32) {
        zero: _mm256_setzero_si256(),
        load(p): _mm256_load_si256(p.cast()),
        xor(a, b): _mm256_xor_si256(a, b),
        store(p, v): _mm256_store_si256(p.cast(), v),
        stream(p, v): _mm256_stream_si256(p.cast(), v),
    }
    #[cfg(target_arch = "x86_64")]
    Base(__m128i, 16) {
        zero: _mm_setzero_si128(),
        load(p): _mm_load_si128(p.cast()),
        xor(a, b): _mm_xor_si128(a, b),
        store(p, v): _mm_store_si128(p.cast(), v),
        stream(p, v): _mm_stream_si128(p.cast(), v),
    }
    #[cfg(target_arch = "aarch64")]
    Base(uint8x16_t, 16) {
        zero: vdupq_n_u8(0),
        load(p): vld1q_u8(p),
        xor(a, b): veorq_u8(a, b),
        store(p, v): vst1q_u8(p, v),
        stream(p, v): {
            // `stnp` writes pairs: the upper half goes along.
            std::arch::asm!("stnp {0:d}, {1:d}, [{2}]", in(vreg) v, in(vreg) vextq_u8::<8>(v, v), in(reg) p,
                options(nostack, preserves_flags))
        },
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    Base([u64; 2], 16) {
        zero: [0; 2],
        load(p): p.cast::<[u64; 2]>().read(),
        xor(a, b): [a[0] ^ b[0], a[1] ^ b[1]],
        store(p, v): p.cast::<[u64; 2]>().write(v),
        stream(p, v): p.cast::<[u64; 2]>().write(v),
    }
}

/// Eight vectors a step, from `$pages` pages side by side: `$body` sees the slot (0..8) and the
/// offset in bytes. A macro, because a closure would not inherit the instruction set.
macro_rules! walk {
    ($w:ident, $pages:ident, $len:expr, |$slot:ident, $at:ident| $body:expr) => {
        let per_page = 8 / $pages;
        let (whole, mut base) = ($len / PAGE / $pages * $pages * PAGE, 0);
        while base < whole {
            let mut offset = 0;
            while offset < PAGE {
                for page in 0..$pages {
                    for unit in 0..per_page {
                        let $slot = page * per_page + unit;
                        let $at = base + page * PAGE + offset + unit * $w::BYTES;
                        $body;
                    }
                }
                offset += per_page * $w::BYTES;
            }
            base += $pages * PAGE;
        }
        // Pages that do not fill a group.
        while base < $len {
            for unit in 0..PAGE / $w::BYTES {
                let ($slot, $at) = (unit % 8, base + unit * $w::BYTES);
                $body;
            }
            base += PAGE;
        }
    };
}

/// Stores `$v` at `$p`, past the cache if `STREAM`.
macro_rules! put {
    ($w:ident, $stream:ident, $p:expr, $v:expr) => {
        if $stream {
            $w::stream($p, $v)
        } else {
            $w::store($p, $v)
        }
    };
}

#[inline(always)]
unsafe fn read<W: Wide, const PAGES: usize, const STREAM: bool>(s: Span) {
    // SAFETY: the buffers in use hold `len` bytes, aligned to 64; the caller vouches for the instructions.
    unsafe {
        let mut acc = [W::zero(); 8];
        walk!(W, PAGES, s.len, |slot, at| acc[slot] = W::xor(acc[slot], W::load(s.a.add(at))));
        let mut sum = W::zero();
        for a in acc {
            sum = W::xor(sum, a);
        }
        std::hint::black_box(sum);
    }
}

#[inline(always)]
unsafe fn copy<W: Wide, const PAGES: usize, const STREAM: bool>(s: Span) {
    // SAFETY: the buffers in use hold `len` bytes, aligned to 64; the caller vouches for the instructions.
    unsafe {
        walk!(W, PAGES, s.len, |_slot, at| put!(W, STREAM, s.y.add(at), W::load(s.a.add(at))));
    }
}

#[inline(always)]
unsafe fn triad<W: Wide, const PAGES: usize, const STREAM: bool>(s: Span) {
    // SAFETY: the buffers in use hold `len` bytes, aligned to 64; the caller vouches for the instructions.
    unsafe {
        walk!(W, PAGES, s.len, |_slot, at| put!(
            W,
            STREAM,
            s.y.add(at),
            W::xor(W::load(s.a.add(at)), W::load(s.b.add(at)))
        ));
    }
}

#[inline(always)]
unsafe fn update<W: Wide, const PAGES: usize, const STREAM: bool>(s: Span) {
    // SAFETY: the buffers in use hold `len` bytes, aligned to 64; the caller vouches for the instructions.
    unsafe {
        let flip = std::hint::black_box(W::zero());
        walk!(W, PAGES, s.len, |_slot, at| put!(W, STREAM, s.y.add(at), W::xor(W::load(s.y.add(at)), flip)));
    }
}

#[inline(always)]
unsafe fn accumulate<W: Wide, const PAGES: usize, const STREAM: bool>(s: Span) {
    // SAFETY: the buffers in use hold `len` bytes, aligned to 64; the caller vouches for the instructions.
    unsafe {
        walk!(W, PAGES, s.len, |_slot, at| put!(
            W,
            STREAM,
            s.y.add(at),
            W::xor(W::load(s.a.add(at)), W::load(s.y.add(at)))
        ));
    }
}

#[inline(always)]
unsafe fn expand<W: Wide, const PAGES: usize, const STREAM: bool>(s: Span) {
    // SAFETY: `y` holds `len` bytes and `a` a quarter of that, aligned to 64 bytes, and `at / 4` rounded down to a
    // register stays inside the quarter; the caller vouches for the instructions.
    unsafe {
        walk!(W, PAGES, s.len, |_slot, at| put!(
            W,
            STREAM,
            s.y.add(at),
            W::load(s.a.add((at / 4) & !(W::BYTES - 1)))
        ));
    }
}

/// The microcoded copy: it may use protocols that no store instruction reaches.
#[cfg(target_arch = "x86_64")]
unsafe fn rep_movsb(s: Span) {
    // SAFETY: both buffers hold `len` bytes and do not overlap.
    unsafe {
        std::arch::asm!("rep movsb", inout("rcx") s.len => _, inout("rsi") s.a => _, inout("rdi") s.y => _,
            options(nostack, preserves_flags));
    }
}

/// Emits the module of one register width: a wrapper per loop, and their list.
macro_rules! patterns {
    ($module:ident, $wide:ident, $attribute:meta, $fence:expr, {$(
        $name:ident: $body:ident $pages:literal $stream:literal => $traffic:ident $text:literal,
    )*}) => {
        mod $module {
            use super::*;
            $(
                #[$attribute]
                unsafe fn $name(s: Span) {
                    // SAFETY: the caller's contract; the list below is chosen by detection.
                    unsafe {
                        $body::<$wide, $pages, $stream>(s);
                        $fence($stream);
                    }
                }
            )*
            pub(super) static ALL: &[Pattern] =
                &[$(Pattern { name: $text, traffic: Traffic::$traffic, pass: $name }),*];
        }
    };
}

macro_rules! all_patterns {
    ($module:ident, $wide:ident, $attribute:meta, $fence:expr) => {
        patterns! { $module, $wide, $attribute, $fence, {
            read1: read 1 false => Read "1 page",
            read2: read 2 false => Read "2 pages",
            read4: read 4 false => Read "4 pages",
            read8: read 8 false => Read "8 pages",
            copy1: copy 1 false => Copy "1 page",
            copy2: copy 2 false => Copy "2 pages",
            copy4: copy 4 false => Copy "4 pages",
            copy1s: copy 1 true => Copy "1 page, streaming stores",
            copy2s: copy 2 true => Copy "2 pages, streaming stores",
            copy4s: copy 4 true => Copy "4 pages, streaming stores",
            copy8s: copy 8 true => Copy "8 pages, streaming stores",
            triad1: triad 1 false => Triad "1 page",
            triad2: triad 2 false => Triad "2 pages",
            triad4: triad 4 false => Triad "4 pages",
            triad1s: triad 1 true => Triad "1 page, streaming stores",
            triad2s: triad 2 true => Triad "2 pages, streaming stores",
            triad4s: triad 4 true => Triad "4 pages, streaming stores",
            update1: update 1 false => Update "1 page",
            update2: update 2 false => Update "2 pages",
            update4: update 4 false => Update "4 pages",
            update8: update 8 false => Update "8 pages",
            update4s: update 4 true => Update "4 pages, streaming stores",
            accumulate1: accumulate 1 false => Accumulate "1 page",
            accumulate2: accumulate 2 false => Accumulate "2 pages",
            accumulate4: accumulate 4 false => Accumulate "4 pages",
            accumulate8: accumulate 8 false => Accumulate "8 pages",
            expand1: expand 1 false => Expand "1 page",
            expand2: expand 2 false => Expand "2 pages",
            expand1s: expand 1 true => Expand "1 page, streaming stores",
            expand2s: expand 2 true => Expand "2 pages, streaming stores",
            expand4s: expand 4 true => Expand "4 pages, streaming stores",
        } }
    };
}

/// Streaming stores are complete when the pass ends.
#[inline(always)]
#[allow(unused_variables)]
fn fence(streamed: bool) {
    #[cfg(target_arch = "x86_64")]
    if streamed {
        // SAFETY: part of x86-64.
        unsafe { _mm_sfence() };
    }
}

#[cfg(target_arch = "x86_64")]
all_patterns! { zmm, Zmm, target_feature(enable = "avx512f"), fence }
#[cfg(target_arch = "x86_64")]
all_patterns! { ymm, Ymm, target_feature(enable = "avx2"), fence }
all_patterns! { base, Base, inline(never), fence }

#[cfg(target_arch = "x86_64")]
static MICROCODE: &[Pattern] = &[Pattern { name: "rep movsb", traffic: Traffic::Copy, pass: rep_movsb }];

/// Every pattern of a traffic that this machine can run.
pub fn patterns(traffic: Traffic) -> impl Iterator<Item = &'static Pattern> {
    let mut lists: [&'static [Pattern]; 2] = [base::ALL, &[]];
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            lists[0] = zmm::ALL;
        } else if is_x86_feature_detected!("avx2") {
            lists[0] = ymm::ALL;
        }
        lists[1] = MICROCODE;
    }
    lists.into_iter().flatten().filter(move |p| p.traffic == traffic)
}
