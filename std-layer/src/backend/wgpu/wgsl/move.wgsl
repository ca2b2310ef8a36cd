// Keys and values of accepted drafts go to other places, one after the other. A thread has a pair of elements of a head, in all of them.
struct Move {
    pages: u32,
}
@group(0) @binding(0) var<storage, read_write> cache: array<u32>;
// How many there are, and nothing else; then of each its page and slot, and those that it goes to.
@group(0) @binding(1) var<storage, read> moves: array<vec4<u32>>;
@group(0) @binding(2) var<uniform> a: Move;

fn copy(here: u32, there: u32) {
    for (var word = 0u; word < PAIR_WORDS; word++) {
        cache[there + word] = cache[here + word];
    }
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let head = id.x / PAIRS;
    let pair = id.x % PAIRS;
    if (head >= KV_HEADS) {
        return;
    }
    let count = moves[0].x;
    for (var i = 1u; i <= count; i++) {
        let m = moves[i];
        if (m.x >= a.pages || m.z >= a.pages) {
            continue;
        }
        copy(key_at(m.x, head, pair, m.y), key_at(m.z, head, pair, m.w));
        copy(value_at(m.x, head, pair, m.y), value_at(m.z, head, pair, m.w));
    }
}
