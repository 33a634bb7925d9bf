// The records that host and device share; `layout.py` reads them from here.
//
// Axes: S states, A arcs, F frontier entries, N trace nodes, H slots of a table.
#pragma once
#include "boosts.cuh"
#include "logprobs.cuh"

// What kernels are compiled for, as that leaves out code: whether any utterance may
// have phrases; whether they note arcs for lattices; and whether any utterance adds
// words.
#ifndef PHRASES
#define PHRASES 1
#endif
#ifndef LATTICES
#define LATTICES 0
#endif
#ifndef ADDED
#define ADDED 0
#endif

constexpr u32 LABEL_MASK = (1u << 28) - 1;  // flags of an arc's ilabel, as in arcs.py
constexpr u32 CARRIES_WORD = 1u << 29;
constexpr u32 REPEAT = 1u << 31;

// Flags of a record's number, as in rows.py; HUB: the state after a blank, where it is
// an entry of its own.
constexpr u32 EPSILONS = 1u << 31;
constexpr u32 SHARED = 1u << 30;
constexpr u32 NO_BLANK = 1u << 29;
constexpr u32 TOKEN_FIRST = 1u << 28;
constexpr u32 HUB = 1u << 27;
constexpr u32 EXIT = 1u << 26;
constexpr u32 RECORDS = (1u << 26) - 1;

// Ties go to the lower number. Arcs have the numbers of the packed graph, those of an
// overlay come behind. The top bit says that it is an epsilon arc, as an emitting arc
// comes first.
constexpr u32 EPSILON_ARC = 1u << 31;
constexpr u32 FROM_TOKEN = 1u << 31;  // of a candidate's source: not after a blank

// What a launch leaves an utterance with: done (where a number was no log-prob, so far
// as that), the array that is too small, or a trace that may not be compacted as yet.
enum Status : u32 {
    OK, GROW_SCRATCH, GROW_FRONTIER, GROW_TRACE, FULL_TRACE, GROW_LINKS
};

// The phases of a frame whose times a build with TIMES takes.
enum Phase : u32 { KEEP, EMIT, RECOMBINE, CLOSE, SETTLE, OTHER, NUM_PHASES };

// `nextstate` is a record with flags.
struct alignas(16) Arc {
    u32 ilabel, olabel, nextstate;
    float cost;
};

// A record of rows.py: a row of arcs, and the token before it (V: none). `hub` is the
// state after a blank as an entry of its own.
struct alignas(16) Row {
    u32 first, length, token, hub;
};

// The states of a record, and the numbers of their first emitting arcs.
struct alignas(16) States {
    u32 after_blank, after_token, blank_number, token_number;
};

// Epsilon arcs of a record, which come before the emitting ones: with hubs, the hub's.
struct alignas(16) Epsilons {
    u32 begin, end, rank, unused;
};

// Where a state has its blank and its repeat among the arcs of the row, and the arcs of
// the token itself, which the state after it lacks.
struct alignas(16) Order {
    u32 blank_at, repeat_at, own_begin, own_count;
};

// The tokens of a row's arcs as bits, in their order, and the least cost of an arc; no
// bits where not all tokens have one, or a row has several arcs of a token.
struct alignas(16) Labels {
    u64 tokens;
    float least;
    u32 unused;
};

struct alignas(16) Record {
    Row row;
    States states;
    Epsilons epsilons;
    Order order;
    Labels labels;
};

// A frontier entry: up to two states that share a row, and what paths to them cost;
// infinite where a state is not active. A HUB has a cost after a blank only; entries of
// a record that is SHARED, and all with hubs, after the token only.
struct alignas(16) Entry {
    float blank, token;
    u32 record, boost;  // 0 without phrases
    u32 blank_node, token_node;
    u32 ended;  // as of a node: of the token before the blank
    // What a frame has found, from here on: what a blank and a repeat cost, their slots
    // in the table, and the token of the record.
    float next_blank, repeat;
    u32 blank_slot, repeat_slot, again;
    double blank_acoustic, token_acoustic;  // of the paths, unscaled
};

// An arc that may survive, NONE to a hub; `source` is an entry of the frontier before, or
// of the one that is being made where `tie` has EPSILON_ARC.
struct Candidate {
    float cost;
    u32 record, source, tie, arc;
};

// A trace node, of a token or epsilon arc: repeats and blanks have none. Between it and
// the one before, the path repeats a token up to frame `ended`, then takes blanks.
struct Node {
    u32 previous, arc;
    u32 frame;       // frames passed with the arc
    u32 ended;       // frames passed with the first blank; of a root its tip's number
    u32 renumbered;  // scratch of compaction; NONE in between
};

