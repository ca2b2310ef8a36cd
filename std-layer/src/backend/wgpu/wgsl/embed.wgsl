// Y[n] = scale * W[token[n]], for the tokens whose rows of W are here; with TYPE plus the row of the first token type; with ADD plus what Y[n] was.
// A thread decodes 32 columns.
struct Embed {
    // The first token that has a row here, and how many have one.
    first: u32,
    rows: u32,
    parts: u32,
    tails: u32,
    y_stride: u32,
    cols: u32,
    scale: f32,
}
@group(0) @binding(0) var<storage, read> w: array<u32>;
@group(0) @binding(1) var<storage, read> tokens: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<uniform> a: Embed;
//#if TYPE
@group(0) @binding(4) var<storage, read> kind: array<f32>;
//#endif

fn tails_at() -> u32 {
    return a.tails;
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let row = tokens[id.y] - a.first;
    if (id.x >= a.parts || row >= a.rows) {
        return;
    }
    let p = part_of(row, a.parts, id.x);
    for (var i = 0u; i < 8u; i++) {
        let four = (four_of(p, i) * p.scale[i / 4u] + p.offset[i / 4u]) * a.scale;
        for (var k = 0u; k < 4u; k++) {
            let column = id.x * 32u + 4u * i + k;
            if (column < a.cols) {
                var v = four[k];
//#if TYPE
                v += kind[column];
//#endif
//#if ADD
                v += y[id.y * a.y_stride + column];
//#endif
                y[id.y * a.y_stride + column] = v;
            }
        }
    }
}
