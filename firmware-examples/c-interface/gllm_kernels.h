/* Kernels for LLM inference, without an operating system or an allocator. Made from src/ by cbindgen. */

#ifndef GLLM_KERNELS_H
#define GLLM_KERNELS_H

#include <stddef.h>
#include <stdint.h>

/*
 How a call ended.
 */
typedef enum {
  /*
   Done.
   */
  GLLM_STATUS_OK,
  /*
   A pointer is null.
   */
  GLLM_STATUS_NULL,
  /*
   A buffer is shorter than the call needs.
   */
  GLLM_STATUS_SHORT,
  /*
   Dimensions do not fit each other, or rows are not whole blocks.
   */
  GLLM_STATUS_DIMENSION,
  /*
   The number is no format's.
   */
  GLLM_STATUS_FORMAT,
  /*
   Packed weights are damaged, or of another format or shape.
   */
  GLLM_STATUS_PACKING,
  /*
   A parameter is outside its domain.
   */
  GLLM_STATUS_PARAMETER,
  /*
   The CPU lacks an instruction set.
   */
  GLLM_STATUS_UNAVAILABLE,
  /*
   A size does not fit `size_t`.
   */
  GLLM_STATUS_OVERFLOW,
} GllmStatus;

/*
 The kernels for a CPU. It may be copied, and used by all cores that have the same instructions.
 */
typedef struct {
  /*
   Not for use.
   */
  uint64_t words[12];
} GllmKernels;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 The best kernels for the core that calls this, at EL1 or above, with NEON switched on. Cores that differ (big.LITTLE)
 call this each for itself; at EL0 there is `gllm_baseline`.

 # Safety
 `k` is null or writable. On aarch64 without an operating system the core is at EL1 or above, and the kernels are used
 by this core and such that have the same instructions.
 */
GllmStatus gllm_detect(GllmKernels *k);

/*
 The best kernels for every CPU that runs this library: on aarch64 those for plain NEON, which must be switched on.
 It works at EL0, too.

 # Safety
 `k` is null or writable.
 */
GllmStatus gllm_baseline(GllmKernels *k);

/*
 The portable kernels.

 # Safety
 `k` is null or writable.
 */
GllmStatus gllm_portable(GllmKernels *k);

/*
 Bytes of scratch memory that `gllm_gemm` needs for `m x n`, depth `depth`.

 # Safety
 Pointers are null or what their types say.
 */
GllmStatus gllm_gemm_scratch(const GllmKernels *k, size_t m, size_t n, size_t depth, size_t *bytes);

/*
 `c = alpha a b + beta c`: `a` is `m x depth`, `b` is `depth x n`, `c` is `m x n`.

 # Safety
 Pointers are null or to so many elements; `c` and `scratch` overlap nothing.
 */
GllmStatus gllm_gemm(const GllmKernels *k,
                     size_t m,
                     size_t n,
                     size_t depth,
                     float alpha,
                     const float *a,
                     const float *b,
                     float beta,
                     float *c,
                     uint8_t *scratch,
                     size_t scratch_bytes);

/*
 Bytes of a row of `cols` quantised weights; `format` is GGUF's number (2: Q4_0, 8: Q8_0, 12: Q4_K ...).

 # Safety
 `bytes` is null or writable.
 */
GllmStatus gllm_row_bytes(uint32_t format,
                          size_t cols,
                          size_t *bytes);

/*
 Decodes `rows x cols` weights to f32.

 # Safety
 Pointers are null or to so many weights and elements; `y` overlaps nothing.
 */
GllmStatus gllm_dequant(const GllmKernels *k,
                        uint32_t format,
                        size_t rows,
                        size_t cols,
                        const uint8_t *w,
                        float *y);

/*
 Bytes of scratch memory that a product of `rows x cols` weights with `batch` rows of activations needs, whether the
 weights are packed or not.

 # Safety
 Pointers are null or what their types say.
 */
