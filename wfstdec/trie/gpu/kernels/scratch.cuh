// Arrays of a block for the current frame: in shared memory if a frame fits there, else
// in global memory.
#pragma once
#include "team.cuh"

struct Arrays {
    Entry* frontier;  // [entry_capacity], in order: an entry's position is its rank
    Entry* next;      // [entry_capacity], the next frontier
    Candidate* candidates;  // [candidate_capacity]
    NewEntry* entries;      // [candidate_capacity]
    u32* slots;             // [2 candidate_capacity]
    u32* ranks;             // [candidate_capacity]
    u32* marks;             // [candidate_capacity]
    u32* tokens;            // [token_capacity]
    u32 entry_capacity, candidate_capacity, token_capacity;
    u32 shared;  // whether they are in shared memory
};

// The arrays of this block in global memory.
__device__ inline Arrays global_arrays(const Task& task) {
    const u64 block = blockIdx.x;
    const u64 entry = block * task.entry_capacity;
    const u64 candidate = block * task.candidate_capacity;
    Arrays arrays;
    arrays.frontier = task.old_entries + entry;
    arrays.next = task.next_entries + entry;
    arrays.candidates = task.candidates + candidate;
    arrays.entries = task.new_entries + candidate;
    arrays.slots = task.slots + 2 * candidate;
    arrays.ranks = task.ranks + candidate;
    arrays.marks = task.marks + candidate;
    arrays.tokens = task.tokens + block * task.token_capacity;
    arrays.entry_capacity = task.entry_capacity;
    arrays.candidate_capacity = task.candidate_capacity;
    arrays.token_capacity = task.token_capacity;
    arrays.shared = 0;
    return arrays;
}

// The same in shared memory: `shared_bytes` of `layout.py` has their size.
__device__ inline Arrays shared_arrays(const Task& task, u64* memory) {
    Arrays arrays;
    const u32 entries = task.shared_entries, candidates = task.shared_candidates;
    arrays.frontier = reinterpret_cast<Entry*>(memory);
    arrays.next = arrays.frontier + entries;
    arrays.candidates = reinterpret_cast<Candidate*>(arrays.next + entries);
    arrays.entries = reinterpret_cast<NewEntry*>(arrays.candidates + candidates);
    arrays.slots = reinterpret_cast<u32*>(arrays.entries + candidates);
    arrays.ranks = arrays.slots + 2 * candidates;
    arrays.marks = arrays.ranks + candidates;
    arrays.tokens = arrays.marks + candidates;
    arrays.entry_capacity = entries;
    arrays.candidate_capacity = candidates;
    arrays.token_capacity = task.shared_tokens;
    arrays.shared = 1;
    return arrays;
}

// Counts of the current frame, in shared memory.
struct Progress {
    u32 least;  // `ordered` least cost of a candidate so far
    u32 num_candidates, num_entries, num_pending;
    u32 num_tokens;        // number of tokens that may begin near any entry
    u32 num_far;           // number near only the first one: from the end of the list
    u32 separator_is_near;
    u32 most_paid;         // `ordered`, negated: most that boosts pay
    u32 size_bound;        // `ordered`: `beam_size` entries cost no more
    u32 best;              // `ordered` least cost of a new entry
    u32 worst;             // `ordered`: phases that cost more are dropped
    u32 trace_count;
    float first_cost;      // tokens up to it have begun after the first entry
    u64 best_token;        // least (unscaled cost, token) of the frame, blank apart; its
                           // lower half is NONE if it does not begin first
    u64 top_token;         // no token behind it, by (unscaled cost, token), may begin
};
