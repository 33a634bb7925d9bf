// How long the phases of a search take: one thread of a block reads the clock between
// them. In builds with TIMES only; in others nothing of this is left.
#pragma once
#include "block.cuh"

#ifndef CUDA_EMULATION
// A clock that does not change its speed. (The emulation has its own.)
__device__ __forceinline__ u64 nanoseconds() {
    u64 ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns) : : "memory");
    return ns;
}
#endif

#ifdef TIMES
// Sums of cycles, in shared memory.
template <u32 NUM_PHASES>
struct PhaseClock {
    u64 sums[NUM_PHASES], since, began, began_ns;

    __device__ void start() {
        if (threadIdx.x != 0) return;
        for (u32 phase = 0; phase < NUM_PHASES; ++phase) sums[phase] = 0;
        began_ns = nanoseconds();
        began = since = clock64();
    }

    // What has passed since the last call was this phase's.
    __device__ void end(u32 phase) {
        if (threadIdx.x != 0) return;
        const u64 now = clock64();
        sums[phase] += now - since;
        since = now;
    }

    // Hand the sums over, and what both clocks say of the whole: the multiprocessor's
    // may run at another speed in every launch. [blocks, NUM_PHASES + 2]
    __device__ void write(u64* times) const {
        if (threadIdx.x != 0) return;
        u64* of_block = times + blockIdx.x * (NUM_PHASES + 2);
        for (u32 phase = 0; phase < NUM_PHASES; ++phase)
            of_block[phase] = sums[phase];
        of_block[NUM_PHASES] = clock64() - began;
        of_block[NUM_PHASES + 1] = nanoseconds() - began_ns;
    }
};
#else
template <u32 NUM_PHASES>
struct PhaseClock {
    __device__ void start() const {}
    __device__ void end(u32) const {}
    __device__ void write(u64*) const {}
};
#endif
