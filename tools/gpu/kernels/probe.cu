// What a GPU is asked before anything is searched on it: each kernel has an answer that
// is known beforehand; see `tools/gpu/assumptions.py`.
#include "block.cuh"
#include "logprobs.cuh"
#include "log_add.cuh"

// Fields of every size, by value.
struct Given {
    u32 first;
    float second;
    u64 third;
    double fourth;
    u32 fifth;
    u64* back;  // [6]
};

// One task for all others; a kernel reads the fields that it names.
struct ProbeTask {
    const u32* words;  // [count], of the host
    const u64* keys;   // [count]
    u64* table;        // [num_slots]
    u32* found;
    u64* times;
    u32 count, num_slots, steps, place;
};

// 16 bytes that are read at once.
struct alignas(16) Quad {
    u32 a, b, c, d;
};

// Where a word lies.
constexpr u32 IN_GLOBAL = 0, IN_SHARED = 1;

constexpr u32 SMALL = 2048;  // slots of a table in shared memory
constexpr u32 LEASTS = 4;    // words that many threads change at once
constexpr u64 EMPTY = ~0ull;

// ------------------------------------------------------------------------- launches
extern "C" __global__ void fill_shared(const __grid_constant__ ProbeTask task) {
    DYNAMIC_SHARED(u32, words);
    constexpr u32 FACTOR = 2654435761u;
    for (u32 i = threadIdx.x; i < task.count; i += blockDim.x) words[i] = i * FACTOR;
    __syncthreads();
    for (u32 i = threadIdx.x; i < task.count; i += blockDim.x) {
        const u32 other = task.count - 1 - i;
        if (words[other] == other * FACTOR) atomicAdd(&task.found[0], 1u);
    }
}

extern "C" __global__ void give_back(const __grid_constant__ Given given) {
    if (blockIdx.x != 0 || threadIdx.x != 0) return;
    u64 fourth;
    memcpy(&fourth, &given.fourth, sizeof fourth);
    given.back[0] = given.first;
    given.back[1] = __float_as_uint(given.second);
    given.back[2] = given.third;
    given.back[3] = fourth;
    given.back[4] = given.fifth;
    given.back[5] = blockDim.x;
}

// ---------------------------------------------------------------------- assumptions
// 64-bit minima of words that the compiler cannot know the memory of.
extern "C" __global__ void least_keys(const __grid_constant__ ProbeTask task) {
    __shared__ u64 own[LEASTS];
    u64* const least = task.place == IN_SHARED ? own : task.table;
    if (threadIdx.x < LEASTS) least[threadIdx.x] = EMPTY;
    __syncthreads();
    for (u32 i = threadIdx.x; i < task.count; i += blockDim.x)
        atomicMin(&least[i % LEASTS], task.keys[i]);
    __syncthreads();
    if (threadIdx.x < LEASTS) task.times[threadIdx.x] = peek(&least[threadIdx.x]);
}

// Keys into a table by 64-bit compare-and-swap, each once, wherever it was put.
extern "C" __global__ void claim_slots(const __grid_constant__ ProbeTask task) {
    __shared__ u64 own[SMALL];
    u64* const table = task.place == IN_SHARED ? own : task.table;
    for (u32 i = threadIdx.x; i < task.num_slots; i += blockDim.x) table[i] = EMPTY;
    __syncthreads();
    for (u32 i = threadIdx.x; i < task.count; i += blockDim.x) {
        const u64 key = task.keys[i];
        u32 slot = static_cast<u32>(key) % task.num_slots;
        for (;; slot = (slot + 1) % task.num_slots) {
            u64 there = peek(&table[slot]);
            if (there == EMPTY) there = atomicCAS(&table[slot], EMPTY, key);
            if (there == EMPTY) atomicAdd(&task.found[0], 1u);
            if (there == EMPTY || there == key) break;
        }
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < task.num_slots; i += blockDim.x)
        task.times[i] = table[i];
}

