// One frame of the token-passing search, by all threads of a block.
//
// The specification is `reference.py`. For each frame:
//
//     keep       prune the frontier by beam and max_active     exact, radix select
//     emit       candidates: arcs that may survive             a thread per arc
//     recombine  one entry per search state, within the cutoff 64-bit atomicMin
//     close      epsilon arcs, rank by rank
//     settle     trace nodes, re-base
//
// The result does not depend on the order of threads: (cost, arc id, source boost
// state) is unique, and a bound that is read while it falls only admits more
// candidates; the cutoff drops them. Sums are float32 in the order of the
// specification: compile
// with --fmad=false.
#pragma once
#include "block.cuh"
#include "costs.cuh"
#include "frontier.cuh"
#include "layout.cuh"
#include "links.cuh"
#include "overlay.cuh"
#include "table.cuh"
#include "times.cuh"
#include "trace.cuh"

// Statuses that the host never sees: a frame that needs the larger table, and one with
// a number that is no log-prob.
constexpr u32 SPILL = NONE, NO_LOGPROB = NONE - 1;

// The search of one utterance, a frame at a time.
struct FrameSearch : Costs {
    const BlockScratch scratch;
    Slots& slots;  // of the table in use
    u64* shared_table;
    BlockMemory& memory;
    Progress& progress;
    PhaseClock<NUM_PHASES>& times;

    __device__ Table table() const {
        return {task, scratch, slots, progress, utterance};
    }
    __device__ void note_links() const {
        if (LATTICES) Links{task, scratch, slots, progress, *this}.note();
    }

    // ---------------------------------------------------------------------- emit
    // Write the arcs that may survive to the candidates; `progress.least` becomes the
    // least cost that any of them reaches.
    __device__ void emit(const Kept& kept) const {
        const Entry* frontier = in_global(utterance.frontier);
        const u64 row = row_of_frame();
        const bool skip = skips(row);
        start_bound(row, kept.last, skip);
        times.end(BOUND);
        const auto arcs_of = [&](u32 i) {
            const Entry entry = frontier[i];
            if (!kept.last.holds(entry)) return Range{0, 0};
            const StateArcs arcs = arcs_of_state(task, utterance, entry.state);
            return Range{arcs.emit, arcs.end};
        };
        const auto entering = [&](u32 i) {
            const Entry entry = frontier[i];
            if (!kept.last.holds(entry)) return Range{0, 0};
            return entering_arcs(utterance, entry.state);
        };
        const auto follow_arc = [&](u32 i, u32 arc_id) {
            const Arc arc = arc_at(task, utterance, arc_id);
            const Entry entry = frontier[i];
            u32 boost = entry.boost;
            const float cost =
                follow_emitting(entry.cost, arc_id, arc, row, skip, boost);
            const float least = cost_of(peek(&progress.least));
            const float bound = fminf(least + kept.beam, MAX_COST);
            if (!(cost <= bound)) return;
            if (cost < least) atomicMin(&progress.least, ordered(cost));
            table().append({cost, arc.nextstate, i, arc_key(arc_id, arc)}, boost);
        };
        const u32 count = utterance.frontier_count;
        u32 looked = for_each_arc(memory, count, arcs_of, follow_arc);
        if (ADDED && utterance.overlay.num_calls > 0)
            looked += for_each_arc(memory, count, entering, follow_arc);
        if (threadIdx.x == 0) progress.looked = looked;
        times.end(EMIT);
    }

    // Lower the bound by the arcs of the best entry, before anything is written.
    __device__ void start_bound(u64 row, const Rank& last, bool skip) const {
        const Entry best = in_global(utterance.frontier)[utterance.best];
        if (!last.holds(best)) return;
        const StateArcs arcs = arcs_of_state(task, utterance, best.state);
        for (u32 a = arcs.emit + threadIdx.x; a < arcs.end; a += blockDim.x) {
            u32 boost = best.boost;
            const Arc arc = arc_at(task, utterance, a);
            const float cost = follow_emitting(best.cost, a, arc, row, skip, boost);
            if (cost <= MAX_COST) atomicMin(&progress.least, ordered(cost));
        }
    }

