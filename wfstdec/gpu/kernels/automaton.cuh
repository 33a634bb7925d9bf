// Queries of a back-off automaton: `lm/kernels.py` for the GPU, the same bits.
#pragma once
#include "types.cuh"

// One model of an `Automaton` of lm/automaton.py, S states and A arcs.
struct Automaton {
    const u32* state_arc_splits;  // [S + 1]
    const u32* arc_label;         // [A], increasing within each state
    const u32* arc_next;          // [A]
    const float* arc_cost;        // [A]
    const u32* backoff_state;     // [S]; NONE at the root
    const float* backoff_cost;    // [S]
    const float* final_cost;      // [S]
    const u32* label_alias;       // [num_labels], of a dense root
    u32 num_labels;               // 0: the root is sparse
    float default_cost;           // of a label that a sparse root lacks
};

// The first arc of [begin, end) whose label is not below `label`; `end` if none is.
__device__ inline u32 find_arc(const u32* arc_label, u32 begin, u32 end, u32 label) {
    while (begin < end) {
        const u32 middle = begin + (end - begin) / 2;
        if (arc_label[middle] < label)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin;
}

// The cost of a label in a state, which becomes the next state: down the back-off links
// to the first state that has the label.
__device__ inline float step(const Automaton& automaton, u32& state, u32 label) {
    const u32 num_labels = automaton.num_labels;
    if (num_labels > 0)
        label = label < num_labels ? automaton.label_alias[label] : num_labels;
    float total = 0.0f;
    while (true) {
        const u32 backoff = automaton.backoff_state[state];
        u32 arc = automaton.state_arc_splits[state];
        bool found = backoff == NONE && num_labels > 0;
        if (found) {
            arc += label;
        } else {
            const u32 end = automaton.state_arc_splits[state + 1];
            arc = find_arc(automaton.arc_label, arc, end, label);
            found = arc < end && automaton.arc_label[arc] == label;
        }
        if (found) {
            state = automaton.arc_next[arc];
            return total + automaton.arc_cost[arc];
        }
        if (backoff == NONE) return total + automaton.default_cost;
        total += automaton.backoff_cost[state];
        state = backoff;
    }
}
