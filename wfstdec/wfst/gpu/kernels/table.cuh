// The table that recombines: search states to the least (cost, tie) and an entry.
#pragma once
#include "block.cuh"
#include "costs.cuh"
#include "keys.cuh"
#include "layout.cuh"
#include "overlay.cuh"

constexpr u64 EMPTY = ~0ull;

// Threads that work together: those of a block, or of its first warp.
struct Team {
    u32 rank, size;

    __device__ static Team block() { return {threadIdx.x, blockDim.x}; }
    __device__ static Team warp() { return {threadIdx.x, WARP}; }
    __device__ void sync() const {
        if (size == WARP)
            __syncwarp();
        else
            __syncthreads();
    }
};

// The slots of a table, and how many entries it may have.
struct Slots {
    u64 *keys, *best;
    u32 *entries, size, max_entries;
    bool shared;  // in shared memory
};

// The scratch of this block: its parts of the arrays of all blocks.
struct BlockScratch {
    const Task& task;

    __device__ Entry* new_entries() const { return task.new_entries + entries(); }
    __device__ u32* entry_slots() const { return task.entry_slots + entries(); }
    __device__ u32* tie_breaks() const { return task.tie_breaks + entries(); }
    __device__ u32* epsilon_entries() const { return task.epsilon_entries + entries(); }
    __device__ Candidate* candidates() const {
        return task.candidates + before(task.candidate_capacity);
    }
    __device__ u32* candidate_boosts() const {
        return task.candidate_boosts + before(task.candidate_capacity);
    }
    __device__ u32* candidate_slots() const {
        return task.candidate_slots + before(task.candidate_capacity);
    }
    __device__ Slots slots() const {
        const u64 first = before(task.table_slots);
        return {task.table_keys + first, task.table_best + first,
                task.table_entries + first, task.table_slots, task.entry_capacity,
                false};
    }
    __device__ u64 entries() const { return before(task.entry_capacity); }
    __device__ static u64 before(u32 each) {
        return static_cast<u64>(blockIdx.x) * each;
    }
};

// The table in shared memory; at most half full, as the one in global memory is.
__device__ inline Slots shared_slots(u64* memory, u32 size, u32 entry_capacity) {
    u64* best = memory + size;
    const u32 max_entries = size / 2 < entry_capacity ? size / 2 : entry_capacity;
    u32* entries = reinterpret_cast<u32*>(best + size);
    return {memory, best, entries, size, max_entries, true};
}

constexpr u32 NO_ROOM = 1, NO_SLOTS = 2;  // what `Progress.overflow` may have

// Counters of the frame that a block is at.
struct Progress {
    u32 num_candidates;  // those that did not fit included
    u32 num_entries;     // of `new_entries`, those that did not fit included
    u32 num_nodes;       // likewise
    u32 num_epsilon;     // entries with epsilon arcs
    u32 next_rank;       // the least epsilon rank that is still to be closed
    u32 least;           // the least cost, ordered
    u32 least_epsilon;   // of those that epsilon arcs reach
    u32 within, best;    // as in `Utterance`
    u32 overflow;        // NO_ROOM, NO_SLOTS
    u32 arcs, looked;    // what `Utterance` sums up
    u32 num_links;  // those of the frame and those that did not fit included
};

struct Table : Costs {
    const BlockScratch scratch;
    Slots& slots;  // of the table in use
    Progress& progress;

    // Empty all slots: a frame that was interrupted, or another launch, may have left
    // something there.
    __device__ void clear() const {
        for (u32 slot = threadIdx.x; slot < slots.size; slot += blockDim.x) {
            slots.keys[slot] = EMPTY;
            slots.best[slot] = ~0ull;
        }
        __syncthreads();
    }

    // Add a candidate, or say that there is no room.
    __device__ void append(const Candidate& candidate, u32 boost) const {
        const u32 at = atomicAdd(&progress.num_candidates, 1u);
        if (at < task.candidate_capacity) {
            scratch.candidates()[at] = candidate;
            if (has_phrases(utterance)) scratch.candidate_boosts()[at] = boost;
        } else {
            atomicOr(&progress.overflow, NO_ROOM);
        }
    }

