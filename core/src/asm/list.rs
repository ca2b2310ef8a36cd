//! How assembly sees the formats.

/// Calls `$then!` with every format and, of its row in `expand_all_formats!`, the words for assembly: `$args` is empty.
macro_rules! expand_all_packings {
    ($then:ident! {}) => {
        expand_all_formats! { expand_all_packings! { $then } }
    };
    ({ $then:ident } $($(#[$on:meta])* $field:ident = $name:ident: $module:ident, gguf $gguf:literal, $what:literal $words:tt;)*) => {
        $then! { {} $($(#[$on])* $field = $name $words)* }
    };
}
