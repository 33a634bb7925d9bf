"""The scale of posteriors that makes confidences right: tuned, and tested on others.

    lattices = open_lattices("dev.lat")
    given, others = by_speaker(lattices)
    tuning = tune_posterior_scale(judge_all(lattices, references, given))
    measure(judge_all(lattices, references, others), tuning.best.scale).quality.nce

A search is too sure of itself at scale 1, since its frames are taken to be independent.
The scale is tuned for the best normalised cross-entropy: a grid of `SCALES` first, then
ever smaller factors around the best of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from wfstdec.compare.confidences import Quality, quality, right_words
from wfstdec.errors import FormatError, OptionError
from wfstdec.lattice.arrays import Lattice
from wfstdec.search.paths.lattice import confidences_of, lattice_hypotheses
from wfstdec.text.normalize import AS_IT_STANDS, Normalizer

SCALES = (0.1, 0.14, 0.2, 0.28, 0.4, 0.56, 0.8, 1.0)
"""Scales that are tried first."""
HALVINGS = 3
"""Number of times that the factor between neighbours is halved after that."""
_DIGITS = 4


class Judged(NamedTuple):
    """A lattice whose best text was compared with what was said.

    Attributes:
        lattice: The lattice.
        right: Which words of its best text are right.
    """

    lattice: Lattice
    right: list[bool]


class ScaleTrial(NamedTuple):
    """Quality of confidences at a scale of posteriors."""

    scale: float
    quality: Quality

    def __str__(self) -> str:
        return f"posterior_scale {self.scale:g}: {self.quality}"


@dataclass(frozen=True)
class ScaleTuning:
    """Best scale, and all that were measured.

    Attributes:
        best: The best trial; of equal ones the scale nearer to 1.
        trials: All of them, in order.
    """

    best: ScaleTrial
    trials: tuple[ScaleTrial, ...]


def speaker_of(utterance: str) -> str:
    """Speaker of an utterance: its id up to the first `-`, as in LibriSpeech."""
    return utterance.split("-")[0]


def by_speaker(
    utterances: Iterable[str], speaker: Callable[[str], str] = speaker_of
) -> tuple[list[str], list[str]]:
    """The utterances of every second speaker, and those of the others.

    Args:
        utterances: Their ids.
        speaker: Whose an utterance is.

    Raises:
        OptionError: There is one speaker.
    """
    ids = list(utterances)
    speakers = sorted({speaker(one) for one in ids})
    if len(speakers) < 2:
        raise OptionError(
            f"{len(ids)} utterances of {len(speakers)} speaker by their ids, expected "
            "two speakers or more, or lattices to test on"
        )
    given = set(speakers[::2])
    mine = [one for one in ids if speaker(one) in given]
    return mine, [one for one in ids if speaker(one) not in given]


def judge_all(
    lattices: Mapping[str, Lattice],
    references: Mapping[str, Sequence[str]],
    utterances: Iterable[str] | None = None,
    normalizer: Normalizer = AS_IT_STANDS,
) -> list[Judged]:
    """Compare the best texts of lattices with what was said.

    Args:
        lattices: By utterance.
        references: Words by utterance.
        utterances: Some of them; None for all.
        normalizer: How words are compared.

    Raises:
        FormatError: An utterance has no reference.
    """
    found = []
    for name in lattices if utterances is None else utterances:
        if name not in references:
            raise FormatError(f"utterance {name!r} has no reference, expected one")
        lattice = lattices[name]
        (best,) = lattice_hypotheses(lattice)
        words = [word.text for word in best.words]
        said = normalizer.words(references[name])
        found.append(Judged(lattice, right_words(said, words, normalizer)))
    return found


def measure(judged: Sequence[Judged], scale: float) -> ScaleTrial:
    """Measure the confidences of some lattices at a scale.

    Raises:
        FormatError: All words are right, or all are wrong.
        OptionError: The scale is below 0 or infinite.
    """
    right = [one for utterance in judged for one in utterance.right]
    found = [confidences_of(one.lattice, scale=scale) for one in judged]
    return ScaleTrial(scale, quality([c for some in found for c in some], right))


def tune_posterior_scale(
    judged: Sequence[Judged],
    scales: Sequence[float] = SCALES,
    say: Callable[[ScaleTrial], None] | None = None,
) -> ScaleTuning:
    """Search for the scale with the best normalised cross-entropy.

    Args:
        judged: What to tune on: other speakers than those to test on.
        scales: What is tried first, above 0. One alone is not refined.
        say: Called with each trial.

    Raises:
        OptionError: No scales, or one that is not above 0.
        FormatError: As `measure`.
    """
    if not scales or not min(scales) > 0:
        raise OptionError(f"scales {list(scales)}, expected some above 0")
    done: dict[float, ScaleTrial] = {}

    def visit(scale: float) -> None:
        scale = round(scale, _DIGITS)
        if scale > 0 and scale not in done:
            done[scale] = measure(judged, scale)
            if say is not None:
                say(done[scale])

    def best() -> ScaleTrial:
        return max(
            done.values(), key=lambda one: (one.quality.nce, -abs(one.scale - 1))
        )

    grid = sorted(set(scales))
    for scale in grid:
        visit(scale)
    pairs = zip(grid[1:], grid, strict=False)
    factor = max((high / low for high, low in pairs), default=1.0)
    for _ in range(HALVINGS if factor > 1 else 0):
        factor **= 0.5
        # Each time between the best one and its neighbours, by half of the factor.
        centre = best().scale
        visit(centre / factor)
        visit(centre * factor)
    return ScaleTuning(best(), tuple(done.values()))
