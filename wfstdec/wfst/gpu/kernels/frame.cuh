// One frame of the token-passing search, by all threads of a block.
//
// The specification is `reference.py`. For each frame:
//
//     keep       prune the frontier by max_active              exact, radix select
//     emit       candidates: token arcs that may survive       a thread per arc
//     recombine  blanks and repeats in place, candidates: one  64-bit atomicMin
//                entry per search state, within the cutoff
//     close      epsilon arcs, rank by rank                    a warp where few wait
//     settle     re-base
//
// Nothing depends on the order of threads: (cost, tie, source boost state) is unique,
// and a bound that is read while it falls only lets more candidates through; the cutoff
// drops them. Sums are float32 in the order of the specification: compile with
// --fmad=false.
#pragma once
#include "block.cuh"
#include "frontier.cuh"
#include "links.cuh"
#include "table.cuh"
#include "times.cuh"
#include "tokens.cuh"
#include "trace.cuh"

// What the host never sees: the status of a frame that needs the larger table, of one
// to be done again, and of one with a number that is no log-prob.
constexpr u32 SPILL = NONE, AGAIN = NONE - 1, NO_LOGPROB = NONE - 2;

// Which states of an entry are left; NO_STATE only brings the bound down.
constexpr u32 BOTH = 0, AFTER_BLANK = 1, AFTER_TOKEN = 2, NO_STATE = 3;
constexpr u32 FEW = 64;  // entries whose epsilon arcs a warp follows

// The search of one utterance, a frame at a time.
struct FrameSearch : Links {
    Entry* shared_memory;
    BlockMemory& memory;
    PhaseClock<NUM_PHASES>& times;
    LiveTokens& live;

    // ---------------------------------------------------------------------- emit
    // Offer a cost that an arc reaches: it lowers the bound, and makes a candidate if it
    // may survive.
    __device__ void offer(
        float cost, u32 source, u32 arc_id, const Arc& arc, u32 boost, u32 of) const {
        if (!(cost <= MAX_COST)) return;
        if (cost < cost_of(peek(&progress.least)))
            atomicMin(&progress.least, ordered(cost));
        if (of == NO_STATE) return;
        const float least = cost_of(peek(&progress.least));
        if (!(cost <= fminf(least + utterance.beam, MAX_COST))) return;
        u32 tie;
        if (ADDED && of != BOTH) {
            const Overlay& overlay = utterance.overlay;
            tie = overlay.first_number + (arc_id - overlay.first_arc);
        } else {
            const u32 i = source & ~FROM_TOKEN;
            const u32 record = in_global(utterance.frontier)[i].record;
            const u32 k = arc_id - row_of(record).first;
            const Record* of_row = record_at(task, utterance, record);
            tie = number_of(of_row, k, source & FROM_TOKEN);
        }
        append({cost, arc.nextstate, source, tie, arc_id}, boost);
    }

    // Follow an arc out of the states `of` an entry, from the one that is better; a tie
    // goes to the lower one. Its token does not follow the state after it.
    __device__ void follow(u32 i, u32 arc_id, u32 of) const {
        const Arc arc = arc_at(task, utterance, arc_id);
        const u32 token = token_of(arc.ilabel & LABEL_MASK);
        const u64 row = row_of_frame();
        const float price = scaled_cost(row, token, skips(row));
        if (!(price < infinite())) return;
        const Entry& entry = in_global(utterance.frontier)[i];
        u32 boost = entry.boost;
        const Extras extras = extras_of(arc_id, arc, boost);
        float blank = infinite(), after_token = infinite();
        if (of != AFTER_TOKEN) blank = extras.after(within(entry.blank)) + price;
        if (of != AFTER_BLANK && (token != entry.again || of == AFTER_TOKEN))
            after_token = extras.after(within(entry.token)) + price;
        const bool from_token = after_token < blank ||
            (after_token == blank && entry.record & TOKEN_FIRST);
        // A lattice has the arcs out of both.
        if (LATTICES || !from_token) offer(blank, i, arc_id, arc, boost, of);
        if (LATTICES || from_token)
            offer(after_token, i | FROM_TOKEN, arc_id, arc, boost, of);
    }

