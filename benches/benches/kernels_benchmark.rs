//! Every operator of the registry at sizes that lie in the second-level cache: `cargo bench`.

use std::time::Duration;

use criterion::{criterion_group, criterion_main, Criterion, Throughput};
use gllm_bench::arena::Arena;
use gllm_bench::workload::{Case, Entry, Shape, Sizes};
use gllm_kernels_core::{kernels, KernelInfo, Op};
use gllm_kernels_std::Runtime;

/// Products have a benchmark of their own.
fn is_product(op: Op) -> bool {
    Entry::all().any(|e| e.op == op && e.sizes == Sizes::Product)
}

fn case(row: &KernelInfo, sizes: Sizes) -> Case {
    let shape = match sizes {
        Sizes::Vector => Shape { m: 1, n: 65536, k: 1 },
        Sizes::Rows => Shape { m: 64, n: 1024, k: 1 },
        Sizes::MatVec | Sizes::Product => Shape { m: 1, n: 256, k: 1024 },
    };
    Case { element: row.element, format: row.format, shape }
}

fn benchmark(c: &mut Criterion) {
    let caps = gllm_kernels_std::caps();
    let rt = Runtime::new(1).expect("one thread needs no pool");
    let mut arena = Arena::new(0);
    for row in kernels().filter(|k| !is_product(k.op)) {
        let Ok(caps) = caps.restricted_to(row.level) else { continue };
        let entry = Entry::find(row.op.name()).expect("every operator has a workload");
        let case = case(row, entry.sizes);
        let mut workload = entry.make(case, caps, &rt, &mut arena).expect("the shape is possible");
        workload.verify().expect("results are right");
        let mut group = c.benchmark_group(row.op.name());
        group.throughput(Throughput::Bytes((entry.cost)(&case).moved as u64));
        group.bench_function(row.name, |b| b.iter(|| workload.call()));
        group.finish();
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
