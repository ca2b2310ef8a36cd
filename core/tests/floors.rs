//! The floors of this library: files import from their own floor and from floors below. So there is no circle between floors.
//! SPEC/02 describes them.

use gllm_testkit::imports::{arrows, circles, upward};
use std::path::Path;

/// The floors, from the ground up: folders of `src`.
const FLOORS: &[&[&str]] = &[
    &["vocabulary"],
    &["quant"],
    &["isa"],
    &["args"],
    // Algorithms in Rust, and kernels in assembly.
    &["ops", "asm"],
    &["table"],
    &["api"],
    &["lib"],
];

#[test]
fn no_arrow_goes_up() {
    let arrows = arrows(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    // The sources were understood: there is much to see.
    assert!(arrows.len() > 500, "{} arrows", arrows.len());
    let up = upward(&arrows, FLOORS);
    assert!(up.is_empty(), "imports from a floor above:\n{}", up.join("\n"));
}

/// Within a floor a module and its children may import each other, but a reader has to be able to hold them in mind.
#[test]
fn circles_within_floors_are_few_and_small() {
    let circles = circles(&arrows(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")));
    let small = circles.iter().all(|files| files.len() <= 5);
    assert!(small && circles.len() <= 8, "files that import each other in a circle: {circles:#?}");
}