    // Price the blank and the repeat of an entry, and bring the bound down by them.
    __device__ void price_stays(u32 i) const {
        Entry& entry = in_global(utterance.frontier)[i];
        const u32 token = row_of(entry.record).token;
        const Stays stays = stays_of(entry, token);
        entry.next_blank = stays.least_blank();
        entry.repeat = stays.repeat;
        entry.again = token;
        const float least = stays.least();
        if (least <= MAX_COST && least < cost_of(peek(&progress.least)))
            atomicMin(&progress.least, ordered(least));
    }

    // Write the arcs that may survive to the candidates; `progress.least` becomes the
    // least cost that any of them, a blank or a repeat reaches.
    __device__ void emit() const {
        const Entry* frontier = in_global(utterance.frontier);
        const Tokens tokens = {*this, live};
        const u32 count = utterance.frontier_count;
        for (u32 i = threadIdx.x; i < count; i += blockDim.x) price_stays(i);
        const bool by_token = tokens.are_used();
        if (by_token) tokens.fill();
        __syncthreads();
        // Where blanks and repeats are arcs, the best entry brings the bound down first.
        bool bound_only = task.plain;
        const auto arcs_of = [&](u32 i) {
            if (bound_only && i != utterance.best) return Range{0, 0};
            const Entry& entry = frontier[i];
            const float cost = within(fminf(entry.blank, entry.token));
            if (!(cost < infinite()) || enters_hub(entry.record)) return Range{0, 0};
            const Record* record = record_at(task, utterance, entry.record);
            const Row arcs = read_only(&record->row);
            u32 length = arcs.length;
            if (by_token) {
                const float least = cost_of(peek(&progress.least));
                const float cutoff = fminf(least + utterance.beam, MAX_COST);
                const Labels labels = read_only(&record->labels);
                const u64 set = tokens.of_row(labels, cost, cutoff);
                live.of_source[i % MAX_THREADS] = set;
                if (labels.tokens) length = __popcll(set);
            }
            return Range{arcs.first, arcs.first + length};
        };
        const auto entering = [&](u32 i) {
            const Entry& entry = frontier[i / 2];
            const float cost = within(i % 2 ? entry.token : entry.blank);
            if (!(entry.record & EXIT) || !(cost < infinite())) return Range{0, 0};
            const States states = states_of(task, utterance, entry.record);
            return entering_arcs(
                utterance, i % 2 ? states.after_token : states.after_blank);
        };
        const auto follow_row = [&](u32 i, u32 arc_id, u32 k) {
            const u64 set = by_token ? live.of_source[i % MAX_THREADS] : 0;
            if (set) {
                const u32 record = frontier[i].record;
                const u64 all =
                    read_only(&record_at(task, utterance, record)->labels).tokens;
                arc_id += tokens.position(set, all, k) - k;
            }
            follow(i, arc_id, bound_only ? NO_STATE : BOTH);
        };
        const auto enter = [&](u32 i, u32 arc_id, u32) {
            follow(i / 2, arc_id, i % 2 ? AFTER_TOKEN : AFTER_BLANK);
        };
        u32 looked;
        while (true) {
            looked = for_each_arc(memory, count, arcs_of, follow_row);
            if (!bound_only) break;
            bound_only = false;
        }
        if (ADDED && utterance.overlay.num_calls > 0)
            looked += for_each_arc(memory, 2 * count, entering, enter);
        if (threadIdx.x == 0) progress.looked = looked;
        times.end(EMIT);
    }

    // --------------------------------------------------------------------- close
    // Relax the epsilon arcs of the next rank; false where there is none. All arcs into
    // a rank come from lower ones, so that its entries are final when it comes.
    __device__ bool relax_rank(const Team& team, float cutoff) const {
        const u32 rank = progress.next_rank, count = progress.num_epsilon;
        const u32 overflow = progress.overflow;
        team.sync();
        if (rank == NONE || overflow) return false;
        if (threadIdx.x == 0) {
            progress.next_rank = NONE;
            progress.num_candidates = 0;
        }
        team.sync();
        for (u32 k = threadIdx.x; k < count; k += team.size) {
            const u64 waits = scratch.epsilon_entries[k];
            const u32 own = static_cast<u32>(waits >> 32);
            if (own > rank) atomicMin(&progress.next_rank, own);
            if (own == rank) relax(static_cast<u32>(waits), cutoff);
        }
        team.sync();
        return progress.num_candidates <= scratch.max_candidates;
    }

