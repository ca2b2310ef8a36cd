//! Configurations with any values, and tensors of any shape: a checkpoint is opened or refused, and nothing else happens.

use std::panic::{catch_unwind, AssertUnwindSafe};

use gllm_kernels_std::model::Model;
use gllm_testkit::effort;
use serde_json::{json, Value};

use super::folder::{config, Dense, Folder};
use super::tiny::Tiny;

/// What stands in place of a value.
fn others(of: &Value) -> Vec<Value> {
    let mut all =
        vec![json!(0), json!(1), json!(u32::MAX), json!(-1.5), json!("x"), json!([]), json!({}), json!(true)];
    if let Some(n) = of.as_u64() {
        all.extend([json!(n + 1), json!(2 * n), json!(n / 2)]);
    }
    if let Some(list) = of.as_array().filter(|list| !list.is_empty()) {
        all.extend([json!(list[1..]), json!([&list[..], &list[..]].concat()), json!(vec![1; list.len()])]);
    }
    all
}

/// Of so many cases one is tried: all of them take minutes.
fn step() -> usize {
    if effort() > 1 {
        11
    } else {
        80
    }
}

/// Whether opening a checkpoint, and looking at its weights, comes to an end.
fn returns(folder: &Folder) -> bool {
    let opened = || {
        if let Ok(model) = Model::open(folder.path()) {
            let _ = model.verify();
        }
    };
    catch_unwind(AssertUnwindSafe(opened)).is_ok()
}

/// A folder of its own for each model and purpose.
fn folder(tiny: &Tiny, what: &str) -> Folder {
    Folder::new(&format!("{what} {} {:?} {}", tiny.architecture, tiny.experts, tiny.per_layer))
}

#[test]
fn no_value_stops_the_program() {
    let (step, mut turn) = (step(), 0);
    for tiny in super::all() {
        let folder = folder(&tiny, "hostile");
        folder.tensors(&Dense::of(&tiny, &tiny.open()), 1);
        let usual: Value = serde_json::from_str(&config(&tiny).replace("Infinity]", "null]")).unwrap();
        for (key, value) in usual.as_object().unwrap() {
            for other in others(value) {
                turn += 1;
                if turn % step > 0 {
                    continue;
                }
                let mut changed = usual.clone();
                changed[key] = other.clone();
                folder.config(&changed.to_string());
                assert!(returns(&folder), "{} with {key}: {other}", tiny.architecture);
            }
        }
    }
}

#[test]
fn no_shape_stops_the_program() {
    let (step, mut turn) = (step(), 0);
    for tiny in super::all() {
        let folder = folder(&tiny, "shapes");
        folder.config(&config(&tiny));
        let tensors = Dense::of(&tiny, &tiny.open());
        for at in 0..tensors.len() {
            let shape = &tensors[at].shape;
            let count: usize = shape.iter().product();
            let zeros = [shape.iter().map(|_| 0).collect(), vec![0, 7], vec![7, 0], vec![0], vec![3, 0, 5]];
            let others =
                [shape.iter().rev().copied().collect(), vec![count], vec![1, count], vec![count, 1, 1]];
            for other in others.into_iter().chain(zeros) {
                turn += 1;
                if turn % step > 0 {
                    continue;
                }
                let mut tensors = tensors.clone();
                let tensor = &mut tensors[at];
                tensor.bytes.truncate(tensor.bytes.len() / count * other.iter().product::<usize>());
                tensor.shape = other;
                folder.tensors(&tensors, 1);
                assert!(
                    returns(&folder),
                    "{} with {} of {:?}",
                    tiny.architecture,
                    tensors[at].name,
                    tensors[at].shape
                );
            }
        }
    }
}
