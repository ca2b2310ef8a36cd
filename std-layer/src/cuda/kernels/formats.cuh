// Every block format: how blocks of weights are taken apart. A weight is (code - ZERO) * scale(g) + offset(g), g being
// its group of GROUP weights; codes are signed bytes, or floating point of 8 bits. The layouts are those documented in the core's
// quant/blocks, the tables of codebooks.cuh its codebooks.
#pragma once

#include "codebooks.cuh"
#include "simt.cuh"

// Words from an address that is a multiple of ALIGN. Reads whole words, none that holds no byte of them.
template <u32 ALIGN, u32 N> DEVICE void words(const u8* p, u32 (&w)[N]) {
    if (ALIGN % 16 == 0 && N % 4 == 0) {
#pragma unroll
        for (u32 i = 0; i < N; i += 4) {
            Quad q = load16(p + 4 * i);
            for (u32 k = 0; k < 4; k++) w[i + k] = q.w[k];
        }
    } else if (ALIGN % 8 == 0 && N % 2 == 0) {
#pragma unroll
        for (u32 i = 0; i < N; i += 2) {
            const Pair q = load_pair(p + 4 * i);
            w[i] = q.w[0], w[i + 1] = q.w[1];
        }
    } else if (ALIGN % 4 == 0) {
#pragma unroll
        for (u32 i = 0; i < N; i++) w[i] = reinterpret_cast<const u32*>(p)[i];
    } else {
        const u32 by = static_cast<u32>(reinterpret_cast<u64>(p) % 4) * 8;
        const u32* q = reinterpret_cast<const u32*>(p - by / 8);
        u32 low = q[0];
#pragma unroll
        for (u32 i = 0; i < N; i++) {
            const u32 high = i + 1 < N || by ? q[i + 1] : 0;
            w[i] = funnel(low, high, by);
            low = high;
        }
    }
}

// At even addresses.
DEVICE u32 half_word(const u8* p) { return *reinterpret_cast<const u16*>(p); }
DEVICE f32 half_at(const u8* p) { return to_f32(f16{static_cast<u16>(half_word(p))}); }
// Four bits to the lowest of four bytes.
DEVICE u32 bits4(u32 n) { return (n & 15) * 0x204081 & 0x01010101; }
// A byte's four pairs of bits to four bytes.
DEVICE u32 pairs4(u32 v) {
    v |= v << 6;
    return (v | v << 12) & 0x03030303;
}
// Negative where the lowest bit of a byte of `bits` is set; no byte of v is 0.
DEVICE u32 negate4(u32 v, u32 bits) { return (v ^ bits * 255) + bits; }
// The eighth sign of the seven in `pattern` makes their number even.
DEVICE u32 eight_signs(u32 pattern) { return (pattern & 127) | (bits_set(pattern & 127) & 1) << 7; }
DEVICE u32 nibble_at(const u8* p, u32 k) { return p[k / 2] >> k % 2 * 4 & 15; }

// 16 signed bytes, and what the low and high four bits of bytes stand for in them.
template <u32 A, u32 B, u32 C, u32 D> struct Sixteen;
template <class T> struct Lookup;
template <u32 A, u32 B, u32 C, u32 D> struct Lookup<Sixteen<A, B, C, D>> {
    static DEVICE void lookup(u32 w, u32& low, u32& high) {
        u32 v[2];
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            const u32 n = w >> 16 * i & 0xffff;
            v[i] = permute(permute(A, B, n & 0x7777), permute(C, D, n & 0x7777), 0x3210 | (n & 0x8888) >> 1);
        }
        low = permute(v[0], v[1], 0x6420);
        high = permute(v[0], v[1], 0x7531);
    }
};

