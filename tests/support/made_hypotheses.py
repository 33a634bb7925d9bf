"""Hypotheses that no search has found."""

from wfstdec import Hypothesis


def hypothesis(words=(), cost=0.0, **fields):
    """Words at a cost; of all other fields what is plainest."""
    others = ("graph_cost", "acoustic_cost", "insertion_cost", "boost_cost")
    rest = dict.fromkeys(others, 0.0) | {"reached_final": True, "num_frames": 50}
    rest |= {"token_ids": (), "token_frames": ((), ()), "token_names": ()}
    rest |= {"words": tuple(words), "frame_shift_s": 0.02, "total_cost": cost}
    return Hypothesis(**rest | fields)
