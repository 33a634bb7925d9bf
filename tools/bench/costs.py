"""Do two searches agree? Costs of the same utterances, side by side.

agreement = compare_costs(names, ours, theirs)      # a `Outcome` of each utterance
agreement.agrees, agreement.worst
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wfstdec.compare.comparison import Outcome
from wfstdec.search.hypothesis import Hypothesis

TOLERANCE = 1e-5
"""Relative; what two costs may differ by and be equal: they are float32 sums."""


@dataclass(frozen=True)
class Agreement:
    """Costs of both searches on the same utterances.

    Attributes:
        utterances: How many.
        ours_total: Sum of our costs, of utterances where both are finite.
        theirs_total: Sum of theirs, of the same.
        ours_unfinished: Utterances where our path ends in no final state.
        theirs_unfinished: Utterances where theirs does not.
        ours_lower: Utterances where our cost is lower beyond the tolerance, or only
            our path ends in a final state.
        theirs_lower: Utterances where that holds for theirs.
        largest_difference: Relative, of utterances where both are alike in that.
        texts_differ: Utterances whose words differ.
        worst: Up to three utterances that disagree: name, our cost, theirs.
    """

    utterances: int
    ours_total: float
    theirs_total: float
    ours_unfinished: int
    theirs_unfinished: int
    ours_lower: int
    theirs_lower: int
    largest_difference: float
    texts_differ: int
    worst: tuple[tuple[str, float, float], ...]

    @property
    def agrees(self) -> bool:
        """Tell whether no utterance differs beyond the tolerance."""
        return self.ours_lower == self.theirs_lower == 0


def found_by_us(hypothesis: Hypothesis) -> Outcome:
    """Ours, as a search would say it that has no path where the search died."""
    if hypothesis.died_at_frame is not None:
        return Outcome("", math.inf, False)
    return Outcome.of(hypothesis)


def compare_costs(
    names: Sequence[str], ours: Sequence[Outcome], theirs: Sequence[Outcome]
) -> Agreement:
    """Compare what both found in each utterance; an infinite cost is no path.

    Where a path ends in no final state, no final cost is in its total, which cannot be
    compared with one that has it.

    Raises:
        ValueError: There are no utterances, or a cost is NaN: nothing was compared.
    """
    a, b = (
        np.array([one.total_cost for one in side], float) for side in (ours, theirs)
    )
    if not (len(names) == len(a) == len(b) > 0) or np.isnan([a, b]).any():
        raise ValueError(f"{len(a)} and {len(b)} costs of {len(names)}, or NaN")
    pairs = list(zip(ours, theirs, strict=True))
    difference = np.array([_difference(*pair) for pair in pairs])
    size, finite = np.abs(difference), np.isfinite(a) & np.isfinite(b)
    order = np.argsort(-size, kind="stable")
    worst = [int(i) for i in order[:3] if size[i] > TOLERANCE]
    return Agreement(
        utterances=len(a),
        ours_total=float(a[finite].sum()),
        theirs_total=float(b[finite].sum()),
        ours_unfinished=sum(not found.reached_final for found in ours),
        theirs_unfinished=sum(not found.reached_final for found in theirs),
        ours_lower=int((difference < -TOLERANCE).sum()),
        theirs_lower=int((difference > TOLERANCE).sum()),
        largest_difference=float(size[np.isfinite(size)].max(initial=0.0)),
        texts_differ=sum(one.text != other.text for one, other in pairs),
        worst=tuple((names[i], float(a[i]), float(b[i])) for i in worst),
    )


def _difference(ours: Outcome, theirs: Outcome) -> float:
    """Relative, below 0 where ours is better; infinite where no number tells."""
    if ours.reached_final != theirs.reached_final:
        return -math.inf if ours.reached_final else math.inf
    a, b = ours.total_cost, theirs.total_cost
    assert a is not None and b is not None
    return 0.0 if a == b else (a - b) / max(1.0, min(abs(a), abs(b)))
