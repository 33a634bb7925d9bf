// One frame of the token-passing search, by all threads of a block.
//
// The specification is `reference.py`. For each frame:
//
//     keep       prune the frontier by beam and max_active     exact, radix select
//     emit       candidates: arcs that may survive             a thread per arc
//     recombine  one entry per search state, within the cutoff 64-bit atomicMin
//     close      epsilon arcs, rank by rank                    a warp where few wait
//     settle     trace nodes, re-base
//
// Nothing depends on the order of threads: (cost, arc id, source boost state) is
// unique, and a bound that is read while it falls only lets more candidates through;
// the cutoff drops them. Sums are float32 in the order of the specification: compile
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

// What the host never sees: the status of a frame that needs the larger table, and of
// one with a number that is no log-prob.
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
    __device__ Links links() const { return {task, scratch, slots, progress, *this}; }
    __device__ void note_links() const { links().note(); }

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

    // Bring the bound down by the arcs of the best entry, before anything is written.
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

    // --------------------------------------------------------------------- close
    // Relax the epsilon arcs of entries, `epsilon_arcs` of them so far. Sources go by
    // rank: all arcs into a rank come from lower ones, so that the entries of a rank are
    // final when it comes. Few arcs are followed by the first warp alone, as barriers of
    // the block would take longer.
    __device__ void close(u32 epsilon_arcs, float cutoff) const {
        while (epsilon_arcs > 0) {
            if (epsilon_arcs <= FEW) {
                if (threadIdx.x < WARP)
                    while (relax_in_warp(cutoff)) {}
                __syncthreads();
                if (progress.overflow || progress.next_rank == NONE) return;
            }
            epsilon_arcs = relax(cutoff);
        }
    }

    // Relax the next rank, by all threads; returns what `recombine` does.
    __device__ u32 relax(float cutoff) const {
        const u32 rank = progress.next_rank, count = progress.num_waiting;
        __syncthreads();
        if (threadIdx.x == 0) {
            progress.next_rank = NONE;
            progress.num_candidates = 0;
        }
        __syncthreads();
        const auto arcs_of = [&](u32 k) {
            const Waiting from = table().waiting(k);
            if (from.rank > rank) atomicMin(&progress.next_rank, from.rank);
            return from.rank == rank ? Range{from.begin, from.end} : Range{0, 0};
        };
        for_each_arc(memory, count, arcs_of, [&](u32 k, u32 arc_id) {
            u32 boost;
            const Candidate candidate = epsilon_candidate(k, arc_id, boost);
            if (!(candidate.cost <= cutoff)) return;
            lower_least(candidate.cost);
            table().append(candidate, boost);
        });
        if (progress.num_candidates > task.candidate_capacity) return 0;
        const u32 epsilon_arcs = table().recombine(cutoff);
        if (LATTICES && !progress.overflow) note_links();
        return epsilon_arcs;
    }

    // Relax the next rank, by a warp; false where there is none, or too many arcs wait.
    __device__ bool relax_in_warp(float cutoff) const {
        const u32 rank = progress.next_rank, count = progress.num_waiting;
        if (progress.overflow || rank == NONE || progress.epsilon_arcs > FEW)
            return false;
        __syncwarp();
        if (threadIdx.x == 0) progress.next_rank = NONE;
        __syncwarp();
        for (u32 first = 0; first < count; first += WARP) {
            const u32 k = first + threadIdx.x;
            Range arcs = {0, 0};
            if (k < count) {
                const Waiting from = table().waiting(k);
                if (from.rank > rank) atomicMin(&progress.next_rank, from.rank);
                if (from.rank == rank) arcs = {from.begin, from.end};
            }
            for (u32 a = arcs.begin; __ballot_sync(WHOLE_WARP, a < arcs.end); ++a) {
                u32 boost = 0;
                Candidate candidate = {infinite(), 0, 0, 0};
                if (a < arcs.end) candidate = epsilon_candidate(k, a, boost);
                const bool within = a < arcs.end && candidate.cost <= cutoff;
                if (within) lower_least(candidate.cost);
                const u32 slot = table().recombine_in_warp(candidate, boost, within);
                if (LATTICES && slot != NONE) links().note(candidate, slot);
            }
        }
        __syncwarp();
        return true;
    }

    // Costs may be credited on epsilon arcs: the least one of an entry may fall.
    __device__ void lower_least(float cost) const {
        if (cost < cost_of(peek(&progress.least)))
            atomicMin(&progress.least, ordered(cost));
    }

    // What an epsilon arc of the k-th waiting entry leads to; `boost` becomes its state.
    __device__ Candidate epsilon_candidate(u32 k, u32 arc_id, u32& boost) const {
        const u32 source = table().waiting(k).entry;
        const Arc arc = arc_at(task, utterance, arc_id);
        boost = table().boost_of(source);
        const float before = scratch.new_entries()[source].cost;
        const float cost = follow(before, arc_id, arc, boost);
        return {cost, arc.nextstate, source, arc_key(arc_id, arc) | EPSILON_ARC};
    }

    // -------------------------------------------------------------------- settle
    // Make trace nodes, re-base, hand the entries to the utterance, empty the table; OK
    // or what stands in the way.
    __device__ u32 settle() const {
        const u32 count = progress.num_entries;
        if (count > utterance.frontier_capacity) return GROW_FRONTIER;
        const u32 status = make_room_in_trace(count);
        if (status != OK) return status;
        if (LATTICES) links().finish();
        for (u32 i = threadIdx.x; i < count; i += blockDim.x) write_node(i);
        const float least = cost_of(progress.least);
        const u32 first_node = utterance.trace_count;
        if (threadIdx.x == 0) {
            utterance.within = 0;
            utterance.best = NONE;
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            record(count, least);
            begin_counting();
        }
        u32 within = 0;
        for (u32 i = threadIdx.x; i < count; i += blockDim.x) {
            const NewEntry entry = scratch.new_entries()[i];
            const float cost = entry.cost - least;
            in_global(utterance.frontier)[i] = {
                cost, entry.state, first_node + i, table().boost_of(i)};
            within += cost <= task.beam;
            if (cost == 0.0f) atomicMin(&utterance.best, i);
            table().clear_slot_of(i);
        }
        if (within > 0) atomicAdd(&utterance.within, within);
        __syncthreads();
        return OK;
    }

    // Add the frame, or the closure before the first one, to the utterance's record; by
    // one thread.
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

    // Compact the trace where it is full; GROW_TRACE where that frees less than half.
    // While the frontier before the launch may be wanted back, its nodes stay.
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
    // By one thread. Barriers have to lie between the last reading of counters and this,
    // and behind it.
    __device__ void begin_counting() const {
        progress.num_candidates = progress.num_entries = 0;
        progress.num_waiting = progress.epsilon_arcs = progress.overflow = 0;
        progress.least = ordered(infinite());
        progress.next_rank = NONE;
        if (LATTICES) progress.num_links = utterance.links_count;
    }

    // Forget a frame that was interrupted.
    __device__ void restart() const {
        __syncthreads();
        if (threadIdx.x == 0) begin_counting();
        table().clear();
    }

    // The frontier before the first frame: the start state, to be closed; returns what
    // `recombine` does.
    __device__ u32 begin() const {
        if (threadIdx.x == 0) {
            const u32 boost = has_phrases(utterance) ? phrases.start : 0;
            const u32 slot = table().slot_of(0, boost);
            scratch.new_entries()[0] = {0.0f, 0, NONE, NONE};
            progress.least = ordered(0.0f);
            slots.best[slot] = key_of(0.0f, 0);  // no epsilon arc can beat it
        }
        __syncthreads();
        const u32 epsilon_arcs = table().num_epsilon_arcs();
        __syncthreads();
        return epsilon_arcs;
    }

    // Nothing survives: the utterance ends with what the frame went on from.
    __device__ void die(const Rank& last) const {
        for (u32 i = threadIdx.x; i < utterance.frontier_count; i += blockDim.x) {
            Entry& entry = in_global(utterance.frontier)[i];
            if (!last.holds(entry)) entry.cost = infinite();
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
        u32 epsilon_arcs;
        if (!begun) {
            epsilon_arcs = begin();
        } else {
            const Kept kept = keep(memory, task, utterance);
            if (threadIdx.x == 0) progress.active = kept.count;
            times.end(KEEP);
            emit(kept);
            const u32 made = progress.num_candidates;
            if (made == 0) {
                die(kept.last);
                return OK;
            }
            if (made > task.candidate_capacity) return GROW_SCRATCH;
            if (threadIdx.x == 0) progress.arcs = made;
            cutoff = fminf(cost_of(progress.least) + kept.beam, MAX_COST);
            epsilon_arcs = table().recombine(cutoff);
            if (LATTICES && !progress.overflow) note_links();
            times.end(RECOMBINE);
        }
        close(epsilon_arcs, cutoff);
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