GllmStatus gllm_qgemm_scratch(const GllmKernels *k,
                              uint32_t format,
                              size_t rows,
                              size_t cols,
                              size_t batch,
                              size_t *bytes);

/*
 `y = x w^T`, with the weights where they lie (flash, say): `w` is `rows x cols`, `x` is `batch x cols` and is rounded to
 8 bits, `y` is `batch x rows`. For a range of rows pass their first byte and their number.

 # Safety
 Pointers are null or to so many weights and elements; `y` and `scratch` overlap nothing.
 */
GllmStatus gllm_qgemm(const GllmKernels *k,
                      uint32_t format,
                      size_t rows,
                      size_t cols,
                      const uint8_t *w,
                      size_t batch,
                      const float *x,
                      float *y,
                      uint8_t *scratch,
                      size_t scratch_bytes);

/*
 Bytes that `gllm_pack` writes.

 # Safety
 Pointers are null or what their types say.
 */
GllmStatus gllm_packed_bytes(const GllmKernels *k,
                             uint32_t format,
                             size_t rows,
                             size_t cols,
                             size_t *bytes);

/*
 Packs weights, for the fastest products. What it writes may be stored (at build time, in flash) and used at any address
 that is a multiple of 64.

 # Safety
 Pointers are null or to so many weights and bytes; `packed` overlaps nothing.
 */
GllmStatus gllm_pack(const GllmKernels *k,
                     uint32_t format,
                     size_t rows,
                     size_t cols,
                     const uint8_t *w,
                     uint8_t *packed,
                     size_t packed_bytes);

/*
 `gllm_qgemm` with packed weights.

 # Safety
 Pointers are null or to so many bytes and elements; `y` and `scratch` overlap nothing.
 */
GllmStatus gllm_qgemm_packed(const GllmKernels *k,
                             uint32_t format,
                             size_t rows,
                             size_t cols,
                             const uint8_t *packed,
                             size_t packed_bytes,
                             size_t batch,
                             const float *x,
                             float *y,
                             uint8_t *scratch,
                             size_t scratch_bytes);

/*
 `y = x / sqrt(mean(x^2) + eps) * w`, for `n` elements; `w` may be null.

 # Safety
 Pointers are null or to `n` elements; `y` overlaps nothing.
 */
GllmStatus gllm_rms_norm(const GllmKernels *k,
                         size_t n,
                         const float *x,
                         const float *w,
                         float eps,
                         float *y);

/*
 `x = softmax(x)`, for `n` elements.

 # Safety
 `x` is null or has `n` elements.
 */
GllmStatus gllm_softmax(const GllmKernels *k, size_t n, float *x);

/*
 `y = silu(gate) * up`, for `n` elements.

 # Safety
 Pointers are null or to `n` elements; `y` overlaps nothing.
 */
GllmStatus gllm_swiglu(const GllmKernels *k,
                       size_t n,
                       const float *gate,
                       const float *up,
                       float *y);

/*
 `y += x`, for `n` elements.

 # Safety
 Pointers are null or to `n` elements; `y` does not overlap `x`.
 */
GllmStatus gllm_add(const GllmKernels *k, size_t n, const float *x, float *y);

/*
 Cosines and sines for the token at `position`: `head_dim / 2` of each, base `theta`.

 # Safety
 Pointers are null or to `head_dim / 2` elements, and do not overlap.
 */
GllmStatus gllm_rope_table(size_t position, size_t head_dim, double theta, float *cos, float *sin);

/*
 Rotates a token's `heads` heads in place; pairs are neighbours, or with `halves` other than 0 half a head apart.

 # Safety
 `x` is null or has `heads * head_dim` elements, `cos` and `sin` `head_dim / 2` each.
 */
GllmStatus gllm_rope(const GllmKernels *k,
                     size_t heads,
                     size_t head_dim,
                     int32_t halves,
                     const float *cos,
                     const float *sin,
                     float *x);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* GLLM_KERNELS_H */
