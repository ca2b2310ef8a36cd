// The sum of what the threads of a workgroup have; all of them get it, and all have to call.
var<workgroup> to_reduce: array<f32, THREADS>;
//#if SUBGROUPS
// Where a thread is: adapters decide how large subgroups are, and which threads they have.
struct Place {
    subgroup: u32,
    lane: u32,
    subgroups: u32,
}
var<private> place: Place;

fn reduce(mine: f32, thread: u32) -> f32 {
    let of_subgroup = subgroupAdd(mine);
    if (place.lane == 0u) {
        to_reduce[place.subgroup] = of_subgroup;
    }
    workgroupBarrier();
    var all = 0.0;
    for (var i = 0u; i < place.subgroups; i++) {
        all += to_reduce[i];
    }
    workgroupBarrier();
    return all;
}
//#else
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
//#endif
