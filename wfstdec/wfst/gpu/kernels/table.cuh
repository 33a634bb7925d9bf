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
    u32 size;

    __device__ void sync() const {
        if (size == WARP)
            __syncwarp();
        else
            __syncthreads();
    }
};

// What a frame is made in: the block's part of arrays in global memory, or less of it
// in shared memory.
struct Scratch {
    Entry* new_entries;
    Candidate* candidates;
    u64 *keys, *best, *epsilon_entries;
    u32 *table_entries, *entry_slots, *tie_breaks, *candidate_boosts, *candidate_slots;
    u32 num_slots, max_entries, max_candidates;
    bool shared;
};

__device__ inline Scratch global_scratch(const Task& task) {
    const u64 block = blockIdx.x, entries = block * task.entry_capacity;
    const u64 candidates = block * task.candidate_capacity;
    const u64 slots = block * task.table_slots;
    return {task.new_entries + entries, task.candidates + candidates,
            task.table_keys + slots, task.table_best + slots,
            task.epsilon_entries + entries, task.table_entries + slots,
            task.entry_slots + entries, task.tie_breaks + entries,
            task.candidate_boosts + candidates, task.candidate_slots + candidates,
            task.table_slots, task.entry_capacity, task.candidate_capacity, false};
}

// An entry and a candidate for every other slot: SLOT_BYTES of layout.py.
__device__ inline Scratch shared_scratch(const Task& task, Entry* memory) {
    const u32 slots = task.shared_slots, each = slots / 2;
    u64* keys = reinterpret_cast<u64*>(memory + each);
    u64 *best = keys + slots, *epsilon_entries = best + slots;
    Candidate* candidates = reinterpret_cast<Candidate*>(epsilon_entries + each);
    u32* table_entries = reinterpret_cast<u32*>(candidates + each);
    u32 *entry_slots = table_entries + slots, *tie_breaks = entry_slots + each;
    u32* candidate_boosts = tie_breaks + each;
    const u32 entries = each < task.entry_capacity ? each : task.entry_capacity;
    const u32 most = each < task.candidate_capacity ? each : task.candidate_capacity;
    return {memory, candidates, keys, best, epsilon_entries, table_entries,
            entry_slots, tie_breaks, candidate_boosts, candidate_boosts + each,
            slots, entries, most, true};
}

// What `Progress.overflow` may have: no room in shared memory, or in global memory.
constexpr u32 NO_SHARED = 1, NO_ROOM = 2;

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
    u32 overflow;        // NO_SHARED, NO_ROOM
    u32 arcs, looked;    // what `Utterance` sums up
    u32 num_links;  // those of the frame and those that did not fit included
};

struct Table : Costs {
    Scratch& scratch;  // that is in use
    Progress& progress;

    // Empty all slots: a frame that was interrupted, or another launch, may have left
    // something there.
    __device__ void clear() const {
        for (u32 slot = threadIdx.x; slot < scratch.num_slots; slot += blockDim.x) {
            scratch.keys[slot] = EMPTY;
            scratch.best[slot] = ~0ull;
        }
        __syncthreads();
    }

    // Add a candidate, or say that there is no room. What is read of its record comes
    // into L2 meanwhile.
    __device__ void append(const Candidate& candidate, u32 boost) const {
        prefetch_l2(record_at(task, utterance, candidate.record));
        const u32 at = atomicAdd(&progress.num_candidates, 1u);
        if (at < scratch.max_candidates) {
            scratch.candidates[at] = candidate;
            if (has_phrases(utterance)) scratch.candidate_boosts[at] = boost;
        } else {
            overflow();
        }
    }

    __device__ void overflow() const {
        atomicOr(&progress.overflow, scratch.shared ? NO_SHARED : NO_ROOM);
    }

    __device__ u32 num_candidates() const {
        const u32 all = progress.num_candidates, most = scratch.max_candidates;
        return all < most ? all : most;
    }

