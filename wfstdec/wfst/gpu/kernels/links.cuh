// Noting arcs for a lattice; `lattice_pack.py` has the rule, the host makes lattices.
//
// Arcs within the cutoff are noted where recombination has found the entries that they
// lead to: blanks, repeats and emitting ones first, then epsilon arcs by rank. While a
// frame is under way a link has a cost in place of its excess, and a state of the
// frontier that is being made is numbered from 0.
#pragma once
#include "table.cuh"

struct Links : Table {
    // Note an arc to the state of an entry. What that costs only falls until the frame
    // is done: a link that is too much now is too much then.
    __device__ void note_arc(
        u32 state, u32 at, bool blank, u32 arc, float cost, float acoustic) const {
        const Entry& to = scratch.new_entries[at];
        if (!(cost - (blank ? to.blank : to.token) <= task.link_limit)) return;
        const u32 i = atomicAdd(&progress.num_links, 1u);
        if (i >= utterance.links_capacity) return;
        const States states = states_of(task, utterance, to.record);
        in_global(utterance.links)[i] = {
            state, 2 * at + !blank, arc, cost, acoustic,
            blank ? states.after_blank : states.after_token, to.boost};
    }

    // Note the candidates that were just recombined.
    __device__ void note(const Team& team) const {
        const u64 row = row_of_frame();
        const u32 count = num_candidates();
        for (u32 q = threadIdx.x; q < count; q += team.size) {
            const u32 slot = scratch.candidate_slots[q];
            if (slot == NONE) continue;
            const Candidate candidate = scratch.candidates[q];
            const bool emits = !(candidate.tie & EPSILON_ARC);
            const u32 from = 2 * (candidate.source & ~FROM_TOKEN) +
                (candidate.source & FROM_TOKEN ? 1 : 0);
            float acoustic = 0.0f;
            if (emits) {
                const Arc arc = arc_at(task, utterance, candidate.arc);
                const u32 token = token_of(arc.ilabel & LABEL_MASK);
                acoustic = unscaled_cost(row, token, skips(row));
            }
            const u32 first = emits ? utterance.first_place : utterance.num_places;
            note_arc(
                first + from, scratch.table_entries[slot], candidate.record & HUB,
                candidate.tie & ~EPSILON_ARC, candidate.cost, acoustic);
        }
        team.sync();
    }

    // Note blanks and repeats.
    __device__ void note_stays(float cutoff) const {
        const u64 row = row_of_frame();
        const bool skip = skips(row);
        for (u32 i = threadIdx.x; i < utterance.frontier_count; i += blockDim.x) {
            const Entry& entry = in_global(utterance.frontier)[i];
            const Stays stays = stays_of(entry, entry.again);
            const u32 from = utterance.first_place + 2 * i;
            const float of_blank = unscaled_cost(row, task.blank, skip);
            const Record* record = record_at(task, utterance, entry.record);
            const States states = read_only(&record->states);
            const Order order = read_only(&record->order);
            // In an overlay the repeat comes first and then the blank, else they are in
            // the order of tokens.
            const u32 token = entry.again;
            const bool added = is_added_state(utterance, states.after_token);
            if (stays.least_blank() <= cutoff) {
                const u32 at = scratch.table_entries[entry.blank_slot];
                u32 arc = states.blank_number + order.blank_at;
                if (stays.blank <= cutoff)
                    note_arc(from, at, true, arc, stays.blank, of_blank);
                arc = states.token_number + order.blank_at;
                if (token < task.num_tokens && (added || token < task.blank))
                    arc += 1 - (added ? 0 : order.own_count);
                if (stays.from_token <= cutoff)
                    note_arc(from + 1, at, true, arc, stays.from_token, of_blank);
            }
            if (!(stays.repeat <= cutoff)) continue;
            const u32 at = scratch.table_entries[entry.repeat_slot];
            u32 arc = states.token_number;
            if (!task.has_hubs && !added) {
                const bool has_blank = !(entry.record & NO_BLANK);
                arc += order.repeat_at + (has_blank && task.blank < token);
            }
            const float acoustic = unscaled_cost(row, token, skip);
            note_arc(from + 1, at, false, arc, stays.repeat, acoustic);
        }
        __syncthreads();
    }

    // The frame is done, and its states are numbered from `num_places` on.
    __device__ void finish_links() const {
        for (u32 i = utterance.links_count + threadIdx.x; i < progress.num_links;
             i += blockDim.x) {
            Link& link = in_global(utterance.links)[i];
            const Entry& to = scratch.new_entries[link.nextstate / 2];
            link.excess = link.excess - (link.nextstate % 2 ? to.token : to.blank);
            link.nextstate += utterance.num_places;
        }
        __syncthreads();
    }
};
