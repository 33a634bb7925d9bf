// Arcs and states by number: those of the graph, and behind them those of an overlay.
//
// Only builds with ADDED have overlays; in others all arcs and states are the graph's.
#pragma once
#include "automaton.cuh"
#include "block.cuh"
#include "layout.cuh"

// Whether a state is in a word that the utterance adds.
__device__ __forceinline__ bool is_added_state(const Utterance& utterance, u32 state) {
    return ADDED && state >= utterance.overlay.first_state;
}

__device__ __forceinline__ bool is_added_arc(const Utterance& utterance, u32 arc_id) {
    return ADDED && arc_id >= utterance.overlay.first_arc;
}

__device__ __forceinline__ const Arc* place_of_arc(
    const Task& task, const Utterance& utterance, u32 arc_id) {
    const Overlay& overlay = utterance.overlay;
    return is_added_arc(utterance, arc_id)
        ? overlay.arcs + (arc_id - overlay.first_arc) : task.arcs + arc_id;
}

__device__ __forceinline__ const StateArcs* place_of_state(
    const Task& task, const Utterance& utterance, u32 state) {
    const Overlay& overlay = utterance.overlay;
    return is_added_state(utterance, state)
        ? overlay.states + (state - overlay.first_state) : task.states + state;
}

__device__ __forceinline__ Arc arc_at(
    const Task& task, const Utterance& utterance, u32 arc_id) {
    return read_only(place_of_arc(task, utterance, arc_id));
}

__device__ __forceinline__ StateArcs arcs_of_state(
    const Task& task, const Utterance& utterance, u32 state) {
    return read_only(place_of_state(task, utterance, state));
}

// What an arc of the overlay is credited.
__device__ __forceinline__ float added_bonus(const Utterance& utterance, u32 arc_id) {
    const Overlay& overlay = utterance.overlay;
    return read_only(overlay.bonus + (arc_id - overlay.first_arc));
}

// The arcs into the overlay out of a state of the graph: none where it has no call.
__device__ inline Range entering_arcs(const Utterance& utterance, u32 state) {
    const Overlay& overlay = utterance.overlay;
    const u32 *states = in_global(overlay.call_state), count = overlay.num_calls;
    const u32 call = find_arc(states, 0, count, state);
    if (call == count || states[call] != state) return {0, 0};
    const u32 begin = overlay.first_arc + call * overlay.num_entering;
    return {begin, begin + overlay.num_entering};
}