// An arc noted for a lattice, between states of frontiers: two for each entry, after a
// blank and after the token.
struct Link {
    u32 state, nextstate, arc;
    float excess, acoustic;
    u32 graph_state, boost;  // of the next state
};

// The arcs of words that an utterance adds, C calls and F arcs out of each; see
// graph/overlay.py. Records, states and arcs are numbered on from the graph's.
struct Overlay {
    const Arc* arcs;        // [A'], first F for each call, then the states' rows
    const float* bonus;     // [A'], what each arc is credited
    const Record* records;  // [U']
    const u32* call_state;  // [C], ascending
    u32 first_state;        // S; NONE where no words are added
    u32 first_record;       // U; likewise
    u32 first_arc;          // A; likewise
    u32 first_number;       // of the arcs in the packed graph
    u32 num_calls;          // C; 0 where no words are added
    u32 num_entering;       // F
};

// What one utterance keeps between launches, its chunk, and its result.
struct Utterance {
    Logprobs logprobs;       // of the chunk
    WordBonuses words;
    const Phrases* phrases;  // null: boosts have no states
    Overlay overlay;         // only builds with ADDED have it
    Entry* frontier;         // [frontier_capacity]
    Entry* backup;           // [frontier_capacity]: the frontier before a launch that
                             // is not `checked`; null: nobody may want it back
    Node* trace;             // [trace_capacity]
    Node* path;              // [path_capacity], the last node first
    Link* links;             // [links_capacity]; only builds with LATTICES have it
    double base;             // what re-basing took off all costs so far
    double end_acoustic;     // of the best path
    u32 chunk_frame;         // the next frame of the chunk to do
    u32 frontier_capacity;
    u32 trace_capacity;
    u32 frontier_count;  // 0: not yet begun
    u32 trace_count;
    u32 within;  // entries within the beam
    float beam;  // of the next frame
    u32 best;    // an entry whose token costs 0
    u32 frames;  // done since the utterance began
    u32 died;    // the frame that nothing survived, or NONE
    u32 status;  // a Status
    u32 path_capacity;
    u32 path_length;
    u32 reached_final;
    u32 end_state;
    u32 end_ended;
    u32 links_capacity;
    u32 links_count;
    u32 first_place, num_places;  // of the frontier's states among those of all frames
    float end_cost;
    // Sums over frames: states gone on from, candidates, arcs looked at, entries made;
    // frames whose table was in shared memory, and those that left it.
    u64 active, arcs, looked, entries, shared, spilled;
};

// Whether an utterance has phrases.
__device__ __forceinline__ bool has_phrases(const Utterance& utterance) {
    return PHRASES && utterance.phrases != nullptr;
}

// One launch: the graph, the options, the queue, and scratch for every block.
struct Task {
    const Arc* arcs;          // [A]
    const Record* records;    // [U]
    const float* final_cost;  // [S]
    Utterance* utterances;
    const u32* queue;  // [queue_length], positions in `utterances`, the longest first
    u32* num_drawn;    // how many of the queue are taken
    u64* phase_times;  // [blocks, NUM_PHASES + 2]; only builds with TIMES have it
    Entry* new_entries;      // [blocks, entry_capacity]: the frontier being made
    u32* entry_slots;        // [blocks, entry_capacity]: their slots in the table
    u32* tie_breaks;         // [blocks, entry_capacity]: least source boost state
    u64* epsilon_entries;    // [blocks, entry_capacity]: (rank, entry with epsilon arcs)
    Candidate* candidates;   // [blocks, candidate_capacity]
    u32* candidate_boosts;   // [blocks, candidate_capacity]: where phrases lead them
    u32* candidate_slots;    // [blocks, candidate_capacity]: their slots in the table
    u64* table_keys;         // [blocks, table_slots]: search states; EMPTY
    u64* table_best;         // [blocks, table_slots]: least (cost, tie)
    u32* table_entries;      // [blocks, table_slots]: position in `new_entries`
    u32 queue_length;
    u32 entry_capacity;
    u32 candidate_capacity;
    u32 table_slots;
    u32 shared_slots;  // of the table in shared memory; 0: all scratch is in global
    u32 num_tokens;    // V
    u32 checked;       // 1: all chunks are known to hold log-probs only
    u32 blank;
    u32 start;     // a record with flags
    u32 has_hubs;  // 1: an epsilon arc leads from each token to the state after a blank
    u32 by_token;  // 1: records have labels
    u32 plain;     // 1: blanks and repeats are arcs of rows
    u32 max_active;
    float beam;
    float beam_delta;  // below 0: none
    float acoustic_scale;
    float lm_scale;
    float word_insertion;
    float instalment;  // the most that boosts pay at once
    float blank_penalty;
    float blank_skip_logprob;  // infinite: never
    float link_limit;  // the most excess that is noted
};