    // Append what the epsilon arcs of an entry reach within the cutoff.
    __device__ void relax(u32 source, float cutoff) const {
        const Entry& entry = scratch.new_entries[source];
        const States states = states_of(task, utterance, entry.record);
        if (enters_hub(entry.record)) {
            const u32 hub = row_of(entry.record).hub, from = source | FROM_TOKEN;
            const u32 tie = (states.token_number - 1) | EPSILON_ARC;
            append({entry.token, hub, from, tie, NONE}, entry.boost);
            return;
        }
        const Epsilons arcs =
            read_only(&record_at(task, utterance, entry.record)->epsilons);
        const bool hubs = task.has_hubs;
        const u32 number = hubs ? states.blank_number : states.token_number;
        for (u32 a = arcs.begin; a < arcs.end; ++a) {
            const Arc arc = arc_at(task, utterance, a);
            u32 boost = entry.boost;
            const float cost =
                extras_of(a, arc, boost).after(hubs ? entry.blank : entry.token);
            if (!(cost <= cutoff)) continue;
            atomicMin(&progress.least_epsilon, ordered(cost));
            const u32 to = hubs ? row_of(arc.nextstate).hub : arc.nextstate;
            const u32 from = hubs ? source : source | FROM_TOKEN;
            append({cost, to, from, (number - (arcs.end - a)) | EPSILON_ARC, a}, boost);
        }
    }

    // -------------------------------------------------------------------- settle
    // Re-base, hand the entries to the utterance, empty the table; OK or what stands in
    // the way.
    __device__ u32 settle() const {
        const u32 count = progress.num_entries;
        if (count > utterance.frontier_capacity) return GROW_FRONTIER;
        if (LATTICES) finish_links();
        const u32 least_order = progress.least < progress.least_epsilon
            ? progress.least : progress.least_epsilon;
        const float least = cost_of(least_order);
        u32 within = 0;
        for (u32 i = threadIdx.x; i < count; i += blockDim.x) {
            Entry entry = scratch.new_entries[i];
            entry.blank = entry.blank - least;
            entry.token = entry.token - least;
            in_global(utterance.frontier)[i] = entry;
            within += (entry.blank <= task.beam) + (entry.token <= task.beam);
            if (task.plain && entry.token == 0.0f) atomicMin(&progress.best, i);
            const u32 slot = scratch.entry_slots[i];
            scratch.keys[slot] = EMPTY;
            scratch.best[slot] = ~0ull;
        }
        if (within) atomicAdd(&progress.within, within);
        __syncthreads();
        if (threadIdx.x == 0) {
            record(count, least);
            reset();
        }
        __syncthreads();
        return OK;
    }

    // Add the frame, or the closure before the first one, to the utterance's record.
    __device__ void record(u32 count, float least) const {
        if (utterance.frontier_count > 0) {
            ++utterance.frames;
            ++utterance.chunk_frame;
            utterance.active += utterance.within;
            utterance.arcs += progress.arcs;
            utterance.looked += progress.looked;
            utterance.entries += count;
            utterance.shared += scratch.shared;
        }
        utterance.frontier_count = count;
        utterance.trace_count += progress.num_nodes;
        if (LATTICES) {
            utterance.links_count = progress.num_links;
            utterance.first_place = utterance.num_places;
            utterance.num_places += 2 * count;
        }
        utterance.within = progress.within;
        utterance.beam = task.beam;
        utterance.best = progress.best;
        utterance.base += static_cast<double>(least);
    }

    // Begin to count, by one thread; barriers have to lie before and behind it.
    __device__ void reset() const {
        progress.num_candidates = progress.num_entries = progress.num_nodes = 0;
        progress.num_epsilon = progress.within = progress.overflow = 0;
        progress.least = progress.least_epsilon = ordered(infinite());
        progress.next_rank = progress.best = NONE;
        if (LATTICES) progress.num_links = utterance.links_count;
    }

    // Empty the table, and begin to count.
    __device__ void restart() const {
        __syncthreads();
        if (threadIdx.x == 0) reset();
        clear();
    }

    // Compact the trace where it is full; GROW_TRACE where that frees less than half.
    // While the frontier before the launch may be wanted back, its nodes stay.
    __device__ u32 make_room_in_trace() const {
        if (keeps_backup()) return FULL_TRACE;
        const u32 more = progress.num_nodes, kept = compact(memory, utterance);
        if (threadIdx.x == 0) utterance.trace_count = kept;
        __syncthreads();
        return 2 * (kept + more) <= utterance.trace_capacity ? AGAIN : GROW_TRACE;
    }

