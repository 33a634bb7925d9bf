// Collective operations of a block's threads: a warp, or four of them.
#pragma once
#include "block.cuh"
#include "keys.cuh"
#include "layout.cuh"

constexpr u32 WARPS = THREADS / WARP;
// The compiler gets the number of threads of other searches' blocks: that leaves 64
// registers to each, without spills. With fewer (10 and 2 blocks fit in shared memory),
// it uses 70 for sm_120. sm_75 holds at most 16 blocks, and a bound beyond that is
// ignored: blocks of one warp count as two.
constexpr u32 TEAM_BOUND = THREADS < 2 * WARP ? 2 * WARP : THREADS;
constexpr u32 TEAMS_PER_SM = BLOCKS_PER_SM * MAX_THREADS / TEAM_BOUND;

// A barrier of the block, or of its only warp.
__device__ __forceinline__ void team_sync() {
#if THREADS == 32
    __syncwarp();
#else
    __syncthreads();
#endif
}

// A token that may begin after an entry, and leads to a node.
struct Pending {
    u32 source, token, node;
    u32 pron;    // the pronunciation that ends before it; NONE: none
    u32 number;  // of its successor among those of the entry by this token
};
constexpr u32 PENDING = 2 * THREADS;

// Shared memory for the functions below, and for tokens that wait.
struct TeamMemory {
    u32 offsets[THREADS];
    u32 warp_sums[WARPS];
    union {        // no token waits while keys are selected
        Pending pending[PENDING];
        u32 bins[DIGITS];
    };
};

// The sum of `value` over the threads before this one; `total` becomes the sum over
// all. Two calls need a barrier in between.
__device__ __forceinline__ u32 sum_before(TeamMemory& memory, u32 value, u32& total) {
    const u32 inclusive = inclusive_warp_sum(value);
    if (WARPS == 1) {
        total = __shfl_sync(WHOLE_WARP, inclusive, WARP - 1);
        return inclusive - value;
    }
    const u32 warp = threadIdx.x / WARP;
    if (threadIdx.x % WARP == WARP - 1) memory.warp_sums[warp] = inclusive;
    team_sync();
    u32 before = inclusive - value;
    total = 0;
    for (u32 w = 0; w < WARPS; ++w) {
        before += w < warp ? memory.warp_sums[w] : 0;
        total += memory.warp_sums[w];
    }
    return before;
}

// Positions after `count` for the threads with something to append: consecutive within
// a warp, warps in any order. All threads of a warp call it.
__device__ __forceinline__ u32 append(u32* count, bool appends) {
    const u32 those = __ballot_sync(WHOLE_WARP, appends);
    if (those == 0) return 0;
    const u32 lane = threadIdx.x % WARP;
    u32 first = lane == 0 ? atomicAdd(count, static_cast<u32>(__popc(those))) : 0;
    first = __shfl_sync(WHOLE_WARP, first, 0);
    return first + __popc(those & ((1u << lane) - 1));
}

// A bin of 256, how many keys are in it and in all before it.
struct Bin {
    u32 digit, count, before;
};

// The bin that the n-th least key is in, by the digits counted in `bins`; its count is 0
// if there are fewer keys. Each warp computes it alone.
__device__ inline Bin bin_of(const u32* bins, u32 n) {
    constexpr u32 EACH = DIGITS / WARP;
    const u32 first = threadIdx.x % WARP * EACH;
    u32 mine = 0;
#ifndef CUDA_EMULATION
#pragma unroll 1  // unrolled, ptxas spills in builds with TIMES
#endif
    for (u32 b = 0; b < EACH; ++b) mine += bins[first + b];
    Bin bin = {first, 0, inclusive_warp_sum(mine) - mine};
    const bool holds = bin.before < n && n <= bin.before + mine;
    const u32 holder = __ballot_sync(WHOLE_WARP, holds);
    if (holder == 0) return {0, 0, 0};
    if (holds)
        while (bin.before + (bin.count = bins[bin.digit]) < n) {
            bin.before += bin.count;
            ++bin.digit;
        }
    const u32 lane = __ffs(holder) - 1;
    return {__shfl_sync(WHOLE_WARP, bin.digit, lane), __shfl_sync(WHOLE_WARP, bin.count, lane),
            __shfl_sync(WHOLE_WARP, bin.before, lane)};
}

// A bound of the n least keys `key_at(i)`, i in [0, count); of other keys only those
// equal to the n-th are within it, or at most as many as make `enough`. Keys above
// `most` are ignored, and it is the bound if n do not remain. Digits of 8 bits are
// counted, from the highest of `most` on: keys that are spread need two rounds. Begins
// and ends with a barrier.
template <class Key, class KeyAt>
__device__ inline Key nth_least_key(
    TeamMemory& memory, u32 count, u32 n, u32 enough, Key most, KeyAt key_at) {
    u32 shift = 0;
    while (most >> shift >= DIGITS) ++shift;
    Key found = 0;
    u32 before = 0;
    while (true) {
        team_sync();
        // (Unrolled by THREADS, ptxas spills.)
        for (u32 b = threadIdx.x; b < DIGITS; b += blockDim.x) memory.bins[b] = 0;
        team_sync();
        for (u32 i = threadIdx.x; i < count; i += THREADS) {
            const Key key = key_at(i);
            const Key digit = (key - found) >> shift;  // large if the key is less
            if (key <= most && digit < DIGITS) atomicAdd(&memory.bins[digit], 1u);
        }
        team_sync();
        const Bin bin = bin_of(memory.bins, n - before);
        if (bin.count == 0) return most;
        found |= static_cast<Key>(bin.digit) << shift;
        before += bin.before;
        if (before + bin.count <= enough || shift == 0) break;
        shift = shift < 8 ? 0 : shift - 8;
    }
    team_sync();
    return found | ((static_cast<Key>(1) << shift) - 1);
}
