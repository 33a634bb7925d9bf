// Selection of tokens and entries to expand, before the language model is queried.
#pragma once
#include "merge.cuh"

// With more tokens, or without a lexicon, the most probable token begins first: under
// a bound that no token has lowered, so many of them pass that the frame leaves shared
// memory.
constexpr u32 BEST_FIRST = 128;
// With wider beams around the best candidate, more tokens pass than entries stay.
constexpr float WIDE_BEAM = 16.0f;
constexpr u32 TURN = 3;  // log-probs of a thread that are read at a time
constexpr u32 FEW_TOKENS = WARP;  // more of them are listed again under a lower bound

struct Expansion : Costs {
    TeamMemory& team;

    // Candidates of all entries if no token begins; they lower the bound first.
    __device__ void stay_everywhere(const Row& row) const {
        const bool full = is_full(utterance.frontier_count);
        for (u32 i = threadIdx.x; i < utterance.frontier_count; i += THREADS) {
            const float least = stay(row, i);
            // The number of different entries that may stay: none costs more than all
            // will.
            if (full) atomicMax(&progress.size_bound, ordered(least));
            const float most = most_paid(arrays.frontier[i].boost);
            if (most > 0.0f) atomicMin(&progress.most_paid, ordered(-most));
        }
        team_sync();
    }

    // The bound of tokens that may begin, by the most that any step deducts.
    __device__ float limit() const {
        const float credit = task.begin_credit + -cost_of(progress.most_paid);
        return fminf(loosened(credit), MAX_COST);
    }

    // List the tokens that may begin, unordered: those that cost no more than `near`,
    // and from the end of the list those that cost no more than `far`. Note the most
    // probable one, if it begins first and is not known. Also detects numbers that are
    // no log-probs.
    __device__ void find_tokens(
        const Row& row, float near, float far, u32 room) const {
        const bool finds_best = best_token() == NONE &&
            (task.num_tokens > BEST_FIRST || !task.has_lexicon);
        const Logprobs logprobs = utterance.logprobs;
        team_sync();
        float least = infinite();
        u32 best = NONE;
        for (u32 first = 0; first < task.num_tokens; first += TURN * THREADS) {
            const u32 mine = first + threadIdx.x;
            float costs[TURN];
            for (u32 k = 0; k < TURN; ++k) {
                const u32 token = mine + k * THREADS;
                costs[k] = token < task.num_tokens
                    ? -unchecked_logprob(logprobs, row.at + token)
                    : infinite();
            }
            for (u32 k = 0; k < TURN; ++k) {
                const u32 token = mine + k * THREADS;
                if (!(costs[k] >= -MAX_LOGPROB) && !task.checked)
                    utterance.logprobs.bad_frame = utterance.chunk_frame;
                const bool begins =
                    costs[k] <= MAX_LOGPROB && token != task.blank && !row.skipped;
                if (begins && costs[k] < least) {
                    least = costs[k];
                    best = token;
                }
                const float cost = task.acoustic_scale * costs[k];
                const bool is_near = begins && cost <= near;
                const bool is_far = begins && cost > near && cost <= far;
                u32 at = append(&progress.num_tokens, is_near);
                if (is_near && at < room) arrays.tokens[at] = token;
                at = arrays.token_capacity - 1 - append(&progress.num_far, is_far);
                if (is_far && at >= room && at < arrays.token_capacity)
                    arrays.tokens[at] = token;
                if ((is_near || is_far) && token == task.separator)
                    progress.separator_is_near = 1;
            }
        }
        if (finds_best) note_best(key_of(least, best));
        team_sync();
    }

    // List the tokens that are under the bound after some entry.
    __device__ void list_tokens(const Row& row) const {
        const float most = limit();
        find_tokens(row, some_far() ? most - arrays.frontier[1].cost : most, most, room());
    }

    // Whether tokens near only the first entry are listed separately: entries are in
    // order, and later ones cost at least as much as the second one.
    __device__ bool some_far() const {
        return utterance.frontier_count > 1 && task.token_top_k >= task.num_tokens;
    }

