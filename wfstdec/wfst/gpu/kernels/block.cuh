// What the threads of a block do together: sums, loops over arcs, exact selection.
#pragma once
#include "layout.cuh"

constexpr u32 WARP = 32;
constexpr u32 MOST_THREADS = 512;
constexpr u32 BLOCKS_AT_HOME = 2;  // in a multiprocessor: leaves 64 registers a thread
constexpr u32 WHOLE_WARP = 0xffffffffu;
constexpr u32 DIGITS = 256;

#ifndef CUDA_EMULATION
// Read a word that other threads may be changing by atomics. (The emulation has its
// own, so that the thread sanitizer knows that this is meant.)
template <class T>
__device__ __forceinline__ T peek(const T* word) {
    return *static_cast<const volatile T*>(word);
}

// Shared memory whose size the launch says. (The emulation has its own.)
#define DYNAMIC_SHARED(type, name) extern __shared__ type name[]
#endif

struct BlockMemory {
    u32 sums[MOST_THREADS / WARP];
    u32 offsets[MOST_THREADS];  // of the arcs of each source of a tile
    u32 firsts[MOST_THREADS];
    u32 bins[DIGITS];
    u32 digit, bin_count, remaining;
};

// (NVRTC has no constant for it.)
__device__ __forceinline__ float infinite() { return __uint_as_float(0x7f800000u); }

// Floats as integers of the same order. (-0.0 would differ from 0.0; none arises.)
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

// The sum of `value` over the threads of the warp up to this one.
__device__ __forceinline__ u32 warp_sum_to_here(u32 value) {
    for (u32 step = 1; step < WARP; step <<= 1) {
        const u32 other = __shfl_up_sync(WHOLE_WARP, value, step);
        value += threadIdx.x % WARP >= step ? other : 0;
    }
    return value;
}

// The sum of `value` over the threads of the block before this one, and over all.
// Whoever calls this again has to pass a barrier first.
__device__ inline u32 sum_before(BlockMemory& memory, u32 value, u32& total) {
    const u32 warp = threadIdx.x / WARP;
    const u32 to_here = warp_sum_to_here(value);
    if (threadIdx.x % WARP == WARP - 1) memory.sums[warp] = to_here;
    __syncthreads();
    u32 before = to_here - value;
    total = 0;
    for (u32 w = 0; w < blockDim.x / WARP; ++w) {
        before += w < warp ? memory.sums[w] : 0;
        total += memory.sums[w];
    }
    return before;
}

struct Range {
    u32 begin, end;
};

// Calls `visit(source, arc)` for the arcs `range(source)` of every source in
// [0, count), a thread per arc: the root of a lexicon has thousands of arcs, most
// states have two. Ends with a barrier; returns the number of arcs.
template <class RangeOf, class Visit>
__device__ u32 for_each_arc(
    BlockMemory& memory, u32 count, RangeOf range, Visit visit) {
    u32 visited = 0;
    for (u32 first = 0; first < count; first += blockDim.x) {
        const u32 mine = first + threadIdx.x;
        const Range arcs = mine < count ? range(mine) : Range{0, 0};
        u32 total;
        const u32 before = sum_before(memory, arcs.end - arcs.begin, total);
        memory.offsets[threadIdx.x] = before;
        memory.firsts[threadIdx.x] = arcs.begin;
        __syncthreads();
        for (u32 k = threadIdx.x; k < total; k += blockDim.x) {
            u32 at = 0;  // the last source whose offset is at most k
            for (u32 step = MOST_THREADS / 2; step > 0; step >>= 1) {
                const u32 further = at + step;
                if (further < blockDim.x && memory.offsets[further] <= k) at = further;
            }
            visit(first + at, memory.firsts[at] + (k - memory.offsets[at]));
        }
        visited += total;
        __syncthreads();
    }
    return visited;
}

// The first warp finds the digit in whose bin the `remaining`-th least key is.
__device__ inline void find_digit(BlockMemory& memory) {
    constexpr u32 EACH = DIGITS / WARP;
    const u32* bins = memory.bins + threadIdx.x * EACH;
    u32 mine = 0;
    for (u32 b = 0; b < EACH; ++b) mine += bins[b];
    const u32 wanted = memory.remaining;
    u32 before = warp_sum_to_here(mine) - mine;
    __syncwarp();  // all have read what one is about to change; shuffles order nothing
    if (before >= wanted || before + mine < wanted) return;  // true for one thread
    u32 b = 0;
    while (before + bins[b] < wanted) before += bins[b++];
    memory.digit = threadIdx.x * EACH + b;
    memory.bin_count = bins[b];
    memory.remaining = wanted - before;
}

// What search states are kept by: cost, then graph state, then boost state.
struct Rank {
    u64 key;  // (cost, graph state)
    u32 boost;

    __device__ bool holds(const Entry& entry) const {
        const u64 other = key_of(entry.cost, entry.state);
        return other < key || (other == key && entry.boost <= boost);
    }
};

// Find the next digit of the `remaining`-th least; `digit_of` gives that of an entry,
// or NONE where those before tell that it is not the one.
template <class DigitOf>
__device__ void select_digit(BlockMemory& memory, u32 count, DigitOf digit_of) {
    for (u32 b = threadIdx.x; b < DIGITS; b += blockDim.x) memory.bins[b] = 0;
    __syncthreads();
    for (u32 i = threadIdx.x; i < count; i += blockDim.x) {
        const u32 digit = digit_of(i);
        if (digit != NONE) atomicAdd(&memory.bins[digit], 1u);
    }
    __syncthreads();
    if (threadIdx.x < WARP) find_digit(memory);
    __syncthreads();
}

// The key (cost, state) of the n-th least entry, 1 <= n <= the number of entries that
// cost at most `limit`; a radix select, most significant digit first. The cost of the
// result is exact; its state may be larger where no other entry lies between. Where
// `memory.remaining` is less than `memory.bin_count`, more entries have the key.
template <class AnyEntry>
__device__ inline u64 nth_least(
    BlockMemory& memory, const AnyEntry* entries, u32 count, u32 n, float limit) {
    u64 found = 0;
    __syncthreads();  // of a call before, some may still read the result
    if (threadIdx.x == 0) memory.remaining = n;
    for (u32 shift = 56;; shift -= 8) {
        select_digit(memory, count, [&](u32 i) {
            const float cost = entries[i].cost;
            const u64 key = key_of(cost, entries[i].state);
            const bool same = shift == 56 || (key ^ found) >> (shift + 8) == 0;
            return cost <= limit && same ? static_cast<u32>(key >> shift & 255) : NONE;
        });
        found |= static_cast<u64>(memory.digit) << shift;
        const bool all_of_bin = memory.bin_count == memory.remaining;
        if (shift == 0) return found;
        if (shift <= 32 && all_of_bin) return found | ((1ull << shift) - 1);
    }
}

// The rank of the n-th least entry of a frontier, as above.
__device__ inline Rank nth_rank(
    BlockMemory& memory, const Entry* entries, u32 count, u32 n, float limit) {
    const u64 key = nth_least(memory, entries, count, n, limit);
    if (memory.bin_count == memory.remaining) return {key, NONE};
    u32 found = 0;
    for (u32 shift = 24;; shift -= 8) {
        select_digit(memory, count, [&](u32 i) {
            const u32 boost = entries[i].boost;
            if (key_of(entries[i].cost, entries[i].state) != key) return NONE;
            const bool same = shift == 24 || (boost ^ found) >> (shift + 8) == 0;
            return same ? boost >> shift & 255 : NONE;
        });
        found |= memory.digit << shift;
        if (shift == 0) return {key, found};
    }
}
