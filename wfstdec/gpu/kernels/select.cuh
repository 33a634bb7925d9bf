// Exact selection by a block: the n-th least of keys in any order, most significant
// digit first.
#pragma once
#include "block.cuh"

constexpr u64 NO_KEY = ~0ull;  // of items to ignore; no key of a finite cost

// The first warp selects the digit whose bin has the `remaining`-th least key.
__device__ inline void find_digit(BlockMemory& memory) {
    constexpr u32 EACH = DIGITS / WARP;
    const u32* bins = memory.bins + threadIdx.x * EACH;
    u32 mine = 0;
    for (u32 b = 0; b < EACH; ++b) mine += bins[b];
    const u32 wanted = memory.remaining;
    u32 before = inclusive_warp_sum(mine) - mine;
    __syncwarp();  // all have read what one is about to change; shuffles order nothing
    if (before >= wanted || before + mine < wanted) return;  // true for one thread
    u32 b = 0;
    while (before + bins[b] < wanted) before += bins[b++];
    memory.digit = threadIdx.x * EACH + b;
    memory.bin_count = bins[b];
    memory.remaining = wanted - before;
}

// Find the next digit of the `remaining`-th least; `digit_at(i)` gives that of item i,
// or NONE if higher digits exclude it.
template <class DigitAt>
__device__ void select_digit(BlockMemory& memory, u32 count, DigitAt digit_at) {
    for (u32 b = threadIdx.x; b < DIGITS; b += blockDim.x) memory.bins[b] = 0;
    __syncthreads();
    for (u32 i = threadIdx.x; i < count; i += blockDim.x) {
        const u32 digit = digit_at(i);
        if (digit != NONE) atomicAdd(&memory.bins[digit], 1u);
    }
    __syncthreads();
    if (threadIdx.x < WARP) find_digit(memory);
    __syncthreads();
}

// The n-th least of the keys `key_at(i)`, i in [0, count), of which at least n,
// 1 <= n, must not be NO_KEY. The upper 32 bits of the result are exact; the lower ones
// may be larger if no other key lies in between. If `memory.remaining` is less than
// `memory.bin_count`, more items than fit have this key.
template <class KeyAt>
__device__ inline u64 nth_least(BlockMemory& memory, u32 count, u32 n, KeyAt key_at) {
    u64 found = 0;
    __syncthreads();  // of a call before, some may still read the result
    if (threadIdx.x == 0) memory.remaining = n;
    for (u32 shift = 56;; shift -= 8) {
        select_digit(memory, count, [&](u32 i) {
            const u64 key = key_at(i);
            const bool same = shift == 56 || (key ^ found) >> (shift + 8) == 0;
            return key != NO_KEY && same ? static_cast<u32>(key >> shift & 255) : NONE;
        });
        found |= static_cast<u64>(memory.digit) << shift;
        const bool all_of_bin = memory.bin_count == memory.remaining;
        if (shift == 0) return found;
        if (shift <= 32 && all_of_bin) return found | ((1ull << shift) - 1);
    }
}
