// Products with several matrices of one shape, one behind the other, of which only the GPU knows who multiplies which rows.
#pragma once

#include "simt.cuh"

// Rows `first` to `end` of the results, at most as many as a block takes, and the matrix that they come from.
struct Segment {
    u32 matrix, first, end;
};

// The rows of a block: those of its segment; without segments the next `most` of all `rows`.
DEVICE Segment segment_of(const Segment* segments, u32 block, u32 most, u32 rows) {
    return segments ? segments[block] : Segment{0, block * most, least(rows, (block + 1) * most)};
}
