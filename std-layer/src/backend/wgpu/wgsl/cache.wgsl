// The cache of a layer, in words: keys of all pages, then values. A pair is two consecutive elements of a head, at one position. Keys of a page
// and a head lie pair by pair, and of each pair position by position; values position by position, and of each all pairs.
//#if F32
const PAIR_WORDS: u32 = 2u;
//#else
const PAIR_WORDS: u32 = 1u;
//#endif

fn key_at(page: u32, head: u32, pair: u32, slot: u32) -> u32 {
    return (((page * KV_HEADS + head) * PAIRS + pair) * PAGE + slot) * PAIR_WORDS;
}
fn value_at(page: u32, head: u32, pair: u32, slot: u32) -> u32 {
//#if LATENT
    // The first elements of keys are values, too.
    return key_at(page, head, pair, slot);
}
//#else
    return ((((a.pages + page) * KV_HEADS + head) * PAGE + slot) * PAIRS + pair) * PAIR_WORDS;
}
//#endif
