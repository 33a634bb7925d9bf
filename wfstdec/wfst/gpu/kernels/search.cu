// The token-passing search: a block takes an utterance through all frames of its chunk.
//
// `frame.cuh` is one frame. A frame for which some array is too small leaves the
// utterance as it was before; the host makes room and launches again. A frame that
// outgrows the scratch in shared memory is done once more with that in global memory.
#include "frame.cuh"

struct Search : FrameSearch {
    // Take scratch in shared memory, or in global memory.
    __device__ void use(bool shared) const {
        if (scratch.shared == shared) return;
        __syncthreads();
        if (threadIdx.x == 0)
            scratch = shared ? shared_scratch(task, shared_memory) : global_scratch(task);
        __syncthreads();
    }

    // Whether to try the next frame in shared memory: most frames make about as many
    // entries as the one before them, so that had to leave room to spare.
    __device__ bool fits_in_shared() const {
        return utterance.frontier_count < task.shared_slots / 8 * 3;
    }

    // `frame` with scratch in one memory or the other.
    __device__ u32 pass() const {
        bool shared = fits_in_shared();
        while (true) {
            use(shared);
            const u32 status = frame();
            if (status != SPILL && status != AGAIN) return status;
            if (status == SPILL) {
                if (threadIdx.x == 0) ++utterance.spilled;
                shared = false;
            }
            restart();
        }
    }

    __device__ void run() const {
        // A frame brings the row after the next one.
        for (u32 ahead = 0; ahead < 2; ++ahead)
            prefetch_frame(
                utterance.logprobs, utterance.chunk_frame + ahead, task.num_tokens);
        make_backup();
        restart();
        use(!scratch.shared && task.shared_slots > 0);
        restart();
        u32 status = OK;
        while (status == OK) {
            const bool begun = utterance.frontier_count > 0;
            const bool done = utterance.chunk_frame == utterance.logprobs.num_frames;
            if (begun && (done || utterance.died != NONE)) break;
            status = pass();
        }
        if (!task.checked && status != NO_LOGPROB)
            check_frames(utterance.logprobs, utterance.chunk_frame, task.num_tokens);
        __syncthreads();
        if (threadIdx.x == 0) {
            if (utterance.died != NONE)
                utterance.chunk_frame = utterance.logprobs.num_frames;
            utterance.status = status == NO_LOGPROB ? OK : status;
        }
    }
};

// Every block takes utterances from the queue until it is empty.
extern "C" __global__ void __launch_bounds__(MAX_THREADS, BLOCKS_PER_SM)
search_chunk(const __grid_constant__ Task task) {
    // The task is in constant memory; what changes, and all threads read, in shared.
    __shared__ BlockMemory memory;
    __shared__ Progress progress;
    __shared__ Utterance utterance;
    __shared__ Phrases phrases;
    __shared__ Scratch scratch;
    __shared__ PhaseClock<NUM_PHASES> times;
    __shared__ LiveTokens live;
    __shared__ u32 drawn;
    DYNAMIC_SHARED(Entry, shared_memory);
    times.start();
    if (threadIdx.x == 0) scratch = global_scratch(task);
    while (true) {
        __syncthreads();
        if (threadIdx.x == 0) {
            drawn = atomicAdd(task.num_drawn, 1u);
            if (drawn < task.queue_length) {
                utterance = task.utterances[task.queue[drawn]];
                if (has_phrases(utterance)) phrases = *utterance.phrases;
            }
        }
        __syncthreads();
        if (drawn >= task.queue_length) break;
        const Table table = {{task, utterance, phrases}, scratch, progress};
        const FrameSearch frames = {{table}, shared_memory, memory, times, live};
        Search{frames}.run();
        __syncthreads();
        if (threadIdx.x == 0) task.utterances[task.queue[drawn]] = utterance;
        times.end(OTHER);
    }
    times.write(task.phase_times);
}
