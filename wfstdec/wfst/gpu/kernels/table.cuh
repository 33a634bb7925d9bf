// The hash table that recombines: search states to the least (cost, arc key) and an
// entry.
#pragma once
#include "block.cuh"
#include "keys.cuh"
#include "layout.cuh"
#include "overlay.cuh"

constexpr u64 EMPTY = ~0ull;

// A search state: (graph state, boost state), the latter 0 without phrases.
__device__ __forceinline__ u64 search_state(u32 state, u32 boost) {
    return static_cast<u64>(state) << 32 | boost;
}

// The slots of a table, and how many entries it may have.
struct Slots {
    u64 *keys, *best;
    u32 *entries, size, max_entries;
    bool shared;  // in shared memory
};

// The scratch of this block: its parts of the arrays of all blocks.
struct BlockScratch {
    const Task& task;

    __device__ NewEntry* new_entries() const { return task.new_entries + entries(); }
    __device__ u32* entry_slots() const { return task.entry_slots + entries(); }
    __device__ u32* tie_breaks() const { return task.tie_breaks + entries(); }
    __device__ u32* epsilon_entries() const { return task.epsilon_entries + entries(); }
    __device__ Candidate* candidates() const {
        return task.candidates + before(task.candidate_capacity);
    }
    __device__ u32* candidate_boosts() const {
        return task.candidate_boosts + before(task.candidate_capacity);
    }
    __device__ u32* candidate_slots() const {
        return task.candidate_slots + before(task.candidate_capacity);
    }
    __device__ Slots slots() const {
        const u64 first = before(task.table_slots);
        return {task.table_keys + first, task.table_best + first,
                task.table_entries + first, task.table_slots, task.entry_capacity,
                false};
    }
    __device__ u64 entries() const { return before(task.entry_capacity); }
    __device__ static u64 before(u32 each) {
        return static_cast<u64>(blockIdx.x) * each;
    }
};

// The table in shared memory; at most half full, as the one in global memory is.
__device__ inline Slots shared_slots(u64* memory, u32 size, u32 entry_capacity) {
    u64* best = memory + size;
    const u32 max_entries = size / 2 < entry_capacity ? size / 2 : entry_capacity;
    u32* entries = reinterpret_cast<u32*>(best + size);
    return {memory, best, entries, size, max_entries, true};
}

constexpr u32 NO_ROOM = 1, NO_SLOTS = 2;  // values of `Progress.overflow`

// Counters of the block's current frame.
struct Progress {
    u32 num_candidates;  // those that did not fit included
    u32 num_entries;     // of `new_entries`, those that did not fit included
    u32 num_epsilon;     // entries with epsilon arcs
    u32 next_rank;       // the least epsilon rank that is still to be closed
    u32 least;           // the least cost, ordered
    u32 within, best;    // as in `Utterance`
    u32 overflow;        // NO_ROOM, NO_SLOTS
    u32 active, arcs, looked;  // summed in `Utterance`
    u32 num_links;  // those of the frame and those that did not fit included
};

struct Table {
    const Task& task;
    const BlockScratch scratch;
    const Slots& slots;  // of the table in use
    Progress& progress;
    const Utterance& utterance;

