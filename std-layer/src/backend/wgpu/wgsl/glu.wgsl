// Activated = gated(first half of Gates, second half): see `Gate` in `config.rs`. Without GATED it is gated(Gates, 1), and with BY
// the second operand is elsewhere.
struct Glu {
    cols: u32,
    gates_stride: u32,
    activated_stride: u32,
//#if BY
    // How far a row of the second operand is from the next, and where it begins.
    by_stride: u32,
    by_at: u32,
//#endif
//#if XIELU
    // The numbers of the activation.
    positive: f32,
    negative: f32,
//#endif
}
@group(0) @binding(0) var<storage, read> gates: array<f32>;
@group(0) @binding(1) var<storage, read_write> activated: array<f32>;
@group(0) @binding(2) var<uniform> a: Glu;
//#if BY
@group(0) @binding(3) var<storage, read> by: array<f32>;
//#endif

//#if ERF
// The normal distribution function: erfc(|x| / sqrt(2)) / 2 of its tail, by the polynomial of Numerical Recipes (Press et al., 1992, section 6.2), whose
// relative error is below 1.2e-7.
fn normal(x: f32) -> f32 {
    let z = abs(x) * 0.70710678;
    let t = 1.0 / (1.0 + 0.5 * z);
    let terms = array<f32, 9>(
        -0.82215223, 1.48851587, -1.13520398, 0.27886807, -0.18628806, 0.09678418, 0.37409196, 1.00002368, -1.26551223,
    );
    var p = 0.17087277;
    for (var i = 0u; i < 9u; i++) {
        p = p * t + terms[i];
    }
    let tail = 0.5 * t * exp(p - z * z);
    return select(1.0 - tail, tail, x < 0.0);
}
//#endif

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= a.cols) {
        // Inputs of products end with zeros, up to a whole part.
        if (id.x < (a.cols + 31u) / 32u * 32u) {
            activated[id.y * a.activated_stride + id.x] = 0.0;
        }
        return;
    }
    var x = gates[id.y * a.gates_stride + id.x];
//#if GATED
    var up = gates[id.y * a.gates_stride + a.cols + id.x];
//#else
//#if BY
    var up = by[id.y * a.by_stride + a.by_at + id.x];
//#else
    var up = 1.0;
//#endif
//#endif
    let at = id.y * a.activated_stride + id.x;
//#if ERF
    activated[at] = x * normal(x) * up;
//#else
//#if SQUARED
    activated[at] = x * max(x, 0.0) * up;
//#else
//#if XIELU
    // What is no number stays none.
    let below = exp(clamp(x, -87.0, -1e-6)) - 1.0 - x;
    activated[at] = (0.5 * x + select(a.positive * x * x, a.negative * below, x < 0.0)) * up;
//#else
//#if CLAMPED
    // What is no number is not beyond a limit, and stays what it is.
    x = select(x, 7.0, x > 7.0);
    up = select(select(up, 7.0, up > 7.0), -7.0, up < -7.0) + 1.0;
    let u = 1.702 * x;
//#else
//#if TANH
    // 0.5 x (1 + tanh(u)) is x / (1 + exp(-2 u)).
    let u = 1.5957691 * (x + 0.044715 * x * x * x);
//#else
    let u = x;
//#endif
//#endif
    // Beyond it the result is x, or 0, to all digits; exp would overflow.
    activated[at] = select(x / (1.0 + exp(-max(u, -87.0))), 0.0, u < -87.0) * up;
//#endif
//#endif
//#endif
}