    // Room for tokens in front, and at the end of the list.
    __device__ u32 far_room() const { return some_far() ? arrays.token_capacity / 2 : 0; }
    __device__ u32 room() const { return arrays.token_capacity - far_room(); }

    // The number of tokens to compare with an entry: the listed ones; for the first one
    // the whole frame, if the end of the list has no room.
    __device__ u32 num_listed(u32 source) const {
        const u32 far = source == 0 ? progress.num_far : 0;
        return far > far_room() ? task.num_tokens : progress.num_tokens + far;
    }

    __device__ u32 listed(u32 source, u32 k) const {
        if (source == 0 && progress.num_far > far_room()) return k;
        const u32 near = progress.num_tokens;
        return arrays.tokens[k < near ? k : arrays.token_capacity - 1 - (k - near)];
    }

    // Note the least of the threads' best tokens.
    __device__ void note_best(u64 best) const {
        for (u32 step = 1; step < WARP; step <<= 1) {
            const u32 high = __shfl_xor_sync(WHOLE_WARP, static_cast<u32>(best >> 32), step);
            const u32 low = __shfl_xor_sync(WHOLE_WARP, static_cast<u32>(best), step);
            const u64 other = static_cast<u64>(high) << 32 | low;
            best = other < best ? other : best;
        }
        if (threadIdx.x % WARP == 0) atomicMin(&progress.best_token, best);
    }

    // The most probable token if some begin first, else NONE.
    __device__ u32 best_token() const { return static_cast<u32>(progress.best_token); }

    // Lower the bound by the size of the beam: the cost of the `beam_size`-th of the
    // different entries of candidates so far, if there are that many.
    __device__ void bound_by_size() const {
        const u32 count = progress.num_candidates;
        if (!is_full(count) || count > arrays.candidate_capacity) return;
        // A slot per key, with its least cost. Different keys of one hash count as one:
        // the bound is then higher than necessary.
        u32 num_slots = 1;
        while (num_slots < count) num_slots <<= 1;
        u32* const tags = arrays.slots;
        u32* const costs = tags + num_slots;
        for (u32 s = threadIdx.x; s < 2 * num_slots; s += THREADS) tags[s] = NONE;
        team_sync();
        for (u32 q = threadIdx.x; q < count; q += THREADS) {
            const Candidate& candidate = arrays.candidates[q];
            const u32 tag = Merge::hash_of_place(candidate) >> 1;
            const u32 slot = slot_of(tags, num_slots - 1, tag, tag, [&](u32 other) {
                return other == tag;
            });
            atomicMin(&costs[slot], ordered(candidate.cost));
        }
        const u32 least = progress.least, most = ordered(bound_by(least)) - least;
        const u32 found = nth_least_key(
            team, num_slots, task.beam_size, task.beam_size, most,
            [&](u32 s) { return costs[s] - least; });
        if (threadIdx.x == 0) progress.size_bound = least + found;
        team_sync();
    }

    // Only the most probable tokens may begin: by unscaled costs, as scale 0 makes all
    // scaled ones equal. Those that are not near are no better than those that are.
    __device__ void keep_top_tokens(const Row& row) const {
        const u32 count = progress.num_tokens;
        if (count > arrays.token_capacity) return;  // the frame is lost
        const auto key_at = [&](u32 i) {
            const u32 token = arrays.tokens[i];
            return key_of(unscaled_cost(row, token), token);
        };
        const u64 top = nth_least_key(team, count, task.token_top_k, task.token_top_k, ~0ull, key_at);
        u32 kept = 0;
        for (u32 first = 0; first < count; first += THREADS) {
            const u32 i = first + threadIdx.x;
            const bool stays = i < count && key_at(i) <= top;
            const u32 token = stays ? arrays.tokens[i] : 0;
            u32 total;
            const u32 before = sum_before(team, stays, total);
            team_sync();
            if (stays) arrays.tokens[kept + before] = token;
            kept += total;
            team_sync();
        }
        if (threadIdx.x == 0) {
            progress.num_tokens = kept;
            progress.top_token = top;
        }
        team_sync();
        if (threadIdx.x == 0 && task.separator != NONE)
            progress.separator_is_near = may_begin(row, task.separator);
        team_sync();
    }

