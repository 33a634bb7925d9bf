// What arcs cost, in the order of additions of the specification.
#pragma once
#include "boosts.cuh"
#include "keys.cuh"
#include "layout.cuh"
#include "logprobs.cuh"

struct Costs {
    const Task& task;
    Utterance& utterance;  // in shared memory, as all the others
    const Phrases& phrases;

    // Where the log-probs of the frame begin.
    __device__ u64 row_of_frame() const {
        const u64 frame = utterance.chunk_frame;
        return frame * utterance.logprobs.frame_stride;
    }

    __device__ float unscaled_cost(u64 row, u32 token, bool skip) const {
        if (token != task.blank)
            return skip ? infinite() : -logprob_of(utterance.logprobs, row + token);
        return -(logprob_of(utterance.logprobs, row + token) - task.blank_penalty);
    }

    __device__ bool skips(u64 row) const {
        const float blank = logprob_of(utterance.logprobs, row + task.blank);
        return blank >= task.blank_skip_logprob;
    }

    // (cost + graph) + extras; the boost state becomes the next one.
    __device__ float follow(float cost, const Arc& arc, u32& boost) const {
        float reached = cost + task.lm_scale * arc.cost;
        if (arc.ilabel & CARRIES_WORD)
            reached += task.word_insertion - find_bonus(utterance.words, arc.olabel);
        if (!has_phrases(utterance)) return reached;
        const u32 label = phrase_label(arc);
        return label == NONE ? reached
                             : reached + step(phrases.automaton, boost, label);
    }

    // What phrases step by on an arc: a word, a token that begins, or nothing.
    __device__ u32 phrase_label(const Arc& arc) const {
        if (!phrases.of_tokens) return arc.ilabel & CARRIES_WORD ? arc.olabel : NONE;
        const u32 label = arc.ilabel & LABEL_MASK;
        const bool begins = label != 0 && !(arc.ilabel & REPEAT);
        return begins && token_of(label) != task.blank ? token_of(label) : NONE;
    }

    __device__ float follow_emitting(
        float cost, const Arc& arc, u64 row, bool skip, u32& boost) const {
        const u32 token = token_of(arc.ilabel & LABEL_MASK);
        const float unscaled = unscaled_cost(row, token, skip);
        // An impossible token stays so at scale 0.
        if (!(unscaled < infinite())) return infinite();
        return follow(cost, arc, boost) + task.acoustic_scale * unscaled;
    }

    __device__ static u32 arc_key(u32 arc_id, const Arc& arc) {
        return arc_id << 1 | (arc.ilabel & LEADS_TO_EPSILON ? 1u : 0u);
    }

    // The token of a label that is not epsilon.
    __device__ static u32 token_of(u32 label) { return label - 1; }
};
