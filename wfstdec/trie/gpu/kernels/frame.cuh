// One frame of the search of an utterance; the specification is trie/reference.py.
//
//     stay      a blank, or the token again, after all entries: lowers the bound
//     expand    tokens that may begin, compared with the bound without the model
//     ask       the remaining ones: language model, look-ahead, boosts
//     merge     candidates within the cutoff, by destination
//     rank      new entries in order; which of them survive
//     settle    the next frontier, and the trace
//
// Candidates arrive in any order, and each has the rank that the specification gives
// it: ties and sums go by that. A bound that is read while it falls only admits more;
// the cutoff drops them. Sums are float32 in the order of the specification: compile
// with --fmad=false.
#pragma once
#include "expand.cuh"
#include "rank.cuh"
#include "times.cuh"

// Statuses that the host never sees: a frame that needs the arrays in global memory,
// and one with a number that is no log-prob.
constexpr u32 SPILL = NONE, NO_LOGPROB = NONE - 1;

struct FrameSearch : Costs {
    TeamMemory& team;
    Arrays& in_use;  // `arrays`, modified
    PhaseClock<NUM_TIMES>& times;

    // Requires a barrier after the last reading of counts.
    __device__ void begin_counting() const {
        if (threadIdx.x == 0) {
            progress.least = progress.best = ordered(infinite());
            progress.most_paid = ordered(0.0f);
            progress.num_candidates = progress.num_entries = 0;
            progress.num_pending = progress.num_tokens = progress.num_far = 0;
            progress.separator_is_near = 0;
            progress.trace_count = utterance.trace_count;
            progress.top_token = ~0ull;
            progress.best_token = ~0ull;
            progress.worst = ordered(infinite());
            progress.first_cost = -infinite();
            // Raised by each of these entries; infinite if there are fewer.
            progress.size_bound =
                is_full(utterance.frontier_count) ? 0 : ordered(infinite());
        }
        team_sync();
    }

    // One frame. OK, or the obstacle: then the utterance is unchanged.
    __device__ u32 frame() const {
        times.end(OTHER);
        prefetch_frame(utterance.logprobs, utterance.chunk_frame + 2, task.num_tokens);
        begin_counting();
        const Row row = row_of_frame();
        const Expansion expansion = {*this, team};
        const u32 too_small = arrays.shared ? SPILL : static_cast<u32>(GROW_SCRATCH);
        expansion.stay_everywhere(row);
        const u32 stayed = progress.num_candidates;
        expansion.list_tokens(row);
        if (utterance.logprobs.bad_frame != NONE) return NO_LOGPROB;
        if (expansion.best_token() != NONE) expansion.begin_first(row, stayed);
        times.end(STAY);
        if (progress.num_tokens > task.token_top_k) expansion.keep_top_tokens(row);
        if (progress.num_tokens > expansion.room()) return too_small;
        expansion.begin_everywhere(row);
        times.end(EXPAND);
        const u32 made = progress.num_candidates;
        if (made > arrays.candidate_capacity) return too_small;
        // Nothing is possible: the utterance ends before this frame.
        if (made == 0) {
            if (threadIdx.x == 0) utterance.died = utterance.frames;
            team_sync();
            return OK;
        }
        Merge{task, arrays, progress}.merge(expansion.bound_by(progress.least));
        times.end(MERGE);
        const Ranking ranking = {*this, team};
        const u32 count = ranking.keep(ranking.order());
        times.end(RANK);
        if (count > arrays.entry_capacity) return too_small;
        if (count > utterance.frontier_capacity) return GROW_FRONTIER;
        // Each entry adds at most a node for each of its phases.
        if (utterance.trace_count + 2 * count > utterance.trace_capacity)
            return GROW_TRACE;
        ranking.settle(row, count);
        if (threadIdx.x == 0) record(count);
        team_sync();
        times.end(SETTLE);
        return OK;
    }

    // Add the frame to the utterance's record; its next frontier is in use from here on.
    __device__ void record(u32 count) const {
        utterance.active += utterance.frontier_count;
        utterance.candidates += progress.num_candidates;
        utterance.entries += progress.num_entries;
        utterance.shared += arrays.shared;
        utterance.frontier_count = count;
        utterance.trace_count = progress.trace_count;
        utterance.base += static_cast<double>(cost_of(progress.best));
        ++utterance.frames;
        ++utterance.chunk_frame;
        Entry* const old = in_use.frontier;
        in_use.frontier = in_use.next;
        in_use.next = old;
    }
};
