// What PTX that `ptx.py` translates to C++ runs on: address spaces, and instructions
// that C++ has no operator for. Include `emulation.h` before it.
//
// Shared memory is a window that begins at FIRST_SHARED, as on a GPU: an address of it
// is an offset until `cvta` makes it generic. Refused, with the line of the source: an
// address that is not a multiple of what is read or written there; one that is said to
// be global and lies in shared memory, or the other way round; one near null.
#pragma once
#include <limits>

namespace ptx {

constexpr uint64_t FIRST_SHARED = 0x400;
constexpr uint64_t FIRST_USED = 0x10000;  // no array lies below

enum Space { GENERIC, GLOBAL, SHARED };

inline char* window() {
    return reinterpret_cast<char*>(emulation::block->dynamic_shared.data());
}

inline size_t window_bytes() { return emulation::block->dynamic_shared.size() * 8; }

[[noreturn]] inline void refuse(const char* what, const char* file, int line) {
    std::fprintf(stderr, "emulation: %s: block %u, thread %d, %s:%d\n", what,
                 emulation::block->block.x, emulation::fiber->number, file, line);
    std::abort();
}

// Where an address is, for so many bytes at once.
template <Space SPACE>
inline char* place(uint64_t address, unsigned bytes, const char* file = __builtin_FILE(),
                   int line = __builtin_LINE()) {
    if (address % bytes) refuse("a misaligned address", file, line);
    if (SPACE == SHARED) {
        const uint64_t end = FIRST_SHARED + window_bytes();
        if (address < FIRST_SHARED || address + bytes > end)
            refuse("an address outside shared memory", file, line);
        return window() + (address - FIRST_SHARED);
    }
    char* const at = reinterpret_cast<char*>(address);
    if (address < FIRST_USED) refuse("a null address", file, line);
    if (SPACE == GLOBAL && at >= window() && at < window() + window_bytes())
        refuse("shared memory that is taken for global", file, line);
    return at;
}

inline uint64_t shared_of_generic(uint64_t address) {
    return address - reinterpret_cast<uint64_t>(window()) + FIRST_SHARED;
}

inline uint64_t generic_of_shared(uint64_t address) {
    return address - FIRST_SHARED + reinterpret_cast<uint64_t>(window());
}

template <class T>
inline T load(const char* at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

template <class T>
inline void store(char* at, T value) {
    std::memcpy(at, &value, sizeof value);
}

// The same bits as another type, of the same size.
template <class To, class From>
inline To bits(From value) {
    static_assert(sizeof(To) == sizeof(From));
    To result;
    std::memcpy(&result, &value, sizeof result);
    return result;
}

inline uint32_t prmt(uint32_t low, uint32_t high, uint32_t selectors) {
    const uint64_t bytes = static_cast<uint64_t>(high) << 32 | low;
    uint32_t result = 0;
    for (int i = 0; i < 4; ++i) {
        const uint32_t selector = selectors >> 4 * i & 15;
        uint32_t byte = bytes >> 8 * (selector & 7) & 255;
        if (selector & 8) byte = byte & 128 ? 255 : 0;
        result |= byte << 8 * i;
    }
    return result;
}

// The low `length` bits of `field` put into `base` from bit `first` on.
template <class T>
inline T bfi(T field, T base, uint32_t first, uint32_t length) {
    const unsigned all = sizeof(T) * 8;
    if (first >= all) return base;
    const T mask = (length >= all ? ~T(0) : (T(1) << length) - 1) << first;
    return (base & ~mask) | (field << first & mask);
}

// Shifts by all bits and more are 0, or the sign.
template <class T>
inline T shl(T value, uint32_t by) {
    return by >= sizeof(T) * 8 ? T(0) : T(value << by);
}

template <class T>
inline T shr(T value, uint32_t by) {
    if (by >= sizeof(T) * 8) return value < 0 ? T(-1) : T(0);
    return T(value >> by);
}

// Truncated; what does not fit becomes the nearest that does.
template <class To>
inline To truncated(float value) {
    if (value != value) return 0;
    const float least = static_cast<float>(std::numeric_limits<To>::min());
    const float most = static_cast<float>(std::numeric_limits<To>::max());
    if (value <= least) return std::numeric_limits<To>::min();
    return value >= most ? std::numeric_limits<To>::max() : static_cast<To>(value);
}

inline void wait_for_block() { emulation::wait_at(emulation::block->barrier, 1); }

// No kernel here has a use for a part of a warp.
inline void for_whole_warp(uint32_t mask, const char* file, int line) {
    if (mask != 0xffffffffu) refuse("a part of a warp", file, line);
}

inline void wait_for_warp(uint32_t mask, const char* file = __builtin_FILE(),
                          int line = __builtin_LINE()) {
    for_whole_warp(mask, file, line);
    const int warp = emulation::fiber->number / emulation::WARP;
    emulation::wait_at(emulation::block->warp_barriers[warp], 1);
}

// A shuffle's word and whether it is another lane's; lanes past the warp's end have
// their own.
inline bool shuffle(uint32_t& result, uint32_t value, int lane, uint32_t mask,
                    const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    for_whole_warp(mask, file, line);
    const bool within = lane >= 0 && lane < emulation::WARP;
    const int own = threadIdx.x % emulation::WARP;
    result = emulation::shuffle<uint32_t>(value, within ? lane : own, 1);
    return within;
}

template <class Combine>
inline uint32_t reduce(uint32_t value, Combine combine, uint32_t mask,
                       const char* file = __builtin_FILE(),
                       int line = __builtin_LINE()) {
    for_whole_warp(mask, file, line);
    return emulation::reduce(value, combine, 1);
}

// ---------------------------------------------------------------------------- counts
// What the kernels of a library did; of one block at a time.
struct Told {
    uint64_t instructions;  // of all threads
    uint64_t loads;         // from global memory, of all threads
    uint64_t chain;         // loads from there that each wait for the one before
    uint64_t barriers;
};
inline Told told = {};
inline uint32_t at_turns[2] = {};  // the deepest at a barrier's even and odd turns
constexpr uint32_t MOST_WARPS = 32, MOST_PHASES = 16;
inline uint32_t at_warp_turns[MOST_WARPS][2] = {};  // likewise at those of a warp

// What one block did up to the marks of its phases, which all threads pass.
struct Phase {
    uint64_t instructions, chain, barriers;
};
inline Phase phases[MOST_PHASES] = {};
struct Mark {
    uint32_t phase, deepest;
};
inline std::vector<Mark> marks;
inline uint64_t ticks_at_mark = 0;

inline uint32_t deeper(uint32_t one, uint32_t other) {
    return one > other ? one : other;
}

inline bool is_far(uint64_t address) {
    const char* const at = reinterpret_cast<const char*>(address);
    return !(at >= window() && at < window() + window_bytes());
}

inline uint32_t loaded(uint32_t depth, bool far) {
    told.loads += far;
    return depth + far;
}

// Where the deepest will stand when all have come: depths only grow, so that a turn needs
// no clearing.
inline const uint32_t* at_barrier(uint32_t control, uint32_t stored) {
    uint32_t& turn = at_turns[emulation::block->barrier.turn % 2];
    turn = deeper(turn, deeper(control, stored));
    return &turn;
}

inline const uint32_t* at_warp_barrier(uint32_t control, uint32_t stored) {
    const int warp = emulation::fiber->number / emulation::WARP;
    const auto turn = emulation::block->warp_barriers[warp].turn % 2;
    uint32_t& deepest = at_warp_turns[warp][turn];
    deepest = deeper(deepest, deeper(control, stored));
    return &deepest;
}

// `done`: the thread's instructions since its last mark. `passed`: its marks so far.
inline void at_mark(uint32_t phase, uint64_t& done, uint32_t& passed, uint32_t depth) {
    phases[phase].instructions += done;
    done = 0;
    if (passed == marks.size()) marks.push_back({phase, 0});
    Mark& mark = marks[passed++];
    mark.deepest = deeper(mark.deepest, depth);
    if (emulation::fiber->number != 0) return;
    const uint64_t ticks = emulation::block->ticks;
    phases[phase].barriers += ticks - ticks_at_mark;
    ticks_at_mark = ticks;
}

inline void at_end(uint32_t control, uint32_t stored) {
    told.chain = std::max<uint64_t>(told.chain, deeper(control, stored));
    told.barriers = emulation::block->ticks;
}

}  // namespace ptx

// What was done since it was asked last.
extern "C" __attribute__((used)) inline void emulated_counts(ptx::Told* counts) {
    *counts = ptx::told;
    ptx::told = {};
    ptx::at_turns[0] = ptx::at_turns[1] = 0;
    for (auto& turns : ptx::at_warp_turns) turns[0] = turns[1] = 0;
}

// What one launch of one block did by phase, since it was asked last.
extern "C" __attribute__((used)) inline void emulated_phases(ptx::Phase* phases) {
    uint32_t before = 0;
    for (const ptx::Mark& mark : ptx::marks) {
        // Depths only grow: what is deeper than at the last mark is this phase's.
        const uint32_t deepest = ptx::deeper(before, mark.deepest);
        ptx::phases[mark.phase].chain += deepest - before;
        before = deepest;
    }
    for (uint32_t i = 0; i < ptx::MOST_PHASES; ++i) {
        phases[i] = ptx::phases[i];
        ptx::phases[i] = {};
    }
    ptx::marks.clear();
    ptx::ticks_at_mark = 0;
}
