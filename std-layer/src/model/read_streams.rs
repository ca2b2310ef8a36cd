//! Reading of several residual streams from a file.

use super::family::Family;
use super::keys::{Metadata, LARGEST};
use super::source::{bad_tensor, Files};
use super::weights::{LayerStreams, Matrix, StreamWeights};
use super::{names, Config, Layer, ModelError, Streams};
use crate::gguf::Value;

impl Metadata<'_> {
    /// The streams, if the architecture has several.
    pub(super) fn streams(&self, family: &Family, files: &Files<'_>) -> Result<Option<Streams>, ModelError> {
        const COUNT: &str = ".altup.num_inputs";
        if !family.streams {
            return Ok(None);
        }
        self.refuse(".altup.active_idx", "0: layers compute the first stream", |v| v.as_u64() != Some(0))?;
        let count = self.size(COUNT)?.unwrap_or(4);
        if !(2..=Streams::MOST).contains(&count) {
            return self.unfit(COUNT, count, format!("from 2 to {}", Streams::MOST));
        }
        // No key says it.
        let down = &names::LOW_RANK[0];
        let rank = files.named(down).and_then(|down| down.rows());
        let rank = rank.filter(|rank| (1..=LARGEST).contains(rank));
        let missing = || bad_tensor(&down.in_any(files.naming(), 0), "is missing, or has no rows".to_owned());
        Ok(Some(Streams { count, rank: rank.ok_or_else(missing)? as usize }))
    }

    /// How many gates of each layer count. Files that do not say it mean that 5 % do in the first 10 layers.
    pub(super) fn sparsity(&self, layers: &mut [Layer]) -> Result<(), ModelError> {
        const KEY: &str = ".activation_sparsity_scale";
        const USUAL: (usize, f32) = (10, 1.644_853_6);
        let Some(each) = self.array(KEY)? else {
            layers.iter_mut().take(USUAL.0).for_each(|layer| layer.sparsity = Some(USUAL.1));
            return Ok(());
        };
        // Where all gates count, the number is infinite.
        let number = |v: Value<'_>| v.as_f64().map(|x| x as f32).filter(|&x| x < f32::INFINITY);
        let all: Option<Vec<f32>> = each.iter().map(number).collect();
        let expected = format!("a number for each of the {} layers, which may be -inf", layers.len());
        let all = all.filter(|all| all.len() == layers.len());
        let all = all.ok_or_else(|| self.bad(KEY, Value::Array(each), expected))?;
        let finite = |x: f32| Some(x).filter(|x| x.is_finite());
        layers.iter_mut().zip(all).for_each(|(layer, x)| layer.sparsity = finite(x));
        Ok(())
    }
}

impl Files<'_> {
    /// The matrices that make streams and join them, if there are several.
    pub(super) fn streams(&self, config: &Config) -> Result<Option<StreamWeights<'_>>, ModelError> {
        let Some(streams) = config.streams else { return Ok(None) };
        let of = |name| self.stacked(config, name, 0, streams.others());
        Ok(Some(StreamWeights { split: of(&names::SPLIT)?, merge: of(&names::MERGE)? }))
    }

    /// What a layer has for several streams.
    pub(super) fn layer_streams(
        &self,
        config: &Config,
        layer: usize,
    ) -> Result<Option<LayerStreams<'_>>, ModelError> {
        if config.streams.is_none() {
            return Ok(None);
        }
        let vector = |name| self.vector(config, name, layer);
        let low_rank = |name| self.matrix(config, name, [layer, 0]);
        let [down, up] = &names::LOW_RANK;
        let low_rank: [Matrix<'_>; 2] = [low_rank(down)?, low_rank(up)?];
        let norm = vector(&names::STREAM_ROUTER_NORM)?;
        let mut router = vector(&names::STREAM_ROUTER)?;
        for row in router.chunks_exact_mut(config.hidden) {
            row.iter_mut().zip(&norm).for_each(|(x, norm)| *x *= norm / config.hidden as f32);
        }
        let mut post_norm = vector(&names::LOW_RANK_NORM)?;
        post_norm.iter_mut().for_each(|x| *x *= std::f32::consts::FRAC_1_SQRT_2);
        Ok(Some(LayerStreams {
            router,
            predict: vector(&names::PREDICT)?,
            correct: vector(&names::CORRECT)?,
            scale: vector(&names::CORRECT_SCALE)?,
            low_rank,
            post_norm,
        }))
    }
}
