// Costs as integers of the same order, so that atomics and radix sorts compare them.
#pragma once
#include "types.cuh"

constexpr float MAX_COST = 3.402823466e+38f;  // cutoff without pruning

// (NVRTC has no constant for it.)
__device__ __forceinline__ float infinite() { return __uint_as_float(0x7f800000u); }

// (-0.0 would differ from 0.0; none arises.)
__device__ __forceinline__ u32 ordered(float cost) {
    const u32 bits = __float_as_uint(cost);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ __forceinline__ float cost_of(u32 order) {
    return __uint_as_float(order & 0x80000000u ? order ^ 0x80000000u : ~order);
}

// Sorts as (cost, second).
__device__ __forceinline__ u64 key_of(float cost, u32 second) {
    return (static_cast<u64>(ordered(cost)) << 32) | second;
}

__device__ __forceinline__ float cost_of_key(u64 key) {
    return cost_of(static_cast<u32>(key >> 32));
}
