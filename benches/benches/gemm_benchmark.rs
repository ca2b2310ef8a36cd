//! Matrix products, every kernel of the registry: `cargo bench --bench gemm_benchmark`.

use std::time::Duration;

use criterion::{criterion_group, criterion_main, Criterion, Throughput};
use gllm_bench::arena::Arena;
use gllm_bench::workload::{Case, Entry, Shape, Sizes};
use gllm_kernels_core::{kernels, IsaLevel};
use gllm_kernels_std::Runtime;

/// Square, skinny as in decoding a few tokens, and no multiple of any tile.
const SHAPES: [Shape; 3] =
    [Shape { m: 256, n: 256, k: 256 }, Shape { m: 8, n: 1024, k: 1024 }, Shape { m: 127, n: 131, k: 257 }];

fn benchmark(c: &mut Criterion) {
    let caps = gllm_kernels_std::caps();
    let rt = Runtime::new(1).expect("one thread needs no pool");
    let mut arena = Arena::new(0);
    for row in kernels() {
        let entry = Entry::find(row.op.name()).expect("every operator has a workload");
        let Ok(caps) = caps.restricted_to(row.level) else { continue };
        if entry.sizes != Sizes::Product {
            continue;
        }
        // Portable code is slow: one shape shows how slow.
        let shapes = if row.level == IsaLevel::Scalar { &SHAPES[2..] } else { &SHAPES };
        for &shape in shapes {
            let case = Case { element: row.element, format: row.format, shape };
            let mut workload = entry.make(case, caps, &rt, &mut arena).expect("the shape is possible");
            workload.verify().expect("results are right");
            let mut group = c.benchmark_group(row.name);
            let cost = (entry.cost)(&case);
            group.throughput(Throughput::Elements(cost.flops.max(cost.moved) as u64));
            group.bench_function(shape.text(entry.sizes), |b| b.iter(|| workload.call()));
            group.finish();
        }
    }
}

criterion_group! {
    name = all;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(20))
        .measurement_time(Duration::from_millis(60));
    targets = benchmark
}
criterion_main!(all);
