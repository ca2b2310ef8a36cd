// Y[n][r] = sum over c of W[r][c] X[n][c], for up to N rows of X at a time. LANES threads share ROWS rows of W: each takes every LANES-th
// part of 32 columns. Sums of threads meet in workgroup memory, always in the same order.
const THREADS: u32 = 64u;
const TEAMS: u32 = THREADS / LANES;
var<workgroup> sums: array<f32, THREADS * ROWS * N>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let first = (group.x * TEAMS + thread / LANES) * ROWS;
    let first_x = a.x_row + group.y * N;
    var acc: array<f32, ROWS * N>;
    for (var part = thread % LANES; part < a.parts; part += LANES) {
        for (var r = 0u; r < ROWS; r++) {
            let p = part_of(min(first + r, a.rows - 1u), a.parts, part);
            for (var n = 0u; n < N; n++) {
                let at = (first_x + n) * a.x_stride + part * 8u;
                var low = 0.0;
                var high = 0.0;
                for (var i = 0u; i < 4u; i++) {
                    low += dot(p.codes[i], x[at + i]);
                    high += dot(p.codes[i + 4u], x[at + i + 4u]);
                }
                acc[r * N + n] += p.scale.x * low + p.scale.y * high;
//#if OFFSETS
                var sums_of_x = vec2<f32>(0.0);
                for (var i = 0u; i < 4u; i++) {
                    sums_of_x += vec2<f32>(dot(x[at + i], vec4<f32>(1.0)), dot(x[at + i + 4u], vec4<f32>(1.0)));
                }
                acc[r * N + n] += dot(p.offset, sums_of_x);
//#endif
            }
        }
    }
    for (var i = 0u; i < ROWS * N; i++) {
        sums[i * THREADS + thread] = acc[i];
    }
    workgroupBarrier();
    for (var i = thread; i < TEAMS * ROWS * N; i += THREADS) {
        let product = i / TEAMS;
        let team = i % TEAMS;
        var sum = 0.0;
        for (var lane = 0u; lane < LANES; lane++) {
            sum += sums[product * THREADS + team * LANES + lane];
        }
        let row = (group.x * TEAMS + team) * ROWS + product / N;
        if (row < a.rows) {
            y[(a.y_row + group.y * N + product % N) * a.y_stride + a.y_first + row] = sum;
        }
    }
}
