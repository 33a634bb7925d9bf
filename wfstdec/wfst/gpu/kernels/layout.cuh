// The records that host and device share; `device_layout.py` has them as NumPy types.
//
// Axes: S states, A arcs, F frontier entries, N trace nodes, H slots of a table.
#pragma once

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

constexpr u32 NONE = 0xffffffffu;           // no node, no arc, no slot, no label
constexpr float LARGEST = 3.402823466e+38f;  // the cutoff where there is none
constexpr u32 LABEL_MASK = (1u << 28) - 1;  // flags of an arc's ilabel, as in arcs.py
constexpr u32 CARRIES_WORD = 1u << 29;
constexpr u32 LEADS_TO_EPSILON = 1u << 30;
constexpr u32 REPEAT = 1u << 31;

// An arc as entries note it: (arc id << 1) | whether its state has epsilon arcs. The
// top bit says that it is an epsilon arc, so that notes compare as ties are decided.
constexpr u32 EPSILON_NOTE = 1u << 31;

enum Status : u32 { OK, GROW_WORK, GROW_FRONTIER, GROW_TRACE };

struct alignas(16) Arc {
    u32 ilabel, olabel, nextstate;
    float cost;
};

// The arcs of a state: epsilon arcs in [begin, emit), the others in [emit, end).
struct alignas(16) Row {
    u32 begin, emit, end, rank;
};

// A frontier entry; `boost` is its boost state, 0 without phrases.
struct alignas(16) Entry {
    float cost;
    u32 state, node, boost;
};

// An entry while it is made. `source` is the position of its source: in the frontier
// before, or in its own where the note says that an epsilon arc leads to it.
struct alignas(16) NewEntry {
    float cost;
    u32 state, source, note;
};

// An arc that may survive, from an entry.
struct alignas(16) Candidate {
    float cost;
    u32 state, source, note;
};

struct alignas(16) Node {
    u32 previous, arc;
    float acoustic;
    u32 renumbered;  // scratch of compaction
};

struct Step {
    u32 arc;
    float acoustic;
};

// What one utterance keeps between launches, its chunk, and its result.
struct Utterance {
    const void* logprobs;  // [num_frames, frame_stride], of this chunk
    Entry* frontier;       // [frontier_capacity]
    Node* trace;           // [trace_capacity]
    const u32* boost_keys;  // [boost_mask + 1], see boost/words.py; null: none
    const float* boost_bonuses;
    const struct Automaton* phrases;  // null: none
    Step* path;   // [path_capacity], the last step first
    double base;  // what re-basing took off
    u32 boost_mask;
    u32 logprob_type;
    u32 frame_stride;  // from row to row, in log-probs
    u32 num_frames;    // of this chunk
    u32 chunk_frame;   // the next one to do
    u32 frontier_capacity;
    u32 trace_capacity;
    u32 frontier_count;  // 0: not one launch yet
    u32 trace_count;
    u32 within;  // entries within the beam
    u32 best;    // an entry that costs 0
    u32 frames;  // done since the beginning
    u32 died;    // the frame that nothing survived, or NONE
    u32 status;
    u32 bad_frame;  // the first of the chunk with what is no log-prob, or NONE
    u32 path_capacity;
    u32 path_length;
    u32 reached_final;
    u32 end_state;
    float end_cost;
    // Sums over frames: entries gone on from, candidates, arcs looked at, entries made;
    // frames whose table was in shared memory, and those that left it.
    u64 active, arcs, looked, entries, shared, spilled;
};
static_assert(sizeof(Utterance) == 192, "as in device_layout.py");

// One launch: the graph, the options, the queue, and scratch for every block.
struct Task {
    const Arc* arcs;          // [A]
    const Row* rows;          // [S]
    const float* final_cost;  // [S]
    Utterance* utterances;
    const u32* order;  // [num_utterances], the queue: longest first
    u32* drawn;        // how many of the queue are taken
    NewEntry* next;    // [blocks, entry_capacity]: the frontier being made
    u32* next_slots;   // [blocks, entry_capacity]: where its entries stand in the table
    u32* ties;         // [blocks, entry_capacity]: least source boost state
    u32* waiting;      // [blocks, entry_capacity]: entries with epsilon arcs
    Candidate* candidates;  // [blocks, candidate_capacity]
    u32* boosts;            // [blocks, candidate_capacity]: where phrases lead them
    u32* landed;            // [blocks, candidate_capacity]: the slots of candidates
    u64* table_keys;        // [blocks, table_size]: search states; EMPTY
    u64* table_best;        // [blocks, table_size]: least (cost, note)
    u32* table_entries;     // [blocks, table_size]: position in `next`
    u32 num_utterances;
    u32 entry_capacity;
    u32 candidate_capacity;
    u32 table_size;   // a power of two
    u32 shared_size;  // of the table in shared memory: a power of two, or 0
    u32 num_tokens;
    u32 blank;
    u32 max_active;
    u32 min_active;
    float beam;
    float beam_delta;  // below 0: none
    float acoustic_scale;
    float lm_scale;
    float word_insertion;
    float blank_penalty;
    float blank_skip_logprob;  // infinite: never
};
static_assert(sizeof(Task) == 192, "as in device_layout.py");
