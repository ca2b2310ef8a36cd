//! What a configuration says of encoders, and the files beside it of how rows become an embedding.

use std::path::Path;

use serde_json::Value as Json;

use super::values::Source;
use crate::gguf::Value;
use crate::model::Architecture;

/// Kinds of pooling, as sentence-transformers names them, and their numbers in metadata.
const POOLING: [(&str, u32); 3] =
    [("pooling_mode_mean_tokens", 1), ("pooling_mode_cls_token", 2), ("pooling_mode_lasttoken", 3)];
/// What models of sentence-transformers may consist of: what else a model has would change its embeddings. (They have length 1 in any case.)
const MODULES: [&str; 4] = ["Transformer", "Pooling", DENSE, "Normalize"];
/// A matrix that the row of a text is multiplied with.
const DENSE: &str = "Dense";

impl Source<'_> {
    /// What encoders differ in.
    pub(super) fn encoder(&mut self, architecture: Architecture) -> Result<(), String> {
        // Others differ from decoders in nothing that is said here.
        if !architecture.family().residual_norms {
            return Ok(());
        }
        let usual: &[(&str, &[&str])] = match architecture {
            Architecture::NomicBert => &[
                ("activation_function", &["\"swiglu\""]),
                ("prenorm", &["false"]),
                ("use_rms_norm", &["false"]),
                ("parallel_block", &["false"]),
                ("rotary_emb_interleaved", &["false"]),
                ("rotary_scaling_factor", &[]),
                ("rotary_emb_scale_base", &[]),
            ],
            Architecture::JinaBertV2 => &[("feed_forward_type", &["\"geglu\""])],
            _ => &[
                ("feed_forward_type", &["\"original\""]),
                ("position_embedding_type", &["\"absolute\""]),
                ("is_decoder", &["false"]),
            ],
        };
        self.refuse_others(usual)?;
        let skipped = self.skipped_positions()?;
        if let Some(positions) = self.size("max_position_embeddings")?.filter(|_| skipped > 0) {
            let left = positions.checked_sub(skipped).filter(|&left| left > 0);
            let left = left.ok_or_else(|| {
                format!("max_position_embeddings is {positions}: the first {skipped} stand for no position")
            })?;
            self.set("context_length", Value::U32(left))?;
        }
        match self.size("type_vocab_size")? {
            // Nothing said means that there are some.
            Some(0) => Ok(()),
            count => {
                let count = Value::U32(count.unwrap_or(2));
                self.writer.set("tokenizer.ggml.token_type_count", count).map_err(|e| e.to_string())
            }
        }
    }

    /// How many rows of positions come before that of the first one: RoBERTa counts from behind the number of the token that fills texts up.
    pub(super) fn skipped_positions(&self) -> Result<u32, String> {
        match self.get("model_type").and_then(Json::as_str) {
            Some("roberta" | "xlm-roberta" | "camembert") => {
                Ok(self.size("pad_token_id")?.unwrap_or(1).saturating_add(1))
            }
            _ => Ok(0),
        }
    }

    /// How rows become an embedding.
    pub(super) fn pooling(&mut self, pooling: &Json) -> Result<(), String> {
        let wanted = |key: &str| pooling.get(key) == Some(&Json::Bool(true));
        let modes = pooling.as_object().into_iter().flatten();
        let mut modes =
            modes.map(|(key, _)| key).filter(|key| key.starts_with("pooling_mode_") && wanted(key));
        let (Some(mode), None) = (modes.next(), modes.next()) else {
            return match pooling.is_null() {
                true => Ok(()),
                false => Err("does not name one mode of pooling, as it must".to_owned()),
            };
        };
        match POOLING.iter().find(|(key, _)| key == mode) {
            Some(&(_, number)) => self.set("pooling_type", Value::U32(number)),
            None => Err(format!("{mode} is not supported: only means, first and last tokens are")),
        }
    }
}

/// The folders of matrices behind pooling, by the list of what a model of sentence-transformers consists of.
///
/// # Errors
/// The type of a part that is not supported, or a folder that is not one beside the list.
pub(super) fn dense_folders(modules: &Json) -> Result<Vec<&str>, String> {
    let mut folders = Vec::new();
    for module in modules.as_array().into_iter().flatten() {
        let kind = module["type"].as_str().unwrap_or_default();
        let kind = kind.rsplit('.').next().unwrap_or_default();
        if !MODULES.contains(&kind) {
            return Err(format!("has the module {kind:?}, which is not supported"));
        }
        let path = module["path"].as_str().unwrap_or_default();
        match Path::new(path).file_name().is_some_and(|name| name == path) {
            _ if kind != DENSE => {}
            true => folders.push(path),
            false => return Err(format!("has a module in {path:?}, which is no folder beside it")),
        }
    }
    Ok(folders)
}

/// How many numbers such a matrix gives, by its configuration.
///
/// # Errors
/// What is not supported: biases, and activations behind the product.
pub(super) fn dense_outputs(json: &Json) -> Result<u32, String> {
    let activation = json["activation_function"].as_str().unwrap_or_default();
    if !activation.ends_with(".Identity") {
        return Err(format!("activation_function is {activation:?}: only Identity is supported"));
    }
    match (&json["bias"], json["out_features"].as_u64().and_then(|n| u32::try_from(n).ok())) {
        (Json::Bool(false), Some(outputs)) => Ok(outputs),
        (Json::Bool(false), None) => {
            Err(format!("out_features is {}: it must be a size", json["out_features"]))
        }
        (bias, _) => Err(format!("bias is {bias}: only false is supported")),
    }
}

/// The file about pooling.
pub(super) fn about_pooling(folder: &Path) -> std::path::PathBuf {
    folder.join("1_Pooling").join("config.json")
}