    // Give blanks, repeats and candidates within the cutoff to their search states:
    // each keeps the least (cost, tie, source boost state), and that one writes the
    // entry. No order of threads decides. A barrier has to lie between the last
    // `append` and this. Returns how many entries have epsilon arcs.
    __device__ u32 recombine(const Team& team, float cutoff, bool stays) const {
        const bool phrases = has_phrases(utterance);
        const u32 most = task.candidate_capacity, all = progress.num_candidates;
        const u32 count = all < most ? all : most;
        if (stays) for_each_stay(cutoff, [&](u32 i, const Stays& of) {
            const Entry& entry = in_global(utterance.frontier)[i];
            offer_stays(entry, of, cutoff);
        });
        for (u32 q = team.rank; q < count; q += team.size) {
            const Candidate candidate = scratch.candidates()[q];
            u32 slot = NONE;
            if (candidate.cost <= cutoff) {
                const u32 boost = phrases ? scratch.candidate_boosts()[q] : 0;
                slot = slot_of(candidate.record, boost);
            }
            scratch.candidate_slots()[q] = slot;
            if (slot == NONE) continue;
            atomicMin(&slots.best[slot], key_of(candidate.cost, candidate.tie));
        }
        team.sync();
        const u32 waiting = progress.num_epsilon;
        if (progress.overflow) return waiting;
        if (phrases) break_ties(team, count);
        if (stays) for_each_stay(cutoff, [&](u32 i, const Stays& of) {
            const Entry& entry = in_global(utterance.frontier)[i];
            write_stays(entry, of, cutoff);
        });
        for (u32 q = team.rank; q < count; q += team.size) {
            if (!is_least(q)) continue;
            const Candidate candidate = scratch.candidates()[q];
            const u32 at = slots.entries[scratch.candidate_slots()[q]];
            if (phrases && scratch.tie_breaks()[at] != source_boost(candidate))
                continue;
            if (candidate.tie & EPSILON_ARC)
                write_epsilon(scratch.new_entries()[at], candidate);
            else
                write_emitting(scratch.new_entries()[at], candidate);
        }
        team.sync();
        return waiting;
    }

    // ------------------------------------------------------------- blanks and repeats
    // Calls `visit(entry, stays)` for the entries that stay within the cutoff.
    template <class Visit>
    __device__ void for_each_stay(float cutoff, Visit visit) const {
        const u64 row = row_of_frame();
        const bool skip = skips(row);
        for (u32 i = threadIdx.x; i < utterance.frontier_count; i += blockDim.x) {
            const Entry& entry = in_global(utterance.frontier)[i];
            const Stays stays = stays_of(entry, row_of(entry).token, row, skip);
            if (stays.least() <= cutoff) visit(i, stays);
        }
    }

    __device__ Row row_of(const Entry& entry) const {
        return read_only(&record_at(task, utterance, entry.record)->row);
    }

    // The key of a blank that leads to an entry of its own.
    __device__ u64 blank_key(
        const Entry& entry, const Stays& stays, const States& states) const {
        const u32 tie = entry.record & HUB ? states.blank_tie : states.token_tie;
        return key_of(stays.least_blank(), tie);
    }

    __device__ u32 hub_of(const Entry& entry) const {
        return entry.record & HUB ? entry.record : row_of(entry).hub;
    }

    __device__ void offer_stays(
        const Entry& entry, const Stays& stays, float cutoff) const {
        const States states = states_of(task, utterance, entry.record);
        const bool both = has_both(entry.record), blank = stays.least_blank() <= cutoff;
        const bool repeats = stays.repeat <= cutoff;
        if (repeats || (both && blank)) {
            const u32 slot = slot_of(entry.record, entry.boost);
            if (slot != NONE && repeats)
                atomicMin(&slots.best[slot], key_of(stays.repeat, states.token_tie));
        }
        if (!both && blank) {
            const u32 slot = slot_of(hub_of(entry), entry.boost);
            if (slot != NONE)
                atomicMin(&slots.best[slot], blank_key(entry, stays, states));
        }
    }

