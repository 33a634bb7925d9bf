"""What a search hands over at the end: the best path, the same from every backend."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class BestPath(NamedTuple):
    """The least-cost path of one utterance.

    Attributes:
        arcs: int64 [N], arc ids in order, epsilon arcs among them.
        acoustic: float32 [N], the unscaled acoustic cost of each, 0 on epsilon arcs.
        final_cost: Unscaled final cost, 0.0 where the path ends in no final state.
        search_cost: The total as the search added it up: float32 steps, float64 base.
        reached_final: Whether the path ends in a final state.
        num_frames: Frames that the path covers.
        died_at_frame: The frame that nothing survived, or -1.
    """

    arcs: np.ndarray
    acoustic: np.ndarray
    final_cost: float
    search_cost: float
    reached_final: bool
    num_frames: int
    died_at_frame: int
