"""Quality of n-best lists, lattices and confidences: oracle errors, NCE, AUC.

lattice_errors(lattice, ["hello", "world"])
oracle(references, open_lattices("dev.lat"), lattice_errors)     # errors and words
oracle(references, read_lists("hyp.jsonl"), fewest_errors)
score_confidences(references, read_confidences("hyp.ctm"))

A word of a hypothesis is correct if the alignment with the reference (Kaldi's choice)
pairs it with an equal word. Of N words with confidences:

    nce  = (H - mean -log2 p(outcome of a word)) / H     H: of the share of right words
    auc  = P(a right word has a higher confidence than a wrong one), ties count half
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from wfstdec.errors import FormatError, LatticeError, OptionError
from wfstdec.jit import jit
from wfstdec.lattice.arrays import Lattice
from wfstdec.metrics import GAP, align, count_errors
from wfstdec.search.paths.lattice import confidences_of, lattice_hypotheses
from wfstdec.text.files import PathLike, read_lines, reading
from wfstdec.text.normalize import AS_IT_STANDS, Normalizer


@dataclass(frozen=True)
class OracleErrors:
    """Oracle errors of n-best lists and lattices, summed over utterances."""

    words: int  # Number of reference words
    nbest: int  # Maximum length of lists
    of_lists: int  # Sum of the fewest word errors of each list
    of_lattices: int | None  # The same for lattices; None for bare tokens

    @property
    def list_wer(self) -> float:
        """Percent."""
        return 100 * self.of_lists / self.words

    @property
    def lattice_wer(self) -> float | None:
        """Percent."""
        errors = self.of_lattices
        return None if errors is None else 100 * errors / self.words


def lattice_errors(
    lattice: Lattice, reference: Sequence[str], normalizer: Normalizer = AS_IT_STANDS
) -> int:
    """Return the fewest word errors of any path of a lattice, exactly."""
    if lattice.words_are_tokens:
        raise LatticeError(
            "is one of bare tokens, whose words are not known, expected a lattice of a "
            "search with a lexicon or a graph"
        )
    # Words that count as equal have one label; 0 represents none.
    labels, place = np.unique(lattice.arcs["olabel"], return_inverse=True)
    ids: dict[str, int] = {}
    compared = np.zeros(len(labels), np.int64)
    for i, label in enumerate(labels.tolist()):
        parts = normalizer.word(lattice.words[label]) if label else ()
        if len(parts) > 1:
            raise LatticeError(
                f"word {lattice.words[label]!r} of a lattice becomes {len(parts)} "
                f"words by {normalizer.flag}, expected one or none; take --ignore-case"
            )
        compared[i] = ids.setdefault(parts[0], label) if parts else 0
    text = np.array([ids.get(word, -1) for word in reference], np.int64)
    splits, into = lattice.arcs_into
    may_end = lattice.states["final_excess"] < np.inf
    state, olabel = lattice.arcs["state"].astype(np.int64), compared[place]
    return int(_least_errors(lattice.order, splits, into, state, olabel, may_end, text))


def fewest_errors(
    texts: Iterable[Sequence[str]],
    reference: Sequence[str],
    normalizer: Normalizer = AS_IT_STANDS,
) -> int:
    """Return the fewest word errors of the texts of a list, each in words."""
    counts = (count_errors(reference, normalizer.words(text)) for text in texts)
    return min(one.total for one in counts)


def oracle(
    references: Mapping[str, Sequence[str]],
    kept: Mapping[str, Any],
    errors: Callable[[Any, Sequence[str], Normalizer], int],
    normalizer: Normalizer = AS_IT_STANDS,
) -> tuple[int, int]:
    """Sum the oracle errors (all words if nothing was kept), and the words."""
    total = sum(
        errors(kept[name], words, normalizer) if name in kept else len(words)
        for name, words in references.items()
    )
    return total, sum(map(len, references.values()))


def read_lists(path: PathLike) -> dict[str, list[list[str]]]:
    """Return the texts of n-best lists of `wfstdec decode --format jsonl`."""
    lists = {}
    for number, line in enumerate(read_lines(path), 1):
        writer = "one of `wfstdec decode --format jsonl`"
        with reading(f"{path}:{number}", f"line {line[:60]!r}", writer):
            found = json.loads(line)
            several = found.get("nbest") or [found]
            lists[found["id"]] = [one["text"].split() for one in several]
    return lists


@jit
def _least_errors(order, splits, into, source, olabel, may_end, text):
    """Return the fewest errors of a path to a final state, by dynamic programming."""
    size = len(text)
    none = 1 << 30
    errors = np.full((len(order), size + 1), none, np.int64)
    for q in range(size + 1):
        errors[0, q] = q
    best = none
    for state in order:
        row = errors[state]
        for p in range(splits[state], splits[state + 1]):
            before, word = errors[source[into[p]]], olabel[into[p]]
            for q in range(size + 1):
                if word == 0:
                    row[q] = min(row[q], before[q])
                    continue
                row[q] = min(row[q], before[q] + 1)
                if q > 0:
                    row[q] = min(row[q], before[q - 1] + int(word != text[q - 1]))
        # Deletions, after all arcs into the state.
        for q in range(size):
            row[q + 1] = min(row[q + 1], row[q] + 1)
        if may_end[state]:
            best = min(best, row[size])
    return best


_LEAST = 1e-6  # Confidences are clipped to this distance from 0 and 1
_BINS = 10  # Bins of a reliability plot, of equal width; empty ones are omitted


class Reliability(NamedTuple):
    """Words of similar confidence."""

    confidence: float  # Their mean confidence
    right: float  # Share of correct words
    words: int  # Number of words


class Quality(NamedTuple):
    """Quality of confidences."""

    nce: float  # Normalised cross-entropy
    auc: float  # Area under the ROC curve
    words: int  # Number of words
    right: float  # Share of correct words
    bins: list[Reliability]  # For a reliability plot

    def __str__(self) -> str:
        share = f"{self.words} words, {100 * self.right:.1f} % right"
        return f"NCE {self.nce:.3f}, AUC {self.auc:.3f} ({share})"


def quality(confidences: Sequence[float], right: Sequence[bool]) -> Quality:
    """Return all measures of the confidences of words.

    The NCE is 1 for perfect confidences, 0 for the constant share of correct words, and
    negative for worse ones.
    """
    sure, is_right = np.asarray(confidences, float), np.asarray(right, bool)
    if not len(is_right):
        raise FormatError("no words, expected some with confidences")
    num_right, num_wrong = int(is_right.sum()), int((~is_right).sum())
    if not num_right or not num_wrong:
        raise FormatError(
            f"{num_right} of {len(is_right)} words are right, expected right ones "
            "and wrong ones"
        )
    p, share = np.clip(sure, _LEAST, 1 - _LEAST), is_right.mean()
    whole = -(share * np.log2(share) + (1 - share) * np.log2(1 - share))
    left = -np.log2(np.where(is_right, p, 1 - p)).mean()
    # Area by ranks; ties have their mean rank.
    _, place, counts = np.unique(p, return_inverse=True, return_counts=True)
    rank = (np.cumsum(counts) - (counts - 1) / 2)[place]
    above = rank[is_right].sum() - num_right * (num_right + 1) / 2
    at = np.minimum((sure * _BINS).astype(int), _BINS - 1)
    bins = []
    for here in (at == one for one in np.unique(at)):
        shares = float(sure[here].mean()), float(is_right[here].mean())
        bins.append(Reliability(*shares, int(here.sum())))
    nce, auc = float((whole - left) / whole), float(above / (num_right * num_wrong))
    return Quality(nce, auc, len(is_right), num_right / len(is_right), bins)


def score_confidences(
    references: Mapping[str, Sequence[str]],
    hypotheses: Mapping[str, Sequence[tuple[str, float]]],
    normalizer: Normalizer = AS_IT_STANDS,
) -> Quality:
    """Score the confidences of hypotheses whose utterances have a reference.

    Args:
        references: Words by utterance.
        hypotheses: Words with their confidences.
        normalizer: Rules for comparing words; already applied to references.

    Raises:
        FormatError: All words are right or all are wrong, or there are none.
    """
    right: list[bool] = []
    confidences: list[float] = []
    for utterance, pairs in hypotheses.items():
        if utterance in references:
            words = [word for word, _ in pairs]
            right += right_words(references[utterance], words, normalizer)
            confidences += [confidence for _, confidence in pairs]
    return quality(confidences, right)


def right_words(
    reference: Sequence[str],
    hypothesis: Sequence[str],
    normalizer: Normalizer = AS_IT_STANDS,
) -> list[bool]:
    """Return which words of a hypothesis are correct; a split word needs all parts."""
    parts = [normalizer.word(word) for word in hypothesis]
    pairs = align(reference, [part for several in parts for part in several])
    marks = iter([expected == word for expected, word in pairs if word != GAP])
    return [all([next(marks) for _ in several]) for several in parts]


SCALES = (0.1, 0.14, 0.2, 0.28, 0.4, 0.56, 0.8, 1.0)  # Scales of the first round
HALVINGS = 3  # Number of halvings of the factor between neighbours afterwards
_DIGITS = 4


class LabelledLattice(NamedTuple):
    """Lattice, and which words of its best text are correct."""

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
    """Best scale, and all trials."""

    best: ScaleTrial  # Best trial; ties go to the scale nearest to 1
    trials: tuple[ScaleTrial, ...]  # All trials, in order


def by_speaker(utterances: Iterable[str]) -> tuple[list[str], list[str]]:
    """Split utterances into those of every second speaker, and the others.

    The speaker is the id before the first `-`, as in LibriSpeech.
    """
    ids = list(utterances)
    speakers = sorted({one.split("-")[0] for one in ids})
    if len(speakers) < 2:
        raise OptionError(
            f"{len(ids)} utterances of {len(speakers)} speaker by their ids, expected "
            "two speakers or more, or lattices to test on"
        )
    chosen = set(speakers[::2])
    mine = [one for one in ids if one.split("-")[0] in chosen]
    return mine, [one for one in ids if one.split("-")[0] not in chosen]


def judge_all(
    lattices: Mapping[str, Lattice],
    references: Mapping[str, Sequence[str]],
    utterances: Iterable[str] | None = None,
    normalizer: Normalizer = AS_IT_STANDS,
) -> list[LabelledLattice]:
    """Label the words of the best texts of lattices by the references.

    Args:
        lattices: By utterance.
        references: Words by utterance.
        utterances: Some of them; None for all.
        normalizer: Rules for comparing words.

    Raises:
        FormatError: An utterance has no reference.
    """
    labelled = []
    for name in lattices if utterances is None else utterances:
        if name not in references:
            raise FormatError(f"utterance {name!r} has no reference, expected one")
        (best,) = lattice_hypotheses(lattices[name])
        words = [word.text for word in best.words]
        reference = normalizer.words(references[name])
        right = right_words(reference, words, normalizer)
        labelled.append(LabelledLattice(lattices[name], right))
    return labelled


def measure(judged: Sequence[LabelledLattice], scale: float) -> ScaleTrial:
    """Measure the confidences of lattices at a scale."""
    right = [one for utterance in judged for one in utterance.right]
    found = [confidences_of(one.lattice, scale=scale) for one in judged]
    return ScaleTrial(scale, quality([c for some in found for c in some], right))


def tune_posterior_scale(
    judged: Sequence[LabelledLattice],
    scales: Sequence[float] = SCALES,
    say: Callable[[ScaleTrial], None] | None = None,
) -> ScaleTuning:
    """Search for the scale with the best normalised cross-entropy.

    Args:
        judged: Lattices of other speakers than the test's.
        scales: First scales, above 0. A single one is not refined.
        say: Called with each trial.

    Raises:
        OptionError: No scales, or one that is not above 0.
        FormatError: As `measure`.
    """
    if not scales or not min(scales) > 0:
        raise OptionError(f"scales {list(scales)}, expected some above 0")
    done: dict[float, ScaleTrial] = {}

    def visit(*given: float) -> ScaleTrial:
        for scale in (round(one, _DIGITS) for one in given):
            if scale > 0 and scale not in done:
                done[scale] = measure(judged, scale)
                if say is not None:
                    say(done[scale])
        trials = done.values()
        return max(trials, key=lambda one: (one.quality.nce, -abs(one.scale - 1)))

    grid = sorted(set(scales))
    best = visit(*grid)
    factor = max((high / low for low, high in pairwise(grid)), default=1.0)
    for _ in range(HALVINGS if factor > 1 else 0):
        factor **= 0.5
        # Next, halve the factor between the best and its neighbours.
        best = visit(best.scale / factor, best.scale * factor)
    return ScaleTuning(best, tuple(done.values()))
