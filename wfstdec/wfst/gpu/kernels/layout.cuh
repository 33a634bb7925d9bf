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
constexpr u32 LEADS_TO_EPSILON = 1u << 30;
constexpr u32 REPEAT = 1u << 31;

// The arc that leads to an entry, as `arc_key` holds it: (arc id << 1) | whether its
// next state has epsilon arcs. The top bit says that it is an epsilon arc, so that keys
// compare as ties are decided: an emitting arc comes first, then the lower arc id.
constexpr u32 EPSILON_ARC = 1u << 31;

// What a launch leaves an utterance with: done (where a number was no log-prob, so far
// as that), the array that is too small, or a trace that may not be compacted as yet.
enum Status : u32 {
    OK, GROW_SCRATCH, GROW_FRONTIER, GROW_TRACE, FULL_TRACE, GROW_LINKS
};

// The phases of a frame whose times a build with TIMES takes.
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

// An entry of the frontier that is being made. `source` is the position of its source:
// in the frontier before, or in this one where `arc_key` has EPSILON_ARC.
struct alignas(16) NewEntry {
    float cost;
    u32 state, source, arc_key;
};

// A new entry that has epsilon arcs [begin, end), and its epsilon rank.
struct alignas(16) Waiting {
    u32 entry, begin, end, rank;
};

// An arc that may survive, with the entry that it leaves; as above.
struct alignas(16) Candidate {
    float cost;
    u32 state, source, arc_key;
};

struct alignas(16) Node {
    u32 previous, arc;
    float acoustic;  // unscaled
    u32 renumbered;  // scratch of compaction; NONE in between. With LATTICES, where
                     // nothing is compacted: the boost state
};

// An arc noted for a lattice, between nodes of the trace; see `recorded.py`.
struct Link {
    u32 state, nextstate, arc;
    float excess, acoustic;
};

// The arcs of words that an utterance adds, C calls and F arcs out of each; see
// graph/overlay.py. States and arcs are numbered on from the graph's.
struct Overlay {
    const Arc* arcs;          // [A'], first F for each call, then the states' rows
    const float* bonus;       // [A'], what each arc is credited
    const StateArcs* states;  // [S']
    const u32* call_state;    // [C], ascending
    u32 first_state;          // S; NONE where no words are added
    u32 first_arc;            // A; likewise
    u32 num_calls;            // C; 0 where no words are added
    u32 num_entering;         // F
};

// One arc of the best path.
struct Step {
    u32 arc;
    float acoustic;
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
    Step* path;              // [path_capacity], the last step first
    Link* links;             // [links_capacity]; only builds with LATTICES have it
    double base;             // what re-basing took off all costs so far
    u32 chunk_frame;         // the next frame of the chunk to do
    u32 frontier_capacity;
    u32 trace_capacity;
    u32 frontier_count;  // 0: not yet begun
    u32 trace_count;
    u32 within;  // entries within the beam
    u32 best;    // an entry that costs 0
    u32 frames;  // done since the utterance began
    u32 died;    // the frame that nothing survived, or NONE
    u32 status;  // a Status
    u32 path_capacity;
    u32 path_length;
    u32 reached_final;
    u32 end_state;
    u32 links_capacity;
    u32 links_count;
    float end_cost;
    // Sums over frames: entries gone on from, candidates, arcs looked at, entries made;
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
    NewEntry* new_entries;   // [blocks, entry_capacity]: the frontier being made
    u32* entry_slots;        // [blocks, entry_capacity]: their slots in the table
    u32* tie_breaks;         // [blocks, entry_capacity]: least source boost state
    Waiting* waiting;        // [blocks, entry_capacity]: entries with epsilon arcs
    Candidate* candidates;   // [blocks, candidate_capacity]
    u32* candidate_boosts;   // [blocks, candidate_capacity]: where phrases lead them
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
    float instalment;  // the most that boosts pay at once
    float blank_penalty;
    float blank_skip_logprob;  // infinite: never
    float link_limit;  // the most excess that is noted
};
