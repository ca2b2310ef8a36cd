//! What a configuration says of rotary positions.

use serde_json::Value as Json;

use super::values::{check_head_dim, Divisors, Source};
use crate::gguf::Value;
use crate::model::family::{LocalRotation, Windows};
use crate::model::{names, Architecture};

const PART: &str = "partial_rotary_factor";

impl Source<'_> {
    /// The part of a head that is rotated, if it is said.
    pub(super) fn partial_rotation(&self, parameters: &Json) -> Result<Option<f64>, String> {
        match Self::number(parameters, PART)? {
            None => Self::number(self.json, PART),
            said => Ok(said),
        }
    }

    /// The part of a head that is rotated, and the layers in which it is.
    fn rotated(&mut self, architecture: Architecture, layers: u32, parameters: &Json) -> Result<(), String> {
        const LAYERS: &str = "no_rope_layers";
        let family = architecture.family();
        if family.latent {
            return Ok(());
        }
        let said = self.partial_rotation(parameters)?;
        // Solar Open, which is GLM 4.5 otherwise, rotates whole heads.
        let whole = self.get("model_type").is_some_and(|kind| kind == "solar_open");
        let part = match family.pairs.and_then(|pairs| pairs.part) {
            Some(_) if whole => said.unwrap_or(1.0),
            Some(usual) => said.unwrap_or(usual),
            None => said.filter(|&part| part != 1.0).map_or(Ok(1.0), |part| {
                Err(format!("{PART} is {part}: {} is not supported with it", family.gguf))
            })?,
        };
        if !(part > 0.0 && part <= 1.0) {
            return Err(format!("{PART} is {part}: it must be above 0 and at most 1"));
        }
        if part < 1.0 {
            let dims = f64::from(self.head_dim()?) * part;
            self.set("rope.dimension_count", Value::U32(dims as u32))?;
        }
        let (Some(period), Some(rotated)) = (family.unrotated_period, self.get(LAYERS)) else {
            return Ok(());
        };
        let fits = |(i, is): (usize, &Json)| is.as_u64() == Some(u64::from((i + 1) % period > 0));
        let rotated = rotated.as_array().map_or(&[][..], |all| all);
        match rotated.len() == layers as usize && rotated.iter().enumerate().all(fits) {
            true => Ok(()),
            false => Err(format!("{LAYERS} are not every {period}th layer, which is not supported")),
        }
    }

    /// The parameters of rotation of layers that see everything. Where those with a window have others, they may differ in the base, and are not scaled.
    fn of_all_layers(&mut self, architecture: Architecture, parameters: Json) -> Result<Json, String> {
        let of = |kind: &str| parameters.get(kind).filter(|of| of.is_object());
        let both = of("full_attention").zip(of("sliding_attention"));
        match (both, &architecture.family().windows) {
            (Some((all, local)), Windows::Periodic { rotation: LocalRotation::Unscaled(_), .. }) => {
                if let Some(kind) = local.get("rope_type").filter(|kind| kind.as_str() != Some("default")) {
                    return Err(format!(
                        "rope_type of sliding_attention is {kind}: only default is supported"
                    ));
                }
                if let Some(theta) = Self::number(local, "rope_theta")? {
                    self.set("rope.freq_base_swa", Value::F32(theta as f32))?;
                }
                Ok(all.clone())
            }
            _ if parameters.as_object().is_some_and(|all| all.values().any(Json::is_object)) => {
                Err("rope_parameters differ from layer to layer, which is not supported".to_owned())
            }
            _ => Ok(parameters),
        }
    }

    /// Rotary positions: the base, how they are scaled, and divisors of frequencies where those differ.
    pub(super) fn rope(
        &mut self,
        architecture: Architecture,
        [layers, context]: [u32; 2],
    ) -> Result<Divisors, String> {
        let context = f64::from(context);
        let parameters = self.get("rope_parameters").or_else(|| self.get("rope_scaling")).cloned();
        let parameters = self.of_all_layers(architecture, parameters.unwrap_or(Json::Null))?;
        let theta = match Self::number(&parameters, "rope_theta")? {
            None => Self::number(self.json, "rope_theta")?,
            found => found,
        };
        let theta = theta.unwrap_or(10_000.0);
        self.set("rope.freq_base", Value::F32(theta as f32))?;
        let kind = parameters.get("rope_type").or_else(|| parameters.get("type"));
        let proportional = kind.is_some_and(|kind| kind.as_str() == Some("proportional"));
        if proportional && architecture == Architecture::Gemma4 {
            return self.proportional(&parameters);
        }
        self.rotated(architecture, layers, &parameters)?;
        if let Some(beta) = Self::number(&parameters, "llama_4_scaling_beta")? {
            self.set("attention.temperature_scale", Value::F32(beta as f32))?;
            let length = Self::number(&parameters, "original_max_position_embeddings")?.unwrap_or(context);
            self.set("attention.temperature_length", Value::U32(length as u32))?;
        }
        // Images have positions of three dimensions; those of texts are the same in all of them.
        let usual = |kind: &&Json| match kind.as_str() {
            Some("default") => true,
            Some("mrope") => parameters.get("mrope_section").is_some(),
            _ => false,
        };
        let Some(kind) = kind.filter(|kind| !usual(kind)) else { return Ok(Vec::new()) };
        let original = |of: &Json| {
            Ok::<_, String>(Self::number(of, "original_max_position_embeddings")?.unwrap_or(context))
        };
        match kind.as_str() {
            // Nothing is scaled in texts of up to as many tokens as the model was trained for.
            Some("dynamic") if architecture == Architecture::InternLm2 => {}
            Some("dynamic") if parameters.get("alpha").is_some() => {
                self.set("rope.scaling.alpha", Value::F32(Self::positive(&parameters, "alpha")? as f32))?;
            }
            Some("linear") => {
                self.set("rope.scaling.type", Value::String("linear"))?;
                let factor = Self::positive(&parameters, "factor")?;
                self.set("rope.scaling.factor", Value::F32(factor as f32))?;
            }
            Some("yarn") => {
                let (factor, original) = (Self::positive(&parameters, "factor")?, original(&parameters)?);
                self.set("rope.scaling.type", Value::String("yarn"))?;
                self.set("rope.scaling.factor", Value::F32(factor as f32))?;
                self.set("rope.scaling.original_context_length", Value::U32(original as u32))?;
                self.set("context_length", Value::U32(context.max(factor * original) as u32))?;
                for (key, to) in [("beta_fast", "yarn_beta_fast"), ("beta_slow", "yarn_beta_slow")] {
                    if let Some(beta) = Self::number(&parameters, key)? {
                        self.set(&format!("rope.scaling.{to}"), Value::F32(beta as f32))?;
                    }
                }
                let of_yarn = |times: f64| 0.1 * times * factor.max(1.0).ln() + 1.0;
                let times =
                    |key| Ok::<_, String>(Self::number(&parameters, key)?.filter(|&times| times != 0.0));
                let attention = match Self::number(&parameters, "attention_factor")? {
                    None => {
                        times("mscale")?.zip(times("mscale_all_dim")?).map(|(a, b)| of_yarn(a) / of_yarn(b))
                    }
                    said => said,
                };
                if architecture.family().latent {
                    self.latent_yarn(attention.unwrap_or_else(|| of_yarn(1.0)), times("mscale_all_dim")?)?;
                } else if let Some(attention) = attention {
                    // Metadata have the factor that comes on top of YaRN's own.
                    self.set("rope.scaling.attn_factor", Value::F32((attention / of_yarn(1.0)) as f32))?;
                }
            }
            Some("llama3") => {
                let [factor, low, high] = ["factor", "low_freq_factor", "high_freq_factor"]
                    .map(|key| Self::positive(&parameters, key));
                let divisors = self.llama3([factor?, low?, high?, original(&parameters)?], theta)?;
                return Ok(vec![(names::ROPE_FACTORS.gguf, divisors)]);
            }
            // The first checkpoints called it so.
            Some("longrope" | "su") => return self.longrope(architecture, &parameters, context),
            _ => {
                return Err(format!(
                    "rope_type is {kind}: only default, linear, yarn, llama3 and longrope are supported"
                ))
            }
        }
        Ok(Vec::new())
    }

    /// LongRoPE: divisors for short texts and for long ones. Sines and cosines have a factor that depends on how much longer texts may be than those of the
    /// first training.
    fn longrope(
        &mut self,
        architecture: Architecture,
        parameters: &Json,
        context: f64,
    ) -> Result<Divisors, String> {
        const ORIGINAL: &str = "original_max_position_embeddings";
        let said = [parameters, self.json].into_iter().find(|of| of.get(ORIGINAL).is_some());
        let original = said.map_or(Ok(context), |of| Self::positive(of, ORIGINAL))?;
        // Phi's mixtures say the factor themselves.
        let [short, long] = ["short_mscale", "long_mscale"].map(|key| Self::number(parameters, key));
        let (short, long) = (short?, long?);
        if short != long || short.is_some() && architecture != Architecture::PhiMoe {
            let said = ["short_mscale", "long_mscale"].map(|key| parameters.get(key).unwrap_or(&Json::Null));
            return Err(format!(
                "short_mscale is {}, and long_mscale {}: longrope with them is supported with phimoe alone, if they are equal",
                said[0], said[1]
            ));
        }
        let longer = match said {
            Some(_) => context / original,
            None => Self::number(parameters, "factor")?.unwrap_or(1.0),
        };
        let attention = match Self::number(parameters, "attention_factor")?.or(short) {
            Some(factor) => factor,
            None if longer > 1.0 => (1.0 + longer.ln() / original.ln()).sqrt(),
            None => 1.0,
        };
        self.set("rope.scaling.type", Value::String("longrope"))?;
        self.set("rope.scaling.original_context_length", Value::U32(original as u32))?;
        self.set("rope.scaling.attn_factor", Value::F32(attention as f32))?;
        let list = |key: &str| {
            let numbers = parameters.get(key).and_then(Json::as_array).map(|all| all.iter());
            let numbers = numbers.and_then(|all| all.map(|x| x.as_f64().map(|x| x as f32)).collect());
            numbers.ok_or_else(|| format!("{key} is no list of numbers"))
        };
        Ok(vec![
            (names::SHORT_FACTORS.gguf, list("short_factor")?),
            (names::LONG_FACTORS.gguf, list("long_factor")?),
        ])
    }

    /// Divisors of Llama 3.1: frequencies of wave lengths below `original / high` stay, those above `original / low` are divided by `factor`, and those between
    /// are interpolated.
    fn llama3(&self, [factor, low, high, original]: [f64; 4], theta: f64) -> Result<Vec<f32>, String> {
        let dim = check_head_dim(self.head_dim()?)?;
        let divisor = |i: u32| {
            let wave = 2.0 * std::f64::consts::PI * theta.powf(f64::from(2 * i) / f64::from(dim));
            let smooth = (original / wave - low) / (high - low);
            (1.0 / ((1.0 - smooth.clamp(0.0, 1.0)) / factor + smooth.clamp(0.0, 1.0))) as f32
        };
        if high <= low {
            return Err(format!("high_freq_factor is {high}: it must be above low_freq_factor, {low}"));
        }
        Ok((0..dim / 2).map(divisor).collect())
    }
}
