// Models whose layers differ.

use super::refused::{changed_configurations, Change};
use super::tiny::Tiny;

/// What is said of layers that are not supported, and of those that cannot be.
#[test]
fn layers_that_are_refused() {
    let linear = r#""no_op":false,"replace_with_linear":true"#;
    let cases: &[Change] = &[
        (
            r#""no_op":false,"replace_with_linear":false"#,
            linear,
            &["layer 0", "replace_with_linear", "attention"],
        ),
        (
            r#""ffn_mult":6.0,"no_op":false,"replace_with_linear":false"#,
            r#""ffn_mult":6.0,"replace_with_linear":true"#,
            &["layer 0", "replace_with_linear", "ffn"],
        ),
        (r#""window_length":null"#, r#""window_length":8192"#, &["layer 0", "window_length", "8192"]),
        (r#""ffn_mult":6.0"#, r#""moe":{"num_local_experts":4}"#, &["layer 0", "moe"]),
        (r#""ffn_mult":6.0"#, r#""ffn_mult":-6.0"#, &["layer 0", "ffn_mult"]),
        (r#""ffn_mult":6.0"#, r#""ffn_mult":1e30"#, &["layer 0", "ffn_mult", "too large"]),
        (r#""n_heads_in_group":2"#, r#""n_heads_in_group":3"#, &["layer 0", "3", "4 heads"]),
        (r#""n_heads_in_group":2"#, r#""n_heads_in_group":null"#, &["layer 0", "n_heads_in_group", "no_op"]),
        (r#""num_hidden_layers":6"#, r#""num_hidden_layers":5"#, &["num_hidden_layers is 5", "6 layers"]),
        (r#""block_configs":["#, r#""block_configs":[{},"#, &["layer 0", "attention is missing"]),
    ];
    changed_configurations(&Tiny { intermediate: 256, ..Tiny::new("deci", None) }, cases);
}
