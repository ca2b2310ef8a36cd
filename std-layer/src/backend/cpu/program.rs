//! The operations of a step of a model on the CPU, and what each chunk of them does.

use std::sync::OnceLock;

use gllm_kernels_core::{KernelError, Kernels, RopeShape};

use super::attention::{Angles, Attention, OfLayer};
use super::experts::{Mixture, Stage};
use super::head_products::HeadProducts;
use super::product::Product;
use super::recurrent::Recurrent;
use super::rows::{RowOp, RowWork};
use super::shares::BlockTokens;
use super::team::{Memory, Work};
use super::weights::CpuWeights;

/// One operation.
#[derive(Debug)]
pub(super) enum Operation {
    Rows(RowOp),
    Product(Product),
    HeadProducts(HeadProducts),
    /// Bias, norms and rotation of queries and keys, and writing keys and values to the cache, before a layer's attention. A
    /// chunk has the tokens of a block.
    Prepare {
        of: OfLayer,
        shape: RopeShape,
        angles: usize,
    },
    /// A layer's attention, with the chunks of the layer's group.
    Attend(OfLayer),
    /// The convolution of a recurrent layer, and of linear attention the rest.
    Convolve(usize),
    AttendLinear(usize),
    /// A stage of the experts of a layer.
    Experts {
        mixture: usize,
        stage: Stage,
    },
}

/// Operations of a step, with pointers to all that they work on.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) kernels: Kernels<f32>,
    pub(super) operations: Vec<(&'static str, Operation)>,
    pub(super) weights: *const CpuWeights,
    pub(super) attention: Box<Attention>,
    pub(super) blocks: Vec<BlockTokens>,
    pub(super) angles: Vec<Angles>,
    pub(super) mixtures: Vec<Mixture>,
    /// The recurrent layers, in their order.
    pub(super) recurrent: Vec<Recurrent>,
    pub(super) failed: OnceLock<KernelError>,
}

// SAFETY: whoever runs a program keeps everything that it points to alive, and exclusive where it is written, until all chunks are done;
// without a chunk nothing is looked at but the program itself. Chunks of an operation write to different places.
unsafe impl Send for Program {}
// SAFETY: a shared program is only read, but for the first error, which has a lock; what chunks write is theirs alone.
unsafe impl Sync for Program {}

impl Program {
    /// The kind of an operation.
    pub(super) fn name(&self, operation: usize) -> &'static str {
        self.operations[operation].0
    }

    /// The first error of a chunk.
    pub(super) fn failed(&self) -> Option<KernelError> {
        self.failed.get().copied()
    }
}

impl Work for Program {
    fn operations(&self) -> usize {
        self.operations.len()
    }

    fn chunks(&self, operation: usize) -> usize {
        match &self.operations[operation].1 {
            Operation::Rows(RowOp { work: RowWork::Gather { .. }, .. }) => 1,
            Operation::Rows(op) => op.rows.div_ceil(op.step),
            Operation::Product(product) => product.chunks(),
            Operation::HeadProducts(products) => products.chunks(),
            Operation::Prepare { .. } => self.blocks.len(),
            Operation::Attend(of) => self.attention.shares[of.group].chunks(),
            Operation::Convolve(layer) => self.recurrent[*layer].chunks_to_convolve(),
            Operation::AttendLinear(layer) => self.recurrent[*layer].chunks_to_attend(),
            Operation::Experts { mixture, stage } => self.mixtures[*mixture].chunks(*stage),
        }
    }

    fn run(&self, operation: usize, chunk: usize, memory: &mut Memory) {
        let k = &self.kernels;
        // SAFETY: everything that the step recorded exists while chunks run; each chunk runs once, and has places of its own.
        let result = unsafe {
            match &self.operations[operation].1 {
                Operation::Rows(op) => {
                    let rows = chunk * op.step..((chunk + 1) * op.step).min(op.rows);
                    op.run(k, rows, memory)
                }
                Operation::Product(product) => product.run(k, chunk, memory),
                Operation::HeadProducts(products) => products.run(k, chunk, memory),
                Operation::Prepare { of, shape, angles } => {
                    let weights = &*self.weights;
                    let latent = weights.config.latent_attention.is_some();
                    let eps = if latent { weights.config.state_eps } else { weights.config.norm_eps };
                    let angles = &self.angles[*angles];
                    let rope = (*shape, angles, eps);
                    self.attention.prepare(of, self.blocks[chunk], weights, rope)
                }
                Operation::Attend(of) => self.attention.run(of, chunk, memory),
                Operation::Convolve(layer) => self.recurrent[*layer].convolve(k, chunk, memory),
                Operation::AttendLinear(layer) => self.recurrent[*layer].attend(k, chunk, memory),
                Operation::Experts { mixture, stage } => {
                    self.mixtures[*mixture].run(k, *stage, chunk, memory)
                }
            }
        };
        if let Err(e) = result {
            self.failed.get_or_init(|| e);
        }
    }
}