    // ----------------------------------------------------------------- recombine
    // Emit and recombine; returns the frame's cutoff. `progress.num_candidates` is 0 if
    // no state survives.
    __device__ float next_entries(const Kept& kept) const {
        emit(kept);
        const float cutoff = fminf(cost_of(progress.least) + kept.beam, MAX_COST);
        const u32 made = progress.num_candidates;
        if (made == 0 || made > task.candidate_capacity) return cutoff;
        if (threadIdx.x == 0) progress.arcs = made;
        table().recombine(cutoff);
        times.end(RECOMBINE);
        return cutoff;
    }

    // --------------------------------------------------------------------- close
    // Relax epsilon arcs, sources by rank: all arcs into a rank come from lower ones,
    // so that the entries of a rank are final at its turn.
    __device__ void close(float cutoff) const {
        while (true) {
            const u32 rank = progress.next_rank, count = progress.num_epsilon;
            if (rank == NONE || progress.overflow) return;
            __syncthreads();
            if (threadIdx.x == 0) {
                progress.next_rank = NONE;
                progress.num_candidates = 0;
            }
            __syncthreads();
            const auto arcs_of = [&](u32 i) {
                const u32 source = scratch.epsilon_entries()[i];
                const u32 state = scratch.new_entries()[source].state;
                const StateArcs arcs = arcs_of_state(task, utterance, state);
                if (arcs.rank > rank) atomicMin(&progress.next_rank, arcs.rank);
                return arcs.rank == rank ? Range{arcs.begin, arcs.emit} : Range{0, 0};
            };
            for_each_arc(memory, count, arcs_of, [&](u32 i, u32 arc_id) {
                const u32 source = scratch.epsilon_entries()[i];
                const Arc arc = arc_at(task, utterance, arc_id);
                const u32 key = arc_key(arc_id, arc) | EPSILON_ARC;
                u32 boost = table().boost_of(source);
                const float before = scratch.new_entries()[source].cost;
                const float cost = follow(before, arc_id, arc, boost);
                if (cost <= cutoff)
                    table().append({cost, arc.nextstate, source, key}, boost);
            });
            if (progress.num_candidates > task.candidate_capacity) return;
            table().recombine(cutoff);
            if (!progress.overflow) note_links();
        }
    }

    // -------------------------------------------------------------------- settle
    // Create trace nodes, re-base, copy the entries to the utterance, empty the table;
    // OK or the obstacle.
    __device__ u32 settle() const {
        const u32 count = progress.num_entries;
        if (count > utterance.frontier_capacity) return GROW_FRONTIER;
        const u32 status = make_room_in_trace(count);
        if (status != OK) return status;
        if (LATTICES) Links{task, scratch, slots, progress, *this}.finish();
        if (threadIdx.x == 0) progress.least = ordered(infinite());
        __syncthreads();
        for (u32 i = threadIdx.x; i < count; i += blockDim.x) {
            atomicMin(&progress.least, ordered(scratch.new_entries()[i].cost));
            write_node(i);
        }
        __syncthreads();
        const float least = cost_of(progress.least);
        u32 within = 0;
        for (u32 i = threadIdx.x; i < count; i += blockDim.x) {
            const NewEntry entry = scratch.new_entries()[i];
            const float cost = entry.cost - least;
            const u32 node = utterance.trace_count + i;
            in_global(utterance.frontier)[i] = {
                cost, entry.state, node, table().boost_of(i)};
            within += cost <= task.beam;
            if (cost == 0.0f) atomicMin(&progress.best, i);
        }
        atomicAdd(&progress.within, within);
        __syncthreads();
        if (threadIdx.x == 0) record(count, least);
        table().clear_entries(count);
        return OK;
    }

    // Add the frame, or the closure before the first one, to the utterance's record.
    __device__ void record(u32 count, float least) const {
        if (utterance.frontier_count > 0) {
            ++utterance.frames;
            ++utterance.chunk_frame;
            utterance.active += progress.active;
            utterance.arcs += progress.arcs;
            utterance.looked += progress.looked;
            utterance.entries += count;
            utterance.shared += slots.shared;
        }
        utterance.frontier_count = count;
        utterance.trace_count += count;
        if (LATTICES) utterance.links_count = progress.num_links;
        utterance.within = progress.within;
        utterance.best = progress.best;
        utterance.base += static_cast<double>(least);
    }

