// New entries in the order of the specification, which of them go on, and how.
#pragma once
#include "merge.cuh"

struct Ranking : Costs {
    TeamMemory& team;

    // ----------------------------------------------------------------------- order
    __device__ float rebased(u32 e) const {
        return arrays.entries[e].cost - cost_of(progress.best);
    }

    __device__ const Candidate& key_of_entry(u32 e) const {
        return arrays.candidates[arrays.entries[e].sample];
    }

    // Whether a new entry stands before another one. Costs are re-based before they are
    // compared: rounding may make some equal that were not.
    __device__ bool before(u32 a, u32 b) const {
        const float cost = rebased(a), other_cost = rebased(b);
        if (cost != other_cost) return cost < other_cost;
        const Candidate& mine = key_of_entry(a);
        const Candidate& other = key_of_entry(b);
        if (mine.state != other.state) return mine.state < other.state;
        if (mine.node != other.node) return mine.node < other.node;
        if (mine.boost != other.boost) return mine.boost < other.boost;
        return mine.text < other.text;
    }

    // Put all that may go on into `ranks`, in order; how many. An entry's place is the
    // number of those before it.
    __device__ u32 order() const {
        u32 count = progress.num_entries;
        for (u32 e = threadIdx.x; e < count; e += THREADS) arrays.marks[e] = e;
        team_sync();
        if (!task.by_text && count > task.beam_size) count = drop_worst(count);
        for (u32 i = threadIdx.x; i < count; i += THREADS) {
            const u32 mine = arrays.marks[i];
            u32 place = 0;
            for (u32 j = 0; j < count; ++j) {
                const u32 other = arrays.marks[j];
                place += other != mine && before(other, mine);
            }
            arrays.ranks[place] = mine;
        }
        team_sync();
        return count;
    }

    // Drop from `marks` what costs more than the `beam_size`-th; how many are left.
    __device__ u32 drop_worst(u32 count) const {
        const auto cost_at = [&](u32 e) { return static_cast<u64>(ordered(rebased(e))); };
        const u64 worst = nth_least_key(team, count, task.beam_size, cost_at);
        u32 kept = 0;
        for (u32 first = 0; first < count; first += THREADS) {
            const u32 e = first + threadIdx.x;
            const bool stays = e < count && cost_at(e) <= worst;
            u32 total;
            const u32 at = kept + sum_before(team, stays, total);
            if (stays) arrays.marks[at] = e;
            kept += total;
            team_sync();
        }
        return kept;
    }

    // ------------------------------------------------------------------------ keep
    // Choose what goes on: `beam_size` entries, or of so many places the texts that may
    // matter; they stand first in `ranks`. How many.
    __device__ u32 keep(u32 count) const {
        const u32 size = task.beam_size;
        if (!task.by_text) return count < size ? count : size;
        if (task.sums && count <= size) return count;
        for (u32 r = threadIdx.x; r < count; r += THREADS) arrays.marks[r] = mark(r);
        team_sync();
        // The number of a place is that of the first entries of places before it.
        u32 kept = 0, places = 0;
        for (u32 first = 0; first < count; first += THREADS) {
            const u32 r = first + threadIdx.x;
            const u32 e = r < count ? arrays.ranks[r] : 0;
            const u32 leader = r < count ? arrays.marks[r] & ~DROPPED : 0;
            const bool dropped = r >= count || arrays.marks[r] & DROPPED;
            u32 total;
            const u32 number =
                places + sum_before(team, r < count && leader == r, total);
            // Of a place that was met before, `slots` has the number.
            if (r < count && leader == r) arrays.slots[r] = number;
            team_sync();
            const bool stays = !dropped && arrays.slots[leader] < size;
            places += total;
            const u32 at = kept + sum_before(team, stays, total);
            if (stays) arrays.ranks[at] = e;
            kept += total;
            team_sync();
        }
        return kept;
    }

    static constexpr u32 DROPPED = 1u << 31;

