"""Readings of paths in plain Python: the specification of `traceback.py`.

The words used there:

    said     a token begins on every emitting arc whose label is neither the blank nor
             a repeat; a word is found on every arc that carries one
    settled  the longest common beginning of what the paths of all entries have:
             tokens with their first frames, words with the frames of their labels;
             where all have the same, and none is still on its last token, that
             token's end is settled too, if it is the same
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from wfstdec.graph.arcs import LABEL_MASK, REPEAT
from wfstdec.graph.packed import PackedGraph
from wfstdec.search.paths.tokens import PathTokens
from wfstdec.text.tokens import EPSILON, ilabel_of, token_of


class Said(NamedTuple):
    """Label of an arc of a path: a token that begins, a word's label, or both.

    `frame`: frames passed with this arc; `end`: one behind the token before.
    """

    ilabel: int
    olabel: int
    frame: int
    end: int


@dataclass
class Path:
    said: list[Said] = field(default_factory=list)
    tokens: int = 0
    label: int = 0
    frame: int = 0
    end: int = 0
    graph_cost: float = 0.0
    acoustic_cost: float = 0.0


def read_path(
    graph: PackedGraph, arcs: Sequence[int], acoustic: Sequence[np.float32]
) -> Path:
    """Read the arcs of a path and their unscaled acoustic costs."""
    blank = ilabel_of(graph.tokens.blank)
    path = Path(label=blank)
    for a, cost in zip(arcs, acoustic, strict=True):
        arc, begins = graph.arcs[a], EPSILON
        end = path.end
        path.graph_cost += float(arc["cost"])
        path.acoustic_cost += float(cost)
        label = int(arc["ilabel"]) & LABEL_MASK
        if label != EPSILON:
            path.frame += 1
            # Without marks the same token in the next frame is taken for a repeat.
            repeats = label == path.label
            if graph.info.marks_repeats:
                repeats = bool(int(arc["ilabel"]) & REPEAT)
            if label != blank and not repeats:
                begins, path.tokens = label, path.tokens + 1
            goes_on = label == path.label != blank and path.tokens > 0
            if begins != EPSILON or goes_on:
                path.end = path.frame
            path.label = label
        if begins != EPSILON or arc["olabel"] != EPSILON:
            path.said.append(Said(begins, int(arc["olabel"]), path.frame, end))
    return path


def tokens_of(path: Path, tokens: int = 0, words: int = 0) -> PathTokens:
    """A path as arrays, without the first tokens and words."""
    begun = [said for said in path.said if said.ilabel]
    ends = [*(said.end for said in begun[1:]), path.end][: len(begun)]
    labelled = [
        (said.olabel, sum(bool(s.ilabel) for s in path.said[: i + 1]), said.frame)
        for i, said in enumerate(path.said)
        if said.olabel
    ]
    columns = (
        [token_of(said.ilabel) for said in begun[tokens:]],
        [said.frame - 1 for said in begun[tokens:]],
        ends[tokens:],
        [word for word, _, _ in labelled[words:]],
        [count - tokens for _, count, _ in labelled[words:]],
        [frame for _, _, frame in labelled[words:]],
    )
    return PathTokens(*(np.array(column, np.int32) for column in columns))


class CommonBeginning:
    """Common beginning of some paths; see `traceback.History`."""

    def __init__(self, paths: Sequence[Path]) -> None:
        first, count = paths[0], 0
        while all(p.said[: count + 1] == first.said[: count + 1] for p in paths):
            if count == len(first.said):
                break
            count += 1
        ended = all(len(p.said) == count and p.frame > p.end for p in paths)
        ended = ended and len({p.end for p in paths}) == 1
        num_tokens = sum(bool(said.ilabel) for said in first.said[:count])
        self.num_whole = num_tokens if ended else max(0, num_tokens - 1)
        self.num_words = sum(bool(said.olabel) for said in first.said[:count])
