// Exact pruning of a frontier to its n least states.
#pragma once
#include "keys.cuh"
#include "layout.cuh"
#include "overlay.cuh"
#include "select.cuh"

// The states of a frontier: two for each entry, after a blank and after the token. They
// are kept by cost, then graph state, then boost state.
struct FrontierStates {
    const Task& task;
    const Utterance& utterance;

    __device__ float& cost(u32 i) const {
        Entry& entry = in_global(utterance.frontier)[i / 2];
        return i % 2 ? entry.token : entry.blank;
    }
    __device__ u32 boost(u32 i) const {
        return in_global(utterance.frontier)[i / 2].boost;
    }
    __device__ u32 state(u32 i) const {
        const u32 record = in_global(utterance.frontier)[i / 2].record;
        const States states = states_of(task, utterance, record);
        return i % 2 ? states.after_token : states.after_blank;
    }
    __device__ u64 key(u32 i, float limit) const {
        return cost(i) <= limit ? key_of(cost(i), state(i)) : NO_KEY;
    }
};

// Prune to `max_active` within the beam: what is beyond gets an infinite cost, and the
// frame a beam of its own. To do so again changes nothing.
__device__ inline void keep(
    BlockMemory& memory, const Task& task, Utterance& utterance) {
    const u32 count = 2 * utterance.frontier_count, most = task.max_active;
    if (utterance.within <= most) return;
    const FrontierStates states = {task, utterance};
    const u64 last = nth_least(
        memory, count, most, [&](u32 i) { return states.key(i, task.beam); });
    u32 last_boost = NONE;
    if (memory.bin_count != memory.remaining) {
        // Also among boost states of one graph state and cost.
        last_boost = 0;
        for (u32 shift = 24;; shift -= 8) {
            select_digit(memory, count, [&](u32 i) {
                const u32 boost = states.boost(i);
                if (states.key(i, task.beam) != last) return NONE;
                const bool same =
                    shift == 24 || (boost ^ last_boost) >> (shift + 8) == 0;
                return same ? boost >> shift & 255 : NONE;
            });
            last_boost |= memory.digit << shift;
            if (shift == 0) break;
        }
    }
    for (u32 i = threadIdx.x; i < count; i += blockDim.x) {
        const u64 key = states.key(i, task.beam);
        if (key > last || (key == last && states.boost(i) > last_boost))
            states.cost(i) = infinite();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        utterance.within = most;
        if (task.beam_delta >= 0.0f)
            utterance.beam = fminf(task.beam, cost_of_key(last) + task.beam_delta);
    }
    __syncthreads();
}
