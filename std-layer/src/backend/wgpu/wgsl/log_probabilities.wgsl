// How probable tokens are: of each pair of a row of logits and a token the logarithm of the token's probability. A workgroup has a pair.
struct Pairs {
    vocabulary: u32,
    // The first pair here.
    first: u32,
}
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> result: array<f32>;
@group(0) @binding(2) var<uniform> a: Pairs;
// Of each pair three words: its row, its token, and where its result goes.
@group(0) @binding(3) var<storage, read> pairs: array<u32>;

var<private> at_row: u32;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
//#if SUBGROUPS
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_invocation_id) lane: u32,
    @builtin(num_subgroups) subgroups: u32,
//#endif
) {
//#if SUBGROUPS
    place = Place(subgroup, lane, subgroups);
//#endif
    let pair = 3u * (a.first + group.x);
    at_row = pairs[pair] * a.vocabulary;
    let most = x[at_row + largest(thread)];
    var sum = 0.0;
    for (var i = thread; i < a.vocabulary; i += THREADS) {
        sum += exp(x[at_row + i] - most);
    }
    sum = reduce(sum, thread);
    if (thread == 0u) {
        result[pairs[pair + 2u]] = x[at_row + pairs[pair + 1u]] - most - log(sum);
    }
}
