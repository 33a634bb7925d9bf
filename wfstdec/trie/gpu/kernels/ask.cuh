// Costs of a token that begins: language model, look-ahead and boosts.
#pragma once
#include "scratch.cuh"

// One frame's log-probs.
struct Row {
    u64 at;
    bool skipped;  // only the blank is possible
};

// Ranks of candidates of one entry: a blank after either phase, the token again, then
// tokens that begin, two for each successor.
constexpr u32 BLANK_AFTER_BLANK = 0, BLANK_AFTER_TOKEN = 1, AGAIN = 2, FIRST_BEGIN = 4;
constexpr u32 SOURCE_SHIFT = 16, NUMBER_MASK = (1u << SOURCE_SHIFT) - 1;

// Source and destination of a candidate, by its order.
__device__ __forceinline__ u32 source_of(u32 order) { return order >> SOURCE_SHIFT; }
__device__ __forceinline__ u32 phase_before(u32 order) {
    const u32 number = order & NUMBER_MASK;
    return number == AGAIN || (number & 1) ? NONBLANK : BLANK;
}
__device__ __forceinline__ u32 phase_after(u32 order) {
    return (order & NUMBER_MASK) >= AGAIN ? NONBLANK : BLANK;
}

__device__ __forceinline__ float least_cost(const Entry& entry) {
    return fminf(entry.blank_cost, entry.nonblank_cost);
}

// The hash of a text with one more word or token.
__device__ __forceinline__ u64 text_with(u64 text, u32 label) {
    return text * 6364136223846793005ull + label + 1442695040888963407ull;
}

struct Costs {
    const Task& task;
    Utterance& utterance;  // in shared memory, as all the others
    const Phrases& phrases;
    const Arrays& arrays;
    Progress& progress;

    // ------------------------------------------------------------------- acoustics
    __device__ Row row_of_frame() const {
        const u64 frame = utterance.chunk_frame;
        const u64 at = frame * utterance.logprobs.frame_stride;
        const float blank = logprob_of(utterance.logprobs, at + task.blank);
        return {at, blank >= task.blank_skip_logprob};
    }

    __device__ float unscaled_cost(const Row& row, u32 token) const {
        const float logprob = logprob_of(utterance.logprobs, row.at + token);
        if (token == task.blank) return -(logprob - task.blank_penalty);
        return row.skipped ? infinite() : -logprob;
    }

    // Impossible costs stay so at scale 0.
    __device__ float scaled(float unscaled) const {
        return unscaled < infinite() ? task.acoustic_scale * unscaled : infinite();
    }

    __device__ float token_cost(const Row& row, u32 token) const {
        return scaled(unscaled_cost(row, token));
    }

    // Whether a token may begin in this frame, after any entry.
    __device__ bool may_begin(const Row& row, u32 token) const {
        if (token == task.blank) return false;
        const float unscaled = unscaled_cost(row, token);
        return unscaled < infinite() && key_of(unscaled, token) <= progress.top_token;
    }

    // ---------------------------------------------------------------------- bounds
    // The bound of costs by a least one (`ordered`) and by the size of the beam.
    __device__ float bound_by(u32 least) const {
        const float bound = fminf(cost_of(least) + task.beam, MAX_COST);
        return fminf(bound, cost_of(progress.size_bound));
    }

    // The current bound; it may be outdated, and is then higher.
    __device__ float running_bound() const { return bound_by(peek(&progress.least)); }

    // The same for a cost from which up to `credit` may still be deducted, with the
    // rounding of the sums to come.
    __device__ float loosened(float credit) const {
        const float bound = running_bound();
        const float room = (fabsf(bound) + fabsf(credit)) * 1e-5f + 1e-3f;
        return (bound + credit) + room;
    }

    // Whether entries of the next frame are bounded by their number.
    __device__ bool is_full(u32 count) const {
        return !task.by_text && count >= task.beam_size;
    }

    // Upper bound of payment in a step from a boost state.
    __device__ float most_paid(u32 boost) const {
        if (!utterance.boosted) return 0.0f;
        const float size = task.instalment;
        const float due = rest_of(boost, size) + utterance.most_credit;
        const float excess = due - static_cast<float>(MAX_OWED) * (0.25f * size);
        return fmaxf(fminf(due, fmaxf(size, excess)), 0.0f);
    }

    // ----------------------------------------------------------------------- model
    __device__ u32 token_of(u32 node) const { return task.lexicon.node_token[node]; }

    // Least cost after a node in a state, as `lookahead.potential`.
    __device__ float lookahead_cost(u32 state, u32 node) const {
        const Lexicon& lexicon = task.lexicon;
        if (!task.has_lexicon) return 0.0f;
        if (node == 0) return lexicon.state_cost[state];
        float total = 0.0f, best = infinite();
        while (lexicon.uses_history) {
            const u32 backoff = task.automaton.backoff_state[state];
            if (backoff == NONE) break;
            const u32 end = lexicon.row_splits[state + 1];
            const u32 at =
                find_arc(lexicon.row_node, lexicon.row_splits[state], end, node);
            if (at < end && lexicon.row_node[at] == node)
                best = fminf(best, total + lexicon.row_cost[at]);
            total += task.automaton.backoff_cost[state];
            state = backoff;
        }
        return fminf(best, total + lexicon.unigram_cost[node]);
    }

