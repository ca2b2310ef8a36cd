// The largest number of a row, and of equal ones the first; NaN is the lowest.
const THREADS: u32 = 256u;
var<workgroup> best: array<u32, THREADS>;
var<workgroup> where_best: array<u32, THREADS>;

// Where the largest of `x` is, in the row from `at_row` on: all threads of the workgroup get it, and all have to call.
fn largest(thread: u32) -> u32 {
    var value = 0u;
    var at = 0xffffffffu;
    for (var i = thread; i < a.vocabulary; i += THREADS) {
        let r = rank(x[at_row + i]);
        if (at == 0xffffffffu || r > value) {
            value = r;
            at = i;
        }
    }
    best[thread] = value;
    where_best[thread] = at;
    workgroupBarrier();
    for (var half = THREADS / 2u; half > 0u; half /= 2u) {
        if (thread < half) {
            let v = best[thread + half];
            let w = where_best[thread + half];
            if (v > best[thread] || (v == best[thread] && w < where_best[thread])) {
                best[thread] = v;
                where_best[thread] = w;
            }
        }
        workgroupBarrier();
    }
    return workgroupUniformLoad(&where_best[0]);
}
