// Records shared by host and device; `layout.py` reads them from here.
//
// Axes: S states, A arcs, F frontier entries, N trace nodes, H slots of a table.
#pragma once
#include "boosts.cuh"
#include "logprobs.cuh"

// Compile-time features: whether any utterance may have phrases; whether arcs are
// recorded for lattices; whether any utterance has OOV words. Omitting them saves code.
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
constexpr u32 LEADS_TO_EPSILON = 1u << 30;
constexpr u32 REPEAT = 1u << 31;

// Incoming arc of an entry, as in `arc_key`: (arc id << 1) | whether its next state has
// epsilon arcs. The top bit marks an epsilon arc, so that keys compare as ties are
// decided: an emitting arc comes first, then the lower arc id.
constexpr u32 EPSILON_ARC = 1u << 31;

// Status of an utterance after a launch: done (with an invalid number, up to it), the
// array that is too small, or a trace that may not be compacted yet.
enum Status : u32 {
    OK, GROW_SCRATCH, GROW_FRONTIER, GROW_TRACE, FULL_TRACE, GROW_LINKS
};

// Phases of a frame, timed by builds with TIMES.
enum Phase : u32 { KEEP, BOUND, EMIT, RECOMBINE, CLOSE, SETTLE, OTHER, NUM_PHASES };

struct alignas(16) Arc {
    u32 ilabel, olabel, nextstate;
    float cost;
};

// The arcs of a state: epsilon arcs in [begin, emit), the others in [emit, end); `rank`
// is its epsilon rank.
struct alignas(16) StateArcs {
    u32 begin, emit, end, rank;
};

// A frontier entry; `node` is its backpointer, `boost` its boost state (0 without
// phrases).
struct alignas(16) Entry {
    float cost;
    u32 state, node, boost;
};

// An entry of the next frontier. `source` is the position of its source: in the
// previous frontier, or in this one if `arc_key` has EPSILON_ARC.
struct alignas(16) NewEntry {
    float cost;
    u32 state, source, arc_key;
};

// An arc that may survive, with the entry that it leaves; as above.
struct alignas(16) Candidate {
    float cost;
    u32 state, source, arc_key;
};

struct alignas(16) Node {
    u32 previous, arc;
    float acoustic;  // unscaled
    u32 renumbered;  // scratch of compaction; NONE in between. With LATTICES, which
                     // excludes compaction: the boost state
};

// An arc recorded for a lattice, between nodes of the trace; see `lattice_pack.py`.
struct Link {
    u32 state, nextstate, arc;
    float excess, acoustic;
};

// The arcs of an utterance's OOV words, C exits and F arcs from each; see
// graph/overlay.py. States and arcs are numbered after the graph's.
struct Overlay {
    const Arc* arcs;          // [A'], first F for each exit, then the states' rows
    const float* bonus;       // [A'], credit of each arc
    const StateArcs* states;  // [S']
    const u32* call_state;    // [C], ascending
    u32 first_state;          // S; NONE without OOV words
    u32 first_arc;            // A; likewise
    u32 num_calls;            // C; 0 without OOV words
    u32 num_entering;         // F
};

// One arc of the best path.
struct Step {
    u32 arc;
    float acoustic;
};

// State of one utterance between launches, its chunk, and its result.
struct Utterance {
    Logprobs logprobs;       // of the chunk
    WordBonuses words;
    const Phrases* phrases;  // null: boosts have no states
    Overlay overlay;         // only builds with ADDED have it
    Entry* frontier;         // [frontier_capacity]
    Entry* backup;           // [frontier_capacity]: the frontier before a launch that
                             // is not `checked`; null: no backup
    Node* trace;             // [trace_capacity]
    Step* path;              // [path_capacity], the last step first
    Link* links;             // [links_capacity]; only builds with LATTICES have it
    double base;             // sum of the subtracted best costs
    u32 chunk_frame;         // the next frame of the chunk to do
    u32 frontier_capacity;
    u32 trace_capacity;
    u32 frontier_count;  // 0: not yet begun
    u32 trace_count;
    u32 within;  // entries within the beam
    u32 best;    // an entry that costs 0
    u32 frames;  // done since the utterance began
    u32 died;    // the frame that no state survived, or NONE
    u32 status;  // a Status
    u32 path_capacity;
    u32 path_length;
    u32 reached_final;
    u32 end_state;
    u32 links_capacity;
    u32 links_count;
    float end_cost;
    // Sums over frames: active entries, candidates, arcs inspected, entries built;
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
    const StateArcs* states;  // [S]
    const float* final_cost;  // [S]
    Utterance* utterances;
    const u32* queue;  // [queue_length], positions in `utterances`, the longest first
    u32* num_drawn;    // how many of the queue are taken
    u64* phase_times;  // [blocks, NUM_PHASES + 2]; only builds with TIMES have it
    NewEntry* new_entries;   // [blocks, entry_capacity]: the next frontier
    u32* entry_slots;        // [blocks, entry_capacity]: their slots in the table
    u32* tie_breaks;         // [blocks, entry_capacity]: least source boost state
    u32* epsilon_entries;    // [blocks, entry_capacity]: entries with epsilon arcs
    Candidate* candidates;   // [blocks, candidate_capacity]
    u32* candidate_boosts;   // [blocks, candidate_capacity]: their next boost states
    u32* candidate_slots;    // [blocks, candidate_capacity]: their slots in the table
    u64* table_keys;         // [blocks, table_slots]: search states; EMPTY
    u64* table_best;         // [blocks, table_slots]: least (cost, arc key)
    u32* table_entries;      // [blocks, table_slots]: position in `new_entries`
    u32 queue_length;
    u32 entry_capacity;
    u32 candidate_capacity;
    u32 table_slots;
    u32 shared_slots;  // of the table in shared memory; 0: there is none
    u32 num_tokens;    // V
    u32 checked;       // 1: all chunks are known to hold log-probs only
    u32 blank;
    u32 max_active;
    float beam;
    float beam_delta;  // below 0: none
    float acoustic_scale;
    float lm_scale;
    float word_insertion;
    float instalment;  // most that boosts pay at once
    float blank_penalty;
    float blank_skip_logprob;  // infinite: never
    float link_limit;  // largest recorded excess
};
