//! The list of benchmarks: one entry for each operator and form.

use gllm_kernels_core::{
    bf16, f16, Caps, ElementType, KernelError, KernelInfo, Kernels, Op, Operand, QuantFormat,
};
use gllm_kernels_std::{Parallel, Runtime};

use crate::arena::{Arena, Carver};
use crate::error::{Failure, Outcome};
use crate::limits::compute::Arithmetic;
use crate::limits::memory::Traffic;
use crate::limits::DRAM;

mod attention;
mod external;
mod linear_attention;
mod matrices;
mod packed;
mod produce;
mod products;
mod qgemm;
mod rows;
mod vectors;

pub(crate) use matrices::dot_bound;
pub use produce::{Number, Workload};

/// Sizes of a call. A vector is `1 x n`, rows are `m x n`, a product is `m x n x k` with the same meaning in every
/// operator: `m` rows of activations, `n` outputs of each, the inner dimension `k`. So a matrix of weights has `n`
/// rows of `k`, and `m` is 1 where it is multiplied by a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Rows: of activations, in a product.
    pub m: usize,
    /// Columns: in a product, of its result.
    pub n: usize,
    /// Inner dimension of a product; 1 elsewhere.
    pub k: usize,
}

impl Shape {
    /// As `--shape` takes it.
    pub fn text(self, sizes: Sizes) -> String {
        match sizes {
            Sizes::Vector => self.n.to_string(),
            Sizes::Rows => format!("{}x{}", self.m, self.n),
            Sizes::Product | Sizes::MatVec => format!("{}x{}x{}", self.m, self.n, self.k),
        }
    }
}

/// What the numbers of `--shape` mean to an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// `N` elements.
    Vector,
    /// `MxN`: rows of N elements; `N` alone is one row.
    Rows,
    /// `MxNxK` with M = 1: a matrix of weights, N rows of K, times a vector; `NxK` for short.
    MatVec,
    /// `MxNxK`: C is M x N, the inner dimension K.
    Product,
}

impl Sizes {
    /// Reads `--shape`.
    pub fn parse(self, op: &str, text: &str) -> Outcome<Shape> {
        let bad = |why: &str| Failure::Usage(format!("impossible shape `{text}` for {op}: {why}"));
        let numbers: Option<Vec<usize>> = text.split(['x', 'X']).map(|t| t.trim().parse().ok()).collect();
        let numbers = numbers.ok_or_else(|| bad("expected numbers, like 4096, 512x4096 or 512x512x512"))?;
        let shape = match (self, numbers.as_slice()) {
            (Self::Vector, &[n]) => Shape { m: 1, n, k: 1 },
            (Self::Vector, _) => return Err(bad("it takes one number, N elements")),
            (Self::Rows, &[n]) => Shape { m: 1, n, k: 1 },
            (Self::Rows, &[m, n]) => Shape { m, n, k: 1 },
            (Self::Rows, _) => return Err(bad("it takes MxN, rows and columns, or N, one row")),
            (Self::MatVec, &[n, k] | &[1, n, k]) => Shape { m: 1, n, k },
            (Self::MatVec, _) => {
                return Err(bad("it takes 1xNxK or NxK, a matrix with N rows and K columns"))
            }
            (Self::Product, &[m, n, k]) => Shape { m, n, k },
            (Self::Product, _) => {
                return Err(bad("it takes MxNxK, M rows of activations, N outputs, the inner dimension K"))
            }
        };
        if shape.m == 0 || shape.n == 0 || shape.k == 0 {
            return Err(bad("every size must be at least 1 to be timed"));
        }
        Ok(shape)
    }
}

/// What decides the cost of a call.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Storage type.
    pub element: ElementType,
    /// Weight format of quantised operators.
    pub format: Option<QuantFormat>,
    /// Sizes.
    pub shape: Shape,
}

impl Case {
    /// Bytes per element.
    pub fn size(&self) -> f64 {
        self.element.size() as f64
    }

    /// Bytes of so many weights.
    pub fn weights(&self, n: f64) -> f64 {
        self.format.map_or(self.size(), |f| f.block_bytes() as f64 / f.block_len() as f64) * n
    }
}