// Words k to k + N of the eight that 32 codes make: all of them, or two from an even one on.
//
// Of 4 bits in 16 bytes: the low halves, then the high ones.
template <u32 ALIGN, u32 N> DEVICE void nibbles(const u8* p, u32 (&c)[N], u32 k) {
    if constexpr (N == 8) {
        u32 w[4];
        words<ALIGN>(p, w);
#pragma unroll
        for (u32 i = 0; i < 4; i++) c[i] = w[i] & 0x0f0f0f0f, c[i + 4] = w[i] >> 4 & 0x0f0f0f0f;
    } else {
        words<ALIGN>(p + k % 4 * 4, c);
        for (u32 i = 0; i < 2; i++) c[i] = c[i] >> k / 4 * 4 & 0x0f0f0f0f;
    }
}
// What they stand for in a table; of eight bytes if so `by` chooses their halves.
template <u32 ALIGN, class T> DEVICE void two_of(const u8* p, u32 (&c)[2], u32 by) {
    words<ALIGN>(p, c);
    Lookup<T>::lookup((c[0] >> by & 0x0f0f0f0f) | (c[1] >> by & 0x0f0f0f0f) << 4, c[0], c[1]);
}
template <u32 ALIGN, class T, u32 N> DEVICE void nibbles_of(const u8* p, u32 (&c)[N], u32 k) {
    if constexpr (N == 8) {
        u32 w[4];
        words<ALIGN>(p, w);
#pragma unroll
        for (u32 i = 0; i < 4; i++) Lookup<T>::lookup(w[i], c[i], c[i + 4]);
    } else two_of<ALIGN, T>(p + k % 4 * 4, c, k / 4 * 4);
}
// `mask` of 32 bytes, shifted: 2 or 4 bits of each.
template <u32 ALIGN, u32 N> DEVICE void fields(const u8* p, u32 shift, u32 mask, u32 (&c)[N], u32 k) {
    words<ALIGN>(p + 4 * k, c);
#pragma unroll
    for (u32 i = 0; i < N; i++) c[i] = c[i] >> shift & mask;
}
// ORs to codes `mask` of 32 bytes, shifted right, then left.
template <u32 ALIGN, u32 N> DEVICE void more(const u8* p, u32 right, u32 mask, u32 left, u32 (&c)[N], u32 k) {
    u32 h[N];
    fields<ALIGN>(p, right, mask, h, k);
#pragma unroll
    for (u32 i = 0; i < N; i++) c[i] |= h[i] << left;
}
// One of two words.
DEVICE u32 word_of(const u32 (&w)[2], u32 i) { return i ? w[1] : w[0]; }

// A format has: LEN weights in BYTES bytes; `codes` of part p, 32 weights, of these N words from word k on, as above; `scale` and `offset` of a group.
template <u32 LEN_, u32 BYTES_, u32 GROUP_, i32 ZERO_, bool OFFSETS_ = false> struct Format {
    static constexpr u32 LEN = LEN_, BYTES = BYTES_, GROUP = GROUP_;
    static constexpr i32 ZERO = ZERO_;
    static constexpr bool OFFSETS = OFFSETS_;
    static DEVICE f32 offset(const u8*, u32) { return 0; }
};

// What the field at OFFSET of a block is aligned to, if the first block is to 16 bytes: the lowest bit of all these.
#define AT(OFFSET) ((Base::BYTES | (OFFSET) | 16) & ~((Base::BYTES | (OFFSET) | 16) - 1))
#define FORMAT(NAME, ...) struct NAME : Format<__VA_ARGS__> { typedef Format<__VA_ARGS__> Base;
#define CODES template <u32 N> static DEVICE void codes(const u8* b, u32 p, u32 (&c)[N], u32 k = 0)
#define SCALE static DEVICE f32 scale(const u8* b, u32 g)
#define OFFSET static DEVICE f32 offset(const u8* b, u32 g)

