// Arcs and states by number: those of the graph, followed by those of an overlay.
//
// Only builds with ADDED have overlays; in others all arcs and states are the graph's.
#pragma once
#include "automaton.cuh"
#include "block.cuh"
#include "layout.cuh"

// Whether a state is in an OOV word of the utterance.
__device__ __forceinline__ bool is_added_state(const Utterance& utterance, u32 state) {
    return ADDED && state >= utterance.overlay.first_state;
}

__device__ __forceinline__ bool is_added_arc(const Utterance& utterance, u32 arc_id) {
    return ADDED && arc_id >= utterance.overlay.first_arc;
}

__device__ __forceinline__ Arc arc_at(
    const Task& task, const Utterance& utterance, u32 arc_id) {
    const Overlay& overlay = utterance.overlay;
    if (is_added_arc(utterance, arc_id))
        return read_only(overlay.arcs + (arc_id - overlay.first_arc));
    return read_only(task.arcs + arc_id);
}

__device__ __forceinline__ StateArcs arcs_of_state(
    const Task& task, const Utterance& utterance, u32 state) {
    const Overlay& overlay = utterance.overlay;
    if (is_added_state(utterance, state))
        return read_only(overlay.states + (state - overlay.first_state));
    return read_only(task.states + state);
}

// Credit of an arc of the overlay.
__device__ __forceinline__ float added_bonus(const Utterance& utterance, u32 arc_id) {
    const Overlay& overlay = utterance.overlay;
    return read_only(overlay.bonus + (arc_id - overlay.first_arc));
}

// Arcs into the overlay from a state of the graph: none if it has no exit.
__device__ inline Range entering_arcs(const Utterance& utterance, u32 state) {
    const Overlay& overlay = utterance.overlay;
    const u32 *states = in_global(overlay.call_state), count = overlay.num_calls;
    const u32 call = find_arc(states, 0, count, state);
    if (call == count || states[call] != state) return {0, 0};
    const u32 begin = overlay.first_arc + call * overlay.num_entering;
    return {begin, begin + overlay.num_entering};
}