// The first warp lowers two words; whoever peeks sees neither rise, nor halves of two
// values in one: found[0], found[1]. At the end all see 0: found[2] counts them.
extern "C" __global__ void peek_at_words(const __grid_constant__ ProbeTask task) {
    __shared__ u64 own_wide;
    __shared__ u32 own_narrow;
    u64* const wide = task.place == IN_SHARED ? &own_wide : task.table;
    u32* const narrow = task.place == IN_SHARED ? &own_narrow : &task.found[3];
    constexpr u64 BOTH = 0x100000001ull;
    if (threadIdx.x == 0) {
        *wide = task.steps * BOTH;
        *narrow = task.steps;
    }
    __syncthreads();
    u64 wide_before = task.steps * BOTH;
    u32 narrow_before = task.steps, rises = 0, torn = 0;
    for (u32 step = task.steps; step-- > 0;) {
        if (threadIdx.x < WARP) {
            atomicMin(wide, step * BOTH);
            atomicMin(narrow, step);
        }
        const u64 w = peek(wide);
        const u32 n = peek(narrow);
        rises += (w > wide_before) + (n > narrow_before);
        torn += static_cast<u32>(w >> 32) != static_cast<u32>(w);
        wide_before = w;
        narrow_before = n;
    }
    __syncthreads();
    if (rises) atomicAdd(&task.found[0], rises);
    if (torn) atomicAdd(&task.found[1], torn);
    if (peek(wide) == 0 && peek(narrow) == 0) atomicAdd(&task.found[2], 1u);
}

// Records of 16 bytes through the read-only cache, turned round.
extern "C" __global__ void read_quads(const __grid_constant__ ProbeTask task) {
    const Quad* const quads = reinterpret_cast<const Quad*>(task.words);
    for (u32 i = threadIdx.x; i < task.count / 4; i += blockDim.x) {
        const Quad quad = read_only(in_global(quads) + i);
        task.found[4 * i] = quad.d;
        task.found[4 * i + 1] = quad.c;
        task.found[4 * i + 2] = quad.b;
        task.found[4 * i + 3] = quad.a;
    }
}

// Five answers for each thread of a block: sums up to it in its warp and in the block,
// its neighbour's word, the word of lane 5, the lanes whose word is odd.
extern "C" __global__ void exchange(const __grid_constant__ ProbeTask task) {
    __shared__ BlockMemory memory;
    const u32 mine = task.words[threadIdx.x], n = blockDim.x;
    u32* const found = task.found + threadIdx.x;
    u32 total;
    found[0] = inclusive_warp_sum(mine);
    found[n] = exclusive_sum(memory, mine, total) + total;
    found[2 * n] = __shfl_xor_sync(WHOLE_WARP, mine, 1);
    found[3 * n] = __shfl_sync(WHOLE_WARP, mine, 5);
    found[4 * n] = __ballot_sync(WHOLE_WARP, mine & 1);
}

// The least word of a warp and the sum of its words by one instruction each; found[2n]
// is 0 where the device has none (before compute capability 8.0).
extern "C" __global__ void reduce(const __grid_constant__ ProbeTask task) {
    const u32 n = blockDim.x;
    u32 least = 0, sum = 0, done = 0;
#if defined(CUDA_EMULATION) || __CUDA_ARCH__ >= 800
    const u32 mine = task.words[threadIdx.x];
    least = __reduce_min_sync(WHOLE_WARP, mine);
    sum = __reduce_add_sync(WHOLE_WARP, mine);
    done = 1;
#endif
    task.found[threadIdx.x] = least;
    task.found[n + threadIdx.x] = sum;
    task.found[2 * n + threadIdx.x] = done;
}

// Of three numbers each: sum of product and third, quotient, sum, product.
extern "C" __global__ void calculate(const __grid_constant__ ProbeTask task) {
    const u32 n = task.count / 3;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += gridDim.x * blockDim.x) {
        const float a = __uint_as_float(task.words[i]);
        const float b = __uint_as_float(task.words[n + i]);
        const float c = __uint_as_float(task.words[2 * n + i]);
        task.found[i] = __float_as_uint(a * b + c);
        task.found[n + i] = __float_as_uint(a / b);
        task.found[2 * n + i] = __float_as_uint(a + b);
        task.found[3 * n + i] = __float_as_uint(a * b);
    }
}

// Every number of 16 bits in 32.
extern "C" __global__ void widen_halves(const __grid_constant__ ProbeTask task) {
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < task.count;
         i += gridDim.x * blockDim.x)
        task.found[i] = __float_as_uint(from_half(i));
}

// The first half of the words with the second.
extern "C" __global__ void add_logs(const __grid_constant__ ProbeTask task) {
    const u32 n = task.count / 2;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += gridDim.x * blockDim.x) {
        const float a = __uint_as_float(task.words[i]);
        const float b = __uint_as_float(task.words[n + i]);
        task.found[i] = __float_as_uint(log_add(a, b));
    }
}
