// Y[n][r] = sum over c of W[r][c] X[n][c], for many rows of X: a workgroup has 64 rows of W and 32 of X, and goes through them 32 columns
// at a time. A thread has eight rows of W and four of X.
//#if F16
// Tiles are f16, and so are the sums over 32 columns: four chains of eight products for each pair of rows. The 32 columns of a row are scaled by
// a power of two, which rounds nothing: the largest magnitude is 16 to 32, so that no sum overflows, and what is too small for f16 hardly counts.
//#endif
//#if EXPERTS
// The rows of X are pairs of a row and an expert that have this expert.
// Of each tile of rows: its expert, where its pairs begin among those that are sorted by expert, and how many there are, 0 in tiles that are
// left over.
@group(0) @binding(4) var<storage, read> tiles: array<vec4<u32>>;
@group(0) @binding(5) var<storage, read> order: array<u32>;
var<workgroup> pairs: array<u32, 32>;
//#endif
//#if F16
alias Number = f16;
// What numbers in a row were divided by.
var<workgroup> unit_w: array<f32, 64>;
var<workgroup> unit_x: array<f32, 32>;

// Of 32 numbers the exponent of the largest one, such that `unit` and its reciprocal are normal numbers.
fn exponent(all: array<vec4<f32>, 8>) -> u32 {
    var top = vec4<u32>(0u);
    for (var i = 0u; i < 8u; i++) {
        top = max(top, bitcast<vec4<u32>>(all[i]) & vec4<u32>(0x7fffffffu));
    }
    return max(max(max(top.x, top.y), max(top.z, top.w)) >> 23u, 5u);
}
// What makes the largest number one of 16 to 32. Infinity stays what it is, and so does NaN.
fn unit(exponent: u32) -> f32 {
    return bitcast<f32>((exponent - 4u) << 23u);
}
fn narrow(x: vec4<f32>, exponent: u32) -> vec4<f16> {
    return vec4<f16>(x * bitcast<f32>((258u - exponent) << 23u));
}
//#else
alias Number = f32;
//#endif
// By columns, four at a time, then rows.
var<workgroup> of_w: array<vec4<Number>, 512>;
var<workgroup> of_x: array<vec4<Number>, 256>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let row = group.x * 64u;
//#if EXPERTS
    let tile = tiles[group.y];
    let rows = rows_of(tile.x);
    let parts = select(0u, a.parts, tile.z > 0u && row < rows.count);
    if (thread < 32u) {
        pairs[thread] = order[tile.y + min(thread, tile.z - 1u)];
    }
    workgroupBarrier();
//#else
    let rows = Rows(0u, a.rows, a.y_first, a.y_first);
    let parts = a.parts;
    let first = group.y * 32u;
//#endif
    let mine = vec2<u32>(thread % 8u, (thread / 8u) * 4u);
    var acc: array<f32, 32>;
    for (var part = 0u; part < parts; part++) {
        let p = part_of(rows.first + min(row + thread, rows.count - 1u), a.parts, part);
//#if F16
        var wide: array<vec4<f32>, 8>;
        for (var i = 0u; i < 4u; i++) {
            wide[i] = four_of(p, i) * p.scale.x + p.offset.x;
            wide[i + 4u] = four_of(p, i + 4u) * p.scale.y + p.offset.y;
        }
        let of_row = exponent(wide);
        unit_w[thread] = unit(of_row);
        for (var i = 0u; i < 8u; i++) {
            of_w[i * 64u + thread] = narrow(wide[i], of_row);
        }
        if (thread < 32u) {
//#if EXPERTS
            let x_row = pairs[thread] / a.share;
//#else
            let x_row = a.x_row + first + thread;
//#endif
            for (var i = 0u; i < 8u; i++) {
                wide[i] = x[x_row * a.x_stride + part * 8u + i];
            }
            let of_row = exponent(wide);
            unit_x[thread] = unit(of_row);
            for (var i = 0u; i < 8u; i++) {
                of_x[i * 32u + thread] = narrow(wide[i], of_row);
            }
        }
//#else
        for (var i = 0u; i < 4u; i++) {
            of_w[i * 64u + thread] = four_of(p, i) * p.scale.x + p.offset.x;
            of_w[(i + 4u) * 64u + thread] = four_of(p, i + 4u) * p.scale.y + p.offset.y;
        }
        for (var i = thread; i < 256u; i += 64u) {
//#if EXPERTS
            let x_row = pairs[i / 8u] / a.share;
//#else
            let x_row = a.x_row + first + i / 8u;
//#endif
            of_x[(i % 8u) * 32u + i / 8u] = x[x_row * a.x_stride + part * 8u + i % 8u];
        }
//#endif
        workgroupBarrier();
//#if F16
        var sums: array<vec4<f16>, 32>;
//#endif
        for (var k = 0u; k < 8u; k++) {
            var from_x: array<vec4<Number>, 4>;
            for (var j = 0u; j < 4u; j++) {
                from_x[j] = of_x[k * 32u + mine.y + j];
            }
            for (var i = 0u; i < 8u; i++) {
                let from_w = of_w[k * 64u + mine.x + 8u * i];
                for (var j = 0u; j < 4u; j++) {
//#if F16
                    sums[i * 4u + j] += from_w * from_x[j];
//#else
                    acc[i * 4u + j] += dot(from_w, from_x[j]);
//#endif
                }
            }
        }
//#if F16
        for (var i = 0u; i < 8u; i++) {
            for (var j = 0u; j < 4u; j++) {
                let two = vec2<f32>(sums[i * 4u + j].xy + sums[i * 4u + j].zw);
                acc[i * 4u + j] += (two.x + two.y) * (unit_w[mine.x + 8u * i] * unit_x[mine.y + j]);
            }
        }
//#endif
        workgroupBarrier();
    }
    for (var i = 0u; i < 8u; i++) {
        let r = row + mine.x + 8u * i;
        if (r < rows.count) {
            for (var j = 0u; j < 4u; j++) {
                let result = with_bias(acc[i * 4u + j], rows, r);
//#if EXPERTS
                if (mine.y + j < tile.z) {
                    y[pairs[mine.y + j] * a.y_stride + rows.y_first + r] = result;
                }
//#else
                y[(a.y_row + first + mine.y + j) * a.y_stride + rows.y_first + r] = result;
//#endif
            }
        }
    }
}
