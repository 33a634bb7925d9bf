"""Best end state of an utterance, for all backends."""

import numpy as np
from numpy import uint32

from wfstdec.boost.kernels import cost_at_end
from wfstdec.jit import jit
from wfstdec.jit.sorting import key_of


@jit
def best_end(frontier, final_cost, lm_scale, use_final, boosts):
    """Return the best entry to end at: (position, cost, whether it is final)."""
    # The least `(cost + lm_scale * final cost) + credit still to pay or refund`, ties
    # to the lower state. Without a final entry, or with `use_final` off, the same over
    # all entries without final costs. `boosts`: boost states of the entries, the final
    # cost of each phrase state, and the size of an instalment, float32; or None.
    best, best_key, best_cost = -1, np.uint64(0), np.float32(0)
    best_boost, reached_final = uint32(0), False
    # Non-final entries count only if there is no final one.
    for of_final in (True, False):
        for i in range(len(frontier)):
            cost, boost = frontier[i].cost, uint32(0)
            if of_final:
                if not (use_final and frontier[i].state < len(final_cost)):
                    continue  # within an OOV word
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
    """Return the best entry: (position, cost, cost with the final cost or infinity)."""
    at, cost, _ = best_end(frontier, final_cost, lm_scale, False, boosts)
    _, ended, final = best_end(frontier, final_cost, lm_scale, survived, boosts)
    return at, np.float64(cost), np.float64(ended) if final else np.inf
