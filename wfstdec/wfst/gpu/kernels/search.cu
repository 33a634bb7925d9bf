// Token-passing search: a block advances an utterance over all frames of its chunk.
//
// `frame.cuh` is one frame. If some array is too small for a frame, the utterance is
// unchanged; the host enlarges the array and launches again. A frame that exceeds the
// table in shared memory is repeated with the one in global memory.
#include "frame.cuh"

struct Search : FrameSearch {
    // -------------------------------------------------------------------- tables
    // Take the table in shared memory, or the one in global memory.
    __device__ void use(bool shared) const {
        if (slots.shared == shared) return;
        __syncthreads();
        if (threadIdx.x == 0)
            slots = shared
                ? shared_slots(shared_table, task.shared_slots, task.entry_capacity)
                : scratch.slots();
        __syncthreads();
    }

    // Whether to try the next frame with the table in shared memory: most frames have
    // about as many entries as the previous one, which must have left room to spare.
    __device__ bool fits_in_shared() const {
        const u32 room = task.shared_slots / 8 * 3;
        return utterance.frontier_count < room;
    }

    // `frame` with one table or the other.
    __device__ u32 pass() const {
        bool shared = fits_in_shared();
        while (true) {
            use(shared);
            const u32 status = frame();
            if (status != SPILL) return status;
            if (threadIdx.x == 0) ++utterance.spilled;
            table().clear();
            shared = false;
        }
    }

    __device__ void run() const {
        // A frame prefetches the row after the next one.
        for (u32 ahead = 0; ahead < 2; ++ahead)
            prefetch_frame(
                utterance.logprobs, utterance.chunk_frame + ahead, task.num_tokens);
        make_backup();
        table().clear();
        use(!slots.shared && task.shared_slots > 0);
        table().clear();
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
    // The task is in constant memory; changing data read by all threads, in shared.
    __shared__ BlockMemory memory;
    __shared__ Progress progress;
    __shared__ Utterance utterance;
    __shared__ Phrases phrases;
    __shared__ Slots slots;
    __shared__ PhaseClock<NUM_PHASES> times;
    __shared__ u32 drawn;
    DYNAMIC_SHARED(u64, shared_table);
    const BlockScratch scratch = {task};
    times.start();
    if (threadIdx.x == 0) slots = scratch.slots();
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
        const Costs costs = {task, utterance, phrases};
        const FrameSearch frames = {
            costs, scratch, slots, shared_table, memory, progress, times};
        Search{frames}.run();
        __syncthreads();
        if (threadIdx.x == 0) task.utterances[task.queue[drawn]] = utterance;
        times.end(OTHER);
    }
    times.write(task.phase_times);
}
