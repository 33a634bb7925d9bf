"""Groups of utterances that a kernel searches in one call, for every search on a CPU.

    class CpuBackend(GroupingBackend):            # has `decode_group`

    given = filled_up(utterances)                 # in `decode_group`
    now, behind, cut, frames = stretch(given, len(utterances), at, pace.frames)
    kernel(now, at, ...)                          # as much as one call should do

What Python takes to call a kernel is taken once for a group: it has many arrays.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.search.contract import Read
from wfstdec.search.interrupts import Pace
from wfstdec.search.scheduling import ALONE, HostBackend, Workers, longest_first

GROUP = 16
"""Whole utterances of one call, at most: kernels are compiled for so many."""
_NOTHING = np.zeros((0, 0), np.float32)
"""Fills what is given up to `GROUP`: a kernel is compiled for one length."""


class GroupingBackend(HostBackend):
    """A backend on the host that searches whole utterances a few in one call."""

    @abstractmethod
    def decode_group(
        self,
        utterances: Sequence[np.ndarray],
        options: Any,
        boosts: CompiledBoosts,
        pace: Pace,
        names: Sequence[int] | None = None,
    ) -> list[Any]:
        """Decode whole utterances with the same boosts.

        Args:
            utterances: At most `GROUP`, float32 [T, V] each, C order.
            options: Of the search.
            boosts: Of all of them.
            pace: How much a call of the kernel does.
            names: How errors name them; by default by their place in the group.

        Returns:
            What was found of each utterance.
        """

    def decode(
        self,
        utterances: Sequence[np.ndarray],
        options: Any,
        boosts: Sequence[CompiledBoosts],
        *,
        record: bool = False,
        workers: Workers = ALONE,
        read: Read | None = None,
    ) -> list[Any]:
        """Decode whole utterances, as `Backend.decode`: those of a list in groups."""
        if record or read is not None:
            return super().decode(
                utterances, options, boosts, record=record, workers=workers, read=read
            )
        groups = groups_of(list(map(len, utterances)), boosts, workers.threads, GROUP)

        def decode_some(group: list[int]) -> list[Any]:
            some, of_all = [utterances[i] for i in group], boosts[group[0]]
            return self.decode_group(some, options, of_all, workers.pace, group)

        found: dict[int, Any] = {}
        for group, of_group in zip(
            groups, workers.map(decode_some, groups), strict=True
        ):
            found.update(zip(group, of_group, strict=True))
        return [found[i] for i in range(len(utterances))]


def groups_of(
    lengths: Sequence[int], boosts: Sequence[CompiledBoosts], threads: int, most: int
) -> list[list[int]]:
    """Put utterances of the same boosts together; leave every thread a few groups."""
    enough = sum(lengths) / (4 * threads)
    groups: list[list[int]] = []
    begun: dict[int, tuple[list[int], int]] = {}  # by what boosts are: with its frames
    for i in longest_first(lengths):
        # Equal lists were compiled once, and are one object.
        key = id(boosts[i])
        group, frames = begun.get(key, ([], 0))
        if group and (len(group) == most or frames + lengths[i] > enough):
            group, frames = [], 0
        if not group:
            groups.append(group)
        group.append(i)
        begun[key] = group, frames + lengths[i]
    return groups


def filled_up(utterances: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """Give as many arrays as a kernel is compiled for: those of a group, then empty."""
    assert len(utterances) <= GROUP
    return (*utterances, *[_NOTHING] * (GROUP - len(utterances)))


def stretch(
    given: tuple[np.ndarray, ...], num: int, at: np.ndarray, frames: int
) -> tuple[tuple[np.ndarray, ...], int, int, int]:
    """Part of a kernel's work that one call does, from `at` on.

    Args:
        given: The utterances.
        num: How many they are.
        at: Where it begins: an utterance, and the frame of it.
        frames: So many at most.

    Returns:
        The utterances, how many of them, the frames of the last one if it is cut, and
        how many frames there are in all.
    """
    i, frame = at[:2].tolist()
    left = frame + frames
    while i < num and len(given[i]) <= left:
        left -= len(given[i])
        i += 1
    if i == num or not left:
        return given, i, 0, frames - left
    return (*given[:i], given[i][:left], *given[i + 1 :]), i + 1, left, frames
