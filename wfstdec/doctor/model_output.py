"""Examine the log-probs of some utterances: shape, rows, blank."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from wfstdec.checks.inputs import blank_doubt
from wfstdec.checks.rows import MOST_ROWS, RowKind, kind_of, row_sums, spread
from wfstdec.checks.token_counts import TokenCounts
from wfstdec.doctor.report import Finding, percent
from wfstdec.text.tokens import TokenTable

UTTERANCES = 200
"""Utterances that are heard."""
WORDS_PER_S = 2.7
"""Words per second of read speech, its pauses included."""
LIKELY_RATES = 1.3, 4.6
"""Words per second that people say."""
FRAME_SHIFTS_S = (0.01, 0.02, 0.03, 0.04, 0.06, 0.08)
"""Frames that models have."""
RARE_BLANK = 0.1
"""A blank that wins less of the frames is one to look at."""

Pairs = Iterable[tuple[str, np.ndarray]]


@dataclass
class ModelOutput:
    """Tokens that a model says in some utterances.

    Attributes:
        said: What wins in their frames.
        runs: The tokens of each utterance's runs, blanks too, int64.
        frames: The frames of each utterance.
        kinds: What the rows are, with the number of utterances.
        sums: The least and the largest ln of the sum of exp(x) of rows looked at.
        shapes: Shapes of arrays that have not V columns.
        transposed: Utterances that came as [V, T], and were turned.
    """

    counts: TokenCounts
    runs: dict[str, np.ndarray] = field(default_factory=dict)
    frames: dict[str, int] = field(default_factory=dict)
    kinds: Counter[RowKind] = field(default_factory=Counter)
    sums: tuple[float, float] = (math.inf, -math.inf)
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    transposed: int = 0

    @classmethod
    def of(cls, logprobs: Pairs, num_tokens: int) -> ModelOutput:
        """Hear the first utterances.

        `logprobs`: pairs of an utterance id and its log-probs, [T, V].
        """
        output = cls(TokenCounts(num_tokens))
        for utterance, array in itertools.islice(logprobs, UTTERANCES):
            output._add(utterance, array)
        return output

    def _add(self, utterance: str, array: np.ndarray) -> None:
        num_tokens = len(self.counts.frames)
        # Examined all the same: what is wrong besides should be told in one go.
        if array.shape[1] != num_tokens and array.shape[0] == num_tokens:
            self.transposed += 1
            array = array.T
        if array.shape[1] != num_tokens:
            self.shapes.append(array.shape)
            return
        kind = kind_of(array)
        if kind is not None:
            self.kinds[kind] += 1
            sums = row_sums(spread(array, MOST_ROWS))
            low, high = self.sums
            self.sums = min(low, float(sums.min())), max(high, float(sums.max()))
        if kind == RowKind.TRANSPOSED:  # a square, of as many frames as tokens
            array = array.T
        self.runs[utterance] = self.counts.add(array)
        self.frames[utterance] = len(array)

    def texts(self, without: Sequence[int]) -> Iterator[tuple[str, list[int]]]:
        """The tokens of each utterance's greedy path, but for some of them."""
        for utterance, runs in self.runs.items():
            yield utterance, runs[~np.isin(runs, without)].tolist()


def shape_finding(output: ModelOutput, tokens: TokenTable) -> Finding:
    """Say how many utterances there are, and whether V fits."""
    name, num_tokens = "log-probs", len(tokens)
    if output.shapes:
        found = output.shapes[0]
        hint = "; of another model?"
        if found[1] == num_tokens + 1:
            hint = f"; the blank comes last and has no name? --blank {num_tokens}"
        text = f"shape {found}, expected V={num_tokens} as of the tokens{hint}"
        return Finding(name, "wrong", text)
    if output.transposed:
        count = f"{output.transposed} of {len(output.runs)} utterances"
        text = f"{count} come as [V, T], expected [T, V]; transpose them"
        return Finding(name, "wrong", text)
    if not output.counts.num_frames:
        return Finding(name, "wrong", "no frames, expected some")
    frames = f"{output.counts.num_frames:,} frames of {len(output.runs)} utterances"
    return Finding(name, "ok", f"{frames} looked at, V={num_tokens}")


def rows_finding(output: ModelOutput) -> Finding:
    """Say what rows sum to."""
    name = "row sums"
    wrong = [kind for kind, _ in output.kinds.most_common() if kind.remedy]
    if wrong:
        return Finding(name, "wrong", wrong[0].doubt.removeprefix("logprobs: "))
    if not output.kinds:
        return Finding(name, "look", "too few frames to tell")
    low, high = (math.exp(x) for x in output.sums)
    return Finding(name, "ok", f"exp of a row sums to {low:.3f} to {high:.3f}")


def blank_finding(
    output: ModelOutput, tokens: TokenTable, other: int | None
) -> Finding:
    """Say what share of the frames the blank wins."""
    name, counts, blank = "blank", output.counts, tokens.blank
    if other is not None:
        doubt = blank_doubt(tokens, other).removeprefix("logprobs: ")
        return Finding(name, "wrong", doubt)
    share = counts.frame_share(blank)
    text = (
        f"{tokens.names[blank]!r}, token {blank}, wins {percent(share)} of the frames"
    )
    if share >= RARE_BLANK:
        return Finding(name, "ok", text)
    return Finding(name, "look", f"{text}; long frames, or another token (--blank)?")


def frame_shift_finding(
    num_words: int, num_frames: int, given_s: float | None
) -> tuple[Finding, float]:
    """Say whether seconds per frame give a rate at which people speak.

    `given_s`: seconds per frame, where the user says; None takes 0.02.
    """
    name, shift_s = "frame shift", given_s or 0.02
    taken = f"{shift_s:g} s" + ("" if given_s else " (the default)")
    if not num_words or not num_frames:
        text = f"{taken}; without words nothing tells whether that is so"
        return Finding(name, "look", text), shift_s
    per_frame = num_words / num_frames
    text = f"{taken} gives {per_frame / shift_s:.1f} words a second"
    low, high = LIKELY_RATES
    if low <= per_frame / shift_s <= high:
        return Finding(name, "ok", text), shift_s
    # By ratio: twice as fast is as far off as half as fast.
    best = min(FRAME_SHIFTS_S, key=lambda s: abs(math.log(per_frame / s / WORDS_PER_S)))
    rate = f"people say {low:g} to {high:g}"
    if best == shift_s:
        return Finding(name, "look", f"{text}, {rate}"), shift_s
    guess = f"--frame-shift {best:g} gives {per_frame / best:.1f}"
    return Finding(name, "look", f"{text}, {rate}; {guess}"), best
