// The last inputs of a channel take the place of those that were kept before. Those come one after the other, from the oldest on, and none is
// overwritten before it has moved.
fn keep(channel: u32, state: u32, first: u32, end: u32, stride: u32) {
    for (var tap = 0u; tap < TAPS - 1u; tap++) {
        let before = TAPS - 1u - tap;
        var x = 0.0;
        if (before <= end - first) {
            x = input(end - before, stride, channel);
        } else if (step[first] > 0u) {
            x = states[state + (tap + end - first) * CHANNELS + channel];
        }
        states[state + tap * CHANNELS + channel] = x;
    }
}
