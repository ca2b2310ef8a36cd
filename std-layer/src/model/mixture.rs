//! Reading of mixtures of experts from a file's metadata.

use super::architecture::Scoring;
use super::config::{Groups, Shared};
use super::family::{Family, Mixture, Recurrent};
use super::keys::{Metadata, LARGEST};
use super::source::Files;
use super::{names, Architecture, Experts, ModelError};
use crate::gguf::Value;

const COUNT: &str = ".expert_count";
const USED: &str = ".expert_used_count";
const SCORING: &str = ".expert_gating_func";
const GROUPS: &str = ".expert_group_count";
const DENSE: &str = ".leading_dense_block_count";

/// The feed-forward networks of a model.
pub(super) struct Networks {
    pub(super) experts: Option<Experts>,
    /// Elements between the halves of those of layers without experts; 0 if there are none.
    pub(super) intermediate: usize,
    /// The same for each layer, where layers differ.
    pub(super) widths: Vec<usize>,
    /// Whether each layer has experts.
    pub(super) mixtures: Vec<bool>,
}

impl Metadata<'_> {
    /// How wide feed-forward networks are, if the file says it, and the numbers of each layer and of its network, of so many that a file counts; it may have values for
    /// others behind them, too. Where networks are counted, each belongs to the layer in front of it.
    pub(super) fn layers_and_networks(
        &self,
        family: &Family,
        [layers, all]: [usize; 2],
    ) -> Result<(Option<usize>, Vec<[usize; 2]>), ModelError> {
        const WIDTH: &str = ".feed_forward_length";
        let each = |times: usize| (0..times * layers).map(|layer| [layer / times; 2]).collect();
        match family.recurrent {
            Recurrent::Beside => return Ok((self.size(WIDTH)?, each(2))),
            Recurrent::Alone => return Ok((None, each(1))),
            _ => {}
        }
        if !family.networks_are_layers {
            // Where layers differ in heads, they may differ in this, too.
            let apart = family.local_heads && matches!(self.get(WIDTH), Some(Value::Array(_)));
            let width = if apart { None } else { self.size(WIDTH)? };
            let width = match width.filter(|_| family.halved_networks) {
                None => width,
                Some(1) => return self.unfit(WIDTH, 1, "at least 2: twice what a network has".to_owned()),
                Some(twice) => Some(twice / 2),
            };
            return Ok((width, each(1)));
        }
        let sizes = self.size_of_some(WIDTH, all)?;
        let (width, with_network) = self.needed(WIDTH, sizes)?;
        let mut numbers: Vec<[usize; 2]> = Vec::new();
        for (number, &is_network) in with_network.iter().enumerate().take(layers) {
            match numbers.last_mut() {
                _ if !is_network => numbers.push([number; 2]),
                Some(last) if *last == [number - 1; 2] => last[1] = number,
                _ => {
                    let expected =
                        "with 0 in front of each number: a network follows attention or a recurrence";
                    return self.unfit(WIDTH, width, expected.to_owned());
                }
            }
        }
        Ok((Some(width), numbers))
    }

    /// The feed-forward networks of so many layers, of the width that the file says.
    pub(super) fn networks(
        &self,
        files: &Files<'_>,
        family: &Family,
        (layers, feed_forward): (usize, Option<usize>),
    ) -> Result<Networks, ModelError> {
        let kind = &family.experts;
        if family.recurrent == Recurrent::Alone {
            let (intermediate, mixtures) = (0, vec![false; layers]);
            return Ok(Networks { experts: None, intermediate, widths: Vec::new(), mixtures });
        }
        // Files of mixtures all of whose layers have experts may lack it, if they say how wide those are.
        let of_experts = self.size(".expert_feed_forward_length")?;
        let other = of_experts.filter(|_| *kind == Mixture::Shared);
        let widths = if family.local_heads { self.widths(layers)? } else { Vec::new() };
        let feed_forward = widths.first().copied().or(feed_forward).or(other);
        let feed_forward = self.needed(".feed_forward_length", feed_forward)?;
        let count = match kind {
            Mixture::No => {
                let nonzero = |v: Value<'_>| v.as_u64() != Some(0);
                self.refuse(COUNT, "absent: this architecture has no experts", nonzero)?;
                None
            }
            Mixture::Some | Mixture::Normed => self.size_or_none(COUNT)?,
            // Of Youtu, no layer has any.
            Mixture::DeepSeek(_) if family.latent && self.size_or_none(DENSE)? == Some(layers) => {
                self.size_or_none(COUNT)?
            }
            _ => Some(self.needed_size(COUNT)?),
        };
        let Some(count) = count else {
            let (intermediate, mixtures) = (feed_forward, vec![false; layers]);
            return Ok(Networks { experts: None, intermediate, widths, mixtures });
        };
        let used = self.needed_size(USED)?;
        if used > count {
            return self.unfit(USED, used, format!("at most the {count} experts"));
        }
        // Where files do not say how wide an expert is, those that a token goes through are together as wide as the network that they
        // stand for; but in llama's files each of them is.
        let intermediate = match of_experts {
            _ if matches!(kind, Mixture::Some | Mixture::Wide) => feed_forward,
            Some(size) => size,
            None => feed_forward / used,
        };
        if intermediate == 0 {
            let expected = format!("at least the {used} experts used");
            return self.unfit(".feed_forward_length", feed_forward, expected);
        }
        let selection_bias = matches!(kind, Mixture::DeepSeek(_)) && files.have_selection_bias();
        let groups = self.groups([count, used])?;
        let (scoring, of_taken) = self.scoring(family, [selection_bias, groups.is_some()])?;
        let experts = Experts {
            count,
            used,
            intermediate,
            scoring,
            selection_bias,
            groups,
            normalised: self.bool(".expert_weights_norm")?.unwrap_or(family.normalised) || of_taken,
            scaled_inputs: *kind == Mixture::Scaling,
            factors: *kind == Mixture::Normed && files.named(&names::EXPERT_FACTORS).is_some(),
            normed: *kind == Mixture::Normed,
            biases: *kind == Mixture::Biased,
            scale: self.positive_or_none(".expert_weights_scale")?.unwrap_or(1.0) as f32,
            shared: self.shared(family, [feed_forward, intermediate])?,
        };
        let mixtures = match kind {
            Mixture::DeepSeek(_) | Mixture::Scaling => self.mixtures(layers)?,
            _ => vec![true; layers],
        };
        // Beside experts with norms of their own stands the usual network.
        let dense = mixtures.contains(&false) || *kind == Mixture::Normed;
        let intermediate = if dense { feed_forward } else { 0 };
        Ok(Networks { experts: Some(experts), intermediate, widths, mixtures })
    }

    /// Elements between the halves of the network of each layer, if the file has a number for each.
    fn widths(&self, layers: usize) -> Result<Vec<usize>, ModelError> {
        const WIDTHS: &str = ".feed_forward_length";
        let Some(each) = self.get(WIDTHS).and_then(|v| v.as_array()) else { return Ok(Vec::new()) };
        let size = |v: Value<'_>| v.as_u64().filter(|n| (1..=LARGEST).contains(n)).map(|n| n as usize);
        let all: Option<Vec<usize>> = each.iter().map(size).collect();
        let wrong =
            || self.bad(WIDTHS, Value::Array(each), format!("a number for each of the {layers} layers"));
        all.filter(|all| all.len() == layers).ok_or_else(wrong)
    }

    /// What makes scores of the router's products, and whether they are the softmax of those of the experts that are taken: the same as their share of
    /// the softmax of all, unless something else than the products decides which ones are taken.
    fn scoring(&self, family: &Family, [biased, grouped]: [bool; 2]) -> Result<(Scoring, bool), ModelError> {
        let usual = match family.experts {
            Mixture::DeepSeek(usual) => Some(usual),
            Mixture::Scaling => Some(Scoring::Sigmoid),
            _ => None,
        };
        if family.architecture == Architecture::PhiMoe {
            return Ok((Scoring::SparseMixer, false));
        }
        let Some(usual) = usual else {
            // 0 says nothing.
            let unknown = |v: Value<'_>| v.as_u64().is_none_or(|of| of > 1);
            self.refuse(SCORING, "1, softmax", unknown)?;
            return Ok((Scoring::Softmax, false));
        };
        match self.size_or_none(SCORING)? {
            // Of DeepSeek's own models, those with a bias.
            None if family.latent && biased => Ok((Scoring::Sigmoid, false)),
            None => Ok((usual, false)),
            Some(1) => Ok((Scoring::Softmax, false)),
            Some(2) => Ok((Scoring::Sigmoid, false)),
            Some(3) if !biased && !grouped => Ok((Scoring::Softmax, true)),
            Some(other) => {
                let expected =
                    "1, softmax, 2, sigmoid, or 3, softmax of the experts taken, without groups and a bias";
                self.unfit(SCORING, other, expected.to_owned())
            }
        }
    }

    /// Groups of experts, if there are any to which the choice is limited.
    fn groups(&self, [count, used]: [usize; 2]) -> Result<Option<Groups>, ModelError> {
        const TAKEN: &str = ".expert_group_used_count";
        // No key of llama.cpp's, which always counts two.
        const COUNTED: &str = ".expert_group_counted";
        let Some(groups) = self.size_or_none(GROUPS)?.filter(|&n| n > 1) else { return Ok(None) };
        if count % groups != 0 || count / groups < 2 {
            let expected = format!("a divisor of the {count} experts that is at most half of them");
            return self.unfit(GROUPS, groups, expected);
        }
        let taken = self.needed_size(TAKEN)?;
        if taken > groups {
            return self.unfit(TAKEN, taken, format!("at most the {groups} groups"));
        }
        if used > taken * (count / groups) {
            let expected = format!("at most the {} experts of {taken} groups", taken * (count / groups));
            return self.unfit(USED, used, expected);
        }
        let counted = self.size(COUNTED)?.unwrap_or(2);
        if counted > 2 {
            return self.unfit(COUNTED, counted, "1 or 2".to_owned());
        }
        Ok((taken < groups).then_some(Groups { count: groups, used: taken, counted }))
    }

    /// The network beside the experts, which are `intermediate` wide.
    fn shared(
        &self,
        family: &Family,
        [feed_forward, intermediate]: [usize; 2],
    ) -> Result<Option<Shared>, ModelError> {
        const COUNT: &str = ".expert_shared_count";
        let width = self.size_or_none(".expert_shared_feed_forward_length")?;
        let plain = |intermediate| Shared { intermediate, gated: false };
        Ok(match family.experts {
            Mixture::Shared => Some(Shared { intermediate: width.unwrap_or(feed_forward), gated: true }),
            Mixture::Some | Mixture::Wide => width.map(plain),
            Mixture::Normed => Some(plain(feed_forward)),
            Mixture::Scaling => Some(plain(intermediate)),
            // Of Ernie, Nemotron and Exaone all of them are so wide together, of others each is.
            Mixture::DeepSeek(_)
                if matches!(family.architecture, Architecture::Ernie45Moe | Architecture::NemotronHMoe)
                    || family.architecture == Architecture::ExaoneMoe && width.is_some() =>
            {
                width.map(plain)
            }
            Mixture::DeepSeek(_) => match self.size_or_none(COUNT)? {
                None => None,
                Some(n) => {
                    let each = width.unwrap_or(intermediate);
                    match n.checked_mul(each).filter(|&all| all as u64 <= LARGEST) {
                        Some(all) => Some(plain(all)),
                        None => return self.unfit(COUNT, n, format!("at most {LARGEST} / {each}")),
                    }
                }
            },
            _ => None,
        })
    }

    /// Which layers have experts: of each so many, from one on, the last.
    fn mixtures(&self, layers: usize) -> Result<Vec<bool>, ModelError> {
        const STEP: &str = ".interleave_moe_layer_step";
        let dense = self.size_or_none(DENSE)?.unwrap_or(0);
        let step = self.size(STEP)?.unwrap_or(1);
        let mixtures: Vec<bool> =
            (0..layers).map(|layer| layer >= dense && (layer + 1) % step == 0).collect();
        match (mixtures.contains(&true), dense < layers) {
            (true, _) => Ok(mixtures),
            (false, true) => {
                self.unfit(STEP, step, format!("such that one of the {layers} layers has experts"))
            }
            (false, false) => self.unfit(DENSE, dense, format!("below the {layers} layers")),
        }
    }
}
