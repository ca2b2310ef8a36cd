//! Small vocabularies made here; the real models' are tested in `tests/tokenizer.rs`.

use gllm_kernels_std::gguf::{Gguf, Value, ValueType, Writer};

use super::*;

/// A GGUF file with these metadata and no tensors.
pub(super) fn file(name: &str, fill: impl FnOnce(&mut Writer)) -> Gguf<'static> {
    let mut writer = Writer::new();
    fill(&mut writer);
    let path = std::env::temp_dir().join(format!("gllm-tokenizer-{}-{name}.gguf", std::process::id()));
    writer.create(&path, true).unwrap().finish().unwrap();
    let file = Gguf::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    file
}

pub(super) fn strings(writer: &mut Writer, key: &str, values: &[&str]) {
    writer.set_array(key, ValueType::String, values.iter().map(|v| Value::String(v))).unwrap();
}

/// Byte-level BPE over ASCII letters, a space and a newline.
fn bpe(name: &str, pre: &str, merges: &[&str], more: &[&str], adds_bos: Option<bool>) -> Gguf<'static> {
    let letters: Vec<String> =
        ('a'..='z').chain(['Ġ', 'Ċ', '1', '2', '3', '4', '!']).map(String::from).collect();
    let mut tokens: Vec<&str> = vec!["<s>", "<mark>"];
    tokens.extend(letters.iter().map(|l| l.as_str()));
    let merged: Vec<String> = merges.iter().map(|m| m.replacen(' ', "", 1)).collect();
    tokens.extend(merged.iter().map(|m| m.as_str()));
    tokens.extend(more);
    file(name, |w| {
        w.set(MODEL, Value::String("gpt2")).unwrap();
        w.set(PRE, Value::String(pre)).unwrap();
        strings(w, TOKENS, &tokens);
        let kinds = (0..tokens.len()).map(|i| Value::I32(if i < 2 { 3 } else { 1 }));
        w.set_array(TYPES, ValueType::I32, kinds).unwrap();
        strings(w, MERGES, merges);
        w.set(BOS, Value::U32(0)).unwrap();
        if let Some(adds) = adds_bos {
            w.set("tokenizer.ggml.add_bos_token", Value::Bool(adds)).unwrap();
        }
    })
}

fn pieces(file: &Gguf<'_>, text: &str) -> Vec<String> {
    let tokenizer = Tokenizer::new(|key| file.get(key)).unwrap();
    let ids = tokenizer.encode(text).unwrap();
    ids.iter().map(|&id| tokenizer.vocabulary.text[id as usize].to_owned()).collect()
}

#[test]
fn merges_by_rank_then_from_the_left() {
    let model = bpe("rank", "gpt-2", &["b c", "a b", "a a", "Ġ a"], &[], None);
    // `b c` comes before `a b` in the list.
    assert_eq!(pieces(&model, "abc"), ["a", "bc"]);
    assert_eq!(pieces(&model, "aaa"), ["aa", "a"]);
    assert_eq!(pieces(&model, "ab abc"), ["ab", "Ġa", "bc"]);
}

