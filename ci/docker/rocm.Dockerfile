# What kernels for AMD GPUs will be compiled with: docker build -f ci/docker/rocm.Dockerfile -t gllm-rocm . There are none yet, as
# `ci/compile-kernels rocm` says. Needs no GPU and no ROCm: clang compiles HIP without its headers and libraries, for example
#     clang++-19 -x hip --offload-arch=gfx1100 --cuda-device-only -nogpuinc -nogpulib -std=c++17 -O3 -mcode-object-version=5 \
#         --no-gpu-bundle-output kernels.hip -o kernels.hsaco
# libhsa-runtime64-1 is there to see what programs do where there is no GPU. This file has not been run.
FROM debian:12-slim
RUN apt-get update && apt-get install -y --no-install-recommends clang-19 lld-19 libhsa-runtime64-1 python3 ca-certificates && rm -rf /var/lib/apt/lists/*
