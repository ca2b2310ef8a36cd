//! The floors of this library: files import from their own floor and from floors below. So there is no circle between floors.
//! SPEC/02 describes them.

use gllm_testkit::imports::{arrows, circles, upward};
use std::path::Path;

/// The floors, from the ground up: folders and files of `src`.
const FLOORS: &[&[&str]] = &[
    // Memory, threads, detection, and the formats of files.
    &["aligned", "buffers", "runtime", "detect", "gguf", "safetensors"],
    // The core's operators on all threads.
    &["parallel"],
    // Models as data.
    &["model"],
    // NVIDIA's driver, and operators on the GPUs that it reaches.
    &["cuda"],
    // The same driver's functions for GPUs of AMD's.
    &["rocm"],
    // The operations that a step of a model is made of.
    &["backend/error", "backend/step"],
    // What models compute, in these operations.
    &["model/decoder"],
    // The backends, and the interface that they implement.
    &["backend"],
    // The choice of a backend, and text from a model on any of them.
    &["backend/any", "model/generator", "model/ranking"],
    &["lib"],
];

#[test]
fn no_arrow_goes_up() {
    let arrows = arrows(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    // The sources were understood: there is much to see.
    assert!(arrows.len() > 300, "{} arrows", arrows.len());
    let up = upward(&arrows, FLOORS);
    assert!(up.is_empty(), "imports from a floor above:\n{}", up.join("\n"));
}

/// Within a floor a module and its children may import each other, but a reader has to be able to hold them in mind.
#[test]
fn circles_within_floors_are_few_and_small() {
    let circles = circles(&arrows(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")));
    let small = circles.iter().all(|files| files.len() <= 6);
    assert!(small && circles.len() <= 6, "files that import each other in a circle: {circles:#?}");
}
