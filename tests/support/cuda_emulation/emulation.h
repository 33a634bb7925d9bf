// Runs CUDA kernels on a CPU, unchanged: include this file, then the kernel, then name
// its kernels with EMULATE(name).
//
// Every CUDA thread is a fiber with a stack of its own; the fibers of a block take turns
// on one thread of the operating system, and blocks may be spread over several. A fiber
// gives way at barriers, and with preemption also at atomics, at random places that a
// seed decides: other seeds are other schedules. With preemption `peek` gives, now and
// then, a word as it was at the last barrier, as a device may that orders nothing in
// between: but not to a thread that has changed it since, or has seen it changed.
//
// More is refused than CUDA refuses: threads of a block that wait at different barriers,
// or at a barrier while others have returned, stop the program with a message.
//
// All memory of a block is spoiled before it begins, shared memory too.
//
// It does not show: weak ordering of memory (the thread sanitizer shows where nothing
// orders it), too much shared memory or too many registers, numbers that an option of a
// compiler flushes to zero, speed.
#pragma once
#include <link.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <bitset>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <unordered_map>
#include <vector>

#define CUDA_EMULATION
#define __global__
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ static thread_local

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#define TSAN(call) call
#else
#define TSAN(call)
#endif
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#define ASAN(call) call
#else
#define ASAN(call)
#endif
// The scheduler is no part of what the thread sanitizer shall judge.
#define UNWATCHED __attribute__((no_sanitize("thread")))

