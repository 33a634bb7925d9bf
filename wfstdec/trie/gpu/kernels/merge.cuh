// Merges candidates of one entry: a table of candidates, compared by destination; then
// the least, or the sum, of those into each phase.
#pragma once
#include "ask.cuh"
#include "log_add.cuh"

// The smallest sufficient part of a table, cleared: clearing all of it takes longer.
// Ends with a barrier.
__device__ inline u32 clear_slots(u32* slots, u32 count) {
    u32 num_slots = 2;
    while (num_slots < 2 * count) num_slots <<= 1;
    for (u32 s = threadIdx.x; s < num_slots; s += THREADS) slots[s] = NONE;
    team_sync();
    return num_slots;
}

// The slot of a record's key, if the record may be the first of its key.
template <class Same>
__device__ u32 slot_of(u32* slots, u32 mask, u32 hash, u32 mine, Same same) {
    u32 slot = hash & mask;
    while (true) {
        u32 found = peek(&slots[slot]);
        if (found == NONE) found = atomicCAS(&slots[slot], NONE, mine);
        // Keys were complete before the barrier.
        if (found == NONE || same(found)) return slot;
        slot = (slot + 1) & mask;
    }
}

struct Merge {
    const Task& task;
    const Arrays& arrays;
    Progress& progress;

    __device__ static u32 hash_of_place(const Candidate& candidate) {
        return mix(candidate.state ^ mix(candidate.node ^ mix(candidate.boost)));
    }

    __device__ static u32 hash(const Candidate& candidate) {
        u32 mixed = hash_of_place(candidate);
        mixed ^= static_cast<u32>(candidate.text);
        return mix(mixed ^ static_cast<u32>(candidate.text >> 32));
    }

    __device__ static bool same_place(const Candidate& a, const Candidate& b) {
        return a.state == b.state && a.node == b.node && a.boost == b.boost;
    }

    // Merge the candidates within the cutoff into `entries`, `num_entries` of them.
    __device__ void merge(float cutoff) const {
        const u32 count = progress.num_candidates;
        Candidate* const candidates = arrays.candidates;
        const u32 num_slots = clear_slots(arrays.slots, count);
        for (u32 q = threadIdx.x; q < count; q += THREADS)
            if (candidates[q].cost <= cutoff)
                candidates[q].entry = slot(q, num_slots - 1);
        team_sync();
        // A candidate that took its slot creates the entry; the slot then has its
        // number.
        for (u32 q = threadIdx.x; q < count; q += THREADS) {
            const u32 slot = candidates[q].entry;
            if (slot == NONE || arrays.slots[slot] != q) continue;
            const u32 at = atomicAdd(&progress.num_entries, 1u);
            candidates[q].next = at;
            arrays.entries[at] = {
                ~0ull, ~0ull, infinite(), infinite(), infinite(), NONE, NONE,
                NONE,  NONE,  q};
        }
        team_sync();
        for (u32 q = threadIdx.x; q < count; q += THREADS) {
            const u32 slot = candidates[q].entry;
            if (slot != NONE) enter(q, candidates[arrays.slots[slot]].next);
        }
        team_sync();
        if (task.sums) link(count);
        for (u32 q = threadIdx.x; q < count; q += THREADS) take(q);
        team_sync();
        for (u32 e = threadIdx.x; e < progress.num_entries; e += THREADS) price(e);
        team_sync();
    }

    __device__ u32 slot(u32 q, u32 mask) const {
        const Candidate& mine = arrays.candidates[q];
        return slot_of(arrays.slots, mask, hash(mine), q, [&](u32 other) {
            const Candidate& found = arrays.candidates[other];
            return same_place(mine, found) && mine.text == found.text;
        });
    }

    // The least (cost, order) into the phase of an entry.
    __device__ void enter(u32 q, u32 e) const {
        const Candidate& mine = arrays.candidates[q];
        NewEntry& entry = arrays.entries[e];
        const u64 key = key_of(mine.cost, mine.order);
        const bool nonblank = phase_after(mine.order) == NONBLANK;
        atomicMin(nonblank ? &entry.best_nonblank : &entry.best_blank, key);
    }

    // The entry of a candidate that is within the cutoff.
    __device__ u32 entry_of(u32 q) const {
        return arrays.candidates[arrays.slots[arrays.candidates[q].entry]].next;
    }

    // Lists of all candidates into each phase, in no order.
    __device__ void link(u32 count) const {
        for (u32 q = threadIdx.x; q < count; q += THREADS) {
            if (arrays.candidates[q].entry == NONE) continue;
            NewEntry& entry = arrays.entries[entry_of(q)];
            const bool nonblank =
                phase_after(arrays.candidates[q].order) == NONBLANK;
            u32* list = nonblank ? &entry.nonblank_list : &entry.blank_list;
            arrays.marks[q] = atomicExch(list, q);
        }
        team_sync();
    }

    // Whether a phase continues from a candidate.
    __device__ void take(u32 q) const {
        const Candidate& mine = arrays.candidates[q];
        if (mine.entry == NONE) return;
        NewEntry& entry = arrays.entries[entry_of(q)];
        const u64 key = key_of(mine.cost, mine.order);
        if (phase_after(mine.order) == NONBLANK) {
            if (key == entry.best_nonblank) entry.nonblank_candidate = q;
        } else if (key == entry.best_blank) {
            entry.blank_candidate = q;
        }
    }

    // The costs of an entry.
    __device__ void price(u32 e) const {
        NewEntry& entry = arrays.entries[e];
        if (task.sums) {
            entry.blank_cost = sum_of(entry.blank_list);
            entry.nonblank_cost = sum_of(entry.nonblank_list);
            entry.cost = log_add(entry.blank_cost, entry.nonblank_cost);
        } else {
            if (entry.blank_candidate != NONE)
                entry.blank_cost = cost_of_key(entry.best_blank);
            if (entry.nonblank_candidate != NONE)
                entry.nonblank_cost = cost_of_key(entry.best_nonblank);
            entry.cost = fminf(entry.blank_cost, entry.nonblank_cost);
        }
        atomicMin(&progress.best, ordered(entry.cost));
    }

    // The sum of a list in the order of the specification: each time the next one is
    // searched, as lists are short.
    __device__ float sum_of(u32 list) const {
        float total = infinite();
        u32 done = 0;  // orders below it
        while (true) {
            u32 next = NONE, order = NONE;
            for (u32 q = list; q != NONE; q = arrays.marks[q]) {
                const u32 other = arrays.candidates[q].order;
                if (other >= done && (next == NONE || other < order)) {
                    next = q;
                    order = other;
                }
            }
            if (next == NONE) return total;
            total = log_add(total, arrays.candidates[next].cost);
            done = order + 1;
        }
    }
};
