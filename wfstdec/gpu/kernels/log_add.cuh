// The cost of two probabilities together: `log_add` of the searches on the CPU, the same
// bits: float32 throughout, each operation rounded, none fused.
#pragma once
#include "keys.cuh"

// ln(1 + e^-x), for x of 0 or more.
__device__ inline float log1p_exp(float x) {
    if (!(x < 17.5f)) return 0.0f;
    // e^-x = 2^-k e^r, where |r| is at most half of ln 2.
    const u32 k = static_cast<u32>(x * 0x1.715476p+0f + 0.5f);
    const float n = static_cast<float>(k);
    const float r = (n * 0x1.62ep-1f - x) + n * 0x1.0bfbe8p-15f;
    const float r2 = r * r;
    const float p = ((0x1.12398p-7f + 0x1.6a51b2p-10f * r) * r2 +
                     (0x1.555492p-3f + 0x1.5558acp-5f * r)) * r2 +
                    (1.0f + 0x1.fffffcp-2f * r);
    const float t = (1.0f + r * p) * __uint_as_float((127u - k) << 23);
    const float t2 = t * t, t4 = t2 * t2;
    const float q = (((-0x1.d7d268p-5f + 0x1.4a731ep-6f * t) * t2 +
                      (-0x1.3a62fap-3f + 0x1.b52d92p-4f * t)) +
                     -0x1.b1f45ep-9f * t4) * t4 +
                    ((-0x1.ff251ap-3f + 0x1.935406p-3f * t) * t2 +
                     (-0x1.ffffd2p-2f + 0x1.554dd8p-2f * t));
    return t + t2 * q;
}

__device__ inline float log_add(float a, float b) {
    const float low = a < b ? a : b, high = a < b ? b : a;
    return high < infinite() ? low - log1p_exp(high - low) : low;
}
