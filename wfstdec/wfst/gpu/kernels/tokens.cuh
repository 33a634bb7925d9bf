// Which arcs of a row can survive a frame, by their tokens as bits: of a small vocabulary
// few can.
#pragma once
#include "costs.cuh"

constexpr u32 ARCS_OF_ROW = 8;  // about as many
constexpr u32 LEVELS = 16;

struct LiveTokens {
    u32 of_level[LEVELS][2];     // tokens that cost at most a level; all at the last
    u64 of_source[MAX_THREADS];  // of the rows of a tile; 0: all arcs
};

struct Tokens : Costs {
    LiveTokens& live;

    // Whether arcs are chosen by tokens: where there are more than threads, but not
    // where boosts may credit any of them.
    __device__ bool are_used() const {
        return task.by_token && utterance.frontier_count > blockDim.x / ARCS_OF_ROW &&
            !has_phrases(utterance) && utterance.words.keys == nullptr;
    }

    // Nats from level to level: the last but one is a quarter above the beam.
    __device__ float step() const {
        return fmaxf(task.beam * (1.25f / (LEVELS - 2)), 1e-3f);
    }

    // Fill the levels of a frame: by the last two warps, half of the tokens each.
    __device__ void fill() const {
        const u32 warps = blockDim.x / WARP, lane = threadIdx.x % WARP;
        const u64 row = row_of_frame();
        const bool skip = skips(row);
        for (u32 half = 0; half < 2; ++half) {
            if (threadIdx.x / WARP != (half < warps ? warps - 1 - half : 0)) continue;
            const u32 v = half * WARP + lane;
            const float price =
                v < task.num_tokens ? scaled_cost(row, v, skip) : infinite();
            u32 tokens = ~0u;
            for (u32 q = 0; q + 1 < LEVELS; ++q) {
                const u32 within = __ballot_sync(WHOLE_WARP, price <= q * step());
                if (lane == q) tokens = within;
            }
            if (lane < LEVELS) live.of_level[lane][half] = tokens;
        }
    }

    // The tokens with which an arc out of a row may cost at most `cutoff`; slack covers
    // rounding.
    __device__ u64 of_row(const Labels& labels, float cost, float cutoff) const {
        const float arc = task.lm_scale * labels.least;
        const float credit = fmaxf(0.0f, -task.word_insertion);
        const float sizes = fabsf(cutoff) + fabsf(cost) + fabsf(arc) + credit;
        const float limit = (((cutoff - cost) - arc) + credit) + (1e-3f + 4e-6f * sizes);
        const float level = fminf(fmaxf(limit / step() + 1.0f, 0.0f), LEVELS - 1.0f);
        const u32* most = live.of_level[static_cast<u32>(level)];
        return labels.tokens & (static_cast<u64>(most[1]) << 32 | most[0]);
    }

    // The position in a row of the k-th token of a set.
    __device__ static u32 position(u64 set, u64 tokens, u32 k) {
        for (; k > 0; --k) set &= set - 1;
        return __popcll(tokens & ((set & (~set + 1)) - 1));
    }
};