/// What one call costs.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Floating-point operations; a multiply-add is two.
    pub flops: f64,
    /// Bytes read and written, each operand once.
    pub moved: f64,
    /// Bytes of all operands together.
    pub working_set: f64,
    /// What it does to memory.
    pub traffic: Traffic,
}

/// Where a workload finds what it needs.
#[derive(Debug)]
pub struct Context<'a> {
    /// Threads.
    pub rt: &'a Runtime,
    /// Capabilities, restricted to the level to be measured.
    pub caps: Caps,
    /// Storage type, weight format, sizes.
    pub case: Case,
    /// Memory.
    pub carver: Carver<'a>,
}

/// Kernels on one thread, called directly, or on several.
#[derive(Debug)]
pub enum Engine<'a, E: Operand> {
    /// The core crate's.
    One(Kernels<E>),
    /// The standard layer's.
    Many(Parallel<'a, E>),
}

impl<'a, E: Operand> Engine<'a, E> {
    /// For a context's threads and instruction set.
    pub fn new(c: &Context<'a>) -> Self {
        let kernels = Kernels::with(c.caps);
        if c.rt.threads() == 1 {
            Self::One(kernels)
        } else {
            Self::Many(Parallel::with_kernels(c.rt, kernels))
        }
    }
}

impl<E: Operand> Engine<'_, E> {
    /// The kernels, on one thread.
    pub fn kernels(&self) -> Kernels<E> {
        match self {
            Self::One(kernels) => *kernels,
            Self::Many(p) => p.kernels(),
        }
    }
}

/// `engine.method(arguments)`, whichever engine it is.
macro_rules! call {
    ($engine:expr, $method:ident($($arg:expr),* $(,)?)) => {
        match $engine {
            crate::workload::Engine::One(k) => k.$method($($arg),*),
            crate::workload::Engine::Many(p) => p.$method($($arg),*),
        }
    };
}
pub(crate) use call;

/// `build: ..` of an entry: `$f` for the floats.
macro_rules! each_element {
    ($f:ident) => {
        crate::workload::each_element!($f, None)
    };
    ($f:ident, $int8:expr) => {
        [Some($f::<f32>), Some($f::<gllm_kernels_core::f16>), Some($f::<gllm_kernels_core::bf16>), $int8]
    };
}
pub(crate) use each_element;

/// The same for all types.
macro_rules! each_operand {
    ($f:ident) => {
        crate::workload::each_element!($f, Some($f::<i8>))
    };
}
pub(crate) use each_operand;

type Build = for<'a> fn(Context<'a>) -> Box<dyn Workload + 'a>;

/// One operator in one form.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The method's name.
    pub name: &'static str,
    /// The registry's operator.
    pub op: Op,
    /// What `--shape` means to it.
    pub sizes: Sizes,
    /// Whether it has quantised weights.
    pub quantised: bool,
    /// Cost of a call.
    pub cost: fn(&Case) -> Cost,
    /// Makes it, for each type there is, in the order of [`ElementType::ALL`].
    pub build: [Option<Build>; 4],
    /// Whether the default table shows f16 and bf16 too.
    pub halves: bool,
}

