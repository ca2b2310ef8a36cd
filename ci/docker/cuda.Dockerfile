# Compiles the CUDA kernels: docker build -f ci/docker/cuda.Dockerfile -t gllm-cuda . &&
# docker run --rm -v "$PWD:/src" -w /src gllm-cuda ci/compile-kernels cuda --all
# Needs no GPU and no CUDA image: the compiler comes from a pinned PyPI wheel. Docker has not run this file; ci/dockerfile-steps has run its steps.
FROM debian:12-slim
RUN apt-get update && apt-get install -y --no-install-recommends python3 python3-pip ca-certificates && rm -rf /var/lib/apt/lists/*
