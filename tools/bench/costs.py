"""Do two decoders agree? Costs of the same utterances, side by side.

found = compare(names, ours, kaldi)          # an `Outcome` each per utterance
found.agrees, found.worst
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from wfstdec.search.hypothesis import Hypothesis

TOLERANCE = 1e-5
"""Relative; what two costs may differ by and be equal: they are float32 sums."""


class Outcome(NamedTuple):
    """What a decoder found in an utterance.

    Attributes:
        cost: The total; infinite where no path survived.
        reached_final: Whether the path ends in a final state; if not, no final cost
            is in its total, which cannot be compared with one that has it.
        text: The words.
    """

    cost: float
    reached_final: bool
    text: str


@dataclass(frozen=True)
class Comparison:
    """Costs of both decoders on the same utterances.

    Attributes:
        utterances: How many.
        ours_total: Sum of our costs, of utterances where both are finite.
        kaldi_total: Sum of Kaldi's, of the same.
        ours_unfinished: Utterances where our path ends in no final state.
        kaldi_unfinished: Utterances where Kaldi's does not.
        ours_lower: Utterances where our cost is lower beyond the tolerance, or only
            our path ends in a final state.
        kaldi_lower: Utterances where that holds for Kaldi's.
        largest_difference: Relative, of utterances where both are alike in that.
        texts_differ: Utterances whose words differ.
        worst: Up to three utterances that disagree: name, our cost, Kaldi's.
    """

    utterances: int
    ours_total: float
    kaldi_total: float
    ours_unfinished: int
    kaldi_unfinished: int
    ours_lower: int
    kaldi_lower: int
    largest_difference: float
    texts_differ: int
    worst: tuple[tuple[str, float, float], ...]

    @property
    def agrees(self) -> bool:
        """Whether no utterance differs beyond the tolerance."""
        return self.ours_lower == self.kaldi_lower == 0


def outcome_of(hypothesis: Hypothesis) -> Outcome:
    """Ours, as Kaldi's would be: it has no path where the search died."""
    if hypothesis.died_at_frame is not None:
        return Outcome(math.inf, False, "")
    return Outcome(hypothesis.total_cost, hypothesis.reached_final, hypothesis.text)


def compare(
    names: Sequence[str], ours: Sequence[Outcome], kaldi: Sequence[Outcome]
) -> Comparison:
    """Compare what both found in each utterance.

    Raises:
        ValueError: There are no utterances, or a cost is NaN: nothing was compared.
    """
    a, b = (np.array([found.cost for found in side], float) for side in (ours, kaldi))
    if not (len(names) == len(a) == len(b) > 0) or np.isnan([a, b]).any():
        raise ValueError(f"{len(a)} and {len(b)} costs of {len(names)}, or NaN")
    difference = np.array(
        [_difference(*pair) for pair in zip(ours, kaldi, strict=True)]
    )
    size, finite = np.abs(difference), np.isfinite(a) & np.isfinite(b)
    order = np.argsort(-size, kind="stable")
    worst = [int(i) for i in order[:3] if size[i] > TOLERANCE]
    return Comparison(
        utterances=len(a),
        ours_total=float(a[finite].sum()),
        kaldi_total=float(b[finite].sum()),
        ours_unfinished=sum(not found.reached_final for found in ours),
        kaldi_unfinished=sum(not found.reached_final for found in kaldi),
        ours_lower=int((difference < -TOLERANCE).sum()),
        kaldi_lower=int((difference > TOLERANCE).sum()),
        largest_difference=float(size[np.isfinite(size)].max(initial=0.0)),
        texts_differ=sum(x.text != y.text for x, y in zip(ours, kaldi, strict=True)),
        worst=tuple((names[i], float(a[i]), float(b[i])) for i in worst),
    )


def _difference(ours: Outcome, kaldi: Outcome) -> float:
    """Relative, below 0 where ours is better; infinite where no number tells."""
    if ours.reached_final != kaldi.reached_final:
        return -math.inf if ours.reached_final else math.inf
    if ours.cost == kaldi.cost:  # both may be infinite
        return 0.0
    return (ours.cost - kaldi.cost) / max(1.0, min(abs(ours.cost), abs(kaldi.cost)))