    // The number of tokens to compare with an entry.
    __device__ u32 num_items(u32 source) const {
        const Lexicon& lexicon = task.lexicon;
        const Entry& entry = arrays.frontier[source];
        const u32 tokens = num_listed(source);
        if (!task.has_lexicon || entry.node == 0) return tokens;
        const u32* children = lexicon.node_child_splits + entry.node;
        const u32* prons = lexicon.node_pron_splits + entry.node;
        const u32 after =
            task.separator_optional ? tokens : progress.separator_is_near;
        return children[1] - children[0] + (prons[1] - prons[0]) * after;
    }

    // The k-th of them; false without a destination. Except for boosts, no step of its
    // kind lowers the cost by more than `credit`.
    __device__ bool find_item(
        const Row& row, u32 source, u32 k, Pending& item, float& credit) const {
        const Lexicon& lexicon = task.lexicon;
        const Entry& entry = arrays.frontier[source];
        u32 at = k;
        item = {source, NONE, NONE, NONE, 0};
        credit = task.begin_credit;
        if (!task.has_lexicon || entry.node == 0) {
            if (task.has_lexicon) credit = task.inside_credit;
        } else {
            const u32 first = lexicon.node_child_splits[entry.node];
            const u32 children = lexicon.node_child_splits[entry.node + 1] - first;
            if (k < children) {
                item.token = lexicon.child_token[first + k];
                item.node = lexicon.child_node[first + k];
                if (item.token == task.separator) return false;
                // Inside a word look-ahead never falls.
                credit = task.inside_credit;
            } else {
                const u32 tokens = num_listed(source);
                const u32 after = task.separator_optional ? tokens : 1;
                u32 word = 0;
                at = k - children;
                for (; at >= after; at -= after) ++word;  // most nodes have one
                if (!task.separator_optional) item.token = task.separator;
                item.node = 0;
                item.pron = lexicon.node_pron_splits[entry.node] + word;
                item.number = 1 + word;
                const float gain = fmaxf(0.0f, entry.lookahead_cost - task.word_floor);
                credit = fminf(credit, task.end_credit + task.lm_scale * gain);
            }
        }
        // Any token may begin a word between words, and directly after a word if no
        // separator is required. A separator leads to the root, which is no child.
        if (item.token == NONE) {
            item.token = item.node = listed(source, at);
            if (task.has_lexicon)
                item.node = item.token == task.separator
                    ? 0
                    : lexicon.root_child[item.token];
        }
        const bool is_first = progress.first_cost == -infinite()
            ? item.token == best_token()
            : source == 0 && token_cost(row, item.token) <= progress.first_cost;
        const bool ends = item.token == task.separator && item.number == 1;
        if (is_first && (item.pron == NONE || ends)) return false;
        return item.node != NONE && may_begin(row, item.token);
    }

    // The successor of an entry by a token that begins first; `find_item` omits it.
    __device__ bool find_first(
        u32 source, u32 token, Pending& item, float& credit) const {
        const Lexicon& lexicon = task.lexicon;
        const u32 node = arrays.frontier[source].node;
        item = {source, token, token, NONE, 0};
        credit = task.begin_credit;
        if (!task.has_lexicon) return true;
        item.node = token == task.separator ? 0 : lexicon.root_child[token];
        if (node == 0) return item.node != NONE;
        if (token == task.separator) {
            item.pron = lexicon.node_pron_splits[node];
            item.number = 1;
            return item.pron < lexicon.node_pron_splits[node + 1];
        }
        const u32 end = lexicon.node_child_splits[node + 1];
        const u32 at = find_arc(
            lexicon.child_token, lexicon.node_child_splits[node], end, token);
        if (at == end || lexicon.child_token[at] != token) return false;
        item.node = lexicon.child_node[at];
        return true;
    }

    // Whether an item is under the bound without the language model.
    __device__ bool is_near(const Row& row, const Pending& item, float credit) const {
        const Entry& entry = arrays.frontier[item.source];
        const bool repeated = item.token == token_of(entry.node);
        const float before = repeated ? entry.blank_cost : least_cost(entry);
        const float cost = before + token_cost(row, item.token);
        return cost <= MAX_COST && cost <= loosened(credit + most_paid(entry.boost));
    }