    __device__ void write_stays(
        const Entry& entry, const Stays& stays, float cutoff) const {
        const States states = states_of(task, utterance, entry.record);
        const bool both = has_both(entry.record), blank = stays.least_blank() <= cutoff;
        const bool repeats = stays.repeat <= cutoff;
        const u64 row = row_of_frame();
        const bool skip = skips(row);
        if (repeats || (both && blank)) {
            const u32 slot = slot_of(entry.record, entry.boost);
            if (slot == NONE) return;
            Entry& made = scratch.new_entries()[slots.entries[slot]];
            const u64 key = key_of(stays.repeat, states.token_tie);
            if (repeats && slots.best[slot] == key) {
                const u32 token = row_of(entry).token;
                made.token = stays.repeat;
                made.token_node = entry.token_node;
                made.token_acoustic =
                    entry.token_acoustic + unscaled_cost(row, token, skip);
            }
            if (both && blank) write_blank(made, entry, stays, row, skip);
        }
        if (!both && blank) {
            const u32 slot = slot_of(hub_of(entry), entry.boost);
            if (slot == NONE || slots.best[slot] != blank_key(entry, stays, states))
                return;
            Entry& made = scratch.new_entries()[slots.entries[slot]];
            write_blank(made, entry, stays, row, skip);
        }
    }

    __device__ void write_blank(
        Entry& made, const Entry& entry, const Stays& stays, u64 row, bool skip) const {
        const bool from_token = stays.leaves_token(entry.record);
        const double before = from_token ? entry.token_acoustic : entry.blank_acoustic;
        made.blank = stays.least_blank();
        made.blank_node = from_token ? entry.token_node : entry.blank_node;
        made.ended = from_token ? utterance.frames + 1 : entry.ended;
        made.blank_acoustic = before + unscaled_cost(row, task.blank, skip);
    }

    // --------------------------------------------------------------------- candidates
    // Whether nothing else reaches the same search state at a lower (cost, tie).
    __device__ bool is_least(u32 q) const {
        const u32 slot = scratch.candidate_slots()[q];
        if (slot == NONE) return false;
        const Candidate candidate = scratch.candidates()[q];
        return slots.best[slot] == key_of(candidate.cost, candidate.tie);
    }

    // Among candidates of equal (cost, tie), find the least boost state of a source:
    // they take one arc, from one graph state in several boost states.
    __device__ void break_ties(const Team& team, u32 count) const {
        for (u32 q = team.rank; q < count; q += team.size)
            if (is_least(q)) atomicExch(tie_of(q), NONE);
        team.sync();
        for (u32 q = team.rank; q < count; q += team.size)
            if (is_least(q))
                atomicMin(tie_of(q), source_boost(scratch.candidates()[q]));
        team.sync();
    }

    __device__ u32* tie_of(u32 q) const {
        return &scratch.tie_breaks()[slots.entries[scratch.candidate_slots()[q]]];
    }

    __device__ u32 source_boost(const Candidate& candidate) const {
        const u32 source = candidate.source & ~FROM_TOKEN;
        if (candidate.tie & EPSILON_ARC) return scratch.new_entries()[source].boost;
        return in_global(utterance.frontier)[source].boost;
    }

    // The arc of a candidate, and its position in its row, from 1 on; 0 where it leads
    // to a hub.
    struct Taken {
        u32 arc, position;
    };
    __device__ Taken arc_of(const Candidate& candidate, u32 record) const {
        const Overlay& overlay = utterance.overlay;
        const u32 tie = candidate.tie & ~EPSILON_ARC;
        if (ADDED && tie >= overlay.first_tie) {
            const u32 call = tie - overlay.first_tie;
            if (call < overlay.num_calls * overlay.num_entering)
                return {overlay.first_arc + call, 1};
        }
        const Record* of = record_at(task, utterance, record);
        const States states = read_only(&of->states);
        const bool from_token = candidate.source & FROM_TOKEN;
        const u32 k = tie - (from_token ? states.token_tie : states.blank_tie);
        if (k == 0) return {NONE, 0};
        if (!(candidate.tie & EPSILON_ARC))
            return {read_only(&of->row).first + k - 1, k};
        return {read_only(&of->epsilons).begin + k - 1, k};
    }

