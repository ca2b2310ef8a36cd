// What a recurrent layer keeps of sequences: see `Recurrence::state`. Where that is says `step`: for each run the number of its state, and
// behind which row it ends.
// Inputs of the convolution are in front of the matrices.
const KEPT: u32 = (TAPS - 1u) * CHANNELS;
// What is convolved, of a channel of a row: its number, or the product of two, between which there are the gates of the results.
fn input(row: u32, stride: u32, channel: u32) -> f32 {
//#if GATED
    return heads[row * stride + channel] * heads[row * stride + 2u * CHANNELS + channel];
//#else
    return heads[row * stride + channel];
//#endif
}
fn state_of(run: u32) -> u32 {
    return step[a.table_at + run * a.table_len] * STATE;
}
fn end_of(run: u32) -> u32 {
    return step[a.run_ends_at + run];
}
fn first_of(run: u32) -> u32 {
    return select(0u, end_of(max(run, 1u) - 1u), run > 0u);
}