FORMAT(Q4_0, 32, 18, 32, 8)
    CODES { (void)p; nibbles<AT(2)>(b + 2, c, k); }
    SCALE { (void)g; return half_at(b); }
};
FORMAT(Q4_1, 32, 20, 32, 0, true)
    CODES { (void)p; nibbles<AT(4)>(b + 4, c, k); }
    SCALE { (void)g; return half_at(b); }
    OFFSET { (void)g; return half_at(b + 2); }
};
// The fifth bits.
template <u32 ALIGN, u32 N> DEVICE void fifth(const u8* p, u32 (&c)[N], u32 k) {
    u32 h[1];
    words<ALIGN>(p, h);
#pragma unroll
    for (u32 i = 0; i < N; i++) c[i] |= bits4(h[0] >> 4 * (k + i)) << 4;
}
FORMAT(Q5_0, 32, 22, 32, 16)
    CODES { (void)p; nibbles<AT(6)>(b + 6, c, k); fifth<AT(2)>(b + 2, c, k); }
    SCALE { (void)g; return half_at(b); }
};
FORMAT(Q5_1, 32, 24, 32, 0, true)
    CODES { (void)p; nibbles<AT(8)>(b + 8, c, k); fifth<AT(4)>(b + 4, c, k); }
    SCALE { (void)g; return half_at(b); }
    OFFSET { (void)g; return half_at(b + 2); }
};
FORMAT(Q8_0, 32, 34, 32, 0)
    CODES { (void)p; words<AT(2)>(b + 2 + 4 * k, c); }
    SCALE { (void)g; return half_at(b); }
};
FORMAT(Q8_1, 32, 36, 32, 0)
    CODES { (void)p; words<AT(4)>(b + 4 + 4 * k, c); }
    SCALE { (void)g; return half_at(b); }
};
FORMAT(Q1_0, 128, 18, 32, 1)
    CODES {
        u32 w[1];
        words<AT(2)>(b + 2 + 4 * p, w);
#pragma unroll
        for (u32 i = 0; i < N; i++) c[i] = bits4(w[0] >> 4 * (k + i)) << 1;
    }
    SCALE { (void)g; return half_at(b); }
};
FORMAT(Q2_0, 64, 18, 32, 1)
    CODES {
        u32 w[2];
        words<AT(2)>(b + 2 + 8 * p, w);
#pragma unroll
        for (u32 i = 0; i < N; i++) c[i] = pairs4(word_of(w, (k + i) / 4) >> (k + i) % 4 * 8 & 255);
    }
    SCALE { (void)g; return half_at(b); }
};

FORMAT(Q2K, 256, 84, 16, 0, true)
    CODES { fields<AT(16)>(b + 16 + p / 4 * 32, p % 4 * 2, 0x03030303, c, k); }
    SCALE { return half_at(b + 80) * static_cast<f32>(b[g] & 15); }
    OFFSET { return -half_at(b + 82) * static_cast<f32>(b[g] >> 4); }
};
FORMAT(Q3K, 256, 110, 16, 4)
    CODES {
        fields<AT(32)>(b + 32 + p / 4 * 32, p % 4 * 2, 0x03030303, c, k);
        more<AT(0)>(b, p, 0x01010101, 2, c, k);
    }
    SCALE {
        const u8* s = b + 96;
        const i32 low = s[g % 8] >> g / 8 * 4 & 15, high = s[8 + g % 4] >> g / 4 * 2 & 3;
        return half_at(b + 108) * static_cast<f32>((low | high << 4) - 32);
    }
};
// Scales, or minima, of 6 bits, times the number of 16 bits that all of them are multiplied with: 16 bytes hold them.
DEVICE f32 six_bits(const u8* b, u32 g, u32 min) {
    u32 h[4];
    words<16>(b, h);
    const u32 by = g % 4 * 8, top = h[1 + min] >> by;
    const u32 bits = g < 4 ? top & 63 : (h[3] >> by >> 4 * min & 15) | (top >> 2 & 48);
    return to_f32(f16{static_cast<u16>(h[0] >> 16 * min)}) * static_cast<f32>(bits);
}
FORMAT(Q4K, 256, 144, 32, 0, true)
    CODES { fields<AT(16)>(b + 16 + p / 2 * 32, p % 2 * 4, 0x0f0f0f0f, c, k); }
    SCALE { return six_bits(b, g, 0); }
    OFFSET { return -six_bits(b, g, 1); }
};
FORMAT(Q5K, 256, 176, 32, 0, true)
    CODES {
        fields<AT(48)>(b + 48 + p / 2 * 32, p % 2 * 4, 0x0f0f0f0f, c, k);
        more<AT(16)>(b + 16, p, 0x01010101, 4, c, k);
    }
    SCALE { return six_bits(b, g, 0); }
    OFFSET { return -six_bits(b, g, 1); }
};
FORMAT(Q6K, 256, 210, 16, 32)
    CODES {
        fields<AT(0)>(b + p / 4 * 64 + p % 2 * 32, p / 2 % 2 * 4, 0x0f0f0f0f, c, k);
        more<AT(128)>(b + 128 + p / 4 * 32, p % 4 * 2, 0x03030303, 4, c, k);
    }
    SCALE { return half_at(b + 208) * static_cast<f32>(static_cast<i8>(b[192 + g])); }
};
FORMAT(Q8K, 256, 292, 32, 0)
    CODES { words<AT(4)>(b + 4 + 32 * p + 4 * k, c); }
    SCALE { (void)g; u32 d[1]; words<AT(0)>(b, d); return from_bits(d[0]); }
};