namespace emulation {

constexpr int WARP = 32;
constexpr size_t STACK_BYTES = 64 * 1024;

struct Index {
    unsigned x, y, z;
};

struct Fiber {
    Index thread;
    int number;
    void* stack_pointer;
    void* tsan;
    bool returned;
};

struct Barrier {
    int expected, arrived, returned;
    unsigned turn;
    int line;      // where the waiting threads stand in the source
    char sync[2];  // what the thread sanitizer knows the barrier by, for even and odd
};                 // turns: whoever leaves late must not seem to wait for the next turn

// (The thread sanitizer would take what fibers note of them for races.)
#ifdef __SANITIZE_THREAD__
constexpr bool NOTES_CHANGES = false;
#else
constexpr bool NOTES_CHANGES = true;
#endif

// A word that atomics changed since the last barrier: what it was then, and which
// threads cannot be told so any more.
struct Changed {
    uint64_t before;
    std::bitset<1024> know;
};

struct Block {
    std::unordered_map<const void*, Changed> changed;
    Index block, threads_per_block, blocks;
    std::vector<Fiber> fibers;
    std::vector<Barrier> warp_barriers;
    std::vector<uint64_t> exchanged;  // by shuffles: two turns of a word per thread
    std::vector<unsigned> shuffles;   // done by each thread
    std::vector<uint64_t> dynamic_shared;
    Barrier barrier;
    long idle;  // turns given since anything happened
    long long ticks;  // what stands in for a clock: turns of barriers
    unsigned preempt, random;
    void* main_stack_pointer;
    void* main_tsan;
    void (*kernel)(const void*);
    const void* argument;
};

inline thread_local Block* block = nullptr;
inline thread_local Fiber* fiber = nullptr;
inline std::atomic<unsigned long long> peeks{0};  // by all kernels
inline std::atomic<size_t> prefetches{0};
inline const void** prefetched = nullptr;
inline size_t most_prefetched = 0;

[[noreturn]] inline void fail(const char* what, int line) {
    std::fprintf(stderr, "emulation: %s: block %u, thread %d, line %d\n", what,
                 block->block.x, fiber->number, line);
    std::abort();
}

// ------------------------------------------------------------------ switching stacks
#if !defined(__x86_64__)
#error "the emulation switches stacks in x86-64 instructions"
#endif
// Saves what a callee must keep on the stack, and goes on with another stack.
extern "C" void emulation_switch(void** save, void* other);
asm(R"(
.text
.globl emulation_switch
.hidden emulation_switch
.type emulation_switch, @function
emulation_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size emulation_switch, . - emulation_switch
)");

// A stack that `emulation_switch` enters at `entry`.
inline void* new_stack(char* memory, void (*entry)()) {
    void** top = reinterpret_cast<void**>(memory + STACK_BYTES);
    *--top = nullptr;  // keeps the alignment that a call leaves
    *--top = reinterpret_cast<void*>(entry);
    for (int saved = 0; saved < 6; ++saved) *--top = nullptr;
    return top;
}

UNWATCHED inline void resume(Fiber* next) {
    Fiber* me = fiber;
    fiber = next;
    TSAN(__tsan_switch_to_fiber(next->tsan, __tsan_switch_to_fiber_no_sync);)
    void** save = me ? &me->stack_pointer : &block->main_stack_pointer;
    emulation_switch(save, next->stack_pointer);
}

// ------------------------------------------------------------------------ scheduling
UNWATCHED inline unsigned random_number() {
    block->random = block->random * 1664525u + 1013904223u;
    return block->random >> 8;
}

UNWATCHED inline Fiber* next_after(int number) {
    const int count = static_cast<int>(block->fibers.size());
    for (int step = 1; step <= count; ++step) {
        Fiber* other = &block->fibers[(number + step) % count];
        if (!other->returned) return other;
    }
    return nullptr;
}

UNWATCHED inline void give_way(int line) {
    const int count = static_cast<int>(block->fibers.size());
    if (++block->idle > 4096L * count + 100000) fail("deadlock", line);
    const int from = block->preempt ? random_number() % count : fiber->number;
    Fiber* next = next_after(from);
    if (next != fiber) resume(next);
}

UNWATCHED inline void maybe_give_way() {
    if (!block->preempt || random_number() % block->preempt) return;
    block->idle = 0;
    give_way(0);
}

// `orders`: what is before happens before what is after, for the thread sanitizer too.
UNWATCHED inline void wait_at(Barrier& barrier, int line, bool orders = true) {
    if (barrier.returned) fail("a barrier after some threads returned", line);
    if (barrier.arrived && barrier.line != line)
        fail("threads at different barriers", line);
    barrier.line = line;
    const unsigned turn = barrier.turn;
    TSAN(if (orders) __tsan_release(&barrier.sync[turn % 2]);)
    if (++barrier.arrived == barrier.expected) {
        barrier.arrived = 0;
        ++barrier.turn;
        if (&barrier == &block->barrier) {
            ++block->ticks;
            if (NOTES_CHANGES) block->changed.clear();
        }
        block->idle = 0;
    }
    while (barrier.turn == turn) give_way(line);
    TSAN(if (orders) __tsan_acquire(&barrier.sync[turn % 2]);)
    static_cast<void>(orders);
}

UNWATCHED inline void run_fiber() {
    TSAN(__tsan_acquire(block);)
    block->kernel(block->argument);
    TSAN(__tsan_release(&block->main_tsan);)
    Barrier* of_warp = &block->warp_barriers[fiber->number / WARP];
    for (Barrier* barrier : {&block->barrier, of_warp}) {
        if (barrier->arrived) fail("returned from a barrier of others", barrier->line);
        ++barrier->returned;
    }
    fiber->returned = true;
    block->idle = 0;
    Fiber* next = next_after(fiber->number);
    if (next) resume(next);
    void** save = &fiber->stack_pointer;
    fiber = nullptr;
    TSAN(__tsan_switch_to_fiber(block->main_tsan, __tsan_switch_to_fiber_no_sync);)
    emulation_switch(save, block->main_stack_pointer);
}

// `__shared__` variables are the thread-local ones of this library: overwrites them,
// since nothing may depend on what shared memory held before.
UNWATCHED inline int spoil_shared(dl_phdr_info* library, size_t, void*) {
    volatile char* const begin = static_cast<char*>(library->dlpi_tls_data);
    const char* const mine = reinterpret_cast<char*>(&block);
    for (int i = 0; begin && i < library->dlpi_phnum; ++i) {
        const auto& segment = library->dlpi_phdr[i];
        if (segment.p_type != PT_TLS) continue;
        if (mine < begin || mine >= begin + segment.p_memsz) continue;
        Block* const now = block;
        for (size_t at = 0; at < segment.p_memsz; ++at) begin[at] = '\xa5';
        block = now;
        fiber = nullptr;
        return 1;
    }
    return 0;
}

struct Launch {
    void (*kernel)(const void*);
    const void* argument;
    unsigned blocks, threads, shared_bytes, preempt, seed;
};

inline void run_block(const Launch& launch, unsigned number) {
    const int count = static_cast<int>(launch.threads);
    Block mine = {};
    mine.block = {number, 0, 0};
    mine.threads_per_block = {launch.threads, 1, 1};
    mine.blocks = {launch.blocks, 1, 1};
    mine.fibers.resize(count);
    mine.warp_barriers.resize((count + WARP - 1) / WARP);
    mine.exchanged.resize(2 * count);
    mine.shuffles.resize(count);
    // Nothing may depend on what shared memory held before.
    mine.dynamic_shared.assign((launch.shared_bytes + 7) / 8, 0xa5a5a5a5a5a5a5a5u);
    mine.barrier.expected = count;
    mine.preempt = launch.preempt;
    mine.random = launch.seed * 2654435761u + number;
    mine.kernel = launch.kernel;
    mine.argument = launch.argument;
    block = &mine;
    if (!dl_iterate_phdr(spoil_shared, nullptr)) std::abort();
    const int kind = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    const size_t bytes = STACK_BYTES * count;
    void* stacks = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, kind, -1, 0);
    if (stacks == MAP_FAILED) std::abort();
    TSAN(mine.main_tsan = __tsan_get_current_fiber();)
    for (int i = 0; i < count; ++i) {
        Fiber& f = mine.fibers[i];
        f.thread = {static_cast<unsigned>(i), 0, 0};
        f.number = i;
        f.stack_pointer =
            new_stack(static_cast<char*>(stacks) + STACK_BYTES * i, run_fiber);
        TSAN(f.tsan = __tsan_create_fiber(0);)
        ++mine.warp_barriers[i / WARP].expected;
    }
    TSAN(__tsan_release(&mine);)
    resume(&mine.fibers[0]);
    TSAN(__tsan_acquire(&mine.main_tsan);)
    TSAN(for (Fiber& f : mine.fibers) __tsan_destroy_fiber(f.tsan);)
    // Fibers do not return from their last function: what is marked there would stay.
    ASAN(__asan_unpoison_memory_region(stacks, bytes);)
    munmap(stacks, bytes);
}

