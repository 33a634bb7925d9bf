// The hash table that recombines: search states to the least (cost, note) and an entry.
#pragma once
#include "block.cuh"

constexpr u64 EMPTY = ~0ull;

// A search state: (graph state, boost state), the latter 0 without phrases.
__device__ __forceinline__ u64 search_state(u32 state, u32 boost) {
    return static_cast<u64>(state) << 32 | boost;
}

// The slots of a table, and how many entries it may have.
struct Slots {
    u64 *keys, *best;
    u32 *entries, size, most;
    bool shared;  // in shared memory
};

// The scratch of one block.
struct Lane {
    NewEntry* next;
    u32 *next_slots, *ties, *waiting, *boosts, *landed;
    Candidate* candidates;
    Slots slots;

    __device__ static Lane of(const Task& task, u32 block) {
        const u64 entries = static_cast<u64>(block) * task.entry_capacity;
        const u64 candidates = static_cast<u64>(block) * task.candidate_capacity;
        const u64 slots = static_cast<u64>(block) * task.table_size;
        return {task.next + entries,
                task.next_slots + entries,
                task.ties + entries,
                task.waiting + entries,
                task.boosts + candidates,
                task.landed + candidates,
                task.candidates + candidates,
                {task.table_keys + slots, task.table_best + slots,
                 task.table_entries + slots, task.table_size, task.entry_capacity,
                 false}};
    }
};

// The table in shared memory; half full at most, as the other one.
__device__ inline Slots shared_slots(u64* memory, u32 size, u32 entry_capacity) {
    u64* best = memory + size;
    const u32 most = size / 2 < entry_capacity ? size / 2 : entry_capacity;
    return {memory, best, reinterpret_cast<u32*>(best + size), size, most, true};
}

constexpr u32 NO_ROOM = 1, NO_SLOTS = 2;  // what `Progress.overflow` may have

// Counters of the frame that a block is at.
struct Progress {
    u32 made;       // candidates, those that did not fit among them
    u32 count;      // entries of `next`, those that did not fit among them
    u32 waiting;    // entries with epsilon arcs
    u32 next_rank;  // the least rank that waits to be closed
    u32 least;      // the least cost, ordered
    u32 within;
    u32 best;
    u32 overflow;  // NO_ROOM, NO_SLOTS
    u32 active, emitted, looked;  // as `Utterance` sums them up
    u32 unbounded;  // entries where min_active took the bound off; 0 where it did not
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
    const Slots& slots;  // of the table in use
    Progress& progress;
    const Utterance& utterance;

    // Empty all slots, whatever an interrupted frame or another launch left there.
    __device__ void clear() const {
        for (u32 slot = threadIdx.x; slot < slots.size; slot += blockDim.x) {
            slots.keys[slot] = EMPTY;
            slots.best[slot] = ~0ull;
        }
        __syncthreads();
    }

    // Empty the slots of the first `count` entries.
    __device__ void clear_entries(u32 count) const {
        for (u32 i = threadIdx.x; i < count; i += blockDim.x) {
            slots.keys[lane.next_slots[i]] = EMPTY;
            slots.best[lane.next_slots[i]] = ~0ull;
        }
        __syncthreads();
    }

    // The boost state of an entry of `next`.
    __device__ u32 boost_of(u32 entry) const {
        return static_cast<u32>(peek(&slots.keys[lane.next_slots[entry]]));
    }

    // Add a candidate, or say that there is no room.
    __device__ void append(const Candidate& candidate, u32 boost) const {
        const u32 at = atomicAdd(&progress.made, 1u);
        if (at < task.candidate_capacity) {
            lane.candidates[at] = candidate;
            if (utterance.phrases != nullptr) lane.boosts[at] = boost;
        } else {
            atomicOr(&progress.overflow, NO_ROOM);
        }
    }

