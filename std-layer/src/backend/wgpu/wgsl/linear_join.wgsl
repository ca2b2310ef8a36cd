// LANES threads share ROWS rows of W, and have a sum for each of them and N rows of X. Sums of threads meet in workgroup memory, always in the
// same order.
const THREADS: u32 = 64u;
const TEAMS: u32 = THREADS / LANES;
var<workgroup> sums: array<f32, THREADS * ROWS * N>;

fn join(acc: ptr<function, array<f32, ROWS * N>>, group: u32, thread: u32) {
    for (var i = 0u; i < ROWS * N; i++) {
        sums[i * THREADS + thread] = (*acc)[i];
    }
    workgroupBarrier();
    for (var i = thread; i < TEAMS * ROWS * N; i += THREADS) {
        let product = i / TEAMS;
        let team = i % TEAMS;
        var sum = 0.0;
        for (var lane = 0u; lane < LANES; lane++) {
            sum += sums[product * THREADS + team * LANES + lane];
        }
        let row = (group * TEAMS + team) * ROWS + product / N;
        if (row < a.rows) {
            y[(a.y_row + product % N) * a.y_stride + a.y_first + row] = sum;
        }
    }
}
