// Log-probs as acoustic models give them: float32, float16 or bfloat16.
#pragma once
#include "block.cuh"
#include "keys.cuh"

enum LogprobType : u32 { FLOAT32, FLOAT16, BFLOAT16 };
constexpr float MAX_LOGPROB = 1e20f;  // as in search/logprobs.py

// The log-probs of one utterance, or of a chunk of it.
struct Logprobs {
    const void* address;  // [num_frames, frame_stride]
    u32 type;             // a LogprobType
    u32 frame_stride;     // from frame to frame, in numbers
    u32 num_frames;
    u32 bad_frame;  // the first with a number that is no log-prob, or NONE
};

// Exact: the exponent of a half is put right by a product with a power of two, which
// holds for subnormal halves too.
__device__ __forceinline__ float from_half(u32 half) {
    const u32 bits = (half & 0x7fffu) << 13, sign = (half & 0x8000u) << 16;
    const float size = bits < 0x7c00u << 13
        ? __uint_as_float(bits) * 5.192296858534828e+33f  // 2^112
        : __uint_as_float(bits | 0x7f800000u);
    return __uint_as_float(__float_as_uint(size) | sign);
}

// The number at a place, as it was handed in.
__device__ __forceinline__ float unchecked_logprob(const Logprobs& logprobs, u64 at) {
    if (logprobs.type == FLOAT32)
        return static_cast<const float*>(logprobs.address)[at];
    const u32 bits = static_cast<const u16*>(logprobs.address)[at];
    return logprobs.type == FLOAT16 ? from_half(bits) : __uint_as_float(bits << 16);
}

// The same; a token that a mask put far below 0 is impossible.
__device__ __forceinline__ float logprob_of(const Logprobs& logprobs, u64 at) {
    const float given = unchecked_logprob(logprobs, at);
    return given < -MAX_LOGPROB ? -infinite() : given;
}

// One launch of `check_logprobs`.
struct LogprobCheck {
    Logprobs* batch;  // [num_utterances]
    u32 num_utterances;
    u32 num_tokens;
};

// Looks through utterances, a block each, for numbers that are no log-probs: NaN,
// +inf, absurdly large.
extern "C" __global__ void __launch_bounds__(MAX_THREADS, BLOCKS_PER_SM)
check_logprobs(const LogprobCheck* check) {
    for (u32 i = blockIdx.x; i < check->num_utterances; i += gridDim.x) {
        Logprobs& logprobs = check->batch[i];
        const u64 count = static_cast<u64>(logprobs.num_frames) * check->num_tokens;
        for (u64 k = threadIdx.x; k < count; k += blockDim.x) {
            const u32 frame = static_cast<u32>(k / check->num_tokens);
            const u64 first = static_cast<u64>(frame) * logprobs.frame_stride;
            const u64 at = first + k % check->num_tokens;
            if (!(unchecked_logprob(logprobs, at) <= MAX_LOGPROB))
                atomicMin(&logprobs.bad_frame, frame);
        }
    }
}
