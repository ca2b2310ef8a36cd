//! How families of models cut text into words, before pairs are merged.

/// How a family of models cuts text into words.
pub(super) struct Rule {
    /// Names in `tokenizer.ggml.pre`.
    pub(super) names: &'static [&'static str],
    /// Applied one after the other: each cuts what the one before has left into its matches and what lies between them.
    pub(super) words: &'static [&'static str],
    /// Whether a word that is a token is not cut any further, whatever the merges say.
    pub(super) whole_words: bool,
    /// Whether text begins with a mark unless the metadata say otherwise.
    pub(super) adds_bos: bool,
}

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)";
/// `$digits` belong together, and so do `$letters`, and `$others`, which are neither of these.
macro_rules! tiktoken {
    ($digits:literal) => {
        tiktoken!($digits, r" ?[^\s\p{L}\p{N}]+[\r\n]*")
    };
    ($digits:literal, $others:literal) => {
        tiktoken!(r"\p{L}+", $digits, $others)
    };
    ($letters:literal, $digits:literal, $others:literal) => {
        tiktoken!($letters, $digits, $others, r"\s+(?!\S)|\s+")
    };
    ($letters:literal, $digits:literal, $others:literal, $spaces:literal) => {
        concat!(
            r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?",
            $letters,
            "|",
            $digits,
            "|",
            $others,
            r"|\s*[\r\n]+|",
            $spaces
        )
    };
}

