# What the kernels for AMD GPUs are compiled with:
# docker build -f ci/docker/rocm.Dockerfile -t gllm-rocm . && docker run --rm -v "$PWD:/src" -w /src gllm-rocm ci/compile-kernels rocm --all
# Needs no GPU and no ROCm: clang compiles HIP without its headers and libraries. libhsa-runtime64-1 is there to see what programs do where
# there is no GPU. Docker has not run this file; ci/dockerfile-steps has run its steps.
FROM debian:12-slim
RUN apt-get update && apt-get install -y --no-install-recommends clang-19 lld-19 libhsa-runtime64-1 python3 ca-certificates && rm -rf /var/lib/apt/lists/*