FORMAT(Tq1_0, 256, 54, 32, 1)
    // The digit behind the point after so many multiplications by 3.
    static DEVICE u32 digit(u32 w, u32 e) {
        const u32 power = e == 4 ? 81 : 0x1b090301u >> 8 * e & 255;
        const u32 even = (w & 0x00ff00ff) * power & 0x00ff00ff, odd = (w >> 8 & 0x00ff00ff) * power & 0x00ff00ff;
        return (even * 3 >> 8 & 0x00ff00ff) | (odd * 3 & 0xff00ff00);
    }
    CODES {
        if (p < 5) {
            words<AT(0)>(b + 4 * k, c);
#pragma unroll
            for (u32 i = 0; i < N; i++) c[i] = digit(c[i], p);
            return;
        }
        // Two digits of 16 bytes each, at last one, and all of the four bytes behind them.
        constexpr u32 M = N == 8 ? 4 : N;
        u32 w[M], h[1];
        words<AT(32)>(b + 32 + k % 4 * 4, w);
        words<AT(48)>(b + 48, h);
#pragma unroll
        for (u32 i = 0; i < N; i++) {
            const u32 at = (k + i) / 4;
            c[i] = p == 7 && at ? digit(h[0], (k + i) % 4) : digit(w[i % M], p == 7 ? 4 : 2 * p - 10 + at);
        }
    }
    SCALE { (void)g; return half_at(b + 52); }
};
FORMAT(Tq2_0, 256, 66, 32, 1)
    CODES { fields<AT(0)>(b + p / 4 * 32, p % 4 * 2, 0x03030303, c, k); }
    SCALE { (void)g; return half_at(b + 64); }
};

// Eights of a grid, with signs.
DEVICE void eight(const u64* grid, u32 index, u32 signs, u32& low, u32& high) {
    const u64 entry = grid[index];
    low = negate4(static_cast<u32>(entry), bits4(signs));
    high = negate4(static_cast<u32>(entry >> 32), bits4(signs >> 4));
}
DEVICE f32 odd(u32 scale) { return static_cast<f32>(2 * scale + 1); }

