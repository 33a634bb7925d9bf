// Trie search: a block advances an utterance over all frames of its chunk.
//
// `frame.cuh` is one frame. If some array is too small for a frame, the utterance is
// unchanged; the host enlarges the array and launches again. A frame that exceeds the
// arrays in shared memory is repeated with those in global memory.
#include "frame.cuh"

struct Search : FrameSearch {
    u64* shared_memory;

    __device__ void copy(const Entry* from, Entry* to) const {
        for (u32 i = threadIdx.x; i < utterance.frontier_count; i += THREADS)
            to[i] = from[i];
        team_sync();
    }

    // Continue in the other arrays.
    __device__ void use(bool shared) const {
        const Entry* const before = in_use.frontier;
        team_sync();
        if (threadIdx.x == 0)
            in_use = shared ? shared_arrays(task, shared_memory) : global_arrays(task);
        team_sync();
        copy(before, in_use.frontier);
    }

    // Whether to try the next frame in shared memory: most frames are about as large as
    // the previous one, which must have left room to spare.
    __device__ bool fits_in_shared() const {
        return utterance.frontier_count <= task.shared_entries &&
            4 * progress.num_candidates <= 3 * task.shared_candidates &&
            4 * progress.num_tokens <= 3 * task.shared_tokens;
    }

    // The frontier before the first frame: one entry.
    __device__ void begin() const {
        if (threadIdx.x == 0) {
            Entry entry;
            entry.cost = entry.blank_cost = 0.0f;
            entry.nonblank_cost = infinite();
            entry.state = task.start_state;
            entry.node = task.start_node;
            entry.lookahead_cost = lookahead_cost(entry.state, entry.node);
            entry.boost = utterance.phrases != nullptr ? phrases.start : 0;
            entry.blank_trace = entry.nonblank_trace = NONE;
            entry.token_end = 0;
            entry.spelling = entry.text = 0;
            entry.blank_acoustic = entry.nonblank_acoustic = 0.0;
            in_use.frontier[0] = entry;
            utterance.frontier_count = 1;
        }
        team_sync();
    }

    __device__ void run() const {
        const bool begun = utterance.frontier_count > 0;
        // Backup of the frontier: restored if another utterance has numbers that are no
        // log-probs.
        if (utterance.backup != nullptr && !task.checked)
            copy(in_global(utterance.frontier), in_global(utterance.backup));
        if (threadIdx.x == 0) {
            const bool fits = utterance.frontier_count <= task.shared_entries;
            in_use = task.shared_entries > 0 && fits ? shared_arrays(task, shared_memory)
                                                     : global_arrays(task);
        }
        team_sync();
        u32 status = OK;
        if (utterance.frontier_count > arrays.entry_capacity) {
            status = GROW_SCRATCH;
        } else {
            copy(in_global(utterance.frontier), in_use.frontier);
            if (!begun) begin();
            status = pass();
            copy(in_use.frontier, in_global(utterance.frontier));
        }
        if (!task.checked && status != NO_LOGPROB)
            check_frames(utterance.logprobs, utterance.chunk_frame, task.num_tokens);
        team_sync();
        if (threadIdx.x == 0) {
            if (utterance.died != NONE)
                utterance.chunk_frame = utterance.logprobs.num_frames;
            utterance.status = status == NO_LOGPROB ? static_cast<u32>(OK) : status;
        }
    }

    // All frames, or those before an obstacle.
    __device__ u32 pass() const {
        const u32 begin = utterance.chunk_frame, num_frames = utterance.logprobs.num_frames;
        while (utterance.died == NONE && utterance.chunk_frame < num_frames) {
            if (utterance.chunk_frame - begin >= task.most_frames) return PAUSED;
            const u32 status = frame();
            if (status == SPILL) {
                if (utterance.frontier_count > task.entry_capacity)
                    return GROW_SCRATCH;
                if (threadIdx.x == 0) ++utterance.spilled;
                use(false);
                continue;
            }
            if (status != OK) return status;
            if (!arrays.shared && fits_in_shared()) use(true);
            team_sync();
        }
        return OK;
    }
};

// Every block takes utterances from the queue until it is empty.
extern "C" __global__ void __launch_bounds__(TEAM_BOUND, TEAMS_PER_SM)
advance_chunk(const __grid_constant__ Task task) {
    // The task is in constant memory; changing data read by all threads, in shared.
    __shared__ TeamMemory team;
    __shared__ Progress progress;
    __shared__ Utterance utterance;
    __shared__ Phrases phrases;
    __shared__ Arrays arrays;
    __shared__ PhaseClock<NUM_TIMES> times;
    __shared__ u32 drawn;
    DYNAMIC_SHARED(u64, shared_memory);
    times.start();
    while (true) {
        team_sync();
        if (threadIdx.x == 0) {
            drawn = atomicAdd(task.num_drawn, 1u);
            if (drawn < task.queue_length) {
                utterance = task.utterances[task.queue[drawn]];
                if (utterance.phrases != nullptr) phrases = *utterance.phrases;
            }
        }
        team_sync();
        if (drawn >= task.queue_length) break;
        const Costs costs = {task, utterance, phrases, arrays, progress};
        const FrameSearch frames = {costs, team, arrays, times};
        Search{frames, shared_memory}.run();
        team_sync();
        if (threadIdx.x == 0) task.utterances[task.queue[drawn]] = utterance;
        times.end(OTHER);
    }
    times.write(task.phase_times);
}

// Copy the frontiers and traces of utterances to where the host downloads them
// together.
extern "C" __global__ void __launch_bounds__(TEAM_BOUND, TEAMS_PER_SM)
gather_states(const __grid_constant__ Task task) {
    const Utterance& one = task.utterances[task.queue[blockIdx.x]];
    const auto copy = [](const void* from, void* to, u32 bytes) {
        const u32* source = in_global(static_cast<const u32*>(from));
        u32* target = in_global(static_cast<u32*>(to));
        for (u32 i = threadIdx.x; i < bytes / sizeof(u32); i += THREADS)
            target[i] = source[i];
    };
    copy(one.frontier, one.last_frontier, one.frontier_count * sizeof(Entry));
    copy(one.trace, one.last_trace, one.trace_count * sizeof(Node));
}