    // The first rank of the place of rank `r`, and whether its text cannot matter: in
    // each phase `nbest` texts before it cost no more. Those that were dropped count as
    // well: so many that stay cost no more than they.
    __device__ u32 mark(u32 r) const {
        const NewEntry& mine = arrays.entries[arrays.ranks[r]];
        const Candidate& place = key_of_entry(arrays.ranks[r]);
        u32 leader = r, blank = 0, nonblank = 0;
        for (u32 other = 0; other < r; ++other) {
            const u32 e = arrays.ranks[other];
            if (!Merge::same_place(key_of_entry(e), place)) continue;
            leader = leader == r ? other : leader;
            blank += arrays.entries[e].blank_cost <= mine.blank_cost;
            nonblank += arrays.entries[e].nonblank_cost <= mine.nonblank_cost;
        }
        const bool dropped =
            (!(mine.blank_cost < infinite()) || blank >= task.nbest) &&
            (!(mine.nonblank_cost < infinite()) || nonblank >= task.nbest);
        return leader | (dropped ? DROPPED : 0);
    }

    // ---------------------------------------------------------------------- settle
    // Make the next frontier of the first `count` ranks, and its trace nodes.
    __device__ void settle(const Row& row, u32 count) const {
        const float best = cost_of(progress.best);
        for (u32 r = threadIdx.x; r < count; r += THREADS) {
            const NewEntry& made = arrays.entries[arrays.ranks[r]];
            const Candidate& key = arrays.candidates[made.sample];
            Entry entry;
            entry.cost = made.cost - best;
            entry.blank_cost = made.blank_cost - best;
            entry.nonblank_cost = made.nonblank_cost - best;
            entry.lookahead_cost = key.lookahead_cost;
            entry.state = key.state;
            entry.node = key.node;
            entry.boost = key.boost;
            entry.spelling = 0;
            entry.text = key.text;
            entry.blank_trace = entry.nonblank_trace = NONE;
            entry.token_end = 0;
            entry.blank_acoustic = entry.nonblank_acoustic = 0.0;
            if (made.blank_candidate != NONE) {
                const Candidate& way = arrays.candidates[made.blank_candidate];
                entry.token_end = token_end(way);
                entry.blank_acoustic = acoustic(row, way);
                entry.blank_trace = trace_of(way);
            }
            if (made.nonblank_candidate != NONE) {
                const Candidate& way = arrays.candidates[made.nonblank_candidate];
                entry.nonblank_acoustic = acoustic(row, way);
                entry.nonblank_trace = trace_of(way);
            }
            arrays.next[r] = entry;
        }
        team_sync();
    }

    // The frame behind the token before a candidate, where that is over.
    __device__ u32 token_end(const Candidate& way) const {
        return phase_before(way.order) == NONBLANK
            ? utterance.frames
            : arrays.frontier[source_of(way.order)].token_end;
    }

    // The acoustic cost of a candidate from the beginning.
    __device__ double acoustic(const Row& row, const Candidate& way) const {
        const Entry& source = arrays.frontier[source_of(way.order)];
        u32 token = way.token;
        if (phase_after(way.order) == BLANK) token = task.blank;
        if (token == NONE) token = token_of(source.node);
        const double before = phase_before(way.order) == NONBLANK
            ? source.nonblank_acoustic
            : source.blank_acoustic;
        return before + static_cast<double>(unscaled_cost(row, token));
    }

    // The trace of a candidate, with a node for the token that begins.
    __device__ u32 trace_of(const Candidate& way) const {
        const Entry& source = arrays.frontier[source_of(way.order)];
        const u32 previous = phase_before(way.order) == NONBLANK
            ? source.nonblank_trace
            : source.blank_trace;
        if (way.token == NONE) return previous;
        const u32 at = atomicAdd(&progress.trace_count, 1u);
        in_global(utterance.trace)[at] = {
            previous, way.token, way.pron, utterance.frames, token_end(way)};
        return at;
    }
};