    __device__ bool keeps_backup() const {
        return utterance.backup != nullptr && !task.checked;
    }

    __device__ void make_backup() const {
        if (!keeps_backup()) return;
        const Entry* frontier = in_global(utterance.frontier);
        for (u32 i = threadIdx.x; i < utterance.frontier_count; i += blockDim.x)
            in_global(utterance.backup)[i] = frontier[i];
        __syncthreads();
    }

    // -------------------------------------------------------------------- frames
    // The frontier before the first frame: the start state, to be closed.
    __device__ void begin() const {
        if (threadIdx.x == 0) {
            const u32 boost = has_phrases(utterance) ? phrases.start : 0;
            const u32 slot = slot_of(task.start, boost);
            Entry& made = scratch.new_entries[0];
            made.blank_node = made.token_node = new_node(NONE, NONE, 0, 0);
            made.blank_acoustic = made.token_acoustic = 0.0;
            made.ended = 1;
            (task.start & HUB ? made.blank : made.token) = 0.0f;
            progress.least = ordered(0.0f);
            scratch.best[slot] = key_of(0.0f, 0);  // no epsilon arc can beat it
        }
        __syncthreads();
    }

    // Nothing survives: the utterance ends with what the frame went on from.
    __device__ void die() const {
        for (u32 i = threadIdx.x; i < utterance.frontier_count; i += blockDim.x) {
            Entry& entry = in_global(utterance.frontier)[i];
            entry.blank = within(entry.blank);
            entry.token = within(entry.token);
        }
        if (threadIdx.x == 0) utterance.died = utterance.frames;
        __syncthreads();
    }

    // One frame, or the closure before the first one. OK, or what stands in the way:
    // then the utterance is as it was.
    __device__ u32 frame() const {
        const bool begun = utterance.frontier_count > 0;
        times.end(OTHER);
        const u32 frame = utterance.chunk_frame;
        if (begun) prefetch_frame(utterance.logprobs, frame + 2, task.num_tokens);
        if (begun && !task.checked) {
            check_frame(
                utterance.logprobs, frame, task.num_tokens, threadIdx.x, blockDim.x);
            __syncthreads();
        }
        if (utterance.logprobs.bad_frame != NONE) return NO_LOGPROB;
        float cutoff = task.beam;
        if (!begun) {
            begin();
        } else {
            keep(memory, task, utterance);
            times.end(KEEP);
            emit();
            // `progress.overflow` is not looked at: threads that are ahead may set it.
            if (progress.num_candidates > scratch.max_candidates) return grown();
            if (progress.least == ordered(infinite())) {
                die();
                return OK;
            }
            if (threadIdx.x == 0) progress.arcs = progress.num_candidates;
            cutoff = fminf(cost_of(progress.least) + utterance.beam, MAX_COST);
        }
        // First what advances by the frame, then epsilon arcs, rank by rank: by a warp
        // where few wait, as barriers of the block would take longer than the arcs.
        Team team = {blockDim.x};
        bool emitting = begun;
        while (emitting || relax_rank(team, cutoff)) {
            u32 num_entries;
            const u32 waiting = recombine(team, cutoff, emitting, num_entries);
            if (LATTICES && !progress.overflow) {
                if (emitting) note_stays(cutoff);
                note(team);
            }
            if (!emitting) continue;
            times.end(RECOMBINE);
            emitting = false;
            if (waiting == 0) break;
            if (waiting > FEW) continue;
            team.size = WARP;
            if (threadIdx.x < WARP) continue;
            prefetch_arcs(num_entries);
            break;
        }
        if (team.size == WARP) __syncthreads();
        times.end(CLOSE);
        if (progress.overflow) return grown();
        if (utterance.trace_count + progress.num_nodes > utterance.trace_capacity)
            return make_room_in_trace();
        if (LATTICES && progress.num_links > utterance.links_capacity)
            return GROW_LINKS;
        const u32 status = settle();
        times.end(SETTLE);
        return status;
    }

    // What an overflow asks for.
    __device__ u32 grown() const { return scratch.shared ? SPILL : GROW_SCRATCH; }
};
