// The hash table that recombines: search states to the least (cost, note) and an entry.
#pragma once
#include "block.cuh"

// The scratch of one block.
struct Lane {
    Entry* next;
    u32 *next_slots, *waiting, *landed, *table_states, *table_entries;
    Candidate* candidates;
    u64* table_best;

    __device__ static Lane of(const Task& task, u32 block) {
        const u64 entries = static_cast<u64>(block) * task.entry_capacity;
        const u64 candidates = static_cast<u64>(block) * task.candidate_capacity;
        const u64 slots = static_cast<u64>(block) * task.table_size;
        return {task.next + entries,       task.next_slots + entries,
                task.waiting + entries,    task.landed + candidates,
                task.table_states + slots, task.table_entries + slots,
                task.candidates + candidates, task.table_best + slots};
    }
};

// Counters of the frame that a block is at.
struct Progress {
    u32 made;       // candidates, those that did not fit among them
    u32 count;      // entries of `next`, those that did not fit among them
    u32 waiting;    // entries with epsilon arcs
    u32 next_rank;  // the least rank that waits to be closed
    u32 least;      // the least cost, ordered
    u32 within;
    u32 best;
    u32 overflow;
};

// The integer hash of boost/words.py.
__device__ __forceinline__ u32 mix(u32 key) {
    key ^= key >> 16;
    key *= 0x7feb352du;
    key ^= key >> 15;
    key *= 0x846ca68bu;
    return key ^ (key >> 16);
}

// The bonus of a word: 0 where the utterance's map does not have it.
__device__ inline float find_bonus(const Utterance& utterance, u32 word) {
    if (utterance.boost_keys == nullptr) return 0.0f;
    u32 slot = mix(word) & utterance.boost_mask;
    while (utterance.boost_keys[slot] != word && utterance.boost_keys[slot] != 0)
        slot = (slot + 1) & utterance.boost_mask;
    return utterance.boost_bonuses[slot];
}

struct Table {
    const Task& task;
    const Lane& lane;
    Progress& progress;

    // Empty all slots, whatever an interrupted frame or another launch left there.
    __device__ void clear() const {
        for (u32 slot = threadIdx.x; slot < task.table_size; slot += blockDim.x) {
            lane.table_states[slot] = NONE;
            lane.table_best[slot] = ~0ull;
        }
        __syncthreads();
    }

    // Empty the slots of the first `count` entries.
    __device__ void clear_entries(u32 count) const {
        for (u32 i = threadIdx.x; i < count; i += blockDim.x) {
            lane.table_states[lane.next_slots[i]] = NONE;
            lane.table_best[lane.next_slots[i]] = ~0ull;
        }
        __syncthreads();
    }

    // Add a candidate, or say that there is no room.
    __device__ void append(const Candidate& candidate) const {
        const u32 at = atomicAdd(&progress.made, 1u);
        if (at < task.candidate_capacity)
            lane.candidates[at] = candidate;
        else
            atomicOr(&progress.overflow, 1u);
    }

    // Give candidates within the cutoff to their states: each state keeps the least
    // (cost, note), and that one writes the entry. No order of threads decides.
    __device__ void recombine(float cutoff) const {
        __syncthreads();  // before, some may still read what changes here
        const u32 made = progress.made;
        for (u32 q = threadIdx.x; q < made; q += blockDim.x) {
            const Candidate candidate = lane.candidates[q];
            u32 slot = NONE;
            if (candidate.cost <= cutoff) slot = slot_of(candidate.state);
            lane.landed[q] = slot;
            if (slot == NONE) continue;
            atomicMin(&lane.table_best[slot], key_of(candidate.cost, candidate.note));
        }
        __syncthreads();
        if (progress.overflow) return;
        for (u32 q = threadIdx.x; q < made; q += blockDim.x) {
            const u32 slot = lane.landed[q];
            if (slot == NONE) continue;
            const Candidate candidate = lane.candidates[q];
            const u64 key = key_of(candidate.cost, candidate.note);
            if (lane.table_best[slot] != key) continue;
            lane.next[lane.table_entries[slot]] = {
                candidate.cost, candidate.state, candidate.source, candidate.note};
        }
        __syncthreads();
    }

    // The slot of a state, which gets an entry with it; NONE where there is no room.
    __device__ u32 slot_of(u32 state) const {
        u32 slot = mix(state) & (task.table_size - 1);
        for (u32 probes = 0; probes < task.table_size; ++probes) {
            u32 found = peek(&lane.table_states[slot]);
            if (found == NONE) {
                found = atomicCAS(&lane.table_states[slot], NONE, state);
                if (found == NONE) return add_entry(state, slot) ? slot : NONE;
            }
            if (found == state) return slot;
            slot = (slot + 1) & (task.table_size - 1);
        }
        atomicOr(&progress.overflow, 1u);
        return NONE;
    }

    __device__ bool add_entry(u32 state, u32 slot) const {
        const u32 at = atomicAdd(&progress.count, 1u);
        if (at >= task.entry_capacity) {
            atomicOr(&progress.overflow, 1u);
            return false;
        }
        lane.table_entries[slot] = at;
        lane.next_slots[at] = slot;
        const Row row = task.rows[state];
        if (row.begin < row.emit) {
            lane.waiting[atomicAdd(&progress.waiting, 1u)] = at;
            atomicMin(&progress.next_rank, row.rank);
        }
        return true;
    }
};
