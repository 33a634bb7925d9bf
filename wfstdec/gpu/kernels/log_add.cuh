// Sum of two probabilities given as costs, in float32 alone: bit-identical to
// `search/log_add.py`, since each operation is rounded and none is fused.
#pragma once
#include "keys.cuh"

// ln(1 + e^-x), x >= 0.
__device__ __forceinline__ float log_one_plus(float x) {
    if (!(x < 17.5f)) return 0.0f;
    const int k = static_cast<int>(x * 0x1.715476p+0f + 0.5f);
    const float n = static_cast<float>(k);
    const float r = (n * 0x1.62ep-1f - x) + n * 0x1.0bfbe8p-15f, r2 = r * r;
    const float high = 0x1.12398p-7f + 0x1.6a51b2p-10f * r;
    const float middle = 0x1.555492p-3f + 0x1.5558acp-5f * r;
    const float p = (high * r2 + middle) * r2 + (1.0f + 0x1.fffffcp-2f * r);
    const float power = __uint_as_float(static_cast<u32>(127 - k) << 23);
    const float t = (1.0f + r * p) * power, t2 = t * t, t4 = t2 * t2;
    const float q12 = -0x1.ffffd2p-2f + 0x1.554dd8p-2f * t;
    const float q34 = -0x1.ff251ap-3f + 0x1.935406p-3f * t;
    const float q56 = -0x1.3a62fap-3f + 0x1.b52d92p-4f * t;
    const float q78 = -0x1.d7d268p-5f + 0x1.4a731ep-6f * t;
    const float q = ((q78 * t2 + q56) + -0x1.b1f45ep-9f * t4) * t4 + (q34 * t2 + q12);
    return t + t2 * q;
}

__device__ __forceinline__ float log_add(float a, float b) {
    const float low = a < b ? a : b, high = a < b ? b : a;
    return high == infinite() ? low : low - log_one_plus(high - low);
}

// Sum of two scores, which are logarithms; the increment is float32.
__device__ __forceinline__ double add_scores(double a, double b) {
    const double high = a < b ? b : a, low = a < b ? a : b;
    if (low == -infinite()) return high;
    return high + log_one_plus(static_cast<float>(high - low));
}
