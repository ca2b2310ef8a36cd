// Drafts that form trees are cached one behind the other, and a draft sees those on its path alone. Of each row `step` says what it sees in 64 bits,
// the low word first: bit 0 is its own place, bit `i` the one `i` before it. All that is 64 places and more before it is seen.
fn path_of(row: u32) -> vec2<u32> {
    let at = a.sight_at + 2u * row;
    return vec2<u32>(step[at], step[at + 1u]);
}
// Steps on the path from what is so many places before its end to that end.
fn steps_from(path: vec2<u32>, before: u32) -> u32 {
    let aside = countOneBits(vec2<u32>(
        extractBits(~path.x, 0u, min(before, 32u)),
        extractBits(~path.y, 0u, clamp(before, 32u, 64u) - 32u),
    ));
    return before - aside.x - aside.y;
}
// Whether what is so many places before the end of the path is seen from there. For what is in front of all drafts the first position of a window
// decides.
fn is_seen(path: vec2<u32>, before: u32, window: u32) -> bool {
    let bit = (select(path.x, path.y, before >= 32u) >> (before % 32u)) & 1u;
    return before >= 64u || (bit == 1u && (window == 0u || steps_from(path, before) < window));
}
