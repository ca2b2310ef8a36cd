// The sum of what the threads of a workgroup have; all of them get it, and all have to call.
var<workgroup> to_reduce: array<f32, THREADS>;
fn reduce(mine: f32, thread: u32) -> f32 {
    to_reduce[thread] = mine;
    workgroupBarrier();
    for (var half = THREADS / 2u; half > 0u; half /= 2u) {
        if (thread < half) {
            to_reduce[thread] += to_reduce[thread + half];
        }
        workgroupBarrier();
    }
    let all = to_reduce[0];
    workgroupBarrier();
    return all;
}
