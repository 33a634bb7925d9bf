// Log-probs of acoustic models: float32, float16 or bfloat16.
#pragma once
#include "block.cuh"
#include "keys.cuh"

enum LogprobType : u32 { FLOAT32, FLOAT16, BFLOAT16, MIXED };
// Compile-time type: one type, or MIXED if utterances differ.
#ifndef LOGPROB_TYPE
#define LOGPROB_TYPE MIXED
#endif
constexpr float MAX_LOGPROB = 1e20f;  // as in search/logprobs.py

// The log-probs of one utterance, or of a chunk of it.
struct Logprobs {
    const void* address;  // [num_frames, frame_stride]
    u32 type;             // a LogprobType, not MIXED
    u32 frame_stride;     // from frame to frame, in numbers
    u32 num_frames;
    u32 bad_frame;  // the first with a number that is no log-prob, or NONE
};

// Exact: the exponent of a half is corrected by a product with a power of two, also
// for subnormal halves.
__device__ __forceinline__ float from_half(u32 half) {
    const u32 bits = (half & 0x7fffu) << 13, sign = (half & 0x8000u) << 16;
    const float size = bits < 0x7c00u << 13
        ? __uint_as_float(bits) * 5.192296858534828e+33f  // 2^112
        : __uint_as_float(bits | 0x7f800000u);
    return __uint_as_float(__float_as_uint(size) | sign);
}

// The number at a position, unchanged.
__device__ __forceinline__ float unchecked_logprob(const Logprobs& logprobs, u64 at) {
    const u32 type = LOGPROB_TYPE == MIXED ? logprobs.type : LOGPROB_TYPE;
    const void* const address = in_global(logprobs.address);
    if (type == FLOAT32) return read_only(static_cast<const float*>(address) + at);
    const u32 bits = read_only(static_cast<const u16*>(address) + at);
    return type == FLOAT16 ? from_half(bits) : __uint_as_float(bits << 16);
}

// The same; a token masked far below 0 is impossible.
__device__ __forceinline__ float logprob_of(const Logprobs& logprobs, u64 at) {
    const float given = unchecked_logprob(logprobs, at);
    return given < -MAX_LOGPROB ? -infinite() : given;
}

constexpr u32 LINE_BYTES = 128;  // of a prefetch

// Prefetch a frame into L2: reading it from memory would take four times as long.
// Nothing is prefetched past the last frame.
__device__ __forceinline__ void prefetch_frame(
    const Logprobs& logprobs, u32 frame, u32 num_tokens) {
    if (frame >= logprobs.num_frames) return;
    const u32 type = LOGPROB_TYPE == MIXED ? logprobs.type : LOGPROB_TYPE;
    const u32 size = type == FLOAT32 ? sizeof(float) : sizeof(u16);
    const u64 row = static_cast<u64>(frame) * logprobs.frame_stride * size;
    const u64 begin = reinterpret_cast<u64>(logprobs.address) + row;
    const u64 end = begin + num_tokens * size;
    u64 line = begin / LINE_BYTES * LINE_BYTES + threadIdx.x * LINE_BYTES;
    for (; line < end; line += blockDim.x * LINE_BYTES)
        prefetch_l2(reinterpret_cast<const void*>(line < begin ? begin : line));
}

// Check a frame, in parallel, for numbers that are not log-probs: NaN, +inf, or
// absurdly large.
__device__ __forceinline__ void check_frame(
    Logprobs& logprobs, u32 frame, u32 num_tokens, u32 thread, u32 num_threads) {
    const u64 row = static_cast<u64>(frame) * logprobs.frame_stride;
    for (u32 k = thread; k < num_tokens; k += num_threads)
        if (!(unchecked_logprob(logprobs, row + k) <= MAX_LOGPROB))
            atomicMin(&logprobs.bad_frame, frame);
}

// The same for all frames from `first` on, a warp each.
__device__ inline void check_frames(Logprobs& logprobs, u32 first, u32 num_tokens) {
    const u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    for (u32 frame = first + warp; frame < logprobs.num_frames;
         frame += blockDim.x / WARP)
        check_frame(logprobs, frame, num_tokens, lane, WARP);
}