    __device__ void write_node(u32 i) const {
        const NewEntry entry = scratch.new_entries()[i];
        Node node = {NONE, NONE, 0.0f, NONE};
        if (entry.arc_key != NONE) {
            node.arc = (entry.arc_key & ~EPSILON_ARC) >> 1;
            if (entry.arc_key & EPSILON_ARC) {
                node.previous = utterance.trace_count + entry.source;
            } else {
                node.previous = in_global(utterance.frontier)[entry.source].node;
                const Arc arc = arc_at(task, utterance, node.arc);
                const u32 token = token_of(arc.ilabel & LABEL_MASK);
                const u64 row = row_of_frame();
                node.acoustic = unscaled_cost(row, token, skips(row));
            }
        }
        if (LATTICES) node.renumbered = table().boost_of(i);
        in_global(utterance.trace)[utterance.trace_count + i] = node;
    }

    // Compact a full trace; GROW_TRACE if that frees less than half. If the frontier
    // before the launch may be restored, its nodes stay.
    __device__ u32 make_room_in_trace(u32 more) const {
        if (utterance.trace_count + more <= utterance.trace_capacity) return OK;
        if (LATTICES) return GROW_TRACE;
        if (keeps_backup()) return FULL_TRACE;
        const u32 kept = compact(memory, utterance);
        if (threadIdx.x == 0) utterance.trace_count = kept;
        __syncthreads();
        return 2 * (kept + more) <= utterance.trace_capacity ? OK : GROW_TRACE;
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
    // Requires a barrier after the last reading of counters.
    __device__ void begin_counting() const {
        if (threadIdx.x == 0) {
            progress.num_candidates = 0;
            progress.least = ordered(infinite());
            progress.within = 0;
            progress.best = NONE;
            progress.overflow = 0;
            if (LATTICES) progress.num_links = utterance.links_count;
            progress.num_entries = 0;
            progress.num_epsilon = 0;
            progress.next_rank = NONE;
        }
        __syncthreads();
    }

    // The frontier before the first frame: the start state, to be closed; the cutoff.
    __device__ float begin() const {
        if (threadIdx.x == 0) {
            const u32 boost = has_phrases(utterance) ? phrases.start : 0;
            const u32 slot = table().slot_of(0, boost);
            scratch.new_entries()[0] = {0.0f, 0, NONE, NONE};
            slots.best[slot] = key_of(0.0f, 0);  // no epsilon arc can beat it
            progress.num_candidates = 1;
        }
        __syncthreads();
        return task.beam;
    }

    // No survivor: the utterance ends with the frame's initial frontier.
    __device__ void die(const Rank& last) const {
        for (u32 i = threadIdx.x; i < utterance.frontier_count; i += blockDim.x) {
            Entry& entry = in_global(utterance.frontier)[i];
            if (!last.holds(entry)) entry.cost = infinite();
        }
        if (threadIdx.x == 0) utterance.died = utterance.frames;
        __syncthreads();
    }

    // One frame, or the closure before the first one. OK, or the obstacle: then the
    // utterance is unchanged.
    __device__ u32 frame() const {
        const bool begun = utterance.frontier_count > 0;
        times.end(OTHER);
        const u32 frame = utterance.chunk_frame;
        if (begun) prefetch_frame(utterance.logprobs, frame + 2, task.num_tokens);
        if (begun && !task.checked) {
            check_frame(
                utterance.logprobs, frame, task.num_tokens, threadIdx.x, blockDim.x);
        }
        begin_counting();
        if (utterance.logprobs.bad_frame != NONE) return NO_LOGPROB;
        float cutoff;
        if (!begun) {
            cutoff = begin();
        } else {
            const Kept kept = keep(memory, task, utterance);
            if (threadIdx.x == 0) progress.active = kept.count;
            times.end(KEEP);
            cutoff = next_entries(kept);
            if (!progress.overflow && progress.num_candidates == 0) {
                die(kept.last);
                return OK;
            }
            if (!progress.overflow) note_links();
        }
        if (!progress.overflow) close(cutoff);
        times.end(CLOSE);
        if (progress.overflow)
            return progress.overflow & NO_SLOTS ? SPILL : GROW_SCRATCH;
        if (LATTICES && progress.num_links > utterance.links_capacity)
            return GROW_LINKS;
        const u32 status = settle();
        times.end(SETTLE);
        return status;
    }
};
