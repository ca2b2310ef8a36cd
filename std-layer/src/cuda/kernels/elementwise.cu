// Element by element: activations, sums, products.
#include "normal.cuh"

// `z` is the second operand of those that have one.
struct ElementwiseArgs {
    const void* x;
    const void* z;
    void* y;
    u64 n;
    f32 alpha;
};

struct Silu { DEVICE f32 operator()(f32 x, f32, f32) const { return divide(x, 1 + exp_fast(-x)); } };
// x Phi(x) by tanh: 0.5 x (1 + tanh(u)) = x / (1 + exp(-2 u)).
struct GeluTanh { DEVICE f32 operator()(f32 x, f32, f32) const { return divide(x, 1 + exp_fast(-1.59576912f * x * (1 + 0.044715f * x * x))); } };
struct Gelu { DEVICE f32 operator()(f32 x, f32, f32) const { return x * normal(x); } };
struct Relu { DEVICE f32 operator()(f32 x, f32, f32) const { return x > 0 ? x : x != x ? x : 0; } };
struct Tanh { DEVICE f32 operator()(f32 x, f32, f32) const { return tanhf(x); } };
struct Scale { DEVICE f32 operator()(f32 x, f32, f32 alpha) const { return alpha * x; } };
struct Sum { DEVICE f32 operator()(f32 x, f32 z, f32) const { return x + z; } };
struct Product { DEVICE f32 operator()(f32 x, f32 z, f32) const { return x * z; } };
// z + alpha x.
struct Axpy { DEVICE f32 operator()(f32 x, f32 z, f32 alpha) const { return fmaf(alpha, x, z); } };
struct Swiglu { DEVICE f32 operator()(f32 x, f32 z, f32) const { return Silu()(x, 0, 0) * z; } };

// A block takes TILES * threads * 16 bytes at a time; all loads come before the first store.
template <class T, class Op, bool TWO> DEVICE void elementwise(const ElementwiseArgs& a) {
    constexpr u32 N = Pack<T>::N, TILES = 2;
    const T *x = static_cast<const T*>(a.x), *z = static_cast<const T*>(a.z);
    T* y = static_cast<T*>(a.y);
    const bool aligned = (reinterpret_cast<u64>(x) | reinterpret_cast<u64>(z) | reinterpret_cast<u64>(y)) % 16 == 0;
    const u64 packs = aligned ? a.n / N : 0, stride = static_cast<u64>(grid_x()) * threads() * TILES;
    for (u64 base = static_cast<u64>(block_x()) * threads() * TILES + thread(); base < packs; base += stride) {
        Pack<T> u[TILES], v[TILES];
#pragma unroll
        for (u32 t = 0; t < TILES; t++) {
            u64 p = base + t * threads();
            if (p < packs) {
                u[t].quad = load16(x + p * N);
                if (TWO) v[t].quad = load16(z + p * N);
            }
        }
#pragma unroll
        for (u32 t = 0; t < TILES; t++) {
            u64 p = base + t * threads();
            if (p >= packs) continue;
            Pack<T> r;
#pragma unroll
            for (u32 i = 0; i < N; i++) r.at[i] = from_f32<T>(Op()(to_f32(u[t].at[i]), TWO ? to_f32(v[t].at[i]) : 0, a.alpha));
            store16(y + p * N, r.quad);
        }
    }
    for (u64 i = packs * N + static_cast<u64>(block_x()) * threads() + thread(); i < a.n; i += static_cast<u64>(grid_x()) * threads())
        y[i] = from_f32<T>(Op()(to_f32(x[i]), TWO ? to_f32(z[i]) : 0, a.alpha));
}

#define ELEMENTWISE(NAME, OP, TWO)                                                  \
    KERNEL(NAME##_f32, ElementwiseArgs, 256) { elementwise<f32, OP, TWO>(a); }      \
    KERNEL(NAME##_f16, ElementwiseArgs, 256) { elementwise<f16, OP, TWO>(a); }      \
    KERNEL(NAME##_bf16, ElementwiseArgs, 256) { elementwise<bf16, OP, TWO>(a); }

ELEMENTWISE(silu, Silu, false)
ELEMENTWISE(gelu, Gelu, false)
ELEMENTWISE(gelu_tanh, GeluTanh, false)
ELEMENTWISE(tanh, Tanh, false)
ELEMENTWISE(relu, Relu, false)
ELEMENTWISE(vec_scale, Scale, false)
ELEMENTWISE(vec_add, Sum, true)
ELEMENTWISE(vec_mul, Product, true)
ELEMENTWISE(vec_axpy, Axpy, true)
ELEMENTWISE(swiglu, Swiglu, true)
