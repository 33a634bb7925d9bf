// The token-passing search: a block takes an utterance through all frames of its chunk.
//
// The specification is `reference.py`. For each frame:
//
//     keep       prune the frontier by beam and max_active     exact, radix select
//     emit       candidates: arcs that may survive             a thread per arc
//     recombine  one entry per state, within the cutoff        64-bit atomicMin
//     close      epsilon arcs, rank by rank
//     settle     trace nodes, re-base
//
// Nothing depends on the order of threads: (cost, arc id) is unique, and a bound that
// is read while it falls only lets more candidates through; the cutoff drops them.
// A frame for which some array is too small leaves the utterance as it was before; the
// host makes room and launches again. Sums are float32 in the order of the
// specification: compile with --fmad=false.
#include "block.cuh"
#include "layout.cuh"
#include "table.cuh"
#include "trace.cuh"

struct Search {
    const Task& task;
    Utterance& utterance;  // in shared memory
    const Lane& lane;
    BlockMemory& memory;
    Progress& progress;
    const bool has_extras;

    __device__ Table table() const { return {task, lane, progress}; }

    // --------------------------------------------------------------------- costs
    __device__ float unscaled_cost(const float* logprobs, u32 token, bool skip) const {
        if (token != task.blank) return skip ? infinite() : -logprobs[token];
        return -(logprobs[token] - task.blank_penalty);
    }

    __device__ bool skips(const float* logprobs) const {
        return logprobs[task.blank] >= task.blank_skip_logprob;
    }

    // (cost + graph) + extras
    __device__ float follow(float cost, const Arc& arc) const {
        const float reached = cost + task.lm_scale * arc.cost;
        if (!has_extras || !(arc.ilabel & CARRIES_WORD)) return reached;
        return reached + (task.word_insertion - find_bonus(utterance, arc.olabel));
    }

    __device__ float follow_emitting(
        float cost, const Arc& arc, const float* logprobs, bool skip) const {
        const float reached = follow(cost, arc);
        const u32 token = (arc.ilabel & LABEL_MASK) - 1;
        const float unscaled = unscaled_cost(logprobs, token, skip);
        // An impossible token stays so at scale 0.
        if (!(unscaled < infinite())) return infinite();
        return reached + task.acoustic_scale * unscaled;
    }

    __device__ static u32 note_of(u32 arc_id, const Arc& arc) {
        return arc_id << 1 | (arc.ilabel & LEADS_TO_EPSILON ? 1u : 0u);
    }

    // ---------------------------------------------------------------------- keep
    // What the frame goes on from: entries whose key is at most the one returned. Sets
    // the beam of the frame.
    __device__ u64 keep(float& beam) const {
        const Entry* frontier = utterance.frontier;
        const u32 count = utterance.frontier_count, within = utterance.within;
        beam = task.beam;
        if (within > task.max_active) {
            const u64 last = nth_least(memory, frontier, count, task.max_active, beam);
            if (task.beam_delta >= 0.0f)
                beam = fminf(beam, cost_of_key(last) + task.beam_delta);
            return last;
        }
        if (within < task.min_active && within < count) {
            const u32 most = task.min_active < count ? task.min_active : count;
            return nth_least(memory, frontier, count, most, LARGEST);
        }
        return key_of(beam, NONE);
    }

    // ---------------------------------------------------------------------- emit
    // Write the arcs that may survive to the candidates; `progress.least` becomes the
    // least cost that any of them reaches.
    __device__ void emit(
        const float* logprobs, u64 last, float beam, bool bounded) const {
        const Entry* frontier = utterance.frontier;
        const bool skip = skips(logprobs);
        begin_candidates();
        if (bounded) start_bound(logprobs, last, skip);
        const auto arcs_of = [&](u32 i) {
            const Entry entry = frontier[i];
            if (key_of(entry.cost, entry.state) > last) return Range{0, 0};
            const Row row = task.rows[entry.state];
            return Range{row.emit, row.end};
        };
        for_each_arc(memory, utterance.frontier_count, arcs_of, [&](u32 i, u32 arc_id) {
            const Arc arc = task.arcs[arc_id];
            const float cost =
                follow_emitting(frontier[i].cost, arc, logprobs, skip);
            const float least = cost_of(peek(&progress.least));
            const float bound = bounded ? fminf(least + beam, LARGEST) : LARGEST;
            if (!(cost <= bound)) return;
            if (cost < least) atomicMin(&progress.least, ordered(cost));
            table().append({cost, arc.nextstate, i, note_of(arc_id, arc)});
        });
    }

    __device__ void begin_candidates() const {
        __syncthreads();
        if (threadIdx.x == 0) {
            progress.made = 0;
            progress.least = ordered(infinite());
        }
        __syncthreads();
    }

