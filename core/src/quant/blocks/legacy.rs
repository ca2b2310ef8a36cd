//! Blocks with one scale, and a minimum or not.

use super::{Half, U32};

blocks! {
    /// Q4_0: 32 weights, 4.5 bits each. `w = d * (q - 8)`.
    BlockQ4_0: 18 bytes {
        /// Scale.
        d: Half,
        /// `q`: element `i < 16` in the low half of byte `i`, element `i + 16` in its high half.
        qs: [u8; 16],
    }
    /// Q4_1: 32 weights, 5 bits each. `w = d * q + m`.
    BlockQ4_1: 20 bytes {
        /// Scale.
        d: Half,
        /// Minimum: the weight of `q = 0`.
        m: Half,
        /// `q`: as in [`BlockQ4_0`].
        qs: [u8; 16],
    }
    /// Q5_0: 32 weights, 5.5 bits each. `w = d * (q - 16)`, `q = low + 16 * high`.
    BlockQ5_0: 22 bytes {
        /// Scale.
        d: Half,
        /// `high`: element `i` in bit `i`.
        qh: U32,
        /// `low`: as `q` in [`BlockQ4_0`].
        qs: [u8; 16],
    }
    /// Q5_1: 32 weights, 6 bits each. `w = d * q + m`, `q = low + 16 * high`.
    BlockQ5_1: 24 bytes {
        /// Scale.
        d: Half,
        /// Minimum: the weight of `q = 0`.
        m: Half,
        /// `high`: element `i` in bit `i`.
        qh: U32,
        /// `low`: as `q` in [`BlockQ4_0`].
        qs: [u8; 16],
    }
    /// Q8_0: 32 weights, 8.5 bits each. `w = d * q`.
    BlockQ8_0: 34 bytes {
        /// Scale.
        d: Half,
        /// `q`: two's complement integers, in order.
        qs: [u8; 32],
    }
    /// Q8_1: 32 weights, 9 bits each. `w = d * q`.
    ///
    /// A format of activations: whoever multiplies them with weights that have a minimum `m` needs `m`
    /// times the sum of the activations, too.
    BlockQ8_1: 36 bytes {
        /// Scale.
        d: Half,
        /// `d` times the sum of all `q`.
        s: Half,
        /// `q`: two's complement integers, in order.
        qs: [u8; 32],
    }
    /// Q1_0: 128 weights, 1.125 bits each. `w = d` where the bit is set, else `-d`.
    BlockQ1_0: 18 bytes {
        /// Scale.
        d: Half,
        /// Element `i` in bit `i % 8` of byte `i / 8`.
        qs: [u8; 16],
    }
    /// Q2_0: 64 weights, 2.25 bits each. `w = d * (q - 1)`: -1, 0, 1 or 2 times the scale.
    BlockQ2_0: 18 bytes {
        /// Scale.
        d: Half,
        /// `q`: element `i` in bits `2 * (i % 4)` and the next of byte `i / 4`.
        qs: [u8; 16],
    }
}