    // Begin some of the listed tokens before the others, for a lower bound: the most
    // probable one after all entries; or if many are listed and the beam is wide, one
    // per entry that may stay, after the first entry: each leads to another entry.
    // `find_item` omits them; `stayed` candidates existed before.
    __device__ void begin_first(const Row& row, u32 stayed) const {
        const bool many = progress.num_tokens + progress.num_far > FEW_TOKENS;
        const bool all_may = task.token_top_k >= task.num_tokens;
        bool after_first = many && task.beam > WIDE_BEAM && all_may && !task.by_text;
        if (after_first) {
            const float most = best_costs(row);
            clear_list();
            find_tokens(row, most, most, arrays.token_capacity);
            after_first = progress.num_tokens <= arrays.token_capacity;
            if (threadIdx.x == 0 && after_first) progress.first_cost = most;
        }
        const u32 count = after_first ? progress.num_tokens : utterance.frontier_count;
        for (u32 k = threadIdx.x; k < count; k += THREADS) {
            Pending item;
            float credit;
            const u32 token = after_first ? arrays.tokens[k] : best_token();
            if (find_first(after_first ? 0 : k, token, item, credit) &&
                is_near(row, item, credit))
                ask(row, item);
        }
        team_sync();
        if (progress.num_candidates > stayed) bound_by_size();
        if (!many) return;
        clear_list();
        list_tokens(row);
    }

    // A cost that is at least that of the `beam_size` most probable tokens under the
    // bound, and of at most twice that number.
    __device__ float best_costs(const Row& row) const {
        const u32 least = ordered(token_cost(row, best_token()));
        const u32 most = ordered(limit()) - least, size = task.beam_size;
        const Logprobs logprobs = utterance.logprobs;
        const auto key_at = [&](u32 token) {
            const float cost = -unchecked_logprob(logprobs, row.at + token);
            return token == task.blank ? NONE : ordered(task.acoustic_scale * cost) - least;
        };
        return cost_of(
            least + nth_least_key(team, task.num_tokens, size, 2 * size, most, key_at));
    }

    __device__ void clear_list() const {
        team_sync();
        if (threadIdx.x == 0) progress.num_tokens = progress.num_far = 0;
        team_sync();
    }

    // Begin tokens after all entries. Passing tokens wait until there is one per
    // thread: the language model takes long, and all threads query it at once.
    __device__ void begin_everywhere(const Row& row) const {
        const u32 count = utterance.frontier_count;
        for (u32 first = 0; first < count; first += THREADS) {
            const u32 mine = first + threadIdx.x;
            const u32 items = mine < count ? num_items(mine) : 0;
            u32 total;
            const u32 before = sum_before(team, items, total);
            team.offsets[threadIdx.x] = before;
            team_sync();
            u32 round = 0;
            do {
                const u32 k = round + threadIdx.x;
                Pending item;
                bool passes = false;
                if (k < total) {
                    u32 at = 0;  // the last entry whose offset is at most k
                    for (u32 step = THREADS / 2; step > 0; step >>= 1) {
                        const u32 further = at + step;
                        if (team.offsets[further] <= k) at = further;
                    }
                    float credit;
                    passes = find_item(row, first + at, k - team.offsets[at], item, credit);
                    passes = passes && is_near(row, item, credit);
                }
                round += THREADS;
                wait(row, passes, item, round >= total && first + THREADS >= count);
            } while (round < total);
        }
    }

    // Queue a token that passes; query the queued ones once they are enough, or no more
    // come.
    __device__ void wait(
        const Row& row, bool passes, const Pending& item, bool last) const {
        u32 total;
        const u32 waiting = progress.num_pending;
        const u32 before = sum_before(team, passes, total);
        if (passes) team.pending[waiting + before] = item;
        team_sync();
        u32 left = waiting + total;
        while (left >= THREADS || (last && left > 0)) {
            const u32 asked = left < THREADS ? left : THREADS;
            left -= asked;
            if (threadIdx.x < asked) ask(row, team.pending[left + threadIdx.x]);
        }
        if (threadIdx.x == 0) progress.num_pending = left;
        team_sync();
    }
};
