"""Hypotheses of the pieces of a recording, joined to one of the whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from wfstdec.search.hypothesis import Hypothesis, Token, Word, seconds

COSTS = ("total_cost", "graph_cost", "acoustic_cost", "insertion_cost", "boost_cost")
"""Costs of a hypothesis, which pieces add up."""
_Timed = TypeVar("_Timed", Word, Token)


def join(found: Sequence[tuple[int, Hypothesis]]) -> Hypothesis:
    """Join what was found in pieces that follow each other.

    `found`: where each piece begins, in frames, and its hypothesis; one or more.
    """
    # Of one piece all bits stay, confidences and n-best too.
    if len(found) == 1 and not found[0][0]:
        return found[0][1]
    pieces = [hypothesis for _, hypothesis in found]
    last_start, last = found[-1]
    died = [
        start + h.died_at_frame for start, h in found if h.died_at_frame is not None
    ]
    starts, ends = (
        tuple(start + t for start, h in found for t in h.token_frames[side])
        for side in (0, 1)
    )
    costs: dict[str, Any] = {
        name: sum(getattr(hypothesis, name) for hypothesis in pieces) for name in COSTS
    }
    return Hypothesis(
        words=tuple(
            shifted(word, start, h.frame_shift_s)
            for start, h in found
            for word in h.words
        ),
        token_ids=tuple(token for h in pieces for token in h.token_ids),
        token_frames=(starts, ends),
        token_names=last.token_names,
        frame_shift_s=last.frame_shift_s,
        **costs,
        reached_final=all(h.reached_final for h in pieces),
        num_frames=last_start + last.num_frames,
        died_at_frame=min(died, default=None),
    )


def join_nbest(
    found: Sequence[tuple[int, Sequence[Hypothesis]]], n: int
) -> list[Hypothesis]:
    """Join n-best lists of pieces: the n best of all that can be joined of them."""
    best: list[tuple[float, tuple[Hypothesis, ...]]] = [(0.0, ())]
    for _, hypotheses in found:
        longer = (
            (cost + one.total_cost, (*before, one))
            for cost, before in best
            for one in hypotheses
        )
        # Only the n best beginnings can be those of the n best.
        best = sorted(longer, key=lambda pair: pair[0])[:n]
    starts = [start for start, _ in found]
    joined = (join(list(zip(starts, pieces, strict=True))) for _, pieces in best)
    texts: dict[str, Hypothesis] = {}
    for one in joined:
        texts.setdefault(one.text, one)
    return list(texts.values())


def shifted(timed: _Timed, frames: int, frame_shift_s: float) -> _Timed:
    """Move a word or a token by some frames."""
    start, end = timed.start_frame + frames, timed.end_frame + frames
    return timed._replace(
        start_s=seconds(start, frame_shift_s),
        end_s=seconds(end, frame_shift_s),
        start_frame=start,
        end_frame=end,
    )
