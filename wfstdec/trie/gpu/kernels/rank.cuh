// New entries in the order of the specification: selection of survivors.
#pragma once
#include "merge.cuh"

// Most entries that are sorted by comparing all of them, where that is fastest.
constexpr u32 TILE = 2 * WARP;

struct Ranking : Costs {
    TeamMemory& team;

    // ----------------------------------------------------------------------- order
    __device__ float rebased(u32 e) const {
        return arrays.entries[e].cost - cost_of(progress.best);
    }

    __device__ const Candidate& key_of_entry(u32 e) const {
        return arrays.candidates[arrays.entries[e].sample];
    }

    // Whether a new entry precedes another one. Costs are re-based before they are
    // compared: rounding may make different ones equal.
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

    // Put all entries that may survive into `ranks`, in order; returns how many.
    __device__ u32 order() const {
        u32 count = progress.num_entries;
        for (u32 e = threadIdx.x; e < count; e += THREADS) arrays.marks[e] = e;
        if (drops_texts(count)) find_places(count);
        team_sync();
        if (count > task.beam_size) count = drop_worst(count);
        sort(count);
        if (is_full(count)) find_worst(count);
        return count;
    }

    // Sort `marks` into `ranks`: tiles by counting the smaller entries, then pairs of
    // sorted runs, in which an entry's place in the other run is a binary search.
    __device__ void sort(u32 count) const {
        u32* from = arrays.ranks;
        u32* to = arrays.slots;
        for (u32 run = TILE; run < count; run <<= 1) {  // the last run is in `ranks`
            u32* const other = from;
            from = to;
            to = other;
        }
        for (u32 i = threadIdx.x; i < count; i += THREADS) {
            const u32 mine = arrays.marks[i], first = i & ~(TILE - 1);
            const u32 end = count - first < TILE ? count : first + TILE;
            u32 place = first;
            for (u32 j = first; j < end; ++j) {
                const u32 other = arrays.marks[j];
                place += other != mine && before(other, mine);
            }
            from[place] = mine;
        }
        team_sync();
        for (u32 run = TILE; run < count; run <<= 1) {
            for (u32 i = threadIdx.x; i < count; i += THREADS) {
                const u32 mine = from[i], other = (i ^ run) & ~(run - 1);
                const u32 begin = other < count ? other : count;
                u32 low = begin, high = count - begin < run ? count : begin + run;
                while (low < high) {
                    const u32 middle = (low + high) / 2;
                    if (before(from[middle], mine)) low = middle + 1;
                    else high = middle;
                }
                to[(i & ~run) + (low - begin)] = mine;
            }
            team_sync();
            u32* const other = from;
            from = to;
            to = other;
        }
    }

    // Drop from `marks` entries above the `beam_size`-th cost, or texts of places whose
    // best one is; returns how many are left.
    __device__ u32 drop_worst(u32 count) const {
        // Texts by costs that are re-based, as their places are compared later.
        const u32 least = ordered(task.by_text ? 0.0f : cost_of(progress.best));
        const u32 most = ordered(task.by_text ? MAX_COST : bound_by(progress.least)) - least;
        const auto cost_at = [&](u32 e) {
            const u32 cost = task.by_text
                ? static_cast<u32>(arrays.entries[place_of(e)].best_blank)
                : ordered(arrays.entries[e].cost);
            return cost - least;
        };
        const auto key_at = [&](u32 e) {
            return task.by_text && place_of(e) != e ? NONE : cost_at(e);
        };
        const u32 size = task.beam_size;
        const u32 worst = nth_least_key(team, count, size, size, most, key_at);
        u32* const kept = &progress.num_pending;  // 0: none waits
        for (u32 first = 0; first < count; first += THREADS) {
            const u32 e = first + threadIdx.x;
            const bool stays = e < count && cost_at(e) <= worst;
            const u32 at = append(kept, stays);
            if (stays) arrays.marks[at] = e;
        }
        team_sync();
        return *kept;
    }

    // The `beam_size`-th least cost before re-basing: the greatest of those that are left.
    __device__ void find_worst(u32 count) const {
        const float worst = rebased(arrays.ranks[count - 1]);
        if (threadIdx.x == 0) progress.worst = 0;
        team_sync();
        for (u32 r = threadIdx.x; r < count; r += THREADS) {
            const u32 e = arrays.ranks[r];
            if (rebased(e) == worst)
                atomicMax(&progress.worst, ordered(arrays.entries[e].cost));
        }
        team_sync();
    }

    // ---------------------------------------------------------------------- places
    // Whether texts that cannot matter are dropped.
    __device__ bool drops_texts(u32 count) const {
        return task.by_text && !(task.sums && count <= task.beam_size);
    }

    // The entry with the data of another's place: `best_blank` is the least cost there,
    // `best_nonblank` its number, `blank_list` the texts that stay.
    __device__ u32 place_of(u32 e) const { return arrays.entries[e].nonblank_list; }

