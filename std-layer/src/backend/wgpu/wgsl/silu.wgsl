// The logistic function. No exponential overflows, and what is not a number stays that.
fn sigmoid(x: f32) -> f32 {
    let t = exp(-abs(x));
    return select(t, 1.0, x >= 0.0) / (1.0 + t);
}
fn silu(x: f32) -> f32 {
    return x * sigmoid(x);
}
