// Which tokens may begin after which entries, before the language model is asked.
#pragma once
#include "ask.cuh"

constexpr u32 PENDING = 2 * THREADS;
// With more tokens, or without a lexicon, a bound that no token that begins has lowered
// lets so many tokens through that the frame leaves shared memory.
constexpr u32 BOUND_FIRST = 128;

struct Expansion : Costs {
    TeamMemory& team;
    Pending* pending;  // [PENDING], in shared memory

    // Candidates of all entries if no token begins; they bring the bound down first.
    __device__ void stay_everywhere(const Row& row) const {
        for (u32 i = threadIdx.x; i < utterance.frontier_count; i += THREADS) {
            stay(row, i);
            const float most = most_paid(arrays.frontier[i].boost);
            if (most > 0.0f) atomicMin(&progress.most_paid, ordered(-most));
        }
        team_sync();
    }

    // Lower the bound by what follows an entry with a token; its candidates come later.
    __device__ void bound_by(const Row& row, u32 i, u32 token) const {
        if (!task.has_lexicon) return ask<true>(row, Pending{i, token, token, NONE, 0});
        const Lexicon& lexicon = task.lexicon;
        const u32 node = arrays.frontier[i].node;
        if (node == 0) {
            const u32 to = token == task.separator ? 0 : lexicon.root_child[token];
            if (to != NONE) ask<true>(row, Pending{i, token, to, NONE, 0});
        } else if (token == task.separator) {
            const u32 pron = lexicon.node_pron_splits[node];
            if (pron < lexicon.node_pron_splits[node + 1])
                ask<true>(row, Pending{i, token, 0, pron, 1});
        } else {
            const u32 end = lexicon.node_child_splits[node + 1];
            const u32 begin = lexicon.node_child_splits[node];
            const u32 at = find_arc(lexicon.child_token, begin, end, token);
            if (at < end && lexicon.child_token[at] == token)
                ask<true>(row, Pending{i, token, lexicon.child_node[at], NONE, 0});
        }
    }

    // Lower the bound by the most probable token after all entries.
    __device__ void start_bound(const Row& row) const {
        u64 best = ~0ull;
        for (u32 token = threadIdx.x; token < task.num_tokens; token += THREADS) {
            if (token == task.blank) continue;
            const u64 key = key_of(unscaled_cost(row, token), token);
            best = key < best ? key : best;
        }
        for (u32 step = 1; step < WARP; step <<= 1) {
            const u32 high = __shfl_xor_sync(WHOLE_WARP, static_cast<u32>(best >> 32), step);
            const u32 low = __shfl_xor_sync(WHOLE_WARP, static_cast<u32>(best), step);
            const u64 other = static_cast<u64>(high) << 32 | low;
            best = other < best ? other : best;
        }
        if (WARPS > 1) {
            if (threadIdx.x % WARP == 0) atomicMin(&progress.best_token, best);
            team_sync();
            best = progress.best_token;
        }
        const u32 token = static_cast<u32>(best);
        if (token < task.num_tokens)
            for (u32 i = threadIdx.x; i < utterance.frontier_count; i += THREADS)
                bound_by(row, i, token);
        team_sync();
    }