#[test]
fn words_are_cut_as_the_model_family_does() {
    let gpt2 = bpe("gpt2", "gpt-2", &["1 2", "12 3", "123 4", "Ġ Ġ", "Ċ Ċ"], &[], None);
    assert_eq!(pieces(&gpt2, "1234"), ["1234"]);
    assert_eq!(pieces(&gpt2, "a   b"), ["a", "ĠĠ", "Ġ", "b"]);
    let smollm = bpe("smollm", "smollm", &["1 2"], &[], None);
    assert_eq!(pieces(&smollm, "12"), ["1", "2"]);
    let llama3 = bpe("llama3", "llama-bpe", &["1 2", "12 3", "123 4"], &[], None);
    // Three digits a word; the mark at the beginning comes unasked.
    assert_eq!(pieces(&llama3, "1234"), ["<s>", "123", "4"]);
    let qwen2 = bpe("qwen2", "qwen2", &["1 2"], &[], Some(true));
    assert_eq!(pieces(&qwen2, "12"), ["<s>", "1", "2"]);
    // A capital begins a word, and what is contracted belongs to it.
    let merges = ["1 2", "12 3", "123 4", "l o", "lo W", "i t", "' s", "it 's", "/ Ċ"];
    let gpt4o = bpe("gpt4o", "gpt-4o", &merges, &["W", "'", "/"], None);
    assert_eq!(pieces(&gpt4o, "1234"), ["123", "4"]);
    assert_eq!(pieces(&gpt4o, "loWo"), ["lo", "W", "o"]);
    assert_eq!(pieces(&gpt4o, "it's"), ["it's"]);
    assert_eq!(pieces(&gpt4o, "a/\nb"), ["a", "/Ċ", "b"]);
    // The same without contractions and with single digits.
    let tekken = bpe("tekken", "tekken", &merges, &["W", "'", "/"], Some(false));
    assert_eq!(pieces(&tekken, "12"), ["1", "2"]);
    assert_eq!(pieces(&tekken, "loWo"), ["lo", "W", "o"]);
    assert_eq!(pieces(&tekken, "it's"), ["it", "'s"]);
    assert_eq!(pieces(&tekken, "a/\nb"), ["a", "/Ċ", "b"]);
    let coder = bpe("coder", "deepseek-coder", &["1 2", "Ċ Ċ", "Ġ !", "! !", "! a"], &[], None);
    assert_eq!(pieces(&coder, "12\n\n !!a"), ["1", "2", "Ċ", "Ċ", "Ġ!", "!", "a"]);
    let v3 = bpe("v3", "deepseek-v3", &["1 2", "12 3", "123 4", "< a", "Ġ !", "! Ċ"], &["<"], None);
    assert_eq!(pieces(&v3, "1234<a !\n"), ["123", "4", "<a", "Ġ!", "Ċ"]);
    let other = bpe("not-gpt4o", "qwen2", &merges, &["W", "'", "/"], None);
    assert_eq!(pieces(&other, "loWo"), ["loW", "o"]);
    assert_eq!(pieces(&other, "it's"), ["it", "'s"]);
}

#[test]
fn whole_words_only_where_the_family_asks_for_it() {
    assert_eq!(pieces(&bpe("whole", "llama-bpe", &[], &["abc"], Some(false)), "abc"), ["abc"]);
    assert_eq!(pieces(&bpe("parts", "gpt-2", &[], &["abc"], None), "abc"), ["a", "b", "c"]);
}

#[test]
fn marks_are_tokens_wherever_they_stand() {
    let model = bpe("marks", "gpt-2", &[], &[], None);
    assert_eq!(pieces(&model, "<mark>a<mark><mark>b<s>"), ["<mark>", "a", "<mark>", "<mark>", "b", "<s>"]);
    assert_eq!(pieces(&model, "<mark"), Vec::<&str>::from_iter("mark".split("").filter(|s| !s.is_empty())));
    let tokenizer = Tokenizer::new(|key| model.get(key)).unwrap();
    assert_eq!(tokenizer.bytes(1), b"");
    assert_eq!(tokenizer.bytes(u32::MAX), b"");
}

#[test]
fn every_byte_has_a_character_of_its_own() {
    let all: String = (0..=u8::MAX).map(bpe::char_of).collect();
    assert_eq!(all.chars().collect::<std::collections::HashSet<_>>().len(), 256);
    assert_eq!(bpe::bytes(&all), (0..=u8::MAX).collect::<Vec<_>>());
}