impl Entry {
    /// Every operator and form.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        let areas = [
            vectors::ENTRIES,
            rows::ENTRIES,
            attention::ENTRIES,
            linear_attention::ENTRIES,
            matrices::ENTRIES,
            packed::ENTRIES,
            external::ENTRIES,
            products::ENTRIES,
            qgemm::ENTRIES,
        ];
        areas.into_iter().flatten()
    }

    /// What it multiplies: what its storage type and its precision allow. Only products gain from other types than
    /// f32, in which functions and sums are computed.
    pub fn arithmetic(&self, case: &Case) -> Arithmetic {
        let of = |element| match element {
            ElementType::F16 => Arithmetic::F16,
            ElementType::Bf16 => Arithmetic::Bf16,
            ElementType::I8 => Arithmetic::Int8,
            _ => Arithmetic::F32,
        };
        let dense =
            [Op::Gemm, Op::GemmBias, Op::GemmBt, Op::GemmFused, Op::GemmPrepacked, Op::GemmSkinny, Op::Gemv];
        match self.op {
            Op::Qgemm if self.name.ends_with("_exact") => of(case.element),
            Op::Qgemm if self.name.ends_with("_bf16") => Arithmetic::Bf16,
            // Activations are rounded to 8 bits, unless weights are plain floating point.
            Op::QgemvQ8 | Op::QgemvPacked | Op::Qgemm => match case.format.and_then(QuantFormat::element) {
                Some(ElementType::Bf16) => Arithmetic::Bf16,
                Some(_) => Arithmetic::F32,
                None => Arithmetic::Int8,
            },
            op if dense.contains(&op) => of(case.element),
            _ => Arithmetic::F32,
        }
    }

    /// The entry of this name.
    pub fn find(name: &str) -> Outcome<&'static Self> {
        Self::all()
            .find(|e| e.name == name)
            .ok_or_else(|| crate::error::unknown("operator", name, Self::all().map(|e| e.name)))
    }

    /// Whether it overwrites its input. The default table leaves these out.
    pub fn in_place(&self) -> bool {
        self.name.ends_with("_inplace")
    }

    /// Whether a call runs on one thread however many there are. Whoever calls these divides the work: attention by
    /// sequences, heads and pieces of the cache, layers with linear attention by heads and channels.
    pub fn on_one_thread(&self) -> bool {
        matches!(self.op, Op::Attend | Op::AttendQ8_0 | Op::GatedDeltaRule | Op::CausalConv1d)
    }

    /// The weight formats there are to measure; `None` alone for dense operators.
    pub fn formats(&self) -> Vec<Option<QuantFormat>> {
        if self.quantised {
            QuantFormat::ALL.iter().copied().map(Some).collect()
        } else {
            vec![None]
        }
    }

    /// Sizes that make the operands fill main memory's working set; products have fixed sizes.
    pub fn default_case(&self, element: ElementType, format: Option<QuantFormat>) -> Case {
        let case = |m, n, k| Case { element, format, shape: Shape { m, n, k } };
        // Cost is linear in the size that is looked for.
        let fill = |less: Case, more: Case, by: f64| {
            let unit = ((self.cost)(&more).working_set - (self.cost)(&less).working_set) / by;
            (DRAM as f64 / unit) as usize
        };
        match self.sizes {
            Sizes::Vector => case(1, fill(case(1, 1000, 1), case(1, 2000, 1), 1000.0), 1),
            Sizes::Rows => case(fill(case(1, 4096, 1), case(1025, 4096, 1), 1024.0), 4096, 1),
            Sizes::MatVec => case(1, fill(case(1, 1, 4096), case(1, 1025, 4096), 1024.0), 4096),
            Sizes::Product if self.op == Op::GemmSkinny => {
                case(8, fill(case(8, 1, 4096), case(8, 1025, 4096), 1024.0), 4096)
            }
            Sizes::Product => case(1024, 1024, 1024),
        }
    }

    /// Whether a case can be made here; if not, why.
    pub fn check(&self, case: &Case) -> Outcome {
        let impossible = |why: String| {
            let shape = case.shape.text(self.sizes);
            Err(Failure::Usage(format!("impossible shape {shape} for {}: {why}", self.name)))
        };
        if !self.takes(case.element) {
            return Err(Failure::Usage(format!("{} does not take {}", self.name, case.element)));
        }
        let bytes = (self.cost)(case).working_set;
        // The limit is measured on as much memory again.
        let most = crate::machine::memory().unwrap_or(16 << 30) as f64 / 2.5;
        if bytes > most {
            let gib = f64::from(1 << 30);
            return impossible(format!("operands of {:.1} GiB, at most {:.1} here", bytes / gib, most / gib));
        }
        if let Some(format) = case.format {
            let cols = if self.sizes == Sizes::Rows { case.shape.n } else { case.shape.k };
            if let Err(e) = format.row_bytes(cols) {
                return impossible(e.to_string());
            }
        }
        Ok(())
    }

    /// Makes the workload in `arena`.
    pub fn make<'a>(
        &self,
        case: Case,
        caps: Caps,
        rt: &'a Runtime,
        arena: &'a mut Arena,
    ) -> Outcome<Box<dyn Workload + 'a>> {
        self.check(&case)?;
        let bytes = (self.cost)(&case).working_set;
        arena.reserve(bytes as usize + (64 << 10));
        let build = self.build_for(case.element).expect("what has been checked can be built");
        Ok(build(Context { rt, caps, case, carver: arena.carve() }))
    }

    /// Whether it is there for this type.
    pub fn takes(&self, element: ElementType) -> bool {
        self.build_for(element).is_some()
    }

    fn build_for(&self, element: ElementType) -> Option<Build> {
        self.build[ElementType::ALL.iter().position(|&e| e == element)?]
    }

    /// The kernel that `workload`, made for `case`, runs.
    pub fn kernel(&self, case: &Case, caps: Caps, workload: &dyn Workload) -> &'static str {
        workload.kernel().or_else(|| Some(row_used(self.op, case, caps)?.name)).unwrap_or("?")
    }
}

