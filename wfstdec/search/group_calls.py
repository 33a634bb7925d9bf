"""Groups of utterances that a kernel searches in one call, for every search on a CPU.

    found = decode_in_groups(decode_group, utterances, boosts, workers)

    given = filled_up(utterances)                 # in `decode_group`
    now, behind, cut, frames = stretch(given, len(utterances), at, pace.frames)
    kernel(now, at, ...)                          # as much as one call should do

What Python takes to call a kernel is taken once for a group: it has many arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.search.scheduling import Workers, longest_first

_Item = TypeVar("_Item")
GROUP = 16
"""Whole utterances of one call, at most: kernels are compiled for so many."""
_NOTHING = np.zeros((0, 0), np.float32)
"""Fills what is given up to `GROUP`: a kernel is compiled for one length."""


def decode_in_groups(
    decode: Callable[[list[Any], CompiledBoosts, list[int]], list[_Item]],
    utterances: Sequence[Any],
    boosts: Sequence[CompiledBoosts],
    workers: Workers,
) -> list[_Item]:
    """Decode utterances of the same boosts a few at a time.

    Args:
        decode: Decodes a group; called with its utterances, at most `GROUP`, their
            boosts, and their positions, by which it names them in errors.
        utterances: Of any length.
        boosts: Of each.
        workers: Threads, each of which gets a few groups.

    Returns:
        What was found of each utterance.
    """
    groups = groups_of(list(map(len, utterances)), boosts, workers.threads, GROUP)

    def decode_some(group: list[int]) -> list[_Item]:
        return decode([utterances[i] for i in group], boosts[group[0]], group)

    found: dict[int, _Item] = {}
    for group, some in zip(groups, workers.map(decode_some, groups), strict=True):
        found.update(zip(group, some, strict=True))
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