/// Gemma 4: merges of text as it is, across words, with a mark for each space; ends of lines that are a token; other characters byte by byte.
#[test]
fn merges_of_plain_text() {
    let bytes: Vec<String> = (0..=255u8).map(|b| format!("<0x{b:02X}>")).collect();
    let mut tokens = vec!["<bos>", "a", "b", "▁", "\n", "▁b", "a▁b", "\n\n", "aa", "bb"];
    tokens.extend(bytes.iter().map(String::as_str));
    let file = file("gemma4", |w| {
        w.set(MODEL, Value::String("gemma4")).unwrap();
        strings(w, TOKENS, &tokens);
        let kinds = (0..tokens.len()).map(|i| Value::I32([3, 1, 6][usize::from(i > 0) + usize::from(i > 9)]));
        w.set_array(TYPES, ValueType::I32, kinds).unwrap();
        strings(w, MERGES, &["▁ b", "a ▁b", "a a"]);
        w.set(BOS, Value::U32(0)).unwrap();
        w.set("tokenizer.ggml.add_bos_token", Value::Bool(false)).unwrap();
    });
    assert_eq!(pieces(&file, "a b"), ["<bos>", "a▁b"]);
    // `bb` is a token, but nothing is merged to it.
    assert_eq!(pieces(&file, "aa bb"), ["<bos>", "a", "a▁b", "b"]);
    assert_eq!(pieces(&file, "a\n\nb\n"), ["<bos>", "a", "\n\n", "b", "\n"]);
    assert_eq!(pieces(&file, "é"), ["<bos>", "<0xC3>", "<0xA9>"]);
    let tokenizer = Tokenizer::new(|key| file.get(key)).unwrap();
    let text = "aa b\n\né a";
    let back: Vec<u8> = tokenizer.encode(text).unwrap().iter().flat_map(|&id| tokenizer.bytes(id)).collect();
    assert_eq!(back, text.as_bytes());
}

/// A SentencePiece vocabulary with all bytes.
fn spm(name: &str, pieces: &[(&str, f32)], adds_space: bool) -> Gguf<'static> {
    let bytes: Vec<String> = (0..=255u8).map(|b| format!("<0x{b:02X}>")).collect();
    let tokens: Vec<(&str, f32, i32)> = [("<unk>", 0.0, 2), ("<s>", 0.0, 3)]
        .into_iter()
        .chain(bytes.iter().map(|b| (b.as_str(), 0.0, 6)))
        .chain(pieces.iter().map(|&(text, score)| (text, score, 1)))
        .collect();
    file(name, |w| {
        w.set(MODEL, Value::String("llama")).unwrap();
        strings(w, TOKENS, &tokens.iter().map(|t| t.0).collect::<Vec<_>>());
        w.set_array(SCORES, ValueType::F32, tokens.iter().map(|t| Value::F32(t.1))).unwrap();
        w.set_array(TYPES, ValueType::I32, tokens.iter().map(|t| Value::I32(t.2))).unwrap();
        w.set(BOS, Value::U32(1)).unwrap();
        w.set("tokenizer.ggml.add_space_prefix", Value::Bool(adds_space)).unwrap();
    })
}

#[test]
fn merges_by_score() {
    let vocabulary = [
        ("a", -9.0),
        ("b", -9.0),
        ("c", -9.0),
        ("ab", -2.0),
        ("bc", -1.0),
        ("\u{2581}", -3.0),
        ("\u{2581}a", -4.0),
    ];
    let model = spm("score", &vocabulary, false);
    assert_eq!(pieces(&model, "abc"), ["<s>", "a", "bc"]);
    assert_eq!(pieces(&model, "ab a"), ["<s>", "ab", "\u{2581}a"]);
    // A character that is no token becomes its bytes.
    assert_eq!(pieces(&model, "é"), ["<s>", "<0xC3>", "<0xA9>"]);
    assert_eq!(pieces(&spm("space", &vocabulary, true), "a"), ["<s>", "\u{2581}a"]);
    let tokenizer = Tokenizer::new(|key| model.get(key)).unwrap();
    let ids = tokenizer.encode("ab aé").unwrap();
    assert_eq!(ids.iter().flat_map(|&id| tokenizer.bytes(id)).collect::<Vec<_>>(), "ab aé".as_bytes());
}

