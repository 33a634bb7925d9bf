// Boosts of an utterance: word bonuses, phrases, instalments.
#pragma once
#include "automaton.cuh"

// Compiled phrases: an automaton with states in addition to those of the search.
struct Phrases {
    Automaton automaton;
    u32 start;      // the state before the first label
    u32 of_tokens;  // 1: its labels are tokens; 0: word ids
};

// A boost state: the number of deferred quarters of an instalment, and the state of
// the phrases; see boost/kernels.py.
constexpr u32 STATE_BITS = 25;
constexpr u32 MAX_OWED = 63;

__device__ __forceinline__ u32 owed_of(u32 boost) { return boost >> STATE_BITS; }

__device__ __forceinline__ u32 state_of(u32 boost) {
    return boost & ((1u << STATE_BITS) - 1);
}

// Deferred credit of a boost state, for instalments of a size.
__device__ __forceinline__ float rest_of(u32 boost, float size) {
    return static_cast<float>(owed_of(boost)) * (0.25f * size);
}

// Payment of a step, from the deferred credit before it and the credit in it; `owed`
// becomes the deferred credit after it.
__device__ inline float pay(u32& owed, float credit, float size) {
    const float quarter = 0.25f * size;
    const float due = static_cast<float>(owed) * quarter + credit;
    owed = 0;
    if (due <= size) return due;
    const float most = static_cast<float>(MAX_OWED);
    const float wanted = ceilf((due - size) / quarter);
    const float left = wanted < most ? wanted : most;
    const float paid = due - left * quarter;
    owed = static_cast<u32>(left);
    if (!(paid > size && left < most)) return paid;
    ++owed;
    return paid - quarter;
}

// The hash map of boost/compiled.py, H slots.
struct WordBonuses {
    const u32* keys;       // [H], 0 in an empty slot; null: no words
    const float* bonuses;  // [H]
    u32 mask;              // H - 1
};

// The integer hash of boost/compiled.py.
__device__ __forceinline__ u32 mix(u32 key) {
    key ^= key >> 16;
    key *= 0x7feb352du;
    key ^= key >> 15;
    key *= 0x846ca68bu;
    return key ^ (key >> 16);
}

// Bonus of a word: 0 if the map does not have it.
__device__ inline float find_bonus(const WordBonuses& words, u32 word) {
    if (words.keys == nullptr) return 0.0f;
    u32 slot = mix(word) & words.mask;
    while (words.keys[slot] != word && words.keys[slot] != 0)
        slot = (slot + 1) & words.mask;
    return words.bonuses[slot];
}
