//! The sizes of tiles: parts of a product that a microkernel computes at a time.

/// Size of the tile of `C` that a microkernel computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tile {
    /// Rows: the width of a packed panel of `A`.
    pub(crate) rows: usize,
    /// Columns: the width of a packed panel of `B`.
    pub(crate) cols: usize,
}

impl Tile {
    /// Whether `name` has this tile, in the form `.._<rows>x<cols>__..` that kernel names have.
    pub(crate) const fn is_in(self, name: &str) -> bool {
        let text = name.as_bytes();
        let (mut numbers, mut which, mut i) = ([0, 0], 0, 0);
        while i + 1 < text.len() && !(text[i] == b'_' && text[i + 1] == b'_') {
            if text[i] == b'_' {
                (numbers, which) = ([0, 0], 0);
            } else if text[i] == b'x' {
                which = 1;
            } else {
                numbers[which] = numbers[which] * 10 + (text[i] as usize).wrapping_sub(b'0' as usize) % 256;
            }
            i += 1;
        }
        numbers[0] == self.rows && numbers[1] == self.cols
    }
}

/// `a == b`, for names at compile time.
#[allow(dead_code)] // Where there are no kernels.
pub(crate) const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut i = 0;
    while i < a.len() && i < b.len() && a[i] == b[i] {
        i += 1;
    }
    i == a.len() && i == b.len()
}