    // Empty all slots: a frame that was interrupted, or another launch, may have left
    // something there.
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
            slots.keys[scratch.entry_slots()[i]] = EMPTY;
            slots.best[scratch.entry_slots()[i]] = ~0ull;
        }
        __syncthreads();
    }

    // The boost state of a new entry.
    __device__ u32 boost_of(u32 entry) const {
        return static_cast<u32>(peek(&slots.keys[scratch.entry_slots()[entry]]));
    }

    // Add a candidate, or set the overflow.
    __device__ void append(const Candidate& candidate, u32 boost) const {
        const u32 at = atomicAdd(&progress.num_candidates, 1u);
        if (at < task.candidate_capacity) {
            scratch.candidates()[at] = candidate;
            if (has_phrases(utterance)) scratch.candidate_boosts()[at] = boost;
        } else {
            atomicOr(&progress.overflow, NO_ROOM);
        }
    }

    // Assign candidates within the cutoff to their search states: each keeps the least
    // (cost, arc key, source boost state), and that one writes the entry, for any order
    // of threads. Requires a barrier after the last `append`.
    __device__ void recombine(float cutoff) const {
        const bool phrases = has_phrases(utterance);
        // `progress.overflow` is not read: threads that are ahead may set it.
        const u32 most = task.candidate_capacity, all = progress.num_candidates;
        const u32 count = all < most ? all : most;
        for (u32 q = threadIdx.x; q < count; q += blockDim.x) {
            const Candidate candidate = scratch.candidates()[q];
            u32 slot = NONE;
            if (candidate.cost <= cutoff) {
                const u32 boost = phrases ? scratch.candidate_boosts()[q] : 0;
                slot = slot_of(candidate.state, boost);
            }
            scratch.candidate_slots()[q] = slot;
            if (slot == NONE) continue;
            atomicMin(&slots.best[slot], key_of(candidate.cost, candidate.arc_key));
        }
        __syncthreads();
        if (progress.overflow) return;
        if (phrases) break_ties(count);
        for (u32 q = threadIdx.x; q < count; q += blockDim.x) {
            if (!is_least(q)) continue;
            const Candidate candidate = scratch.candidates()[q];
            const u32 at = slots.entries[scratch.candidate_slots()[q]];
            if (phrases && scratch.tie_breaks()[at] != source_boost(candidate))
                continue;
            scratch.new_entries()[at] = {
                candidate.cost, candidate.state, candidate.source, candidate.arc_key};
        }
        __syncthreads();
    }

    // Whether no other candidate reaches the same search state at a lower (cost, arc
    // key).
    __device__ bool is_least(u32 q) const {
        const u32 slot = scratch.candidate_slots()[q];
        if (slot == NONE) return false;
        const Candidate candidate = scratch.candidates()[q];
        return slots.best[slot] == key_of(candidate.cost, candidate.arc_key);
    }

    // Among candidates of equal (cost, arc key), find the least boost state of a
    // source: they take one arc, from one graph state in several boost states.
    __device__ void break_ties(u32 count) const {
        for (u32 q = threadIdx.x; q < count; q += blockDim.x)
            if (is_least(q)) atomicExch(tie_of(q), NONE);
        __syncthreads();
        for (u32 q = threadIdx.x; q < count; q += blockDim.x)
            if (is_least(q))
                atomicMin(tie_of(q), source_boost(scratch.candidates()[q]));
        __syncthreads();
    }

    __device__ u32* tie_of(u32 q) const {
        return &scratch.tie_breaks()[slots.entries[scratch.candidate_slots()[q]]];
    }

    __device__ u32 source_boost(const Candidate& candidate) const {
        if (candidate.arc_key & EPSILON_ARC) return boost_of(candidate.source);
        return in_global(utterance.frontier)[candidate.source].boost;
    }

    // The slot of a search state, with an entry, both created if missing; NONE without
    // room. A frame that overflowed is lost, and its table may be full: it is not
    // searched.
    __device__ u32 slot_of(u32 state, u32 boost) const {
        const u64 key = search_state(state, boost);
        u32 slot = __umulhi(mix(state ^ mix(boost)), slots.size);
        while (!peek(&progress.overflow)) {
            u64 found = peek(&slots.keys[slot]);
            if (found == EMPTY) {
                found = atomicCAS(&slots.keys[slot], EMPTY, key);
                if (found == EMPTY) return add_entry(state, slot) ? slot : NONE;
            }
            if (found == key) return slot;
            slot = slot + 1 < slots.size ? slot + 1 : 0;
        }
        return NONE;
    }

    __device__ bool add_entry(u32 state, u32 slot) const {
        const u32 at = atomicAdd(&progress.num_entries, 1u);
        if (at >= slots.max_entries) {
            atomicOr(&progress.overflow, no_entry());
            return false;
        }
        slots.entries[slot] = at;
        scratch.entry_slots()[at] = slot;
        const StateArcs arcs = arcs_of_state(task, utterance, state);
        if (arcs.begin < arcs.emit) {
            scratch.epsilon_entries()[atomicAdd(&progress.num_epsilon, 1u)] = at;
            atomicMin(&progress.next_rank, arcs.rank);
        }
        return true;
    }

    // The array that is too small for an entry.
    __device__ u32 no_entry() const {
        return slots.max_entries < task.entry_capacity ? NO_SLOTS : NO_ROOM;
    }
};
