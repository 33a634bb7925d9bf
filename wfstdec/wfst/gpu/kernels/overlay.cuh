// Arcs and records by number: those of the graph, and behind them those of an overlay.
//
// Only builds with ADDED have overlays; in others all of them are the graph's.
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

__device__ __forceinline__ Arc arc_at(
    const Task& task, const Utterance& utterance, u32 arc_id) {
    const Overlay& overlay = utterance.overlay;
    if (is_added_arc(utterance, arc_id))
        return read_only(overlay.arcs + (arc_id - overlay.first_arc));
    return read_only(task.arcs + arc_id);
}

// A record, to be read in parts: not all of it is needed at a time.
__device__ __forceinline__ const Record* record_at(
    const Task& task, const Utterance& utterance, u32 flagged) {
    const Overlay& overlay = utterance.overlay;
    const u32 number = flagged & RECORDS;
    if (ADDED && number >= overlay.first_record)
        return overlay.records + (number - overlay.first_record);
    return task.records + number;
}

__device__ __forceinline__ States states_of(
    const Task& task, const Utterance& utterance, u32 record) {
    return read_only(&record_at(task, utterance, record)->states);
}

// The number in the packed graph of the k-th arc of a row, out of one of its states.
__device__ inline u32 number_of(const Record* record, u32 k, bool from_token) {
    const States states = read_only(&record->states);
    const Order order = read_only(&record->order);
    const u32 blank = k >= order.blank_at;
    if (!from_token) return states.blank_number + k + blank;
    const u32 own = k >= order.own_begin ? order.own_count : 0;
    return states.token_number + k + blank + (k >= order.repeat_at) - own;
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