    // Give candidates within the cutoff to their search states, with `stays` blanks and
    // repeats too: each state keeps the least (cost, tie, source boost state), and that
    // one writes the entry. No order of threads decides. A barrier has to lie between
    // the last `append` and this. Returns how many entries have epsilon arcs.
    __device__ u32 recombine(
        const Team& team, float cutoff, bool stays, u32& num_entries) const {
        const bool phrases = has_phrases(utterance);
        // `progress.overflow` is not looked at: threads that are ahead may set it.
        const u32 num_stays = stays ? 2 * utterance.frontier_count : 0;
        const u32 count = num_stays + num_candidates();
        for (u32 k = threadIdx.x; k < count; k += team.size) {
            Offer offer;
            u32* at;
            if (k < num_stays) {
                Entry& entry = in_global(utterance.frontier)[k / 2];
                at = k % 2 ? &entry.repeat_slot : &entry.blank_slot;
                offer = offer_of_stay(entry, k % 2);
            } else {
                at = &scratch.candidate_slots[k - num_stays];
                offer = offer_of(k - num_stays);
            }
            u32 slot = NONE;
            if (cost_of_key(offer.key) <= cutoff)
                slot = slot_of(offer.record, offer.boost);
            *at = slot;
            if (slot != NONE && !offer.is_alone)
                atomicMin(&scratch.best[slot], offer.key);
        }
        team.sync();
        const u32 waiting = progress.num_epsilon;
        num_entries = progress.overflow ? 0 : progress.num_entries;
        if (progress.overflow) return waiting;
        if (phrases) break_ties(team);
        for (u32 k = threadIdx.x; k < count; k += team.size) {
            if (k < num_stays) {
                write_stay(in_global(utterance.frontier)[k / 2], k % 2);
                continue;
            }
            const u32 q = k - num_stays;
            if (!is_least(q)) continue;
            const Candidate candidate = scratch.candidates[q];
            const u32 at = scratch.table_entries[scratch.candidate_slots[q]];
            if (phrases && scratch.tie_breaks[at] != source_boost(candidate)) continue;
            if (candidate.tie & EPSILON_ARC)
                write_epsilon(scratch.new_entries[at], candidate);
            else
                write_emitting(scratch.new_entries[at], candidate);
        }
        team.sync();
        return waiting;
    }

    // What is offered to a search state; `is_alone` where nothing else leads there.
    struct Offer {
        u64 key;  // (cost, tie)
        u32 record, boost;
        bool is_alone;
    };

    __device__ Offer offer_of(u32 q) const {
        const Candidate candidate = scratch.candidates[q];
        const u32 boost = has_phrases(utterance) ? scratch.candidate_boosts[q] : 0;
        return {key_of(candidate.cost, candidate.tie), candidate.record, boost, false};
    }

    // ------------------------------------------------------------- blanks and repeats
    __device__ Row row_of(u32 record) const {
        return read_only(&record_at(task, utterance, record)->row);
    }

    // Of a repeat or a blank. A blank leads to the same entry where that has both
    // states of the row, else to one that several may lead to.
    __device__ Offer offer_of_stay(const Entry& entry, bool repeats) const {
        const float cost = repeats ? entry.repeat : entry.next_blank;
        if (!(cost < infinite())) return {NO_KEY, NONE, 0, true};
        const bool is_hub = entry.record & HUB, both = has_both(entry.record);
        const States states = states_of(task, utterance, entry.record);
        const u32 tie = is_hub ? states.blank_number : states.token_number;
        const bool own = repeats || both || is_hub;
        const u32 record = own ? entry.record : row_of(entry.record).hub;
        return {key_of(cost, tie), record, entry.boost, both && !repeats};
    }

    __device__ void write_stay(const Entry& entry, bool repeats) const {
        const u32 slot = repeats ? entry.repeat_slot : entry.blank_slot;
        if (slot == NONE) return;
        const Offer offer = offer_of_stay(entry, repeats);
        if (!offer.is_alone && scratch.best[slot] != offer.key) return;
        Entry& made = scratch.new_entries[scratch.table_entries[slot]];
        const u32 token = repeats ? entry.again : task.blank;
        const float unscaled = unscaled_cost(row_of_frame(), token, false);
        if (repeats) {
            made.token = entry.repeat;
            made.token_node = entry.token_node;
            made.token_acoustic = entry.token_acoustic + unscaled;
            return;
        }
        const float price = task.acoustic_scale * unscaled;
        const bool from_token = stays_of(entry, price, infinite()).leaves_token(entry);
        const double before = from_token ? entry.token_acoustic : entry.blank_acoustic;
        made.blank = entry.next_blank;
        made.blank_node = from_token ? entry.token_node : entry.blank_node;
        made.ended = from_token ? utterance.frames + 1 : entry.ended;
        made.blank_acoustic = before + unscaled;
    }

    // --------------------------------------------------------------------- candidates
    // Whether nothing else reaches the same search state at a lower (cost, tie).
    __device__ bool is_least(u32 q) const {
        const u32 slot = scratch.candidate_slots[q];
        if (slot == NONE) return false;
        const Candidate candidate = scratch.candidates[q];
        return scratch.best[slot] == key_of(candidate.cost, candidate.tie);
    }

