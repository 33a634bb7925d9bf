// The trace of an utterance: dropping what the frontier cannot reach, walking back.
#pragma once
#include "block.cuh"
#include "frontier.cuh"
#include "keys.cuh"
#include "layout.cuh"
#include "overlay.cuh"

constexpr u32 NODES_EACH = 4;  // that a thread looks at between barriers

// Calls `visit(node)` for the nodes of the frontier's active states.
template <class Visit>
__device__ void for_each_tip(const Utterance& utterance, Visit visit) {
    for (u32 i = threadIdx.x; i < utterance.frontier_count; i += blockDim.x) {
        Entry& entry = in_global(utterance.frontier)[i];
        if (entry.blank < infinite()) visit(entry.blank_node);
        if (entry.token < infinite()) visit(entry.token_node);
    }
}

// Mark what the frontier can reach. Nodes stand unmarked: `renumbered` is NONE.
__device__ inline void mark(const Utterance& utterance) {
    Node* trace = in_global(utterance.trace);
    for_each_tip(utterance, [&](u32 at) {
        while (at != NONE && atomicExch(&trace[at].renumbered, 0u) == NONE)
            at = trace[at].previous;
    });
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
    for_each_tip(utterance, [&](u32& node) { node = trace[node].renumbered; });
    __syncthreads();
    // A node moves down only: a tile is read whole before any of it is written.
    for (u32 first = 0; first < count; first += blockDim.x * NODES_EACH) {
        Node nodes[NODES_EACH];
        u32 numbers[NODES_EACH];
        for (u32 e = 0; e < NODES_EACH; ++e) {
            const u32 i = first + e * blockDim.x + threadIdx.x;
            nodes[e] = i < count ? trace[i] : Node{NONE, NONE, 0, 0, NONE};
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

// The state to end at; `at` is its number among those of the frontier.
struct End {
    u64 key;  // (cost, graph state); all ones where there is none
    u32 boost, at;
};

// What it costs to end in a state of an entry: + the scaled final cost, with
// `use_final`; + the rest of its boosts.
__device__ inline float end_cost(
    const Task& task, const Utterance& utterance, float cost, u32 state, u32 boost,
    bool use_final) {
    if (use_final) {
        if (is_added_state(utterance, state)) return infinite();
        const float final_cost = read_only(task.final_cost + state);
        if (!(final_cost < infinite())) return infinite();
        cost = cost + task.lm_scale * final_cost;
    }
    if (!has_phrases(utterance)) return cost;
    const float* refund = utterance.phrases->automaton.final_cost;
    const float rest = rest_of(boost, task.instalment);
    return cost + (refund[state_of(boost)] - rest);
}

// The least state by `end_cost`, then graph state, then boost state; for all threads.
__device__ inline End least_end(
    const Task& task, const Utterance& utterance, bool use_final) {
    __shared__ End least;
    __syncthreads();
    if (threadIdx.x == 0) least = {~0ull, NONE, NONE};
    __syncthreads();
    const FrontierStates states = {task, utterance};
    for (u32 turn = 0; turn < 3; ++turn) {
        for (u32 i = threadIdx.x; i < 2 * utterance.frontier_count; i += blockDim.x) {
            if (!(states.cost(i) < infinite())) continue;
            const u32 state = states.state(i), boost = states.boost(i);
            const float cost =
                end_cost(task, utterance, states.cost(i), state, boost, use_final);
            if (!(cost < infinite())) continue;
            const u64 key = key_of(cost, state);
            if (turn == 0) atomicMin(&least.key, key);
            if (turn == 1 && key == least.key) atomicMin(&least.boost, boost);
            if (turn < 2) continue;
            // Search states are distinct.
            const bool is_least = key == least.key && boost == least.boost;
            if (is_least) least.at = i;
        }
        __syncthreads();
    }
    return least;
}

// Write the path that ends at a node, the last one first and the root at the end, as
// far as there is room for it; returns its length in full. (With a node for each frame
// it was worth to bring the trace into shared memory first.)
__device__ inline u32 write_path(const Utterance& utterance, u32 at) {
    const Node* trace = in_global(utterance.trace);
    u32 length = 0;
    for (; at != NONE; ++length) {
        const Node node = trace[at];
        if (length < utterance.path_capacity)
            in_global(utterance.path)[length] = node;
        at = node.previous;
    }
    return length;
}

// One block per utterance: the state to end at, and the path to it.
extern "C" __global__ void __launch_bounds__(MAX_THREADS, BLOCKS_PER_SM)
best_paths(const __grid_constant__ Task task) {
    Utterance& utterance = task.utterances[task.queue[blockIdx.x]];
    End end = {~0ull, NONE, NONE};
    if (utterance.died == NONE) end = least_end(task, utterance, true);
    const bool reached_final = end.key != ~0ull;
    if (!reached_final) end = least_end(task, utterance, false);
    const Entry entry = in_global(utterance.frontier)[end.at / 2];
    const bool blank = end.at % 2 == 0;
    if (threadIdx.x != 0) return;
    const u32 node = blank ? entry.blank_node : entry.token_node;
    const FrontierStates states = {task, utterance};
    utterance.path_length = write_path(utterance, node);
    utterance.reached_final = reached_final;
    utterance.end_state = states.state(end.at);
    utterance.end_ended = blank ? entry.ended : utterance.frames + 1;
    utterance.end_acoustic = blank ? entry.blank_acoustic : entry.token_acoustic;
    utterance.end_cost = cost_of_key(end.key);
}