    // Bring the bound down by the arcs of the best entry, before anything is written.
    __device__ void start_bound(const float* logprobs, u64 last, bool skip) const {
        const Entry best = utterance.frontier[utterance.best];
        if (key_of(best.cost, best.state) > last) return;
        const Row row = task.rows[best.state];
        for (u32 a = row.emit + threadIdx.x; a < row.end; a += blockDim.x) {
            const Arc arc = task.arcs[a];
            const float cost = follow_emitting(best.cost, arc, logprobs, skip);
            if (cost <= LARGEST) atomicMin(&progress.least, ordered(cost));
        }
        __syncthreads();
    }

    // ----------------------------------------------------------------- recombine
    __device__ void begin_entries() const {
        __syncthreads();
        if (threadIdx.x == 0) {
            progress.count = 0;
            progress.waiting = 0;
            progress.next_rank = NONE;
        }
        __syncthreads();
    }

    // Emit and recombine; the cutoff of the frame. `progress.made` is 0 where nothing
    // survives.
    __device__ float next_entries(const float* logprobs, u64 last, float beam) const {
        emit(logprobs, last, beam, true);
        const float cutoff = fminf(cost_of(progress.least) + beam, LARGEST);
        if (progress.overflow || progress.made == 0) return cutoff;
        begin_entries();
        table().recombine(cutoff);
        const u32 count = progress.count;
        if (progress.overflow || count >= task.min_active || cutoff == LARGEST)
            return cutoff;
        return with_min_active(logprobs, last, beam, cutoff);
    }

    // Do the frame once more without the bound, and raise the cutoff to the
    // min_active-th least entry.
    __device__ float with_min_active(
        const float* logprobs, u64 last, float beam, float cutoff) const {
        table().clear_entries(progress.count);
        emit(logprobs, last, beam, false);
        if (progress.overflow) return cutoff;
        begin_entries();
        table().recombine(LARGEST);
        if (progress.overflow) return cutoff;
        const u32 count = progress.count;
        const u32 wanted = task.min_active < count ? task.min_active : count;
        const u64 worst = nth_least(memory, lane.next, count, wanted, LARGEST);
        cutoff = fmaxf(cutoff, cost_of_key(worst));
        table().clear_entries(count);
        begin_entries();
        table().recombine(cutoff);
        return cutoff;
    }

    // --------------------------------------------------------------------- close
    // Relax epsilon arcs, sources by rank: all arcs into a rank come from lower ones,
    // so that the entries of a rank are final when it comes.
    __device__ void close(float cutoff) const {
        while (true) {
            begin_candidates();
            const u32 rank = progress.next_rank, waiting = progress.waiting;
            if (rank == NONE || progress.overflow) return;
            __syncthreads();
            if (threadIdx.x == 0) progress.next_rank = NONE;
            __syncthreads();
            const auto arcs_of = [&](u32 i) {
                const Row row = task.rows[lane.next[lane.waiting[i]].state];
                if (row.rank > rank) atomicMin(&progress.next_rank, row.rank);
                return row.rank == rank ? Range{row.begin, row.emit} : Range{0, 0};
            };
            for_each_arc(memory, waiting, arcs_of, [&](u32 i, u32 arc_id) {
                const u32 source = lane.waiting[i];
                const Arc arc = task.arcs[arc_id];
                const float cost = follow(lane.next[source].cost, arc);
                const u32 note = note_of(arc_id, arc) | EPSILON_NOTE;
                if (cost <= cutoff) table().append({cost, arc.nextstate, source, note});
            });
            if (progress.overflow) return;
            table().recombine(cutoff);
        }
    }

    // -------------------------------------------------------------------- settle
    // Make trace nodes, re-base, hand the entries to the utterance; OK or what must
    // grow. `logprobs` is null before the first frame.
    __device__ u32 settle(const float* logprobs) const {
        const u32 count = progress.count;
        if (count > utterance.frontier_capacity) return GROW_FRONTIER;
        if (!make_room_in_trace(count)) return GROW_TRACE;
        begin_candidates();
        for (u32 i = threadIdx.x; i < count; i += blockDim.x) {
            atomicMin(&progress.least, ordered(lane.next[i].cost));
            write_node(i, logprobs);
        }
        __syncthreads();
        const float least = cost_of(progress.least);
        u32 within = 0;
        for (u32 i = threadIdx.x; i < count; i += blockDim.x) {
            const Entry entry = lane.next[i];
            const float cost = entry.cost - least;
            utterance.frontier[i] = {cost, entry.state, utterance.trace_count + i, 0};
            within += cost <= task.beam;
            if (cost == 0.0f) atomicMin(&progress.best, i);
        }
        atomicAdd(&progress.within, within);
        __syncthreads();
        if (threadIdx.x == 0) {
            utterance.frontier_count = count;
            utterance.trace_count += count;
            utterance.within = progress.within;
            utterance.best = progress.best;
            utterance.base += static_cast<double>(least);
        }
        __syncthreads();
        return OK;
    }