inline void run(const Launch& launch, int os_threads) {
    std::atomic<unsigned> drawn{0};
    const auto work = [&] {
        for (unsigned b; (b = drawn++) < launch.blocks;) run_block(launch, b);
    };
    std::vector<std::thread> others;
    for (int i = 1; i < os_threads; ++i) others.emplace_back(work);
    work();
    for (std::thread& other : others) other.join();
}

// The words of the 32 threads of the warp. They are handed on and order no other memory,
// as the programming guide has it.
template <class T>
UNWATCHED inline const uint64_t* words_of_warp(T value, int line) {
    static_assert(sizeof(T) <= sizeof(uint64_t));
    const unsigned me = fiber->number;
    uint64_t* words = &block->exchanged[block->shuffles[me]++ % 2 * block->fibers.size()];
    words[me] = 0;
    std::memcpy(&words[me], &value, sizeof(T));
    wait_at(block->warp_barriers[me / WARP], line, false);
    return words + me / WARP * WARP;
}

// A word from another lane.
template <class T>
UNWATCHED inline T shuffle(T value, unsigned lane, int line) {
    std::memcpy(&value, &words_of_warp(value, line)[lane], sizeof(T));
    return value;
}

// From the thread `distance` lanes below, or one's own where there is none.
template <class T>
UNWATCHED inline T shuffle_up(T value, unsigned distance, int line) {
    const unsigned lane = fiber->number % WARP;
    return shuffle(value, lane < distance ? lane : lane - distance, line);
}

// What an operation makes of all words, from the first to the last.
template <class Combine>
UNWATCHED inline unsigned reduce(unsigned value, Combine combine, int line) {
    const uint64_t* words = words_of_warp(value, line);
    unsigned result = static_cast<unsigned>(words[0]);
    for (int lane = 1; lane < WARP; ++lane)
        result = combine(result, static_cast<unsigned>(words[lane]));
    return result;
}

template <class T>
inline void note_change(const T* word, T old) {
    if (!NOTES_CHANGES || !block->preempt) return;
    block->changed.try_emplace(word, Changed{old, {}})
        .first->second.know.set(fiber->number);
}