    // Among candidates of equal (cost, tie), find the least boost state of a source:
    // they take one arc, from one graph state in several boost states.
    __device__ void break_ties(const Team& team) const {
        const u32 count = num_candidates();
        for (u32 q = threadIdx.x; q < count; q += team.size)
            if (is_least(q)) atomicExch(tie_of(q), NONE);
        team.sync();
        for (u32 q = threadIdx.x; q < count; q += team.size)
            if (is_least(q))
                atomicMin(tie_of(q), source_boost(scratch.candidates[q]));
        team.sync();
    }

    __device__ u32* tie_of(u32 q) const {
        return &scratch.tie_breaks[scratch.table_entries[scratch.candidate_slots[q]]];
    }

    __device__ u32 source_boost(const Candidate& candidate) const {
        const u32 source = candidate.source & ~FROM_TOKEN;
        if (candidate.tie & EPSILON_ARC) return scratch.new_entries[source].boost;
        return in_global(utterance.frontier)[source].boost;
    }

    __device__ void write_emitting(Entry& made, const Candidate& candidate) const {
        const u32 source = candidate.source & ~FROM_TOKEN, now = utterance.frames + 1;
        const bool from_token = candidate.source & FROM_TOKEN;
        const Entry& entry = in_global(utterance.frontier)[source];
        const u32 arc = candidate.arc;
        const u32 label = arc_at(task, utterance, arc).ilabel & LABEL_MASK;
        const u64 row = row_of_frame();
        const double before = from_token ? entry.token_acoustic : entry.blank_acoustic;
        const u32 previous = from_token ? entry.token_node : entry.blank_node;
        made.token = candidate.cost;
        made.token_node = new_node(previous, arc, now, from_token ? now : entry.ended);
        made.token_acoustic = before + unscaled_cost(row, token_of(label), false);
    }

    // From token to token, from a token to its hub, or from hub to hub.
    __device__ void write_epsilon(Entry& made, const Candidate& candidate) const {
        const Entry& entry = scratch.new_entries[candidate.source & ~FROM_TOKEN];
        const u32 arc = candidate.arc;
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
        u32 slot = __umulhi(mix(number ^ mix(boost)), scratch.num_slots);
        while (!peek(&progress.overflow)) {
            u64 found = peek(&scratch.keys[slot]);
            if (found == EMPTY) {
                found = atomicCAS(&scratch.keys[slot], EMPTY, key);
                if (found == EMPTY)
                    return add_entry(record, boost, slot) ? slot : NONE;
            }
            if (found == key) return slot;
            slot = slot + 1 < scratch.num_slots ? slot + 1 : 0;
        }
        return NONE;
    }

    __device__ bool add_entry(u32 record, u32 boost, u32 slot) const {
        const u32 at = atomicAdd(&progress.num_entries, 1u);
        if (at >= scratch.max_entries) {
            overflow();
            return false;
        }
        scratch.table_entries[slot] = at;
        scratch.entry_slots[at] = slot;
        Entry& made = scratch.new_entries[at];
        made.blank = made.token = infinite();
        made.record = record;
        made.boost = boost;
        if (record & EPSILONS || enters_hub(record)) {
            const u64 rank = rank_of(record);
            const u32 k = atomicAdd(&progress.num_epsilon, 1u);
            scratch.epsilon_entries[k] = rank << 32 | at;
            atomicMin(&progress.next_rank, static_cast<u32>(rank));
        }
        return true;
    }

    // Bring the first arcs of new entries into L2, by the threads that are no part of a
    // warp that follows epsilon arcs.
    __device__ void prefetch_arcs(u32 count) const {
        for (u32 i = threadIdx.x - WARP; i < count; i += blockDim.x - WARP) {
            const Row row = row_of(scratch.new_entries[i].record);
            if (row.length == 0) continue;
            const bool added = is_added_arc(utterance, row.first);
            const Overlay& overlay = utterance.overlay;
            prefetch_l2(added ? overlay.arcs + (row.first - overlay.first_arc)
                              : task.arcs + row.first);
        }
    }

    __device__ bool enters_hub(u32 record) const {
        return task.has_hubs && !(record & HUB);
    }

    // Hubs have rank 1 on.
    __device__ u32 rank_of(u32 record) const {
        if (enters_hub(record)) return 0;
        return read_only(&record_at(task, utterance, record)->epsilons).rank;
    }
};
