//! Frequency tables of RoPE; they have no kernel, so no row in the registry.

#[test]
fn tables_follow_the_definitions() {
    gllm_testkit::rope::table().unwrap();
}