    // List the tokens that may begin and can be under the bound after some entry.
    __device__ void find_tokens(const Row& row) const {
        const float credit = task.begin_credit + -cost_of(progress.most_paid);
        const auto is_near = [&](u32 token) {
            if (token >= task.num_tokens || token == task.blank) return false;
            const float cost = token_cost(row, token);
            return cost <= MAX_COST && !exceeds(cost, credit);
        };
        for (u32 first = 0; first < task.num_tokens; first += THREADS) {
            const u32 token = first + threadIdx.x;
            const bool near = is_near(token);
            u32 total;
            const u32 before = sum_before(team, near, total);
            const u32 at = progress.num_tokens + before;
            if (near && at < arrays.token_capacity) arrays.tokens[at] = token;
            team_sync();
            if (threadIdx.x == 0) progress.num_tokens += total;
            if (near && token == task.separator) progress.separator_is_near = 1;
            team_sync();
        }
        if (progress.num_tokens > task.token_top_k) keep_top_tokens(row);
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
        const u64 top = nth_least_key(team, count, task.token_top_k, key_at);
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

    // How many tokens an entry has to be held against.
    __device__ u32 num_items(const Entry& entry) const {
        const Lexicon& lexicon = task.lexicon;
        if (!task.has_lexicon || entry.node == 0) return progress.num_tokens;
        const u32* children = lexicon.node_child_splits + entry.node;
        const u32* prons = lexicon.node_pron_splits + entry.node;
        const u32 after = task.separator_optional ? progress.num_tokens
                                                  : progress.separator_is_near;
        return children[1] - children[0] + (prons[1] - prons[0]) * after;
    }

    // The k-th of them; false where it leads nowhere, or over the bound without the
    // language model.
    __device__ bool find_item(const Row& row, u32 source, u32 k, Pending& item) const {
        const Lexicon& lexicon = task.lexicon;
        const Entry& entry = arrays.frontier[source];
        item.source = source;
        item.pron = NONE;
        item.number = 0;
        float credit = task.begin_credit;
        if (!task.has_lexicon) {
            item.token = item.node = arrays.tokens[k];
        } else if (entry.node == 0) {
            // A separator between words stays at the root, which is no child of its own.
            item.token = arrays.tokens[k];
            item.node = item.token == task.separator ? 0
                                                     : lexicon.root_child[item.token];
            credit = task.inside_credit;
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
                const u32 after = task.separator_optional ? progress.num_tokens : 1;
                u32 word = 0, at = k - children;
                for (; at >= after; at -= after) ++word;  // most nodes have one
                item.token =
                    task.separator_optional ? arrays.tokens[at] : task.separator;
                // Any token may begin another word where nothing has to stand between.
                item.node = item.token == task.separator
                    ? 0
                    : lexicon.root_child[item.token];
                item.pron = lexicon.node_pron_splits[entry.node] + word;
                item.number = 1 + word;
                const float gain = fmaxf(0.0f, entry.lookahead_cost - task.word_floor);
                credit = fminf(credit, task.end_credit + task.lm_scale * gain);
            }
        }
        if (item.node == NONE || !may_begin(row, item.token)) return false;
        const bool repeated = item.token == token_of(entry.node);
        const float before = repeated ? entry.blank_cost : least_cost(entry);
        const float cost = before + token_cost(row, item.token);
        return cost <= MAX_COST && !exceeds(cost, credit + most_paid(entry.boost));
    }

    // Begin tokens after all entries. Whatever passes the bound waits until there is
    // one for each thread: the language model takes long, and all ask it at once.
    __device__ void begin_everywhere(const Row& row) const {
        const u32 count = utterance.frontier_count;
        for (u32 first = 0; first < count; first += THREADS) {
            const u32 mine = first + threadIdx.x;
            const u32 items = mine < count ? num_items(arrays.frontier[mine]) : 0;
            u32 total;
            const u32 before = sum_before(team, items, total);
            team.offsets[threadIdx.x] = before;
            team_sync();
            for (u32 round = 0; round < total; round += THREADS) {
                const u32 k = round + threadIdx.x;
                Pending item;
                bool passes = false;
                if (k < total) {
                    u32 at = 0;  // the last entry whose offset is at most k
                    for (u32 step = THREADS / 2; step > 0; step >>= 1) {
                        const u32 further = at + step;
                        if (team.offsets[further] <= k) at = further;
                    }
                    passes = find_item(row, first + at, k - team.offsets[at], item);
                }
                wait(row, passes, item);
            }
            team_sync();
        }
        if (threadIdx.x < progress.num_pending) ask(row, pending[threadIdx.x]);
        team_sync();
    }

    // Let a token wait, where it passes; ask for those that wait once they are enough.
    __device__ void wait(const Row& row, bool passes, const Pending& item) const {
        u32 total;
        const u32 waiting = progress.num_pending;
        const u32 before = sum_before(team, passes, total);
        if (passes) pending[waiting + before] = item;
        team_sync();
        const u32 all = waiting + total;
        const u32 left = all < THREADS ? all : all - THREADS;
        if (threadIdx.x == 0) progress.num_pending = left;
        if (all >= THREADS) ask(row, pending[left + threadIdx.x]);
        team_sync();
    }
};
