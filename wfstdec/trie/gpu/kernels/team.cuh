// What the threads of a block do together: a warp, or four of them.
#pragma once
#include "block.cuh"
#include "keys.cuh"
#include "layout.cuh"

constexpr u32 WARPS = THREADS / WARP;
// The compiler is told of as many threads as the blocks of other searches have: that leaves
// 64 registers to each, of which it need not spill any. Told that fewer come (10 and 2 blocks
// have room in shared memory), it takes 70 for sm_120. sm_75 holds 16 blocks at most, and a
// bound beyond that is ignored: blocks of one warp are told of as two.
constexpr u32 TEAM_BOUND = THREADS < 2 * WARP ? 2 * WARP : THREADS;
constexpr u32 TEAMS_PER_SM = BLOCKS_PER_SM * MAX_THREADS / TEAM_BOUND;

// A barrier of the block: of its only warp where it has one.
__device__ __forceinline__ void team_sync() {
#if THREADS == 32
    __syncwarp();
#else
    __syncthreads();
#endif
}

// Shared memory for the functions below.
struct TeamMemory {
    u32 offsets[THREADS];
    u32 warp_sums[WARPS];
};

// The sum of `value` over the threads before this one; `total` becomes the sum over
// all. A barrier has to lie between two calls.
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

// The n-th least of the keys `key_at(i)`, i in [0, count), 1 <= n <= count: found bit by
// bit, the highest first. Begins and ends with a barrier.
template <class KeyAt>
__device__ inline u64 nth_least_key(
    TeamMemory& memory, u32 count, u32 n, KeyAt key_at, u32 top = 63) {
    u64 found = 0;
    for (u64 bit = 1ull << top; bit > 0; bit >>= 1) {
        u32 below = 0, total;
        for (u32 i = threadIdx.x; i < count; i += THREADS)
            below += key_at(i) < (found | bit);
        team_sync();
        sum_before(memory, below, total);
        if (total < n) found |= bit;
    }
    team_sync();
    return found;
}