#[test]
fn hostile_files_are_refused() {
    let refused = |name: &str, fill: &dyn Fn(&mut Writer)| {
        let file = file(name, |w| fill(w));
        Tokenizer::new(|key| file.get(key)).err().expect("the file is not a tokenizer").to_string()
    };
    let text = refused("none", &|_| {});
    assert!(text.contains(MODEL), "{text}");
    let text = refused("other", &|w| {
        w.set(MODEL, Value::String("rwkv")).unwrap();
        strings(w, TOKENS, &["a"]);
    });
    assert!(text.contains("\"rwkv\"") && text.contains("gpt2"), "{text}");
    // A unigram model, with the map of what is replaced.
    let unigram = |w: &mut Writer, map: &[u8]| {
        w.set(MODEL, Value::String("t5")).unwrap();
        strings(w, TOKENS, &["a", "\u{2581}a", "<unk>"]);
        w.set_array(SCORES, ValueType::F32, [-1.0, -1.5, 0.0].map(Value::F32)).unwrap();
        let map = map.iter().map(|&b| Value::U8(b));
        w.set_array("tokenizer.ggml.precompiled_charsmap", ValueType::U8, map).unwrap();
    };
    for map in [&[1, 0][..], &[255, 255, 255, 255, 0]] {
        let text = refused("map", &|w| unigram(w, map));
        assert!(text.contains("precompiled_charsmap"), "{text}");
    }
    let text = refused("unknown", &|w| {
        unigram(w, &[0; 8]);
        strings(w, TOKENS, &["a"]);
        w.set_array(SCORES, ValueType::F32, [Value::F32(0.0)]).unwrap();
    });
    assert!(text.contains("is 2, but there are 1 tokens"), "{text}");
    // A map that is damaged replaces nothing.
    for fill in 0..=u8::MAX {
        let file = file("damaged", |w| unigram(w, &[&[16, 0, 0, 0][..], &[fill; 24]].concat()));
        let tokenizer = Tokenizer::new(|key| file.get(key)).unwrap();
        assert!(tokenizer.encode("a \u{e9}\u{1}\u{7f}a").is_ok());
    }
    let text = refused("pre", &|w| {
        w.set(MODEL, Value::String("gpt2")).unwrap();
        w.set(PRE, Value::String("strange")).unwrap();
        strings(w, TOKENS, &["a"]);
        strings(w, MERGES, &[]);
    });
    assert!(text.contains("\"strange\"") && text.contains("smollm"), "{text}");
    let text = refused("merge", &|w| {
        w.set(MODEL, Value::String("gpt2")).unwrap();
        strings(w, TOKENS, &["a"]);
        strings(w, MERGES, &["ab"]);
    });
    assert!(text.contains(MERGES), "{text}");
    let text = refused("scores", &|w| {
        w.set(MODEL, Value::String("llama")).unwrap();
        strings(w, TOKENS, &["a", "b"]);
        w.set_array(SCORES, ValueType::F32, [Value::F32(0.0)]).unwrap();
    });
    assert!(text.contains("1 values for 2 tokens"), "{text}");
    let text = refused("bos", &|w| {
        w.set(MODEL, Value::String("llama")).unwrap();
        strings(w, TOKENS, &["a"]);
        w.set_array(SCORES, ValueType::F32, [Value::F32(f32::NAN)]).unwrap();
        w.set(BOS, Value::U32(7)).unwrap();
    });
    assert!(text.contains("is 7, but there are 1 tokens"), "{text}");
}

#[test]
fn characters_leave_whole() {
    let mut stream = TextStream::default();
    assert_eq!(stream.push(b"a\xe2\x82"), "a");
    assert_eq!(stream.push(b"\xac!"), "\u{20ac}!");
    assert_eq!(stream.push(b"\xff\xe2"), "\u{fffd}");
    assert_eq!(stream.finish(), "\u{fffd}");
    assert_eq!(TextStream::default().finish(), "");
}
