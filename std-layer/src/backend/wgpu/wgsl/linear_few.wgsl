// Y[n][r] = sum over c of W[r][c] X[n][c], for up to N rows of X at a time. LANES threads share ROWS rows of W: each takes every LANES-th
// part of 32 columns, and reads its columns of X once for all ROWS rows.
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let work = work_of(group);
    let first = (group.x * TEAMS + thread / LANES) * ROWS;
    var acc: array<f32, ROWS * N>;
    for (var part = thread % LANES; part < work.parts; part += LANES) {
        var p: array<Part, ROWS>;
        for (var r = 0u; r < ROWS; r++) {
            p[r] = part_of(w_row(work, first + r), a.parts, part);
        }
        // The first 16 columns, and the last 16: scales may differ.
        for (var side = 0u; side < 2u; side++) {
            var products: array<f32, ROWS * N>;
//#if OFFSETS
            var of_x: array<vec4<f32>, N>;
//#endif
            for (var i = 0u; i < 4u; i++) {
                var w4: array<vec4<f32>, ROWS>;
                for (var r = 0u; r < ROWS; r++) {
                    w4[r] = four_of(p[r], side * 4u + i);
                }
                for (var n = 0u; n < N; n++) {
                    let x4 = x[(work.x_row + n) * a.x_stride + part * 8u + side * 4u + i];
//#if OFFSETS
                    of_x[n] += x4;
//#endif
                    for (var r = 0u; r < ROWS; r++) {
                        products[r * N + n] += dot(w4[r], x4);
                    }
                }
            }
            for (var r = 0u; r < ROWS; r++) {
                for (var n = 0u; n < N; n++) {
                    acc[r * N + n] += p[r].scale[side] * products[r * N + n];
//#if OFFSETS
                    acc[r * N + n] += p[r].offset[side] * dot(of_x[n], vec4<f32>(1.0));
//#endif
                }
            }
        }
    }
    join(&acc, work, group.x, thread);
}
