//! What a step on a GPU works on: places of an arena, caches, page tables, and the forms of a product's input.

use gllm_kernels_core::ElementType;

use super::kept::LayerCache;
use super::layout::Layout;
use crate::cuda::decoder::{Forms, StepRows};
use crate::cuda::{Activations, Buffer, CudaError, KvCache, View, ViewMut};

/// An intermediate result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Place {
    /// The residual stream: each norm brings it from one place to the other.
    Hidden,
    Next,
    /// What products take: in f32, and in 16 bits.
    Inputs,
    Half,
    /// What the network of a mixture takes, in f32.
    Normed,
    /// What the product of queries, keys and values gives.
    Heads,
    /// Queries, and keys behind them, that are normed as a whole.
    NormedHeads,
    /// Queries, ready for attention; of latent attention what the second of two products gives.
    Queries,
    /// Of latent attention queries, but for what is rotated, and that; of each head those of all rows. Then what heads give.
    Absorbed,
    Turned,
    HeadResults,
    /// Weights of a product, decoded in 16 bits.
    Decoded,
    /// Sums of parts of a product's columns.
    Split,
    /// What pieces of attention give, and all of them together.
    Partial,
    Mixed,
    /// Of models with embeddings of positions: the position of each row. Of those with temperatures of scores: that of each row.
    Positions,
    Temperatures,
    /// What the residual stream grows by; in front of the first layer the rows of positions.
    Delta,
    /// Gates and what they are for.
    Gates,
    /// Embeddings for each layer; their table's rows, later those whose logits are asked for; what is added to them.
    PerLayer,
    PerLayerRows,
    PerLayerProducts,
    /// What the network beside experts with norms of their own gives, and what they give.
    Aside,
    Given,
    /// What routers give, and which rows go through which experts.
    Scores,
    Routes,
    /// What experts give.
    Results,
}

/// What rows of a table are looked up by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Numbers {
    Tokens,
    /// Positions of tokens: sent with the step where rows see tokens behind their own, else computed from what the step knows of them.
    Positions,
}

/// The memory that a step works on.
pub(super) struct Memory<'a> {
    pub(super) layers: &'a mut [LayerCache],
    pub(super) group_of: &'a [usize],
    /// Page tables of each group, and numbers of a row.
    pub(super) tables: Vec<View<'a, u32>>,
    pub(super) table_len: usize,
    /// Cosines and sines for each of the model's ropes.
    pub(super) angles: &'a [[Buffer<f32>; 2]],
    /// Temperatures of scores, and for how many positions each is, if the model has them.
    pub(super) temperatures: Option<(View<'a, f32>, usize)>,
    pub(super) tokens: View<'a, u32>,
    pub(super) rows: StepRows<'a>,
    pub(super) outputs: View<'a, u32>,
    pub(super) starts: View<'a, u32>,
    /// Where the rows of each run that become one begin.
    pub(super) pools: View<'a, u32>,
    pub(super) arena: &'a Buffer<u8>,
    pub(super) activations: [&'a mut Option<Activations>; 2],
    pub(super) logits: &'a Buffer<f32>,
}

/// The forms in which a product takes rows of `cols` columns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) cols: usize,
    /// In f32, and where to.
    pub(super) rows: Option<Place>,
    pub(super) half: Option<ElementType>,
    pub(super) integer: bool,
    pub(super) exact: bool,
}

impl Wanted {
    /// No form.
    pub(super) fn nothing(cols: usize) -> Self {
        Self { cols, rows: None, half: None, integer: false, exact: false }
    }

    /// Rows in f32 alone.
    pub(super) fn plain(cols: usize, place: Place) -> Self {
        Self { rows: Some(place), ..Self::nothing(cols) }
    }
}

impl<'a> Memory<'a> {
    /// Elements of a place.
    pub(super) fn floats(
        &self,
        layout: &Layout<Place>,
        place: Place,
        from: usize,
        len: usize,
    ) -> Result<ViewMut<'a, f32>, CudaError> {
        self.part(layout, place, from, len)
    }

    pub(super) fn part<T: crate::Zeroable>(
        &self,
        layout: &Layout<Place>,
        place: Place,
        from: usize,
        len: usize,
    ) -> Result<ViewMut<'a, T>, CudaError> {
        let (at, bytes) = layout.place(place);
        let need = (from + len) * size_of::<T>();
        if need > bytes {
            return Err(CudaError::WrongSize { arg: "arena", need, got: bytes });
        }
        // SAFETY: all work on the arena is queued on the backend's stream; what an operation uses together has been planned to lie apart.
        unsafe { self.arena.place(at + from * size_of::<T>(), len) }
    }

    /// Inputs of a product in 16 bits.
    pub(super) fn half<T: crate::Zeroable>(
        &self,
        layout: &Layout<Place>,
        len: usize,
    ) -> Result<View<'a, T>, CudaError> {
        Ok(self.part(layout, Place::Half, 0, len)?.into_view())
    }

    /// The temperature of each of `m` rows, if the model has them.
    pub(super) fn temperatures_of_rows(
        &self,
        layout: &Layout<Place>,
        m: usize,
    ) -> Result<Option<View<'a, f32>>, CudaError> {
        let of = self.temperatures.map(|_| self.floats(layout, Place::Temperatures, 0, m));
        Ok(of.transpose()?.map(ViewMut::into_view))
    }

    /// Elements of the logits.
    pub(super) fn logits_of(&self, from: usize, len: usize) -> Result<ViewMut<'a, f32>, CudaError> {
        // SAFETY: only this step writes logits, on the backend's stream, every operation what no other has.
        unsafe { self.logits.shared_range_mut(from..from + len) }
    }

    /// Where a product takes its input from.
    pub(super) fn forms<'b>(
        &'b mut self,
        layout: &Layout<Place>,
        wanted: Wanted,
        m: usize,
    ) -> Result<Forms<'b>, CudaError> {
        Ok(self.places_and_forms(layout, wanted, m)?.1)
    }

    /// A layer's cache, and where a product takes its input from.
    pub(super) fn cache_and_forms<'b>(
        &'b mut self,
        layout: &Layout<Place>,
        layer: usize,
        wanted: Wanted,
        m: usize,
    ) -> Result<(&'b KvCache, Forms<'b>), CudaError> {
        let (layers, forms) = self.places_and_forms(layout, wanted, m)?;
        Ok((layers[layer].kv()?, forms))
    }

    fn places_and_forms<'b>(
        &'b mut self,
        layout: &Layout<Place>,
        wanted: Wanted,
        m: usize,
    ) -> Result<(&'b [LayerCache], Forms<'b>), CudaError> {
        let Wanted { cols, rows, half, integer, exact } = wanted;
        let rows = rows.map(|place| self.floats(layout, place, 0, m * cols)).transpose()?;
        let half = match half {
            Some(ty) => Some((ty, self.part(layout, Place::Half, 0, m * cols)?)),
            None => None,
        };
        let [of_integers, of_floats] = &mut self.activations;
        let integer = if integer { of_integers.as_mut() } else { None };
        let exact = if exact { of_floats.as_mut() } else { None };
        Ok((self.layers, Forms { cols, rows, half, integer, exact }))
    }
}
