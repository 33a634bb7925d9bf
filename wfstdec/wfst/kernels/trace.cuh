// The trace of an utterance: dropping what the frontier cannot reach, walking back.
#pragma once
#include "block.cuh"

// Drop the nodes that no frontier entry can reach; links and the frontier's nodes are
// renumbered in place, the order stays. Returns how many are left.
__device__ inline u32 compact(BlockMemory& memory, const Utterance& utterance) {
    Node* trace = utterance.trace;
    const u32 count = utterance.trace_count;
    for (u32 i = threadIdx.x; i < count; i += blockDim.x) trace[i].renumbered = NONE;
    __syncthreads();
    for (u32 i = threadIdx.x; i < utterance.frontier_count; i += blockDim.x) {
        u32 at = utterance.frontier[i].node;
        while (at != NONE && atomicExch(&trace[at].renumbered, 0u) == NONE)
            at = trace[at].previous;
    }
    __syncthreads();
    u32 kept = 0, total;
    for (u32 first = 0; first < count; first += blockDim.x) {
        const u32 i = first + threadIdx.x;
        const bool alive = i < count && trace[i].renumbered != NONE;
        const u32 before = sum_before(memory, alive, total);
        if (alive) trace[i].renumbered = kept + before;
        kept += total;
        __syncthreads();
    }
    // A node moves down only: a tile is read whole before any of it is written. What
    // moves keeps its own old number beside the new ones, which links still need.
    for (u32 i = threadIdx.x; i < count; i += blockDim.x) {
        const u32 previous = trace[i].previous;
        if (trace[i].renumbered != NONE && previous != NONE)
            trace[i].previous = trace[previous].renumbered;
    }
    for (u32 i = threadIdx.x; i < utterance.frontier_count; i += blockDim.x) {
        Entry& entry = utterance.frontier[i];
        entry.node = trace[entry.node].renumbered;
    }
    __syncthreads();
    for (u32 first = 0; first < count; first += blockDim.x) {
        const u32 i = first + threadIdx.x;
        const Node node = i < count ? trace[i] : Node{NONE, NONE, 0, NONE};
        __syncthreads();
        if (node.renumbered != NONE) trace[node.renumbered] = node;
        __syncthreads();
    }
    return kept;
}

// The least entry by cost plus, with `use_final`, the scaled final cost; ties go to the
// lower state. Returns its key in `least` and its position in `at`, for all threads;
// the key is NONE twice where no entry is final.
__device__ inline void least_entry(
    const Task& task, const Utterance& utterance, bool use_final, u64& least, u32& at) {
    __shared__ u64 shared_least;
    __shared__ u32 shared_at;
    __syncthreads();
    if (threadIdx.x == 0) shared_least = ~0ull;
    __syncthreads();
    for (u32 turn = 0; turn < 2; ++turn) {
        for (u32 i = threadIdx.x; i < utterance.frontier_count; i += blockDim.x) {
            const Entry entry = utterance.frontier[i];
            const float final_cost = use_final ? task.final_cost[entry.state] : 0.0f;
            if (!(final_cost < infinite())) continue;
            const float scaled = use_final ? task.lm_scale * final_cost : 0.0f;
            const u64 key = key_of(entry.cost + scaled, entry.state);
            if (turn == 0) atomicMin(&shared_least, key);
            if (turn == 1 && key == shared_least) shared_at = i;  // states are distinct
        }
        __syncthreads();
    }
    least = shared_least;
    at = shared_at;
}

// One block per utterance: the entry to end at, and how long its path is; where there
// is room for it (`path_arcs`), the path itself, root first.
extern "C" __global__ void __launch_bounds__(MOST_THREADS, BLOCKS_AT_HOME)
best_paths(const Task* task) {
    Utterance& utterance = task->utterances[task->order[blockIdx.x]];
    u64 least = ~0ull;
    u32 at = NONE;
    if (utterance.died == NONE) least_entry(*task, utterance, true, least, at);
    const bool reached_final = least != ~0ull;
    if (!reached_final) least_entry(*task, utterance, false, least, at);
    if (threadIdx.x != 0) return;
    const Node* trace = utterance.trace;
    const u32 end = utterance.frontier[at].node;
    u32 length = 0;
    for (u32 i = end; trace[i].arc != NONE; i = trace[i].previous) ++length;
    utterance.path_length = length;
    utterance.reached_final = reached_final;
    utterance.end_state = utterance.frontier[at].state;
    utterance.end_cost = cost_of_key(least);
    if (utterance.path_arcs == nullptr) return;
    for (u32 i = end; trace[i].arc != NONE; i = trace[i].previous) {
        utterance.path_arcs[--length] = trace[i].arc;
        utterance.path_acoustic[length] = trace[i].acoustic;
    }
}
