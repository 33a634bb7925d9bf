// Trace of an utterance: dropping unreachable nodes, traceback.
#pragma once
#include "block.cuh"
#include "keys.cuh"
#include "layout.cuh"
#include "overlay.cuh"

constexpr u32 NODES_EACH = 4;  // per thread between barriers

// Mark nodes reachable from the frontier. Unmarked nodes have `renumbered` NONE.
__device__ inline void mark(const Utterance& utterance) {
    Node* trace = in_global(utterance.trace);
    for (u32 i = threadIdx.x; i < utterance.frontier_count; i += blockDim.x) {
        u32 at = utterance.frontier[i].node;
        while (at != NONE && atomicExch(&trace[at].renumbered, 0u) == NONE)
            at = trace[at].previous;
    }
    __syncthreads();
}

// Number the marked nodes in order; returns how many there are.
__device__ inline u32 renumber(BlockMemory& memory, Node* trace, u32 count) {
    u32 kept = 0, total;
    for (u32 first = 0; first < count; first += blockDim.x * NODES_EACH) {
        const u32 mine = first + threadIdx.x * NODES_EACH;
        u32 marked = 0;
        for (u32 e = 0; e < NODES_EACH; ++e)
            marked += mine + e < count && trace[mine + e].renumbered != NONE;
        u32 number = kept + exclusive_sum(memory, marked, total);
        for (u32 e = 0; e < NODES_EACH && mine + e < count; ++e)
            if (trace[mine + e].renumbered != NONE)
                trace[mine + e].renumbered = number++;
        kept += total;
        __syncthreads();
    }
    return kept;
}

// Drop the nodes that no frontier entry can reach; links and the frontier's nodes are
// renumbered in place, the order stays. Returns how many are left.
__device__ inline u32 compact(BlockMemory& memory, const Utterance& utterance) {
    Node* trace = in_global(utterance.trace);
    const u32 count = utterance.trace_count;
    __syncthreads();
    mark(utterance);
    const u32 kept = renumber(memory, trace, count);
    for (u32 i = threadIdx.x; i < count; i += blockDim.x) {
        if (trace[i].renumbered == NONE) continue;
        const u32 previous = trace[i].previous;
        if (previous != NONE) trace[i].previous = trace[previous].renumbered;
    }
    for (u32 i = threadIdx.x; i < utterance.frontier_count; i += blockDim.x) {
        Entry& entry = utterance.frontier[i];
        entry.node = trace[entry.node].renumbered;
    }
    __syncthreads();
    // Nodes move down only: a tile is read completely before any of it is written.
    for (u32 first = 0; first < count; first += blockDim.x * NODES_EACH) {
        Node nodes[NODES_EACH];
        u32 numbers[NODES_EACH];
        for (u32 e = 0; e < NODES_EACH; ++e) {
            const u32 i = first + e * blockDim.x + threadIdx.x;
            nodes[e] = i < count ? trace[i] : Node{NONE, NONE, 0, NONE};
            numbers[e] = nodes[e].renumbered;
            nodes[e].renumbered = NONE;
        }
        __syncthreads();
        for (u32 e = 0; e < NODES_EACH; ++e)
            if (numbers[e] != NONE) trace[numbers[e]] = nodes[e];
        __syncthreads();
    }
    return kept;
}

// The entry to end at.
struct End {
    u64 key;  // (cost, graph state); all ones if there is none
    u32 boost, at;
};

// Cost of ending in an entry: plus the scaled final cost, with `use_final`; plus the
// rest of its boosts.
__device__ inline float end_cost(
    const Task& task, const Utterance& utterance, const Entry& entry, bool use_final) {
    float cost = entry.cost;
    if (use_final) {
        if (is_added_state(utterance, entry.state)) return infinite();
        const float final_cost = read_only(task.final_cost + entry.state);
        if (!(final_cost < infinite())) return infinite();
        cost = cost + task.lm_scale * final_cost;
    }
    if (!has_phrases(utterance)) return cost;
    const float* refund = utterance.phrases->automaton.final_cost;
    const float rest = rest_of(entry.boost, task.instalment);
    return cost + (refund[state_of(entry.boost)] - rest);
}

// The least entry by `end_cost`, then graph state, then boost state; for all threads.
__device__ inline End least_entry(
    const Task& task, const Utterance& utterance, bool use_final) {
    __shared__ End least;
    __syncthreads();
    if (threadIdx.x == 0) least = {~0ull, NONE, NONE};
    __syncthreads();
    for (u32 turn = 0; turn < 3; ++turn) {
        for (u32 i = threadIdx.x; i < utterance.frontier_count; i += blockDim.x) {
            const Entry entry = utterance.frontier[i];
            const float cost = end_cost(task, utterance, entry, use_final);
            if (!(cost < infinite())) continue;
            const u64 key = key_of(cost, entry.state);
            if (turn == 0) atomicMin(&least.key, key);
            if (turn == 1 && key == least.key) atomicMin(&least.boost, entry.boost);
            if (turn < 2) continue;
            // Search states are distinct.
            const bool is_least = key == least.key && entry.boost == least.boost;
            if (is_least) least.at = i;
        }
        __syncthreads();
    }
    return least;
}

constexpr u32 TILE = 4096;  // nodes per copy into shared memory

// Write the path that ends at a node, the last step first, as far as there is room for
// it; for all threads. Returns its length in full.
//
// One thread walks back, and each of its loads depends on the previous one. So the
// block copies the trace into shared memory, tile by tile from the end.
__device__ inline u32 write_path(const Utterance& utterance, u32 at) {
    __shared__ u32 previous[TILE], passed[TILE], num_passed, next;
    const Node* trace = in_global(utterance.trace);
    u32 length = 0;
    while (at != NONE) {
        const u32 end = at + 1, begin = end > TILE ? end - TILE : 0;
        for (u32 i = begin + threadIdx.x; i < end; i += blockDim.x)
            previous[i - begin] = trace[i].previous;
        __syncthreads();
        if (threadIdx.x == 0) {
            // An epsilon arc may come from after `end`: it is of the same frame.
            u32 count = 0;
            for (next = at; begin <= next && next < end; next = previous[next - begin])
                passed[count++] = next;
            num_passed = count;
        }
        __syncthreads();
        for (u32 k = threadIdx.x; k < num_passed; k += blockDim.x) {
            const Node node = trace[passed[k]];
            if (node.arc != NONE && length + k < utterance.path_capacity)
                in_global(utterance.path)[length + k] = {node.arc, node.acoustic};
        }
        length += num_passed;
        at = next;
    }
    return length - 1;  // the root is no step
}

// One block per utterance: the entry to end at, and the path to it.
extern "C" __global__ void __launch_bounds__(MAX_THREADS, BLOCKS_PER_SM)
best_paths(const __grid_constant__ Task task) {
    Utterance& utterance = task.utterances[task.queue[blockIdx.x]];
    End end = {~0ull, NONE, NONE};
    if (utterance.died == NONE) end = least_entry(task, utterance, true);
    const bool reached_final = end.key != ~0ull;
    if (!reached_final) end = least_entry(task, utterance, false);
    const Entry entry = in_global(utterance.frontier)[end.at];
    const u32 length = write_path(utterance, entry.node);
    if (threadIdx.x != 0) return;
    utterance.path_length = length;
    utterance.reached_final = reached_final;
    utterance.end_state = entry.state;
    utterance.end_cost = cost_of_key(end.key);
}