    // Payment for a word that ends, NONE without one, and for the token that begins;
    // the boost state becomes the next one.
    __device__ float step_boosts(u32& boost, u32 word, u32 token) const {
        if (!utterance.boosted) return 0.0f;
        float credit = word != NONE ? find_bonus(utterance.words, word) : 0.0f;
        u32 state = state_of(boost), owed = owed_of(boost);
        if (utterance.phrases != nullptr) {
            const u32 label = phrases.of_tokens ? token : word;
            if (label != NONE) credit = credit - step(phrases.automaton, state, label);
        }
        const float paid = pay(owed, credit, task.instalment);
        boost = owed << STATE_BITS | state;
        return 0.0f - paid;
    }

    // ------------------------------------------------------------------ candidates
    // Add a candidate that is within a bound; without room only the count increases.
    __device__ void add(const Candidate& candidate, float bound) const {
        if (!(candidate.cost <= bound)) return;
        if (candidate.cost < cost_of(peek(&progress.least)))
            atomicMin(&progress.least, ordered(candidate.cost));
        const u32 at = atomicAdd(&progress.num_candidates, 1u);
        if (at < arrays.candidate_capacity) arrays.candidates[at] = candidate;
    }

    // Candidates of a token that begins, one per preceding phase.
    __device__ void ask(const Row& row, const Pending& pending) const {
        const Entry& entry = arrays.frontier[pending.source];
        const u32 token = pending.token, pron = pending.pron;
        u32 state = entry.state, word = NONE, label = NONE;
        float graph = 0.0f, insertion = task.token_insertion;
        if (!task.has_lexicon) {
            graph = step(task.automaton, state, token);
            label = token;
        } else if (pron != NONE) {
            word = label = task.lexicon.pron_word[pron];
            graph = step(task.automaton, state, word) + task.lexicon.pron_cost[pron];
            insertion = insertion + task.word_insertion;
        }
        // The new advance charge replaces the old one.
        const float ahead = lookahead_cost(state, pending.node);
        graph = (graph + ahead) - entry.lookahead_cost;
        if (!(graph < infinite())) return;  // impossible, also with lm_scale 0
        u32 boost = entry.boost;
        const float boost_cost = step_boosts(boost, word, token);
        Candidate candidate;
        candidate.text = entry.text;
        if (task.by_text && label != NONE)
            candidate.text = text_with(entry.text, label);
        candidate.lookahead_cost = ahead;
        candidate.state = state;
        candidate.node = pending.node;
        candidate.boost = boost;
        candidate.token = token;
        candidate.pron = pron;
        candidate.entry = candidate.next = NONE;
        const bool repeated = token == token_of(entry.node);
        const float acoustic = token_cost(row, token);
        for (u32 phase = BLANK; phase <= NONBLANK; ++phase) {
            // Without a blank in between, the same token again is a repeat.
            if (repeated && phase == NONBLANK) break;
            // With "max" only from the phase of lower cost; at equal costs from the
            // blank.
            const bool dearer =
                (entry.nonblank_cost < entry.blank_cost) != (phase == NONBLANK);
            if (!task.sums && !repeated && dearer) continue;
            const float before =
                phase == NONBLANK ? entry.nonblank_cost : entry.blank_cost;
            const float total = (before + task.lm_scale * graph) + insertion;
            candidate.cost = (total + boost_cost) + acoustic;
            const u32 number = FIRST_BEGIN + 2 * pending.number + phase;
            candidate.order = pending.source << SOURCE_SHIFT | number;
            add(candidate, running_bound());
        }
    }

    // A blank, or the same token again; returns their least cost. If they are all
    // needed to bound costs by size, that bound is not known yet.
    __device__ float stay(const Row& row, u32 source) const {
        const Entry& entry = arrays.frontier[source];
        const u32 order = source << SOURCE_SHIFT;
        const float blank = token_cost(row, task.blank);
        const bool nonblank_first = entry.nonblank_cost < entry.blank_cost;
        const auto bound = [&] {
            return fminf(cost_of(peek(&progress.least)) + task.beam, MAX_COST);
        };
        float least = infinite();
        Candidate candidate;
        candidate.text = entry.text;
        candidate.lookahead_cost = entry.lookahead_cost;
        candidate.state = entry.state;
        candidate.node = entry.node;
        candidate.boost = entry.boost;
        candidate.token = candidate.pron = NONE;
        candidate.entry = candidate.next = NONE;
        if (task.sums || !nonblank_first) {
            candidate.cost = entry.blank_cost + blank;
            candidate.order = order | BLANK_AFTER_BLANK;
            least = candidate.cost;
            add(candidate, bound());
        }
        if (task.sums || nonblank_first) {
            candidate.cost = entry.nonblank_cost + blank;
            candidate.order = order | BLANK_AFTER_TOKEN;
            least = fminf(least, candidate.cost);
            add(candidate, bound());
        }
        // The same token continues only after itself.
        if (entry.nonblank_cost < infinite()) {
            candidate.cost =
                entry.nonblank_cost + token_cost(row, token_of(entry.node));
            candidate.order = order | AGAIN;
            least = fminf(least, candidate.cost);
            add(candidate, bound());
        }
        return least;
    }
};
