// Y[r] = sum over c of W[r][c] X[c], for one row of X in whole numbers, as `round.wgsl` leaves it: codes are multiplied with bytes, four at a
// time. LANES threads share ROWS rows of W: each takes every LANES-th part of 32 columns.
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let work = work_of(group);
    let first = (group.x * TEAMS + thread / LANES) * ROWS;
    var acc: array<f32, ROWS * N>;
    for (var part = thread % LANES; part < work.parts; part += LANES) {
        let at = (work.x_row * a.parts + part) * 3u;
        let low = x[at];
        let high = x[at + 1u];
        let of_x = bitcast<vec3<f32>>(x[at + 2u].xyz);
        for (var r = 0u; r < ROWS; r++) {
            let p = part_of(w_row(work, first + r), a.parts, part);
            var products = vec2<i32>(0);
            for (var i = 0u; i < 4u; i++) {
                products += vec2<i32>(dot4I8Packed(p.codes[i], low[i]), dot4I8Packed(p.codes[i + 4u], high[i]));
            }
            let centred = vec2<f32>(products) - f32(ZERO) * of_x.yz;
            acc[r] += of_x.x * (dot(p.scale, centred) + dot(p.offset, of_x.yz));
        }
    }
    join(&acc, work, group.x, thread);
}