    __device__ void find_places(u32 count) const {
        const u32 num_slots = clear_slots(arrays.slots, count);
        for (u32 e = threadIdx.x; e < count; e += THREADS) {
            const Candidate& mine = key_of_entry(e);
            NewEntry& entry = arrays.entries[e];
            entry.best_blank = entry.best_nonblank = ~0ull;
            entry.blank_list = NONE;
            entry.nonblank_list = slot_of(
                arrays.slots, num_slots - 1, Merge::hash_of_place(mine), e,
                [&](u32 other) { return Merge::same_place(key_of_entry(other), mine); });
        }
        team_sync();
        for (u32 e = threadIdx.x; e < count; e += THREADS) {
            const u32 place = arrays.slots[place_of(e)];
            arrays.entries[e].nonblank_list = place;
            const u64 cost = ordered(rebased(e));
            atomicMin(&arrays.entries[place].best_blank, cost);
        }
    }

    // ------------------------------------------------------------------------ keep
    // Select the survivors: `beam_size` entries, or the texts of that many places that
    // may matter; they come first in `ranks`. Returns how many.
    __device__ u32 keep(u32 count) const {
        const u32 size = task.beam_size;
        if (!task.by_text) return count < size ? count : size;
        if (!drops_texts(progress.num_entries)) return count;
        u32 kept = 0, places = 0;
        for (u32 first = 0; first < count; first += THREADS) {
            const u32 r = first + threadIdx.x;
            const u32 e = r < count ? arrays.ranks[r] : 0;
            const u32 place = r < count ? place_of(e) : 0;
            NewEntry& known = arrays.entries[place];
            bool met = known.best_nonblank != ~0ull;
            const bool matters = r < count && may_matter(first, r, e, place, met);
            team_sync();
            // The number of a place is that of the first entries of places before it.
            u32 total;
            const u32 number = places + sum_before(team, r < count && !met, total);
            if (r < count && !met) known.best_nonblank = number;
            team_sync();
            const bool stays = matters && known.best_nonblank < size;
            places += total;
            const u32 at = kept + sum_before(team, stays, total);
            if (stays) {
                arrays.ranks[at] = e;
                arrays.marks[e] = atomicExch(&known.blank_list, e);
            }
            kept += total;
            team_sync();
        }
        return kept;
    }

    // Whether the text of rank `r` may matter: in some phase fewer than `nbest` earlier
    // texts of its place cost no more. Of those before `first` the surviving ones
    // suffice: for each dropped one `nbest` of them cost no more. `met` is set if one
    // of the others has the place.
    __device__ bool may_matter(
        u32 first, u32 r, u32 mine, u32 place, bool& met) const {
        const NewEntry& entry = arrays.entries[mine];
        u32 blank = 0, nonblank = 0;
        const auto compare = [&](u32 other) {
            blank += arrays.entries[other].blank_cost <= entry.blank_cost;
            nonblank += arrays.entries[other].nonblank_cost <= entry.nonblank_cost;
        };
        for (u32 other = first; other < r; ++other) {
            const u32 e = arrays.ranks[other];
            if (place_of(e) != place) continue;
            met = true;
            compare(e);
        }
        u32 e = arrays.entries[place].blank_list;
        for (; e != NONE; e = arrays.marks[e]) compare(e);
        return (entry.blank_cost < infinite() && blank < task.nbest) ||
            (entry.nonblank_cost < infinite() && nonblank < task.nbest);
    }

    // ---------------------------------------------------------------------- settle
    // Build the next frontier of the first `count` ranks, and its trace nodes.
    __device__ void settle(const Row& row, u32 count) const {
        const float best = cost_of(progress.best), worst = cost_of(progress.worst);
        for (u32 r = threadIdx.x; r < count; r += THREADS) {
            const NewEntry& made = arrays.entries[arrays.ranks[r]];
            const Candidate& key = arrays.candidates[made.sample];
            Entry entry;
            entry.cost = made.cost - best;
            entry.blank_cost = entry.nonblank_cost = infinite();
            entry.lookahead_cost = key.lookahead_cost;
            entry.state = key.state;
            entry.node = key.node;
            entry.boost = key.boost;
            entry.spelling = 0;
            entry.text = key.text;
            entry.blank_trace = entry.nonblank_trace = NONE;
            entry.token_end = 0;
            entry.blank_acoustic = entry.nonblank_acoustic = 0.0;
            if (made.blank_candidate != NONE && made.blank_cost <= worst) {
                entry.blank_cost = made.blank_cost - best;
                const Candidate& way = arrays.candidates[made.blank_candidate];
                entry.token_end = token_end(way);
                entry.blank_acoustic = acoustic(row, way);
                entry.blank_trace = trace_of(way);
            }
            if (made.nonblank_candidate != NONE && made.nonblank_cost <= worst) {
                entry.nonblank_cost = made.nonblank_cost - best;
                const Candidate& way = arrays.candidates[made.nonblank_candidate];
                entry.nonblank_acoustic = acoustic(row, way);
                entry.nonblank_trace = trace_of(way);
            }
            arrays.next[r] = entry;
        }
        team_sync();
    }

    // The frame after the token before a candidate, if that token is over.
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
