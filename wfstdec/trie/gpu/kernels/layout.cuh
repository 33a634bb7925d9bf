// Records shared by host and device; `layout.py` reads them from here.
//
// Axes: V tokens, N nodes, P pronunciations, S states of the model, F frontier entries,
// C candidates, M new entries, H slots of a table.
#pragma once
#include "boosts.cuh"
#include "logprobs.cuh"

// Threads of a block, which takes an utterance; a multiple of 32.
#ifndef THREADS
#define THREADS 32
#endif

// Status of an utterance after a launch: done (with an invalid number, up to it), the
// array that is too small for the next frame, or more frames than a launch takes.
enum Status : u32 { OK, GROW_SCRATCH, GROW_FRONTIER, GROW_TRACE, PAUSED };

// Phases of a frame, timed by builds with TIMES.
enum Times : u32 { STAY, EXPAND, MERGE, RANK, SETTLE, OTHER, NUM_TIMES };

// The phases of an entry: the last frame was a blank, or the last token.
constexpr u32 BLANK = 0, NONBLANK = 1;

// A frontier entry, as ENTRY of trie/cpu/arrays.py; `spelling` is 0.
struct Entry {
    float cost, blank_cost, nonblank_cost, lookahead_cost;
    u32 state, node, boost;
    u32 blank_trace, nonblank_trace;  // NONE before the first token
    u32 token_end;
    u64 spelling, text;
    double blank_acoustic, nonblank_acoustic;
};

// A token in the trace, as TRACE_NODE of trie/cpu/arrays.py.
struct Node {
    u32 previous, token, pron, start, previous_end;
};

// A transition to a phase of an entry. `order` ranks those into one phase of one entry
// as the specification does: (source, number) in 16 bits each; see `ask.cuh`.
struct Candidate {
    u64 text;
    float cost, lookahead_cost;
    u32 state, node, boost;
    u32 token, pron;  // NONE if no token begins, if no word ends
    u32 order;
    u32 entry;  // the slot of its entry, then the entry
    u32 next;   // the candidate after it in a list of the entry's phase
};

// An entry of the next frontier.
struct NewEntry {
    u64 best_blank, best_nonblank;  // least (cost, order) into each phase
    float cost, blank_cost, nonblank_cost;
    u32 blank_candidate, nonblank_candidate;  // the best ones; NONE
    // With "sum" all candidates into each; NONE. Later set by `place_of`.
    u32 blank_list, nonblank_list;
    u32 sample;  // a candidate that has its key
};

// The lexicon of trie/lexicon_trie.py, and the look-ahead of trie/lookahead.py.
struct Lexicon {
    const u32* node_child_splits;  // [N + 1]
    const u32* child_token;        // [N - 1]
    const u32* child_node;         // [N - 1]
    const u32* node_pron_splits;   // [N + 1]
    const u32* pron_word;          // [P]
    const float* pron_cost;        // [P]
    const u32* node_token;         // [N], or [V + 1] without a lexicon; NONE for none
    const u32* root_child;         // [V]; NONE for none
    const u32* row_splits;         // [S + 1]
    const u32* row_node;           // increasing in each row
    const float* row_cost;
    const float* unigram_cost;  // [N]
    const float* state_cost;    // [S]
    u32 uses_history;
};

// State of one utterance between launches, and its chunk.
struct Utterance {
    Logprobs logprobs;  // of the chunk
    WordBonuses words;
    const Phrases* phrases;  // null: there are none
    Entry* frontier;         // [frontier_capacity], in order
    Entry* backup;           // [frontier_capacity]: the frontier before a launch that
                             // is not `checked`; null: no backup
    Node* trace;             // [trace_capacity]
    Entry* last_frontier;    // where `gather_states` puts both, for the host
    Node* last_trace;
    double base;             // sum of the subtracted best costs
    u32 chunk_frame;         // the next frame of the chunk to do
    u32 frontier_capacity;
    u32 trace_capacity;
    u32 frontier_count;  // 0: not yet begun
    u32 trace_count;
    u32 frames;  // done since the utterance began
    u32 died;    // the frame that no entry survived, or NONE
    u32 status;  // a Status
    u32 boosted;
    float most_credit;  // no step is credited more
    // Sums over frames: active entries, candidates, entries built; frames whose arrays
    // were in shared memory, and those that left it.
    u64 active, candidates, entries, shared, spilled;
};

// One launch: the model, the options, the queue, and scratch for every block.
struct Task {
    Lexicon lexicon;
    Automaton automaton;
    Utterance* utterances;
    const u32* queue;  // [queue_length], positions in `utterances`, the longest first
    u32* num_drawn;    // how many of the queue are taken
    u64* phase_times;  // [blocks, NUM_TIMES], cycles; only builds with TIMES have it
    Entry* old_entries;     // [blocks, entry_capacity]: the frontier
    Entry* next_entries;    // [blocks, entry_capacity]: the next one
    Candidate* candidates;  // [blocks, candidate_capacity]
    NewEntry* new_entries;  // [blocks, candidate_capacity]
    u32* slots;             // [blocks, 2 candidate_capacity]: a table of candidates
    u32* ranks;             // [blocks, candidate_capacity]: new entries in order
    u32* marks;             // [blocks, candidate_capacity]
    u32* tokens;            // [blocks, token_capacity]: tokens that may begin
    u32 queue_length;
    u32 entry_capacity;
    u32 candidate_capacity;  // a power of 2, as the next but one
    u32 token_capacity;
    u32 shared_entries;  // of the same arrays in shared memory; 0: there are none
    u32 shared_candidates;
    u32 shared_tokens;
    u32 num_tokens;  // V
    u32 most_frames;  // of an utterance in a launch
    u32 checked;     // 1: all chunks are known to hold log-probs only
    u32 blank;
    u32 separator;  // NONE: there is none
    u32 separator_optional;
    u32 has_lexicon;
    u32 start_state;  // of the model
    u32 start_node;
    u32 beam_size;
    u32 token_top_k;  // NONE: all tokens
    u32 nbest;
    u32 sums;     // merge="sum"
    u32 by_text;  // whether each entry belongs to one text
    float beam;
    float acoustic_scale;
    float lm_scale;
    float word_insertion;
    float token_insertion;
    float begin_credit;   // most by which a token lowers the cost, without boosts
    float inside_credit;  // the same where no word ends
    float end_credit;     // the same without the cost of the language model
    float word_floor;     // least cost of a word and the look-ahead after it, in any state
    float instalment;     // most that boosts pay at once
    float blank_penalty;
    float blank_skip_logprob;  // infinite: never
};
