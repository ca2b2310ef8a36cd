//! Files that lie, and files in parts.

use super::*;

/// Bytes of a file, changed.
fn open(bytes: &[u8]) -> Result<(), ModelError> {
    let aligned = AlignedVec::from_slice(bytes);
    Model::from_bytes(&aligned).map(drop)
}

#[test]
fn tensors_do_not_share_bytes() {
    let draft = Draft::of("llama");
    let mut bytes = draft.bytes().to_vec();
    // The offset of a tensor stands behind its name, dimensions and type.
    let name = b"blk.1.attn_q.weight";
    let at = bytes.windows(name.len()).position(|w| w == name).unwrap() + name.len() + 4 + 16 + 4;
    bytes[at..at + 8].copy_from_slice(&0u64.to_le_bytes());
    let text = open(&bytes).unwrap_err().to_string();
    assert_eq!(text, r#"the tensor "blk.1.attn_q.weight" shares bytes with the tensor "token_embd.weight""#);
}

/// Files that are cut short anywhere, or have any byte of their header changed: an error or a model, but never a panic.
#[test]
fn damaged_files_are_refused() {
    for (number, name) in architectures().enumerate() {
        let draft = Draft::of(name);
        let bytes = draft.bytes();
        let [header, end] = draft.data();
        // Where each tensor begins and ends, and one byte to either side.
        let file = Gguf::from_bytes(&bytes).unwrap();
        let edges = file.tensors().flat_map(|t| [t.file_offset(), t.file_offset() + t.size().unwrap()]);
        let edges = edges.flat_map(|at| at as usize - 1..at as usize + 2).filter(|&len| len < end);
        for len in (0..end).step_by(97).chain(end - 200..end).chain(edges) {
            assert!(open(&bytes[..len]).is_err(), "{len} of {end} bytes");
        }
        let mut changed = AlignedVec::from_slice(&bytes);
        // Every byte, to one of three values: architectures, most of whose keys are alike, take turns.
        for at in 0..header {
            changed[at] = [0, 0xff, bytes[at] ^ 4][(at + number) % 3];
            if let Ok(model) = Model::from_bytes(&changed) {
                model.weights().unwrap();
                assert!(model.config().layers * 9 <= 200);
            }
            changed[at] = bytes[at];
        }
    }
}

#[test]
fn split_files_are_one_model() {
    let folder = std::env::temp_dir().join(format!("gllm-split-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = |n: usize| folder.join(format!("tiny-{n:05}-of-00003.gguf"));
    let whole = Draft::of("qwen3");
    let parts = || {
        let mut parts: Vec<Draft> =
            whole.clone().tensors.chunks(30).map(|t| Draft::part(t.to_vec())).collect();
        parts[0].keys = whole.keys.clone();
        for (i, part) in parts.iter_mut().enumerate() {
            part.set("split.no", Value::U16(i as u16));
            part.set("split.count", Value::U16(3));
            part.set("split.tensors.count", Value::I32(whole.tensors.len() as i32));
        }
        parts
    };
    let write = |parts: &[Draft]| {
        for (i, part) in parts.iter().enumerate() {
            std::fs::write(file(i + 1), &*part.bytes()).unwrap();
        }
    };
    write(&parts());
    // Any of them opens all.
    for n in 1..=3 {
        let model = Model::open(file(n)).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(*model.config(), config(&whole));
        assert_eq!(model.weights().unwrap().layers.len(), 7);
        assert!(model.paths().eq([file(1), file(2), file(3)]));
    }
    let refused = |parts: &[Draft]| {
        write(parts);
        Model::open(file(1)).unwrap_err().to_string()
    };
    let mut twice = parts();
    let tensor = twice[0].tensors[3].clone();
    let name = tensor.name.clone();
    twice[2].tensors.push(tensor);
    twice[0].set("split.tensors.count", Value::I32(whole.tensors.len() as i32 + 1));
    let text = refused(&twice);
    assert!(text.contains(&name) && text.contains("00001-of") && text.contains("00003-of"), "{text}");
    let mut fewer = parts();
    fewer[1].tensors.pop();
    assert!(refused(&fewer).contains("the parts have 79 tensors"));
    let mut swapped = parts();
    swapped.swap(1, 2);
    assert!(refused(&swapped).contains("is not part 2 of 3"));
    let mut lying = parts();
    lying[0].set("split.count", Value::U16(0));
    lying[0].set("split.no", Value::U16(4));
    assert!(refused(&lying).contains("split.no and split.count"));
    lying[0].set("split.no", Value::U16(1));
    lying[0].set("split.count", Value::U16(3));
    assert!(refused(&lying).contains("the name must end in -00002-of-00003.gguf"));

    write(&parts());
    std::fs::remove_file(file(2)).unwrap();
    let text = Model::open(file(1)).unwrap_err().to_string();
    assert!(text.contains("tiny-00002-of-00003.gguf"), "{text}");
    let alone = parts()[0].bytes();
    assert!(Model::from_bytes(&alone).unwrap_err().to_string().contains("part of a split file"));
    std::fs::remove_dir_all(&folder).unwrap();
}