    // Give candidates within the cutoff to their search states: each keeps the least
    // (cost, note, source boost state), and that one writes the entry. No order of
    // threads decides. Whoever calls this has to have passed a barrier since.
    __device__ void recombine(float cutoff) const {
        const bool phrases = utterance.phrases != nullptr;
        // `progress.overflow` is not looked at: others may have come further.
        const u32 most = task.candidate_capacity;
        const u32 made = progress.made < most ? progress.made : most;
        for (u32 q = threadIdx.x; q < made; q += blockDim.x) {
            const Candidate candidate = lane.candidates[q];
            u32 slot = NONE;
            if (candidate.cost <= cutoff) {
                const u32 boost = phrases ? lane.boosts[q] : 0;
                slot = slot_of(candidate.state, boost);
            }
            lane.landed[q] = slot;
            if (slot == NONE) continue;
            atomicMin(&slots.best[slot], key_of(candidate.cost, candidate.note));
        }
        __syncthreads();
        if (progress.overflow) return;
        if (phrases) break_ties(made);
        for (u32 q = threadIdx.x; q < made; q += blockDim.x) {
            if (!is_least(q)) continue;
            const Candidate candidate = lane.candidates[q];
            const u32 at = slots.entries[lane.landed[q]];
            if (phrases && lane.ties[at] != source_boost(candidate)) continue;
            lane.next[at] = {
                candidate.cost, candidate.state, candidate.source, candidate.note};
        }
        __syncthreads();
    }

    // Whether no candidate has come to the same search state at a lower (cost, note).
    __device__ bool is_least(u32 q) const {
        const u32 slot = lane.landed[q];
        if (slot == NONE) return false;
        const Candidate candidate = lane.candidates[q];
        return slots.best[slot] == key_of(candidate.cost, candidate.note);
    }

    // Among candidates of equal (cost, note), find the least boost state of a source:
    // they take one arc, from one graph state in several boost states.
    __device__ void break_ties(u32 made) const {
        for (u32 q = threadIdx.x; q < made; q += blockDim.x)
            if (is_least(q)) atomicExch(tie_of(q), NONE);
        __syncthreads();
        for (u32 q = threadIdx.x; q < made; q += blockDim.x)
            if (is_least(q)) atomicMin(tie_of(q), source_boost(lane.candidates[q]));
        __syncthreads();
    }

    __device__ u32* tie_of(u32 q) const {
        return &lane.ties[slots.entries[lane.landed[q]]];
    }

    __device__ u32 source_boost(const Candidate& candidate) const {
        if (candidate.note & EPSILON_NOTE) return boost_of(candidate.source);
        return utterance.frontier[candidate.source].boost;
    }

    // The slot of a search state, which gets an entry with it; NONE where there is no
    // room.
    __device__ u32 slot_of(u32 state, u32 boost) const {
        const u64 key = search_state(state, boost);
        u32 slot = mix(state ^ mix(boost)) & (slots.size - 1);
        for (u32 probes = 0; probes < slots.size; ++probes) {
            u64 found = peek(&slots.keys[slot]);
            if (found == EMPTY) {
                found = atomicCAS(&slots.keys[slot], EMPTY, key);
                if (found == EMPTY) return add_entry(state, slot) ? slot : NONE;
            }
            if (found == key) return slot;
            slot = (slot + 1) & (slots.size - 1);
        }
        atomicOr(&progress.overflow, no_entry());
        return NONE;
    }

    __device__ bool add_entry(u32 state, u32 slot) const {
        const u32 at = atomicAdd(&progress.count, 1u);
        if (at >= slots.most) {
            atomicOr(&progress.overflow, no_entry());
            return false;
        }
        slots.entries[slot] = at;
        lane.next_slots[at] = slot;
        const Row row = task.rows[state];
        if (row.begin < row.emit) {
            lane.waiting[atomicAdd(&progress.waiting, 1u)] = at;
            atomicMin(&progress.next_rank, row.rank);
        }
        return true;
    }

    // What is too small where an entry finds no place.
    __device__ u32 no_entry() const {
        return slots.most < task.entry_capacity ? NO_SLOTS : NO_ROOM;
    }
};
