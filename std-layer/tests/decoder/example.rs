// What examples in documentation begin with, hidden: a small model with random weights, `model.gguf`, in a folder of its own that
// becomes the current one. It is included where a block may stand.
{
    #[allow(dead_code)] // Tests use the rest.
    mod tiny {
        include!("tiny.rs");
    }
    let folder = std::env::temp_dir().join(format!("gllm-example-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::env::set_current_dir(&folder).unwrap();
    tiny::Tiny::new("llama", None).write(std::path::Path::new("model.gguf"));
}
