// Y[n] = scale * W[step[n]], for the tokens, or positions, whose rows of W are here; with TYPE plus the row of the first token type; with ADD plus what Y[n] was. With
// PATH the numbers are places of rows that may be drafts that form trees, and become positions: see `path.wgsl`.
// A thread decodes 32 columns.
struct Embed {
    // The first number that has a row here, and how many have one.
    first: u32,
    rows: u32,
    parts: u32,
    tails: u32,
    y_stride: u32,
    cols: u32,
    scale: f32,
    // Numbers behind this one stand for 0.
    last: u32,
//#if PATH
    sight_at: u32,
//#endif
}
@group(0) @binding(0) var<storage, read> w: array<u32>;
@group(0) @binding(1) var<storage, read> step: array<u32>;
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
//#if PATH
    let row = steps_from(path_of(id.y), step[id.y]) - a.first;
//#else
    let row = select(step[id.y], 0u, step[id.y] > a.last) - a.first;
//#endif
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
