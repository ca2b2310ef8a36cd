//! Reading of latent attention from a file.

use super::family::Family;
use super::keys::{Metadata, LARGEST};
use super::names::Naming;
use super::source::{bad_tensor, Files};
use super::weights::LatentWeights;
use super::{names, Architecture, Config, LatentAttention, ModelError};
use gllm_kernels_core::RopeScaling;

impl Metadata<'_> {
    /// Latent attention, if the architecture has it, of so many heads.
    pub(super) fn latent_attention(
        &self,
        (family, files): (&Family, &Files<'_>),
        [hidden, heads]: [usize; 2],
    ) -> Result<Option<LatentAttention>, ModelError> {
        const KEY: &str = ".attention.key_length_mla";
        const VALUE: &str = ".attention.value_length_mla";
        const RANK: &str = ".attention.kv_lora_rank";
        if !family.latent {
            return Ok(None);
        }
        let in_one = files.latent_in_one(family.architecture);
        let both = files.named(&names::LATENT_BOTH).filter(|_| !in_one);
        if let (Some(both), None) = (both, files.named(&names::LATENT_KEYS)) {
            let problem = format!(
                "has the matrices of keys and of values in one, as files of before 2025 do: {} and {} are needed, which a new conversion gives",
                names::LATENT_KEYS.gguf,
                names::LATENT_VALUES.gguf
            );
            return Err(bad_tensor(both.name(), problem));
        }
        self.refuse(".attn_logit_softcapping", "absent: scores of latent attention have no cap", |v| {
            v.as_f64() != Some(0.0)
        })?;
        if in_one {
            return self.latent_in_one([hidden, heads]).map(Some);
        }
        let rank = self.needed_size(RANK)?;
        let rotated = self.needed_size(".rope.dimension_count")?;
        let (query, values) = (self.needed_size(KEY)?, self.needed_size(VALUE)?);
        if query <= rotated {
            return self.unfit(KEY, query, format!("above the {rotated} elements that are rotated"));
        }
        let most = LARGEST / heads as u64;
        for (key, size, beside) in [(KEY, query, 0), (VALUE, values, 0), (RANK, rank, rotated)] {
            if (size + beside) as u64 > most {
                return self.unfit(key, size, format!("at most {LARGEST} / {heads} heads - {beside}"));
            }
        }
        for (key, expected) in [(".attention.key_length", rank + rotated), (".attention.value_length", rank)]
        {
            let found = self.needed_size(key)?;
            if found != expected {
                return self.unfit(
                    key,
                    found,
                    format!("{expected}, elements of a cached row of rank {rank}"),
                );
            }
        }
        if let Some(found) = self.size(".attention.head_count_kv")?.filter(|&n| n != 1) {
            return self.unfit(".attention.head_count_kv", found, "1".to_owned());
        }
        // Some files with one product of queries have the rank, too.
        let once = files.named(&names::Q).is_some();
        let query_rank = self.size(".attention.q_lora_rank")?.filter(|_| !once);
        Ok(Some(LatentAttention { query_rank, rank, plain: query - rotated, rotated, values }))
    }

    /// Latent attention where GGUF files have the matrices of keys and values in one: then keys of other files are not there, and those of lengths are about heads of queries
    /// and of results.
    fn latent_in_one(&self, [hidden, heads]: [usize; 2]) -> Result<LatentAttention, ModelError> {
        const KEY: &str = ".attention.key_length";
        const VALUE: &str = ".attention.value_length";
        const RANK: &str = ".attention.kv_lora_rank";
        let (rank, rotated) = (self.needed_size(RANK)?, self.needed_size(".rope.dimension_count")?);
        let query = self.needed_size(KEY)?;
        let values = match self.size(VALUE)? {
            Some(values) => values,
            None if hidden >= heads => hidden / heads,
            None => return self.unfit(VALUE, 0, "there, with more heads than elements".to_owned()),
        };
        if query <= rotated {
            return self.unfit(KEY, query, format!("above the {rotated} elements that are rotated"));
        }
        let (most, cached) = (LARGEST / heads as u64, rank + rotated);
        if (cached as u64).max((query + values) as u64) > most || !cached.is_multiple_of(2) {
            let expected = format!(
                "even with {rotated}, and at most {LARGEST} / {heads} heads, as heads of {query} and {values}"
            );
            return self.unfit(RANK, rank, expected);
        }
        let query_rank = self.size(".attention.q_lora_rank")?;
        Ok(LatentAttention { query_rank, rank, plain: query - rotated, rotated, values })
    }

    /// The factor of sines and cosines of latent attention, and that of its scores. Of texts that YaRN makes longer, scores have the factor `(m ln(factor) + 1)^2`,
    /// and files say `m`.
    pub(super) fn latent_factors(&self, scaling: RopeScaling) -> Result<[f64; 2], ModelError> {
        const MULTIPLIER: &str = ".rope.scaling.yarn_log_multiplier";
        let own = self.positive(".rope.scaling.attn_factor")?.unwrap_or(1.0);
        let RopeScaling::Yarn { factor, .. } = scaling else { return Ok([own, 1.0]) };
        let multiplier = self.needed(MULTIPLIER, self.positive(MULTIPLIER)?)?;
        let of_scores = own * (multiplier * factor.max(1.0).ln() + 1.0);
        Ok([own, of_scores * of_scores])
    }
}

impl Files<'_> {
    /// Whether these files have the matrices of keys and values of latent attention in one.
    pub(super) fn latent_in_one(&self, architecture: Architecture) -> bool {
        architecture == Architecture::MiniCpm3 && self.naming() == Naming::Gguf
    }

    /// What a layer has for latent attention alone.
    pub(super) fn latent(
        &self,
        config: &Config,
        latent: &LatentAttention,
        layer: usize,
    ) -> Result<LatentWeights<'_>, ModelError> {
        let twice = latent.query_rank.is_some();
        let of_heads = |name| self.stacked(config, name, layer, config.heads);
        Ok(LatentWeights {
            query_norm: self.optional(config, &names::LATENT_QUERY_NORM, layer)?,
            query: twice.then(|| self.matrix(config, &names::LATENT_QUERY, [layer, 0])).transpose()?,
            norm: self.vector(config, &names::LATENT_NORM, layer)?,
            keys: of_heads(&names::LATENT_KEYS)?,
            values: of_heads(&names::LATENT_VALUES)?,
        })
    }
}
