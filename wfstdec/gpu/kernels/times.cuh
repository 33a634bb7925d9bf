// Times of a search's phases: one thread of a block reads the clock between them. In
// builds with TIMES only; others have no code for it.
#pragma once
#include "block.cuh"

#ifndef CUDA_EMULATION
// A clock of constant frequency. (The emulation has its own version.)
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

    // The time since the last call belongs to this phase.
    __device__ void end(u32 phase) {
        if (threadIdx.x != 0) return;
        const u64 now = clock64();
        sums[phase] += now - since;
        since = now;
    }

    // Write the sums, and the total by both clocks: the multiprocessor's may run at
    // another speed in every launch. [blocks, NUM_PHASES + 2]
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