/// The registry's row of the kernel that does `op` with what `caps` has.
fn row_used(op: Op, case: &Case, caps: Caps) -> Option<&'static KernelInfo> {
    match case.element {
        ElementType::F32 => Kernels::<f32>::with(caps).kernel(op, case.format),
        ElementType::F16 => Kernels::<f16>::with(caps).kernel(op, case.format),
        ElementType::Bf16 => Kernels::<bf16>::with(caps).kernel(op, case.format),
        ElementType::I8 => Kernels::<i8>::with(caps).kernel(op, case.format),
        _ => None,
    }
}

/// A refused call, in words.
pub fn refused(op: &str, e: KernelError) -> Failure {
    Failure::Failed(format!("{op}: {e}"))
}

#[cfg(test)]
mod tests {
    use gllm_kernels_core::{kernels, Features};
    use gllm_kernels_std::caps;

    use super::*;

    #[test]
    fn every_operator_has_a_workload() {
        for &op in Op::ALL {
            assert!(Entry::all().any(|e| e.op == op), "no workload for {}", op.name());
            assert!(Entry::all().any(|e| e.name == op.name()), "no workload named {}", op.name());
        }
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = Entry::all().map(|e| e.name).collect();
        names.sort_unstable();
        let before = names.len();
        names.dedup();
        assert_eq!(names.len(), before);
    }

    #[test]
    fn kernels_have_the_features_they_need() {
        let shape = Shape { m: 4, n: 16, k: 256 };
        let own = caps();
        for caps in [own, own.without(Features::AVX_VNNI | Features::AVX512_VNNI | Features::DOTPROD)] {
            for element in ElementType::ALL {
                for row in kernels().filter(|row| row.element == element && row.level == caps.level()) {
                    let case = Case { element, format: row.format, shape };
                    let used =
                        row_used(row.op, &case, caps).map(|used| (used.op, used.format, used.requires));
                    let (op, format, requires) = used.expect("there is one of this level");
                    assert_eq!((op, format), (row.op, row.format));
                    assert!(caps.features().contains(requires), "{op:?} {format:?} {element:?} {caps:?}");
                }
            }
        }
    }

    #[test]
    fn shapes_mean_the_same_everywhere() {
        let shape = |m, n, k| Ok(Shape { m, n, k });
        let parse = |sizes: Sizes, text: &str| sizes.parse("it", text).map_err(|e| e.to_string());
        assert_eq!(parse(Sizes::Product, "2x3x4"), shape(2, 3, 4));
        assert_eq!(parse(Sizes::MatVec, "1x3x4"), shape(1, 3, 4));
        assert_eq!(parse(Sizes::MatVec, "3x4"), shape(1, 3, 4));
        assert_eq!(parse(Sizes::Rows, "2x3"), shape(2, 3, 1));
        assert_eq!(parse(Sizes::Rows, "3"), shape(1, 3, 1));
        assert_eq!(parse(Sizes::Vector, "3"), shape(1, 3, 1));
        for (sizes, text) in [
            (Sizes::MatVec, "3x1x4"),
            (Sizes::MatVec, "3"),
            (Sizes::Product, "3x4"),
            (Sizes::Rows, "1x2x3"),
            (Sizes::Vector, "1x3"),
        ] {
            assert!(parse(sizes, text).is_err(), "{sizes:?} {text}");
        }
        // What is shown is what is accepted.
        for sizes in [Sizes::Product, Sizes::MatVec, Sizes::Rows, Sizes::Vector] {
            let text =
                Shape { m: 1, n: 3, k: if matches!(sizes, Sizes::Product | Sizes::MatVec) { 4 } else { 1 } };
            assert_eq!(parse(sizes, &text.text(sizes)), Ok(text));
        }
        // A matrix of weights is the same in both kinds of product, and in its decoding.
        let format = QuantFormat::Q4_0;
        let bytes = |name: &str, text: &str| {
            let entry = Entry::find(name).unwrap();
            let shape = entry.sizes.parse(name, text).unwrap();
            let case = Case { element: ElementType::F32, format: Some(format), shape };
            (entry.cost)(&case).moved
        };
        let (n, k) = (96.0, 64.0);
        let weights = n * k * format.block_bytes() as f64 / format.block_len() as f64;
        for (name, text, rest) in [
            ("qgemv", "1x96x64", k + n),
            ("qgemv_q8", "96x64", k + n),
            ("qgemv_packed", "96x64", k + n),
            ("qgemm", "1x96x64", k + n),
            ("qgemm", "2x96x64", 2.0 * (k + n)),
            ("dequant", "96x64", n * k),
        ] {
            assert_eq!(bytes(name, text), weights + 4.0 * rest, "{name} {text}");
        }
    }

