// The order of frontier entries, and exact pruning to the n least of them.
#pragma once
#include "keys.cuh"
#include "layout.cuh"
#include "select.cuh"

// Search states are kept by cost, then graph state, then boost state.
struct Rank {
    u64 key;  // (cost, graph state)
    u32 boost;

    __device__ bool holds(const Entry& entry) const {
        const u64 other = key_of(entry.cost, entry.state);
        return other < key || (other == key && entry.boost <= boost);
    }
};

// The rank of the n-th least entry of a frontier: also among boost states of one graph
// state and cost.
__device__ inline Rank nth_rank(
    BlockMemory& memory, const Entry* entries, u32 count, u32 n, float limit) {
    const u64 key = nth_least(memory, count, n, [&](u32 i) {
        const float cost = entries[i].cost;
        return cost <= limit ? key_of(cost, entries[i].state) : NO_KEY;
    });
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

// The entries that a frame expands: `count` of them, up to the last one, with the
// frame's beam.
struct Kept {
    Rank last;
    u32 count;
    float beam;
};

// Prune by beam and max_active.
__device__ inline Kept keep(
    BlockMemory& memory, const Task& task, const Utterance& utterance) {
    const Entry* frontier = in_global(utterance.frontier);
    const u32 count = utterance.frontier_count, within = utterance.within;
    if (within > task.max_active) {
        const u32 limit = task.max_active;
        const Rank last = nth_rank(memory, frontier, count, limit, task.beam);
        float beam = task.beam;
        if (task.beam_delta >= 0.0f)
            beam = fminf(beam, cost_of_key(last.key) + task.beam_delta);
        return {last, limit, beam};
    }
    return {{key_of(task.beam, NONE), NONE}, within, task.beam};
}
