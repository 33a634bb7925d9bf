// How long the phases of a search take: one thread of a block reads the clock between
// them. In builds with TIMES only; in others nothing of this is left.
#pragma once
#include "block.cuh"

#ifdef TIMES
// Sums of cycles, in shared memory.
template <u32 NUM_PHASES>
struct PhaseClock {
    u64 sums[NUM_PHASES], since;

    __device__ void start() {
        if (threadIdx.x != 0) return;
        for (u32 phase = 0; phase < NUM_PHASES; ++phase) sums[phase] = 0;
        since = clock64();
    }

    // What has passed since the last call was this phase's.
    __device__ void end(u32 phase) {
        if (threadIdx.x != 0) return;
        const u64 now = clock64();
        sums[phase] += now - since;
        since = now;
    }

    // Hand the sums over: [blocks, NUM_PHASES].
    __device__ void write(u64* times) const {
        if (threadIdx.x != 0) return;
        for (u32 phase = 0; phase < NUM_PHASES; ++phase)
            times[blockIdx.x * NUM_PHASES + phase] = sums[phase];
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