    __device__ void write_node(u32 i, const float* logprobs) const {
        const Entry entry = lane.next[i];
        Node node = {NONE, NONE, 0.0f, NONE};
        if (entry.note != NONE) {
            node.arc = (entry.note & ~EPSILON_NOTE) >> 1;
            if (entry.note & EPSILON_NOTE) {
                node.previous = utterance.trace_count + entry.node;
            } else {
                node.previous = utterance.frontier[entry.node].node;
                const u32 token = (task.arcs[node.arc].ilabel & LABEL_MASK) - 1;
                node.acoustic = unscaled_cost(logprobs, token, skips(logprobs));
            }
        }
        utterance.trace[utterance.trace_count + i] = node;
    }

    // Compact the trace where it is full; false where that frees less than half.
    __device__ bool make_room_in_trace(u32 more) const {
        if (utterance.trace_count + more <= utterance.trace_capacity) return true;
        const u32 kept = compact(memory, utterance);
        __syncthreads();
        if (threadIdx.x == 0) utterance.trace_count = kept;
        __syncthreads();
        return 2 * (kept + more) <= utterance.trace_capacity;
    }

    // -------------------------------------------------------------------- frames
    __device__ void begin_frame() const {
        __syncthreads();
        if (threadIdx.x == 0) {
            progress.overflow = 0;
            progress.within = 0;
            progress.best = NONE;
        }
        begin_entries();
    }

    // The frontier before the first frame: the start state, closed.
    __device__ u32 begin() const {
        begin_frame();
        if (threadIdx.x == 0) {
            const u32 slot = table().slot_of(0);
            lane.next[0] = {0.0f, 0, NONE, NONE};
            lane.table_best[slot] = key_of(0.0f, 0);  // no epsilon arc can beat it
        }
        __syncthreads();
        close(task.beam);
        return finish_frame(nullptr);
    }

    // One frame: OK, or what must grow; the utterance is then as it was.
    __device__ u32 frame(const float* logprobs) const {
        begin_frame();
        float beam;
        const u64 last = keep(beam);
        const float cutoff = next_entries(logprobs, last, beam);
        if (!progress.overflow && progress.made == 0) {
            if (threadIdx.x == 0) utterance.died = utterance.frames;
            __syncthreads();
            return OK;
        }
        const u32 made = progress.made;
        if (!progress.overflow) close(cutoff);
        const u32 status = finish_frame(logprobs);
        if (status == OK && threadIdx.x == 0) {
            ++utterance.frames;
            utterance.active += progress.count;
            utterance.arcs += made;
        }
        return status;
    }

    __device__ u32 finish_frame(const float* logprobs) const {
        if (progress.overflow) return GROW_WORK;
        const u32 status = settle(logprobs);
        if (status == OK) table().clear_entries(progress.count);
        return status;
    }

    __device__ u32 run() const {
        table().clear();
        u32 status = utterance.frontier_count == 0 ? begin() : OK;
        u32 t = utterance.chunk_frame;
        for (; status == OK && t < utterance.num_frames; ++t) {
            if (utterance.died != NONE) break;
            const u64 row = static_cast<u64>(t) * utterance.frame_stride;
            status = frame(utterance.logprobs + row);
            if (status != OK) break;
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            utterance.chunk_frame = utterance.died == NONE ? t : utterance.num_frames;
            utterance.status = status;
        }
        return status;
    }
};

// Every block takes utterances from the queue until it is empty.
extern "C" __global__ void __launch_bounds__(MOST_THREADS, BLOCKS_AT_HOME)
search_chunk(const Task* launched) {
    // In shared memory, since every store to the arrays makes a thread load it again.
    __shared__ Task task;
    __shared__ BlockMemory memory;
    __shared__ Progress progress;
    __shared__ Utterance utterance;
    __shared__ u32 drawn;
    if (threadIdx.x == 0) task = *launched;
    __syncthreads();
    const Lane lane = Lane::of(task, blockIdx.x);
    while (true) {
        __syncthreads();
        if (threadIdx.x == 0) {
            drawn = atomicAdd(task.drawn, 1u);
            if (drawn < task.num_utterances)
                utterance = task.utterances[task.order[drawn]];
        }
        __syncthreads();
        if (drawn >= task.num_utterances) return;
        const bool boosted = utterance.boost_keys != nullptr;
        const bool has_extras = boosted || task.word_insertion != 0.0f;
        Search{task, utterance, lane, memory, progress, has_extras}.run();
        __syncthreads();
        if (threadIdx.x == 0) task.utterances[task.order[drawn]] = utterance;
    }
}
