// What arcs cost, in the order of additions of the specification.
#pragma once
#include "boosts.cuh"
#include "keys.cuh"
#include "layout.cuh"
#include "logprobs.cuh"
#include "overlay.cuh"

// What an arc adds to a cost before acoustics: (cost + graph) + insertion - paid.
struct Extras {
    float graph, insertion, paid;

    __device__ float after(float cost) const {
        return ((cost + graph) + insertion) - paid;
    }
};

// How an entry stays in its row: what a blank costs after a blank and after the token,
// and a repeat of the token; infinite where it cannot be.
struct Stays {
    float blank, from_token, repeat;

    __device__ float least_blank() const { return fminf(blank, from_token); }
    __device__ float least() const { return fminf(least_blank(), repeat); }
    // Whether a path takes the blank after the token: a tie goes to the lower state.
    __device__ bool leaves_token(const Entry& entry) const {
        return from_token < blank ||
            (from_token == blank && entry.record & TOKEN_FIRST);
    }
};

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

    // An impossible token stays so at scale 0.
    __device__ float scaled_cost(u64 row, u32 token, bool skip) const {
        const float unscaled = unscaled_cost(row, token, skip);
        return unscaled < infinite() ? task.acoustic_scale * unscaled : infinite();
    }

    __device__ bool skips(u64 row) const {
        const float blank = logprob_of(utterance.logprobs, row + task.blank);
        return blank >= task.blank_skip_logprob;
    }

    // A frontier's cost, infinite beyond the beam.
    __device__ float within(float cost) const {
        return cost <= task.beam ? cost : infinite();
    }

    // Whether both states of an entry's record are in it.
    __device__ bool has_both(u32 record) const {
        return !task.has_hubs && !(record & (SHARED | HUB));
    }

    // By what a blank and the entry's token cost.
    __device__ Stays stays_of(const Entry& entry, float blank, float token) const {
        Stays stays = {infinite(), infinite(), within(entry.token) + token};
        if (entry.record & NO_BLANK) return stays;
        stays.blank = within(entry.blank) + blank;
        if (!task.has_hubs) stays.from_token = within(entry.token) + blank;
        return stays;
    }

    __device__ Stays stays_of(const Entry& entry, u32 token) const {
        const u64 row = row_of_frame();
        const bool skip = skips(row);
        const float of_token =
            token < task.num_tokens ? scaled_cost(row, token, skip) : infinite();
        return stays_of(entry, scaled_cost(row, task.blank, skip), of_token);
    }

    // What an arc adds; the boost state becomes the next one.
    __device__ Extras extras_of(u32 arc_id, const Arc& arc, u32& boost) const {
        const bool has_word = arc.ilabel & CARRIES_WORD;
        Extras extras = {task.lm_scale * arc.cost, 0.0f, 0.0f};
        if (has_word) extras.insertion = task.word_insertion;
        if (has_phrases(utterance)) {
            if (has_word || begins(arc)) extras.paid = pay_step(arc_id, arc, boost);
            return extras;
        }
        if (has_word) extras.paid = find_bonus(utterance.words, arc.olabel);
        if (is_added_arc(utterance, arc_id))
            extras.paid = extras.paid + added_bonus(utterance, arc_id);
        return extras;
    }

    // What a step on an arc with a word, or on which a token begins, pays; the boost
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

    // The token of a label that is not epsilon.
    __device__ static u32 token_of(u32 label) { return label - 1; }
};