FORMAT(Iq2Xxs, 256, 66, 32, 0)
    CODES {
        u32 w[2];
        words<AT(2)>(b + 2 + 8 * p, w);
#pragma unroll
        for (u32 i = 0; i < N; i += 2) eight(IQ2_XXS_GRID, w[0] >> 4 * (k + i) & 255, eight_signs(w[1] >> 7 * ((k + i) / 2)), c[i], c[i + 1]);
    }
    SCALE { return half_at(b) * 0.125f * odd(b[2 + 8 * g + 7] >> 4); }
};
FORMAT(Iq2Xs, 256, 74, 16, 0)
    CODES {
        u32 w[2];
        words<AT(2)>(b + 2 + 8 * p, w);
#pragma unroll
        for (u32 i = 0; i < N; i += 2) {
            const u32 q = word_of(w, (k + i) / 4) >> (k + i) % 4 * 8 & 0xffff;
            eight(IQ2_XS_GRID, q & 511, eight_signs(q >> 9), c[i], c[i + 1]);
        }
    }
    SCALE { return half_at(b) * 0.125f * odd(nibble_at(b + 66, g)); }
};
FORMAT(Iq2S, 256, 82, 16, 0)
    CODES {
        u32 q[1], s[1];
        words<AT(2)>(b + 2 + 4 * p, q);
        words<AT(2)>(b + 34 + 4 * p, s);
        const u32 high = b[66 + p];
#pragma unroll
        for (u32 i = 0; i < N; i += 2) eight(IQ2_S_GRID, (q[0] >> 4 * (k + i) & 255) | (high >> (k + i) & 3) << 8, s[0] >> 4 * (k + i), c[i], c[i + 1]);
    }
    SCALE { return half_at(b) * 0.125f * odd(nibble_at(b + 74, g)); }
};
FORMAT(Iq3Xxs, 256, 98, 32, 0)
    CODES {
        u32 q[2], s[1];
        words<AT(2)>(b + 2 + 8 * p, q);
        words<AT(2)>(b + 66 + 4 * p, s);
#pragma unroll
        for (u32 i = 0; i < N; i++) {
            const u32 at = k + i;
            c[i] = negate4(IQ3_XXS_GRID[word_of(q, at / 4) >> at % 4 * 8 & 255], bits4(eight_signs(s[0] >> at / 2 * 7) >> at % 2 * 4));
        }
    }
    SCALE { return half_at(b) * 0.25f * odd(b[66 + 4 * g + 3] >> 4); }
};
FORMAT(Iq3S, 256, 110, 32, 0)
    CODES {
        u32 q[2], s[1];
        words<AT(2)>(b + 2 + 8 * p, q);
        words<AT(2)>(b + 74 + 4 * p, s);
        const u32 high = b[66 + p];
#pragma unroll
        for (u32 i = 0; i < N; i++) {
            const u32 at = k + i;
            c[i] = negate4(IQ3_S_GRID[(word_of(q, at / 4) >> at % 4 * 8 & 255) | (high >> at & 1) << 8], bits4(s[0] >> 4 * at));
        }
    }
    SCALE { return half_at(b) * odd(nibble_at(b + 106, g)); }
};
// IQ1_TABLE has 8 v + 9 of each weight; with delta that is 0 to 18.
DEVICE void iq1(u32 index, bool negative, u32& low, u32& high) {
    const u64 entry = IQ1_TABLE[index];
    const u32 delta = negative ? 0xfefefeff : 0x01010101;
    low = static_cast<u32>(entry) + delta;
    high = static_cast<u32>(entry >> 32) + delta;
}
FORMAT(Iq1S, 256, 50, 32, 9)
    CODES {
        u32 q[1];
        words<AT(2)>(b + 2 + 4 * p, q);
        const u32 h = half_word(b + 34 + 2 * p);
#pragma unroll
        for (u32 i = 0; i < N; i += 2) iq1((q[0] >> 4 * (k + i) & 255) | (h >> (k + i) / 2 * 3 & 7) << 8, h >> 15, c[i], c[i + 1]);
    }
    SCALE { return half_at(b) * 0.125f * odd(half_word(b + 34 + 2 * g) >> 12 & 7); }
};
FORMAT(Iq1M, 256, 56, 16, 9)
    CODES {
        u32 q[1];
        words<AT(4)>(b + 4 * p, q);
        const u32 h = half_word(b + 32 + 2 * p);
#pragma unroll
        for (u32 i = 0; i < N; i += 2) iq1((q[0] >> 4 * (k + i) & 255) | (h >> 2 * (k + i) & 7) << 8, h >> 2 * (k + i) & 8, c[i], c[i + 1]);
    }
    SCALE {
        const u8* s = b + 48;
        const u32 d = s[1] >> 4 | (s[3] & 0xf0) | (s[5] & 0xf0) << 4 | (s[7] & 0xf0) << 8;
        return to_f32(f16{static_cast<u16>(d)}) * 0.125f * odd(half_word(s + g / 4 * 2) >> g % 4 * 3 & 7);
    }
};
FORMAT(Iq4Nl, 32, 18, 32, 0)
    CODES { (void)p; nibbles_of<AT(2), Sixteen<IQ4_VALUES>>(b + 2, c, k); }
    SCALE { (void)g; return half_at(b); }
};
FORMAT(Iq4Xs, 256, 136, 32, 0)
    CODES { nibbles_of<AT(8), Sixteen<IQ4_VALUES>>(b + 8 + 16 * p, c, k); }
    SCALE {
        const i32 high = half_word(b + 2) >> 2 * g & 3;
        return half_at(b) * static_cast<f32>((static_cast<i32>(nibble_at(b + 4, g)) | high << 4) - 32);
    }
};
FORMAT(Mxfp4, 32, 17, 32, 0)
    CODES { (void)p; nibbles_of<AT(1), Sixteen<FP4_VALUES>>(b + 1, c, k); }
    SCALE { (void)g; const u32 e = b[0]; return from_bits(e == 0 ? 1 << 21 : e == 1 ? 1 << 22 : (e - 1) << 23); }
};
FORMAT(Nvfp4, 64, 36, 16, 0)
    CODES {
        // Of each 8 bytes the low halves, then the high ones.
#pragma unroll
        for (u32 i = 0; i < N; i += 2) {
            u32 w[2];
            two_of<AT(4), Sixteen<FP4_VALUES>>(b + 4 + 16 * p + (k + i) / 4 * 8, w, (k + i) % 4 * 2);
            c[i] = w[0], c[i + 1] = w[1];
        }
    }
    SCALE {
        const u32 d = b[g], e = d >> 3 & 15, m = d & 7;
        return d == 0x7f ? 0 : e == 0 ? static_cast<f32>(m) / 1024 : from_bits((e + 119) << 23 | m << 20);
    }
};