    __device__ void write_emitting(Entry& made, const Candidate& candidate) const {
        const u32 source = candidate.source & ~FROM_TOKEN, now = utterance.frames + 1;
        const bool from_token = candidate.source & FROM_TOKEN;
        const Entry& entry = in_global(utterance.frontier)[source];
        const u32 arc = arc_of(candidate, entry.record).arc;
        const u32 label = arc_at(task, utterance, arc).ilabel & LABEL_MASK;
        const u64 row = row_of_frame();
        const double before = from_token ? entry.token_acoustic : entry.blank_acoustic;
        const u32 previous = from_token ? entry.token_node : entry.blank_node;
        made.token = candidate.cost;
        made.token_node = new_node(previous, arc, now, from_token ? now : entry.ended);
        made.token_acoustic = before + unscaled_cost(row, token_of(label), skips(row));
    }

    // From token to token, from a token to its hub, or from hub to hub.
    __device__ void write_epsilon(Entry& made, const Candidate& candidate) const {
        const Entry& entry = scratch.new_entries()[candidate.source & ~FROM_TOKEN];
        const u32 arc = arc_of(candidate, entry.record).arc;
        const u32 now = utterance.frames + (utterance.frontier_count > 0);
        if (arc == NONE) {
            made.blank = candidate.cost;
            made.blank_node = entry.token_node;
            made.ended = now + 1;
            made.blank_acoustic = entry.token_acoustic;
        } else if (task.has_hubs) {
            made.blank = candidate.cost;
            made.blank_node = new_node(entry.blank_node, arc, now, entry.ended);
            made.ended = now + 1;
            made.blank_acoustic = entry.blank_acoustic;
        } else {
            made.token = candidate.cost;
            made.token_node = new_node(entry.token_node, arc, now, now + 1);
            made.token_acoustic = entry.token_acoustic;
        }
    }

    // Write a trace node behind those there are; `trace_count` takes it in later.
    __device__ u32 new_node(u32 previous, u32 arc, u32 frame, u32 ended) const {
        const u32 at = utterance.trace_count + atomicAdd(&progress.num_nodes, 1u);
        if (at < utterance.trace_capacity)
            in_global(utterance.trace)[at] = {previous, arc, frame, ended, NONE};
        return at;
    }

    // -------------------------------------------------------------------------- slots
    // The slot of a search state, with an entry, both made where there are none; NONE
    // where there is no room. A frame that overflowed is lost, and its table may be
    // full: it is not looked through.
    __device__ u32 slot_of(u32 record, u32 boost) const {
        const u32 number = record & (RECORDS | HUB);
        const u64 key = static_cast<u64>(number) << 32 | boost;
        u32 slot = __umulhi(mix(number ^ mix(boost)), slots.size);
        while (!peek(&progress.overflow)) {
            u64 found = peek(&slots.keys[slot]);
            if (found == EMPTY) {
                found = atomicCAS(&slots.keys[slot], EMPTY, key);
                if (found == EMPTY)
                    return add_entry(record, boost, slot) ? slot : NONE;
            }
            if (found == key) return slot;
            slot = slot + 1 < slots.size ? slot + 1 : 0;
        }
        return NONE;
    }

    __device__ bool add_entry(u32 record, u32 boost, u32 slot) const {
        const u32 at = atomicAdd(&progress.num_entries, 1u);
        if (at >= slots.max_entries) {
            atomicOr(&progress.overflow, no_entry());
            return false;
        }
        slots.entries[slot] = at;
        scratch.entry_slots()[at] = slot;
        Entry& made = scratch.new_entries()[at];
        made.blank = made.token = infinite();
        made.record = record;
        made.boost = boost;
        if (record & EPSILONS || enters_hub(record)) {
            scratch.epsilon_entries()[atomicAdd(&progress.num_epsilon, 1u)] = at;
            atomicMin(&progress.next_rank, rank_of(record));
        }
        return true;
    }

    __device__ bool enters_hub(u32 record) const {
        return task.has_hubs && !(record & HUB);
    }

    // Hubs have rank 1 on.
    __device__ u32 rank_of(u32 record) const {
        if (enters_hub(record)) return 0;
        return read_only(&record_at(task, utterance, record)->epsilons).rank;
    }

    // What is too small where there is no room for an entry.
    __device__ u32 no_entry() const {
        return slots.max_entries < task.entry_capacity ? NO_SLOTS : NO_ROOM;
    }
};
