//! The part for texts of models that understand images, too: its configuration stands in that of the whole, and its tensors have other names.

use std::borrow::Cow;

use serde_json::Value as Json;

/// What the names of its tensors begin with, and what those of models for texts alone do.
const NAMES: [(&str, &str); 5] = [
    ("model.language_model.", "model."),
    ("model.text_model.", "model."),
    ("language_model.model.", "model."),
    ("language_model.lm_head.", "lm_head."),
    ("model.lm_head.", "lm_head."),
];
/// Parts for images and sounds, and what guesses more tokens, at the beginning of names or behind `model.`.
const OTHERS: [&str; 10] = [
    "vision_tower.",
    "vision_model.",
    "visual.",
    "multi_modal_projector.",
    "mm_projector.",
    "connector.",
    "audio_tower.",
    "embed_audio.",
    "embed_vision.",
    "mtp.",
];
/// What counts for the whole.
const OF_THE_WHOLE: [&str; 3] = ["tie_word_embeddings", "bos_token_id", "eos_token_id"];
/// What configurations of Gemma 3 do not say where it is what Hugging Face's library assumes.
const GEMMA3: &str = r#"{
    "vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-6, "rope_theta": 1000000, "rope_local_base_freq": 10000, "query_pre_attn_scalar": 256, "sliding_window": 4096
}"#;

/// The name of a tensor in a model for texts alone; `None` if that does not have it.
pub(super) fn name(name: &str) -> Option<Cow<'_, str>> {
    let rest = name.strip_prefix("model.").unwrap_or(name);
    if OTHERS.iter().any(|other| rest.starts_with(other)) {
        return None;
    }
    let renamed = NAMES.iter().find_map(|(from, to)| Some([to, name.strip_prefix(from)?].concat()));
    Some(renamed.map_or(Cow::Borrowed(name), Cow::Owned))
}

/// The number of the layer that a tensor belongs to, by its name in a model for texts alone.
pub(super) fn layer(name: &str) -> Option<u32> {
    name.strip_prefix("model.layers.")?.split('.').next()?.parse().ok()
}

/// The configuration of the part for texts, or that of the model if it has no parts.
pub(super) fn config(whole: Json) -> Json {
    let Some(Json::Object(text)) = whole.get("text_config") else { return whole };
    let mut text = text.clone();
    if text.get("model_type").and_then(Json::as_str) == Some("gemma3_text") {
        let usual: serde_json::Map<_, _> = serde_json::from_str(GEMMA3).unwrap_or_default();
        usual.into_iter().for_each(|(key, value)| _ = text.entry(key).or_insert(value));
    }
    for key in OF_THE_WHOLE {
        if let Some(value) = whole.get(key).filter(|value| !value.is_null()) {
            text.insert(key.to_owned(), value.clone());
        }
    }
    Json::Object(text)
}
