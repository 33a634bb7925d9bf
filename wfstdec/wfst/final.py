"""Where a search may end: the best of its entries, on whatever backend they are."""

from __future__ import annotations

import numpy as np
from numpy import uint32

from wfstdec.boost.kernels import cost_at_end
from wfstdec.jit import jit
from wfstdec.jit.sorting import key_of


@jit
def best_end(frontier, final_cost, lm_scale, use_final, boosts):
    """The entry to end at: (position, cost, whether it is final).

    The least `(cost + lm_scale * final) + the boosts' rest`, ties to the lower state;
    where no entry is final, or with `use_final` off, the same of all entries without
    the graph's final costs.

    `boosts`: the boost states of the entries, the final cost of each state of phrases,
    and the size of an instalment, float32; or None.
    """
    best, best_key, best_cost = -1, np.uint64(0), np.float32(0)
    best_boost, reached_final = uint32(0), False
    # Only where nothing may end here does the best entry count, whatever it is.
    for of_final in (True, False):
        for i in range(len(frontier)):
            cost, boost = frontier[i].cost, uint32(0)
            if of_final:
                if not (use_final and frontier[i].state < len(final_cost)):
                    continue  # within a word that is added
                final = final_cost[frontier[i].state]
                if not final < np.inf:
                    continue
                cost = np.float32(cost + np.float32(lm_scale * final))
            if boosts is not None:
                states, refund, size = boosts
                boost = states[i]
                cost = np.float32(cost + cost_at_end(refund, boost, size))
            key = key_of(cost, frontier[i].state)
            if best < 0 or key < best_key or (key == best_key and boost < best_boost):
                best, best_key, best_cost, best_boost = i, key, cost, boost
                reached_final = of_final
        if best >= 0:
            break
    return best, best_cost, reached_final


@jit
def best_so_far(frontier, final_cost, lm_scale, survived, boosts):
    """The best entry, whatever it may end in: (position, its cost, that of ending).

    The cost of ending is infinite where no entry is final.
    """
    at, cost, _ = best_end(frontier, final_cost, lm_scale, False, boosts)
    _, ended, final = best_end(frontier, final_cost, lm_scale, survived, boosts)
    return at, np.float64(cost), np.float64(ended) if final else np.inf
