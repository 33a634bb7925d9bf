// Log-probs as acoustic models give them: float32, float16 or bfloat16.
#pragma once
#include "block.cuh"

enum LogprobType : u32 { FLOAT32, FLOAT16, BFLOAT16 };
constexpr float LARGEST_LOGPROB = 1e20f;  // as in inputs.py

// Exact: the exponent of a half is put right by a product with a power of two, which
// holds for subnormal halves too.
__device__ __forceinline__ float from_half(u32 half) {
    const u32 bits = (half & 0x7fffu) << 13, sign = (half & 0x8000u) << 16;
    const float size = bits < 0x7c00u << 13
        ? __uint_as_float(bits) * 5.192296858534828e+33f  // 2^112
        : __uint_as_float(bits | 0x7f800000u);
    return __uint_as_float(__float_as_uint(size) | sign);
}

// A number as it is given.
__device__ __forceinline__ float given_logprob(const Utterance& utterance, u64 at) {
    if (utterance.logprob_type == FLOAT32)
        return static_cast<const float*>(utterance.logprobs)[at];
    const u32 bits = static_cast<const u16*>(utterance.logprobs)[at];
    return utterance.logprob_type == FLOAT16 ? from_half(bits)
                                             : __uint_as_float(bits << 16);
}

// The same; what masks put far below 0 is impossible.
__device__ __forceinline__ float logprob_of(const Utterance& utterance, u64 at) {
    const float given = given_logprob(utterance, at);
    return given < -LARGEST_LOGPROB ? -infinite() : given;
}

// Every block looks through the chunks of its utterances for numbers that are no
// log-probs: NaN, +inf, absurdly large.
extern "C" __global__ void __launch_bounds__(MOST_THREADS, BLOCKS_AT_HOME)
check_logprobs(const Task* task) {
    for (u32 i = blockIdx.x; i < task->num_utterances; i += gridDim.x) {
        Utterance& utterance = task->utterances[task->order[i]];
        const u64 count = static_cast<u64>(utterance.num_frames) * task->num_tokens;
        for (u64 k = threadIdx.x; k < count; k += blockDim.x) {
            const u32 frame = static_cast<u32>(k / task->num_tokens);
            const u64 first = static_cast<u64>(frame) * utterance.frame_stride;
            const u64 at = first + k % task->num_tokens;
            if (!(given_logprob(utterance, at) <= LARGEST_LOGPROB))
                atomicMin(&utterance.bad_frame, frame);
        }
    }
}
