// Costs of arcs, in the order of additions of the specification.
#pragma once
#include "boosts.cuh"
#include "keys.cuh"
#include "layout.cuh"
#include "logprobs.cuh"
#include "overlay.cuh"

struct Costs {
    const Task& task;
    Utterance& utterance;  // in shared memory, as all the others
    const Phrases& phrases;

    // Start of the frame's log-probs.
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
    __device__ float follow(
        float cost, u32 arc_id, const Arc& arc, u32& boost) const {
        const bool has_word = arc.ilabel & CARRIES_WORD;
        float reached = cost + task.lm_scale * arc.cost;
        if (has_word) reached += task.word_insertion;
        if (has_phrases(utterance))
            return has_word || begins(arc) ? reached - pay_step(arc_id, arc, boost)
                                           : reached;
        if (is_added_arc(utterance, arc_id)) {
            const float word =
                has_word ? find_bonus(utterance.words, arc.olabel) : 0.0f;
            return reached - (word + added_bonus(utterance, arc_id));
        }
        return has_word ? reached - find_bonus(utterance.words, arc.olabel) : reached;
    }

    // Payment of a step on an arc with a word, or on which a token begins; the boost
    // state becomes the next one.
    __device__ float pay_step(u32 arc_id, const Arc& arc, u32& boost) const {
        const bool has_word = arc.ilabel & CARRIES_WORD;
        float credit = has_word ? find_bonus(utterance.words, arc.olabel) : 0.0f;
        u32 state = state_of(boost), owed = owed_of(boost);
        if (phrases.of_tokens ? begins(arc) : has_word) {
            const u32 token = token_of(arc.ilabel & LABEL_MASK);
            const u32 label = phrases.of_tokens ? token : arc.olabel;
            credit = credit - step(phrases.automaton, state, label);
        }
        if (is_added_arc(utterance, arc_id))
            credit = credit + added_bonus(utterance, arc_id);
        const float paid = pay(owed, credit, task.instalment);
        boost = owed << STATE_BITS | state;
        return paid;
    }

    // Whether a token begins on an arc.
    __device__ bool begins(const Arc& arc) const {
        const u32 label = arc.ilabel & LABEL_MASK;
        return label != 0 && !(arc.ilabel & REPEAT) && token_of(label) != task.blank;
    }

    __device__ float follow_emitting(
        float cost, u32 arc_id, const Arc& arc, u64 row, bool skip,
        u32& boost) const {
        const u32 token = token_of(arc.ilabel & LABEL_MASK);
        const float unscaled = unscaled_cost(row, token, skip);
        // An impossible token stays so at scale 0.
        if (!(unscaled < infinite())) return infinite();
        return follow(cost, arc_id, arc, boost) + task.acoustic_scale * unscaled;
    }

    __device__ static u32 arc_key(u32 arc_id, const Arc& arc) {
        return arc_id << 1 | (arc.ilabel & LEADS_TO_EPSILON ? 1u : 0u);
    }

    // The token of a label that is not epsilon.
    __device__ static u32 token_of(u32 label) { return label - 1; }
};