/// What texts are cut into where a word is capitals and small letters, in this order: `$contracted` may follow a word and belongs to it, and
/// `$digits` belong together.
macro_rules! capitals_then_small {
    ($contracted:literal, $digits:literal) => {
        concat!(
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
            $contracted,
            r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
            $contracted,
            "|",
            $digits,
            r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        )
    };
}
const O200K: &str = capitals_then_small!("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", r"\p{N}{1,3}");
/// Chinese characters are words of their own, whatever stands beside them.
const KIMI: &str = concat!(
    r"\p{Han}+|",
    r"[^\r\n\p{L}\p{N}]?[[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]&&[^\p{Han}]]*[[\p{Ll}\p{Lm}\p{Lo}\p{M}]&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
    r"[^\r\n\p{L}\p{N}]?[[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]&&[^\p{Han}]]+[[\p{Ll}\p{Lm}\p{Lo}\p{M}]&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
/// Letters with a case, but for those of Unicode's later versions, Georgian ones, some Armenian ones, and mathematical symbols.
const CASED: &str = concat!(
    r"\s?[[\p{Lu}\p{Ll}\p{Lt}]&&[^\x{560}-\x{588}\x{10c7}-\x{10ff}\x{1c80}-\x{1c8a}\x{2d00}-\x{2d2d}\x{a790}-\x{a7fa}\x{ab30}-\x{ab68}",
    r"\x{10570}-\x{105bc}\x{10d40}-\x{10d8f}\x{16e40}-\x{16eff}\x{1d400}-\x{1dfff}]]+"
);
/// What stands between spaces and the punctuation of several scripts.
const PHRASES: &str = " ?[^(\\s|.,!?\u{2026}\u{3002}\u{ff0c}\u{3001}\u{964}\u{6d4}\u{60c})]+";
/// Letters with what stands in front of them, and signs.
const DEEPSEEK: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;
const TEKKEN: &str = capitals_then_small!("", r"\p{N}");

/// What most have in common.
const RULE: Rule = Rule { names: &[], words: &[], whole_words: false, adds_bos: false };

pub(super) const RULES: &[Rule] = &[
    Rule {
        names: &["default"],
        words: &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
        ..RULE
    },
    Rule {
        names: &[
            "gpt-2",
            "mpt",
            "olmo",
            "phi-2",
            "roberta-bpe",
            "mellum",
            "modern-bert",
            "trillion",
            "exaone4",
            "granite-docling",
            "gigachat",
            "a.x-4.0",
        ],
        words: &[GPT2],
        ..RULE
    },
    Rule {
        names: &["falcon"],
        words: &[r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"],
        ..RULE
    },
    // As many spaces as a power of two are a word.
    Rule {
        names: &["jais-2"],
        words: &[tiktoken!(
            r"\p{L}+",
            r"\p{N}{1,3}",
            r" ?[^\s\p{L}\p{N}]+[\r\n]*",
            r"\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s"
        )],
        ..RULE
    },
    Rule { names: &["viking"], words: &[PHRASES, r"\p{N}"], ..RULE },
    Rule {
        names: &["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"],
        words: &[r"\p{N}", GPT2],
        ..RULE
    },
    Rule {
        names: &["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"],
        words: &[tiktoken!(r"\p{N}{1,3}")],
        whole_words: true,
        adds_bos: true,
    },
    Rule {
        names: &["dbrx", "smaug-bpe", "chatglm-bpe"],
        words: &[tiktoken!(r"\p{N}{1,3}")],
        ..RULE
    },
    Rule { names: &["glm4"], words: &[tiktoken!(r"\p{N}{1,3}")], whole_words: true, ..RULE },
    Rule {
        names: &["seed-coder"],
        words: &[tiktoken!(r"\p{N}", r" ?[^\s\p{L}\p{N}\r\n]+")],
        ..RULE
    },
    Rule {
        // Ling's and Ring's have `\s*[\r\n]` at the end, which takes the same.
        names: &[
            "qwen2",
            "deepseek-r1-qwen",
            "stablelm2",
            "kormo",
            "megrez",
            "bailingmoe",
            "bailingmoe2",
            "hunyuan",
            "solar-open",
            "f2llmv2",
        ],
        words: &[tiktoken!(r"\p{N}")],
        ..RULE
    },
    // Marks belong to letters.
    Rule {
        names: &["qwen35"],
        words: &[tiktoken!(r"[\p{L}\p{M}]+", r"\p{N}", r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*")],
        ..RULE
    },
    Rule {
        names: &["minicpm5"],
        words: &[r"\p{N}{1,3}", tiktoken!(r"\p{N}+")],
        whole_words: true,
        ..RULE
    },
    Rule {
        names: &["gpt-4o", "llama4", "minimax-m2", "kanana2"],
        words: &[O200K],
        ..RULE
    },
    Rule { names: &["granite-embed-multi-97m"], words: &[O200K], whole_words: true, ..RULE },
    // Groups of three digits, counted from the end of a number.
    Rule {
        names: &["tiny_aya"],
        words: &[r"\d{1,3}(?=(?:\d{3})*\b)", O200K],
        ..RULE
    },
    Rule { names: &["kimi-k2"], words: &[KIMI], ..RULE },
    Rule {
        names: &["youtu"],
        words: &[
            concat!(
                "[\u{ac00}-\u{d7a3}\u{3131}-\u{318e}]+",
                "|[\u{ff01}\u{2026}\u{201c}\u{201d}\u{2018}\u{2019}\u{2014}\u{ff1a}\u{ff1b}\u{ff0c}\u{3001}-\u{303f}\u{fe30}-\u{fe4f}]+",
                "|[\u{3105}-\u{312f}]+|[\u{4e00}-\u{9fa5}\u{3040}-\u{30ff}]+"
            ),
            capitals_then_small!("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", r"\p{N}"),
        ],
        whole_words: true,
        ..RULE
    },
    // Mistral's vocabulary from NeMo on.
    Rule { names: &["tekken"], words: &[TEKKEN], whole_words: true, adds_bos: true },
    Rule {
        names: &["deepseek-v3", "hunyuan-dense", "joyai-llm"],
        words: &[
            r"\p{N}{1,3}",
            "[\u{4e00}-\u{9fa5}\u{3040}-\u{30ff}]+",
            DEEPSEEK,
        ],
        ..RULE
    },
    // The same groups; compatibility ideographs begin where Unicode has them, and not at the one that llama.cpp's list names.
    Rule {
        names: &["afmoe"],
        words: &[
            r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))",
            concat!(
                "[\u{4e00}-\u{9fff}\u{3400}-\u{4dbf}\u{f900}-\u{faff}\u{3040}-\u{309f}\u{30a0}-\u{30ff}\u{ff65}-\u{ff9f}\u{2f00}-\u{2fdf}",
                "\u{e40}-\u{e7f}\u{e80}-\u{eff}\u{1780}-\u{17ff}\u{1000}-\u{109f}\u{aa60}-\u{aa7f}\u{a9e0}-\u{a9ff}\u{ac00}-\u{d7af}\u{1100}-\u{11ff}]+"
            ),
            DEEPSEEK,
        ],
        ..RULE
    },
    // Words with single spaces between them are one.
    Rule {
        names: &["exaone-moe"],
        words: &[tiktoken!(
            r"(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+",
            r"\p{N}",
            r" ?[^\s\p{L}\p{N}]+[\r\n/]?"
        )],
        ..RULE
    },
    Rule {
        names: &["deepseek-llm"],
        words: &[
            "[\r\n]",
            CASED,
            "\\s?[!-/:-~\u{ff01}-\u{ff0f}\u{ff1a}-\u{ff5e}\u{2018}-\u{201f}\u{3000}-\u{3002}]+",
            r"\s+$",
            "[\u{4e00}-\u{9fa5}\u{800}-\u{4e00}\u{ac00}-\u{d7ff}]+",
            r"\p{N}+",
        ],
        ..RULE
    },
    Rule {
        names: &["deepseek-coder"],
        words: &[
            "[\r\n]",
            r"\s?\p{L}+",
            r"\s?\p{P}+",
            "[\u{4e00}-\u{9fa5}\u{800}-\u{4e00}\u{ac00}-\u{d7ff}]+",
            r"\p{N}",
        ],
        ..RULE
    },
];

/// What texts of Gemma 4 are cut into: lines and the ends between them.
pub(super) const LINES: Rule = Rule { names: &[GEMMA4], words: &[r"\n+"], adds_bos: true, ..RULE };
/// The kind of tokenizer, and the rule by which it cuts text.
pub(super) const GEMMA4: &str = "gemma4";
