// Recording arcs for a lattice; `lattice_pack.py` has the rule, the host builds
// lattices.
//
// Candidates within the cutoff are recorded after recombination has set their entries:
// emitting ones first, then epsilon arcs by rank. Until the end of the frame a link has
// a cost in place of its excess, and an entry in place of the node.
#pragma once
#include "costs.cuh"
#include "table.cuh"

struct Links {
    const Task& task;
    const BlockScratch scratch;
    const Slots& slots;  // of the table in use
    Progress& progress;
    const Costs& costs;

    // Record the candidates that were just recombined. The cost of an entry only falls
    // until the end of the frame: a link above the limit stays above it.
    __device__ void note() const {
        const Utterance& utterance = costs.utterance;
        const u64 row = costs.row_of_frame();
        const u32 most = task.candidate_capacity, all = progress.num_candidates;
        for (u32 q = threadIdx.x; q < (all < most ? all : most); q += blockDim.x) {
            const u32 slot = scratch.candidate_slots()[q];
            if (slot == NONE) continue;
            const Candidate candidate = scratch.candidates()[q];
            const u32 at = slots.entries[slot];
            const float least = scratch.new_entries()[at].cost;
            if (!(candidate.cost - least <= task.link_limit)) continue;
            const u32 i = atomicAdd(&progress.num_links, 1u);
            if (i >= utterance.links_capacity) continue;
            const u32 arc = (candidate.arc_key & ~EPSILON_ARC) >> 1;
            u32 source = utterance.trace_count + candidate.source;
            float acoustic = 0.0f;
            if (!(candidate.arc_key & EPSILON_ARC)) {
                source = in_global(utterance.frontier)[candidate.source].node;
                const Arc taken = arc_at(task, utterance, arc);
                const u32 token = Costs::token_of(taken.ilabel & LABEL_MASK);
                acoustic = costs.unscaled_cost(row, token, costs.skips(row));
            }
            in_global(utterance.links)[i] = {source, at, arc, candidate.cost, acoustic};
        }
        __syncthreads();
    }

    // The frame is done, and its nodes are in the trace from `trace_count` on.
    __device__ void finish() const {
        const Utterance& utterance = costs.utterance;
        for (u32 i = utterance.links_count + threadIdx.x; i < progress.num_links;
             i += blockDim.x) {
            Link& link = in_global(utterance.links)[i];
            link.excess = link.excess - scratch.new_entries()[link.nextstate].cost;
            link.nextstate += utterance.trace_count;
        }
        __syncthreads();
    }
};
