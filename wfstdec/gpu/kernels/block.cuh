// Collective operations of a block's threads: prefix sums and loops over arcs.
#pragma once
#include "types.cuh"

constexpr u32 WARP = 32;
constexpr u32 MAX_THREADS = 512;
constexpr u32 BLOCKS_PER_SM = 2;  // of MAX_THREADS: leaves 64 registers a thread
constexpr u32 WHOLE_WARP = 0xffffffffu;
constexpr u32 DIGITS = 256;  // of a radix select

#ifndef CUDA_EMULATION
// Read a word that other threads of the block may be changing by atomics. (The
// emulation has its own version: the thread sanitizer must accept this race.)
__device__ __forceinline__ u32 peek(const u32* word) {
    u32 value;
    asm volatile("ld.relaxed.cta.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}
__device__ __forceinline__ u64 peek(const u64* word) {
    u64 value;
    asm volatile("ld.relaxed.cta.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
}

// Prefetch a line of global memory into L2, without waiting. (Likewise.)
__device__ __forceinline__ void prefetch_l2(const void* at) {
    asm volatile("prefetch.global.L2 [%0];" : : "l"(at));
}

// Mark a pointer as one to global memory, which the compiler cannot derive for
// pointers stored in shared memory. (The emulation has its own version.)
template <class T>
__device__ __forceinline__ T* in_global(T* pointer) {
    __builtin_assume(__isGlobal(pointer));
    return pointer;
}

// Read from an array that nothing writes while the kernel runs. (Likewise.)
__device__ __forceinline__ u32 read_only(const u32* at) { return __ldg(at); }
__device__ __forceinline__ u16 read_only(const u16* at) { return __ldg(at); }
__device__ __forceinline__ float read_only(const float* at) { return __ldg(at); }
template <class Record>
__device__ __forceinline__ Record read_only(const Record* at) {
    static_assert(sizeof(Record) == sizeof(uint4) && alignof(Record) == 16, "");
    const uint4 words = __ldg(reinterpret_cast<const uint4*>(at));
    Record record;
    memcpy(&record, &words, sizeof(Record));
    return record;
}

// Shared memory whose size is given at launch. (Likewise.)
#define DYNAMIC_SHARED(type, name) extern __shared__ type name[]
#endif

// Shared memory for the functions below and for `select.cuh`.
struct BlockMemory {
    u32 warp_sums[MAX_THREADS / WARP];
    u32 offsets[MAX_THREADS];  // of the arcs of each source of a tile
    u32 firsts[MAX_THREADS];   // the first arc of each
    u32 bins[DIGITS];
    u32 digit, bin_count, remaining;
};

// The sum of `value` over the threads of the warp up to and with this one.
__device__ __forceinline__ u32 inclusive_warp_sum(u32 value) {
    for (u32 step = 1; step < WARP; step <<= 1) {
        const u32 other = __shfl_up_sync(WHOLE_WARP, value, step);
        value += threadIdx.x % WARP >= step ? other : 0;
    }
    return value;
}

// The sum of `value` over the threads of the block before this one; `total` becomes
// the sum over all. A barrier has to lie between two calls.
__device__ inline u32 exclusive_sum(BlockMemory& memory, u32 value, u32& total) {
    const u32 warp = threadIdx.x / WARP;
    const u32 inclusive = inclusive_warp_sum(value);
    if (threadIdx.x % WARP == WARP - 1) memory.warp_sums[warp] = inclusive;
    __syncthreads();
    u32 before = inclusive - value;
    total = 0;
    for (u32 w = 0; w < blockDim.x / WARP; ++w) {
        before += w < warp ? memory.warp_sums[w] : 0;
        total += memory.warp_sums[w];
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
        const u32 before = exclusive_sum(memory, arcs.end - arcs.begin, total);
        memory.offsets[threadIdx.x] = before;
        memory.firsts[threadIdx.x] = arcs.begin;
        __syncthreads();
        for (u32 k = threadIdx.x; k < total; k += blockDim.x) {
            u32 at = 0;  // the last source whose offset is at most k
            for (u32 step = MAX_THREADS / 2; step > 0; step >>= 1) {
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
