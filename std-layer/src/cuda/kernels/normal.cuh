// The normal distribution function.
#pragma once

#include "simt.cuh"

// Its tail is exp(-x^2 / 2) t P(t), where t = 1 / (1 + 0.36 |x|), and P is a polynomial that was fitted for |x| < 14: its relative error is below
// 9e-7. Rounding of the exponential's argument adds up to 6e-6 at |x| = 13.
DEVICE f32 normal(f32 x) {
    const f32 t = divide(1, fmaf(0.36f, fabsf(x), 1));
    const f32 terms[] = {-0.179764435f, 0.180953681f, 0.0265495479f, 0.139719188f, 0.141772464f, 0.143713042f};
    f32 p = 0.0470562093f;
#pragma unroll
    for (u32 i = 0; i < 6; i++) p = fmaf(p, t, terms[i]);
    const f32 tail = p * t * exp2_fast(-0.72134752f * x * x);
    return x < 0 ? tail : 1 - tail;
}
