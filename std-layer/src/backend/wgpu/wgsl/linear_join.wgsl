// LANES threads share ROWS rows of W, and have a sum for each of them and N rows of X. Sums of threads meet in workgroup memory, always in the
// same order.
const THREADS: u32 = 64u;
const TEAMS: u32 = THREADS / LANES;
var<workgroup> sums: array<f32, THREADS * ROWS * N>;

//#if EXPERTS
// The expert of each pair: the workgroup in the second dimension.
@group(0) @binding(4) var<storage, read> chosen: array<u32>;
//#endif

// What a workgroup multiplies: its rows, the first row of X and of Y, and how many parts of rows, 0 if it has no row of W.
struct Work {
    rows: Rows,
    x_row: u32,
    y_row: u32,
    parts: u32,
}
fn work_of(group: vec3<u32>) -> Work {
//#if EXPERTS
    let rows = rows_of(chosen[group.y]);
    return Work(rows, group.y / a.share, group.y, select(0u, a.parts, group.x * TEAMS * ROWS < rows.count));
//#else
    return Work(Rows(0u, a.rows, a.y_first, a.y_first), a.x_row, a.y_row, a.parts);
//#endif
}

// The last rows of W may be fewer than threads have: then these have the last one again.
fn w_row(work: Work, row: u32) -> u32 {
    return work.rows.first + min(row, work.rows.count - 1u);
}

fn join(acc: ptr<function, array<f32, ROWS * N>>, work: Work, group: u32, thread: u32) {
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
        if (row < work.rows.count) {
            y[(work.y_row + product % N) * a.y_stride + work.rows.y_first + row] = with_bias(sum, work.rows, row);
        }
    }
}
