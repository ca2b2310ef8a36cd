//! Threads, files and detection around gllm-kernels-core.
