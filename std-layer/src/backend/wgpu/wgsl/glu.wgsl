// Activated = gated(first half of Gates, second half): see `Gate` in `config.rs`.
struct Glu {
    cols: u32,
    gates_stride: u32,
    activated_stride: u32,
}
@group(0) @binding(0) var<storage, read> gates: array<f32>;
@group(0) @binding(1) var<storage, read_write> activated: array<f32>;
@group(0) @binding(2) var<uniform> a: Glu;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= a.cols) {
        return;
    }
    var x = gates[id.y * a.gates_stride + id.x];
    var up = gates[id.y * a.gates_stride + a.cols + id.x];
//#if CLAMPED
    // What is no number is not beyond a limit, and stays what it is.
    x = select(x, 7.0, x > 7.0);
    up = select(select(up, 7.0, up > 7.0), -7.0, up < -7.0) + 1.0;
    let u = 1.702 * x;
//#else
//#if GELU
    // 0.5 x (1 + tanh(u)) is x / (1 + exp(-2 u)).
    let u = 1.5957691 * (x + 0.044715 * x * x * x);
//#else
    let u = x;
//#endif
//#endif
    // Beyond it the result is x, or 0, to all digits; exp would overflow.
    activated[id.y * a.activated_stride + id.x] = select(x / (1.0 + exp(-max(u, -87.0))), 0.0, u < -87.0) * up;
}
