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

}  // namespace ptx