    /// The limit of a product is that of its storage type and precision.
    #[test]
    fn products_multiply_their_type() {
        let of = |name: &str, element, format| {
            let entry = Entry::find(name).unwrap();
            entry.arithmetic(&Case { element, format, shape: Shape { m: 8, n: 8, k: 256 } })
        };
        let (f32, bf16) = (ElementType::F32, ElementType::Bf16);
        for name in ["gemm", "gemm_bt", "gemm_prepacked", "gemm_fused", "gemm_skinny", "gemv"] {
            assert_eq!(of(name, f32, None), Arithmetic::F32, "{name}");
            assert_eq!(of(name, bf16, None), Arithmetic::Bf16, "{name}");
        }
        assert_eq!(of("gemm", ElementType::I8, None), Arithmetic::Int8);
        assert_eq!(of("gemm", ElementType::F16, None), Arithmetic::F16);
        for name in ["qgemm", "qgemm_packed", "qgemm_grouped", "qgemv_q8", "qgemv_packed"] {
            assert_eq!(of(name, f32, Some(QuantFormat::Q4K)), Arithmetic::Int8, "{name}");
            assert_eq!(of(name, f32, Some(QuantFormat::F16)), Arithmetic::F32, "{name}");
        }
        assert_eq!(of("qgemm_exact", f32, Some(QuantFormat::Q4K)), Arithmetic::F32);
        assert_eq!(of("qgemm_bf16", f32, Some(QuantFormat::Q4K)), Arithmetic::Bf16);
        assert_eq!(of("qgemv", f32, Some(QuantFormat::Q4K)), Arithmetic::F32);
        for name in ["exp", "vec_dot", "rms_norm"] {
            assert_eq!(of(name, bf16, None), Arithmetic::F32, "{name}");
        }
    }

    /// Every entry at a size that is no multiple of anything, on every level, one thread and several.
    #[test]
    fn all_workloads_verify() {
        let caps = gllm_kernels_std::caps();
        let mut arena = Arena::new(0);
        for threads in [1, 3] {
            let rt = Runtime::new(threads).unwrap();
            for entry in Entry::all() {
                for element in ElementType::ALL.into_iter().filter(|&e| entry.takes(e)) {
                    for level in gllm_kernels_core::IsaLevel::ALL {
                        let Ok(caps) = caps.restricted_to(level) else { continue };
                        let shape = match entry.sizes {
                            Sizes::Vector => Shape { m: 1, n: 100_003, k: 1 },
                            Sizes::Rows => Shape { m: 37, n: 160, k: 1 },
                            Sizes::MatVec => Shape { m: 1, n: 61, k: 192 },
                            Sizes::Product => Shape { m: 37, n: 50, k: 64 },
                        };
                        for format in entry.formats() {
                            let mut case = Case { element, format, shape };
                            let block = format.map_or(1, QuantFormat::block_len);
                            let cols = if entry.sizes == Sizes::Rows {
                                &mut case.shape.n
                            } else {
                                &mut case.shape.k
                            };
                            *cols = cols.next_multiple_of(block);
                            let mut w = entry.make(case, caps, &rt, &mut arena).unwrap();
                            let err = w.verify();
                            assert!(err.is_ok(), "{} {element} {level} {threads}: {err:?}", entry.name);
                            w.call().unwrap();
                        }
                    }
                }
            }
        }
    }
}
