// The boosts of an utterance: a bonus for each of some words, and phrases.
#pragma once
#include "automaton.cuh"

// Compiled phrases: an automaton that a search steps through beside its own states.
struct Phrases {
    Automaton automaton;
    u32 start;      // the state before anything is said
    u32 of_tokens;  // 1: its labels are tokens; 0: word ids
};

// The hash map of boost/words.py, H slots.
struct WordBonuses {
    const u32* keys;       // [H], 0 in an empty slot; null: no words
    const float* bonuses;  // [H]
    u32 mask;              // H - 1
};

// The integer hash of boost/words.py.
__device__ __forceinline__ u32 mix(u32 key) {
    key ^= key >> 16;
    key *= 0x7feb352du;
    key ^= key >> 15;
    key *= 0x846ca68bu;
    return key ^ (key >> 16);
}

// The bonus of a word: 0 where the map does not have it.
__device__ inline float find_bonus(const WordBonuses& words, u32 word) {
    if (words.keys == nullptr) return 0.0f;
    u32 slot = mix(word) & words.mask;
    while (words.keys[slot] != word && words.keys[slot] != 0)
        slot = (slot + 1) & words.mask;
    return words.bonuses[slot];
}