template <class T, class Change>
inline T update(T* word, Change change) {
    maybe_give_way();
    T old = __atomic_load_n(word, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(
        word, &old, change(old), false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    note_change(word, old);
    return old;
}

// A word as it is, or as it was at the last barrier.
template <class T>
inline T maybe_stale(const T* word) {
    const T now = __atomic_load_n(word, __ATOMIC_RELAXED);
    if (!NOTES_CHANGES || !block->preempt) return now;
    const auto found = block->changed.find(word);
    if (found == block->changed.end() || found->second.know[fiber->number]) return now;
    if (random_number() % 2) return static_cast<T>(found->second.before);
    found->second.know.set(fiber->number);
    return now;
}

}  // namespace emulation

#define threadIdx (emulation::fiber->thread)
#define blockIdx (emulation::block->block)
#define blockDim (emulation::block->threads_per_block)
#define gridDim (emulation::block->blocks)
#define DYNAMIC_SHARED(type, name) \
    type* const name = reinterpret_cast<type*>(emulation::block->dynamic_shared.data())
#define __syncthreads() emulation::wait_at(emulation::block->barrier, __LINE__)
#define __syncwarp()                                                               \
    emulation::wait_at(                                                              \
        emulation::block->warp_barriers[emulation::fiber->number / emulation::WARP], \
        __LINE__)
#define __shfl_up_sync(mask, value, distance) \
    emulation::shuffle_up(value, distance, __LINE__)
#define __shfl_sync(mask, value, lane) emulation::shuffle(value, lane, __LINE__)
#define __shfl_xor_sync(mask, value, bits) \
    emulation::shuffle(value, (threadIdx.x ^ (bits)) % emulation::WARP, __LINE__)
#define __reduce_add_sync(mask, value) \
    emulation::reduce(value, [](unsigned a, unsigned b) { return a + b; }, __LINE__)
#define __reduce_min_sync(mask, value) \
    emulation::reduce(                                                              \
        value, [](unsigned a, unsigned b) { return std::min(a, b); }, __LINE__)
#define __ballot_sync(mask, value) \
    __reduce_add_sync(mask, (value) ? 1u << threadIdx.x % emulation::WARP : 0u)

// Barriers of the block so far: a clock that is the same in every run.
inline long long clock64() { return emulation::block->ticks; }

inline unsigned long long nanoseconds() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

template <class T>
inline T read_only(const T* at) {
    return *at;
}

// Reads, so that an address sanitizer sees it; who asks for a list gets the address.
inline void prefetch_l2(const void* at) {
    static_cast<void>(*static_cast<const volatile char*>(at));
    const size_t i = emulation::prefetches++;
    if (i < emulation::most_prefetched) emulation::prefetched[i] = at;
}

template <class T>
inline T* in_global(T* pointer) {
    return pointer;
}

template <class T>
inline T peek(const T* word) {
    emulation::maybe_give_way();
    ++emulation::peeks;
    return emulation::maybe_stale(word);
}

template <class T>
inline T atomicMin(T* word, T value) {
    return emulation::update(word, [=](T old) { return std::min(old, value); });
}

template <class T>
inline T atomicAdd(T* word, T value) {
    return emulation::update(word, [=](T old) { return static_cast<T>(old + value); });
}

template <class T>
inline T atomicOr(T* word, T value) {
    return emulation::update(word, [=](T old) { return old | value; });
}

template <class T>
inline T atomicExch(T* word, T value) {
    return emulation::update(word, [=](T) { return value; });
}

template <class T>
inline T atomicCAS(T* word, T expected, T value) {
    return emulation::update(
        word, [=](T old) { return old == expected ? value : old; });
}

inline int __popcll(unsigned long long bits) { return __builtin_popcountll(bits); }

inline unsigned __umulhi(unsigned a, unsigned b) {
    return static_cast<unsigned long long>(a) * b >> 32;
}

inline unsigned __float_as_uint(float value) {
    unsigned bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

inline float __uint_as_float(unsigned bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

// Words that were peeked at since the library was loaded.
extern "C" __attribute__((used)) inline unsigned long long emulated_peeks() {
    return emulation::peeks;
}

// From here on write addresses that are prefetched to a list.
extern "C" __attribute__((used)) inline void list_prefetches(const void** list, size_t most) {
    emulation::prefetched = list;
    emulation::most_prefetched = most;
    emulation::prefetches = 0;
}

// Exports a kernel that takes one record.
#define EMULATE(name)                                                                \
    extern "C" void emulate_##name(const void* argument, unsigned blocks,            \
                                   unsigned threads, unsigned shared_bytes,          \
                                   int os_threads, unsigned preempt,                 \
                                   unsigned seed) {                                  \
        const auto kernel = [](const void* pointer) {                                \
            name(*static_cast<decltype(emulation_argument(&name))>(pointer));        \
        };                                                                           \
        emulation::run(                                                              \
            {kernel, argument, blocks, threads, shared_bytes, preempt, seed},        \
            os_threads);                                                             \
    }
template <class T>
const T* emulation_argument(void (*)(T));