// FP8 E4M3 without NaN. The factor of a block is for numbers that are 256 times smaller.
FORMAT(E4m3, 128, 132, 32, 0)
    CODES { words<AT(4)>(b + 4 + 32 * p + 4 * k, c); }
    SCALE { (void)g; u32 d[1]; words<AT(0)>(b, d); return from_bits(d[0]); }
};

// Codes as numbers, all of which are MORE than the code without ZERO.
template <class F> struct Code {
    // Where zeros or offsets are, codes are numbers up to 127.
    static constexpr bool POSITIVE = F::ZERO != 0 || F::OFFSETS;
    static constexpr f32 MORE = POSITIVE ? 128 + F::ZERO : 32768 + 128;
    // The k-th of four: in a mantissa, behind 128, or with its sign behind 2^15 + 128.
    static DEVICE f32 number(u32 codes, u32 k) {
        return from_bits(POSITIVE ? permute(codes, 0x43000000, 0x7044 | k << 8) : permute(codes ^ 0x80808080, 0x47000000, 0x7504 | k << 4));
    }
};

template <> struct Code<E4m3> {
    static constexpr bool POSITIVE = false;
    static constexpr f32 MORE = 0;
    // The same bits in f16, where an exponent means 2^-8 of what it means in E4M3.
    static DEVICE f32 number(u32 codes, u32 k) {
        const u32 two = permute(codes, 0, k < 2 ? 0x1404 : 0x3424), wide = (two & 0x80008000) | (two >> 1 & 0x3f803f80);
        return to_f32(f16{static_cast<u16>(wide >> k % 2 * 16)});
    }
};

// Four weights from their codes, as `dequant` has them.
template <class F> DEVICE void weights_of(u32 codes, f32 scale, f32 offset, f32 (&w)[4]) {
    for (u32 k = 0; k < 4; k++) {
        const f32 code = Code<F>::number(codes, k);
        // No scale has so many bits that its product with 128 + ZERO would be rounded, so that the product with the code is rounded once.
        w[k] = Code<F>::POSITIVE ? fmaf(code, scale, -Code<F>::MORE * scale) : mul_rn(code - Code<F>::MORE, scale);
        if (F::OFFSETS) w[k] = add_rn(w[k], offset);
    }
}

// THEN(name, type) for each of them; and for those whose codes are integers.
#define EACH_FORMAT(THEN) EACH_INTEGER_FORMAT(THEN) THEN(e4m3, E4m3)
#define EACH_INTEGER_FORMAT(THEN)                                                                                    \
    THEN(q4_0, Q4_0) THEN(q4_1, Q4_1) THEN(q5_0, Q5_0) THEN(q5_1, Q5_1) THEN(q8_0, Q8_0) THEN(q8_1, Q8_1)            \
    THEN(q2_k, Q2K) THEN(q3_k, Q3K) THEN(q4_k, Q4K) THEN(q5_k, Q5K) THEN(q6_k, Q6K) THEN(q8_k, Q8K)                  \
    THEN(iq2_xxs, Iq2Xxs) THEN(iq2_xs, Iq2Xs) THEN(iq3_xxs, Iq3Xxs) THEN(iq1_s, Iq1S) THEN(iq4_nl, Iq4Nl)            \
    THEN(iq3_s, Iq3S) THEN(iq2_s, Iq2S) THEN(iq4_xs, Iq4Xs) THEN(iq1_m, Iq1M) THEN(tq1_0, Tq1_0) THEN(tq2_0, Tq2_0)  \
    THEN(mxfp4, Mxfp4) THEN(nvfp4, Nvfp4) THEN(q1_0, Q1_0) THEN(q2_0, Q2_0)
