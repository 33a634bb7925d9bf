"""Simulated utterances: frames of real ones, in pieces, put together anew.

    spoken = say(frames, logprobs, words, pronunciations, ...)    # real, aligned
    store = UnitStore(all_spoken, speakers, num_tokens)
    made, edges = store.simulate(items, rng)                      # of other words

Real utterances are aligned with their text by the log-probs of a phone CTC model,
and cut into units: one for each phone, one for each separator with the silence at it,
and the silences at both ends. An utterance of any text is made of units of the same
phones. Of a few units drawn for each place the best is taken: one between the same
neighbours, of the same speaker, or the one that follows in the recording.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numba
import numpy as np

from tools.data.forced_alignment import force_align, sausage, spans

Pronunciation = tuple[int, ...]
Pronunciations = Mapping[str, Sequence[Pronunciation]]
"""The ways to say each word."""

DRAWN = 16
"""Units that are drawn for each place."""
RATE = 0.08
"""Probability that a blank's frame is dropped; and that it is doubled."""


@dataclass(frozen=True)
class Spoken:
    """A real utterance that is aligned.

    Attributes:
        frames: [T, D + V], the log-probs of the phone model behind each frame.
        is_peak: [T] bool: the phone model's best token is no blank.
        units: Item, first frame and the one after the last, for each unit: phones and
            separators, between the silences `num_tokens` and `num_tokens + 1`.
    """

    frames: np.ndarray
    is_peak: np.ndarray
    units: list[tuple[int, int, int]]


def say(
    frames: np.ndarray,
    logprobs: np.ndarray,
    words: Sequence[str],
    pronunciations: Pronunciations,
    *,
    blank: int,
    separator: int,
) -> Spoken | None:
    """Align an utterance; None if it cannot have the words.

    Args:
        frames: [T, D] or a few more: what the simulated utterances are of.
        logprobs: [T, V], natural log, of the phone model.
        words: Its text.
        pronunciations: With all of these words.
        blank: Token.
        separator: Token between words.
    """
    states = sausage([pronunciations[word] for word in words], blank, separator)
    path = force_align(logprobs.astype(np.float64), states)
    if not len(path):
        return None
    found: list[tuple[int, int, int]] = []
    for state, start, stop in spans(path):
        token = states.tokens[state]
        if token == separator and found and found[-1][0] == separator:
            found[-1] = token, found[-1][1], stop
        elif token != blank:
            found.append((token, start, stop))
    num_tokens = logprobs.shape[1]
    silence = num_tokens, 0, found[0][1]
    found = [silence, *found, (num_tokens + 1, found[-1][2], len(frames))]
    units = _share_blanks(found, separator)
    rows = np.full((len(frames), num_tokens), -24.0, np.float16)
    rows[:, blank] = 0.0  # of the frames that the phone model lacks
    rows[: len(logprobs)] = logprobs
    both = np.concatenate([frames, rows], axis=1)
    return Spoken(both, rows.argmax(1) != blank, units)


def _share_blanks(
    found: list[tuple[int, int, int]], separator: int
) -> list[tuple[int, int, int]]:
    """Give the blanks between two units to them: those of a pause to the separator."""
    units = []
    start = 0
    for (item, _, stop), (after, follows, _) in zip(found, found[1:], strict=False):
        gap = follows - stop
        cut = stop + (gap + 1) // 2
        if item == separator:
            cut = follows - min(1, gap)
        elif after == separator:
            cut = stop + min(1, gap)
        units.append((item, start, cut))
        start = cut
    return [*units, (found[-1][0], start, found[-1][2])]


class Units(NamedTuple):
    """Units of all utterances, for the kernel; each utterance's in their order.

    Attributes:
        starts: [N + 1] the first frame of each unit.
        items: [N] what each is.
        before: [N] the item before it.
        after: [N] the item behind it.
        speakers: [N].
        order: [N] the units sorted by item.
        item_starts: [items + 1] where each item's are in `order`.
    """

    starts: np.ndarray
    items: np.ndarray
    before: np.ndarray
    after: np.ndarray
    speakers: np.ndarray
    order: np.ndarray
    item_starts: np.ndarray


class UnitStore:
    """Real units, and what is made of them.

    Args:
        spoken: Real utterances.
        speakers: The speaker of each, by number.
        num_tokens: V.
    """

    def __init__(
        self, spoken: Sequence[Spoken], speakers: Sequence[int], num_tokens: int
    ) -> None:
        self.num_tokens = num_tokens
        self.begin, self.end = num_tokens, num_tokens + 1
        self.num_speakers = max(speakers) + 1
        columns: list[list[int]] = [[], [], [], [], []]
        offset = 0
        for one, speaker in zip(spoken, speakers, strict=True):
            items = [item for item, _, _ in one.units]
            columns[0] += [offset + start for _, start, _ in one.units]
            columns[1] += items
            columns[2] += [-1, *items[:-1]]
            columns[3] += [*items[1:], -1]
            columns[4] += [speaker] * len(items)
            offset += len(one.frames)
        starts, items, *rest = (np.array(column, np.int64) for column in columns)
        counts = np.bincount(items, minlength=num_tokens + 2)
        self.frames = np.concatenate([one.frames for one in spoken])
        self.units = Units(
            np.append(starts, offset),
            items,
            *rest,
            np.argsort(items, kind="stable"),
            np.concatenate([[0], np.cumsum(counts)]),
        )
        self.is_peak = np.concatenate([one.is_peak for one in spoken])
        self.known = counts > 0
        """[V + 2] bool: items that there are units of."""

    def simulate(
        self, items: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Frames of a sequence of items, from `begin` to `end`, all of them known.

        Args:
            items: [N] int64 items.
            rng: All that is random.

        Returns:
            Frames [T, D], and the first frame of each item, [N + 1].
        """
        speaker = int(rng.integers(self.num_speakers))
        chosen = _choose_kernel(self.units, items, speaker, rng)
        starts, stops = self.units.starts[chosen], self.units.starts[chosen + 1]
        lengths = stops - starts
        edges = np.concatenate([[0], np.cumsum(lengths)])
        picked = np.repeat(starts - edges[:-1], lengths) + np.arange(edges[-1])
        copies = rng.choice(3, len(picked), p=[RATE, 1.0 - 2.0 * RATE, RATE])
        copies[self.is_peak[picked]] = 1
        copied = np.concatenate([[0], np.cumsum(copies)])
        frames = self.frames[np.repeat(picked, copies)]
        return frames, copied[edges]


@numba.njit(cache=True, error_model="numpy")
def _choose_kernel(units, items, speaker, rng):
    """A unit for each item: [N]."""
    chosen = np.empty(len(items), np.int64)
    for i in range(len(items)):
        item = items[i]
        low, high = units.item_starts[item], units.item_starts[item + 1]
        best = -1.0
        for k in range(DRAWN + 1):
            unit = units.order[low + int(rng.random() * (high - low))]
            if k == DRAWN:
                if i == 0 or chosen[i - 1] + 1 == len(units.items):
                    continue
                unit = chosen[i - 1] + 1
                if units.items[unit] != item:
                    continue
            worth = rng.random()
            if i > 0:
                worth += 1.0 if units.before[unit] == items[i - 1] else 0.0
                worth += 0.5 if unit == chosen[i - 1] + 1 else 0.0
            if i + 1 < len(items):
                worth += 1.0 if units.after[unit] == items[i + 1] else 0.0
            worth += 0.7 if units.speakers[unit] == speaker else 0.0
            if worth > best:
                best, chosen[i] = worth, unit
    return chosen
