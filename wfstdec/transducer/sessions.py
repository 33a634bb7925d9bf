"""Utterances that come in chunks: a search each, advanced side by side.

search = TransducerSearch(searcher)
advance_together([(search, chunk, name), ...], batch_size=32)
search.look(), search.finish()
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from wfstdec.errors import LogprobError, ShapeError, naming
from wfstdec.search.paths.so_far import PathSoFar
from wfstdec.search.paths.token_path import TokenRows, tokens_so_far
from wfstdec.transducer.beam import Beam, side_by_side, taken_apart
from wfstdec.transducer.hypotheses import (
    TransducerResult,
    dead_path,
    finals,
    path_of,
    rows_of,
)
from wfstdec.transducer.source import Source
from wfstdec.transducer.steps import Searcher

_SETTLE_FROM = 64
"""Tokens that are the same in all hypotheses leave the beam when there are so many."""
Given = tuple["TransducerSearch", Tensor, int | str]
"""A search, its chunk [T, D], and what errors call it."""


class Coming(NamedTuple):
    """Frames for a search: those that it still needs, and new ones.

    Attributes:
        frames: [T, D].
        first: The number of the first of them.
        come: How many there are of the utterance by now.
    """

    frames: Tensor
    first: int
    come: int


class TransducerSearch:
    """Search of an utterance under way, frame by frame as they come.

    Args:
        searcher: Of this utterance alone.
    """

    def __init__(self, searcher: Searcher) -> None:
        self._searcher = searcher
        self._beam = searcher.start(1)
        self._frames: Tensor | None = None
        self._first = self._come = 0
        self._settled: list[np.ndarray] = []
        self._num_settled = 0

    @property
    def company(self) -> object:
        """Searches of the same company can be advanced side by side."""
        searcher = self._searcher
        models = tuple(id(term.model) for term in searcher.fusion.terms)
        return models, searcher.options

    @property
    def searcher(self) -> Searcher:
        """Searcher of all the company."""
        return self._searcher

    @property
    def beam(self) -> Beam:
        """Beam of the session."""
        return self._beam

    def advance(self, chunk: Tensor) -> None:
        """Pass the search through a chunk, [T, D]."""
        advance_together([(self, chunk, 0)], 1)

    def coming(self, chunk: Tensor) -> Coming:
        """Join a chunk to the frames at hand.

        Raises:
            ShapeError: D is another.
        """
        frames = chunk
        if self._frames is not None:
            if chunk.shape[1] != self._frames.shape[1]:
                raise ShapeError(
                    f"frames have D={chunk.shape[1]}, expected "
                    f"D={self._frames.shape[1]} as of the first chunk"
                )
            frames = torch.cat([self._frames, chunk])
        return Coming(frames, self._first, self._come + len(chunk))

    def move(self, coming: Coming, beam: Beam) -> None:
        """Stand where a search through these frames came to."""
        self._come = coming.come
        live = torch.where(beam.live, beam.frame, self._come)
        gone = min(int(live.min()), self._come) - self._first
        self._frames, self._first = coming.frames[gone:], self._first + gone
        self._beam = self._settle(beam)

    def _settle(self, beam: Beam) -> Beam:
        """Take tokens that all hypotheses have at the same frames out of the beam."""
        if beam.rows.shape[1] < _SETTLE_FROM:
            return beam
        count = _common(beam)
        rows = rows_of(beam, 0, 0)[:count]
        if not count:
            return beam
        self._settled.append(rows)
        self._num_settled += count
        return beam._replace(
            length=(beam.length - count).clamp(min=0),
            shared=(beam.shared - count).clamp(min=0),
            rows=beam.rows[:, count:],
            before=beam.before + count,
        )

    def finish(self) -> TransducerResult:
        """End the utterance."""
        beam = self._beam
        if self._frames is not None:
            rest = Coming(self._frames, self._first, self._come)
            source = _source([rest], self._searcher.device).ended()
            beam = self._searcher.run(beam, source)
            check_numbers(self._searcher, [None])
        (result,) = results_of(self._searcher, beam, [self._come])
        settled = self._settled
        return TransducerResult(
            tuple(
                path._replace(rows=np.concatenate([*settled, path.rows]))
                for path in result.paths
            )
        )

    def look(self) -> PathSoFar[TokenRows]:
        """How far the search has come."""
        beam, best = self._beam, int(self._beam.score[0].argmax())
        rows = np.concatenate([*self._settled, rows_of(beam, 0, best)])
        fusion = self._searcher.fusion
        ends = fusion.final(beam.fusion, beam.score.shape[1])
        return tokens_so_far(
            rows,
            self._num_settled + _common(beam),
            num_frames=self._come,
            final_cost=-float(ends[best]) + 0.0,
        )


def advance_together(given: Sequence[Given], batch_size: int) -> None:
    """Pass searches through a chunk each, so many side by side.

    Raises:
        ShapeError: D is another; names the search.
        LogprobError: As of `check_numbers`; names the search. None has moved.
    """
    companies: dict[object, list[tuple[TransducerSearch, Coming, int | str]]] = {}
    for search, chunk, name in given:
        if len(chunk):
            # Everything is checked first: an error must leave all searches as they
            # were.
            with naming(name):
                one = search, search.coming(chunk), name
            companies.setdefault(search.company, []).append(one)
    moves: list[tuple[TransducerSearch, Coming, Beam]] = []
    for members in companies.values():
        for first in range(0, len(members), batch_size):
            group = members[first : first + batch_size]
            beams = _advanced(group)
            moves += [
                (search, coming, beam)
                for (search, coming, _), beam in zip(group, beams, strict=True)
            ]
    # Only now: no member of any company can fail any more.
    for search, coming, beam in moves:
        search.move(coming, beam)


@torch.no_grad()
def _advanced(
    group: Sequence[tuple[TransducerSearch, Coming, int | str]],
) -> list[Beam]:
    """Where some searches of a company stand after their chunks."""
    searcher = group[0][0].searcher
    source = _source([coming for _, coming, _ in group], searcher.device)
    beam = side_by_side([search.beam for search, _, _ in group])
    after = searcher.run(beam, source)
    check_numbers(searcher, [name for _, _, name in group])
    return taken_apart(after)


def _source(comings: Sequence[Coming], device: torch.device) -> Source:
    frames = torch.nn.utils.rnn.pad_sequence(
        [coming.frames for coming in comings], batch_first=True
    )
    first, come = torch.tensor([[c.first, c.come] for c in comings]).unbind(1)
    none = torch.zeros(len(comings), dtype=torch.bool)
    return Source(*(part.to(device) for part in (frames, first, come, none)))


def _common(beam: Beam) -> int:
    """How many first tokens all live hypotheses of the first utterance share."""
    live = beam.live[0].nonzero()[:, 0]
    if not len(live):
        return 0
    count = int(beam.length[0, live].min())
    rows = beam.rows[live][:, :count]
    same = (rows == rows[:1]).all(2).all(0)
    return int(same.long().cumprod(0).sum())


def check_numbers(searcher: Searcher, names: Sequence[int | str | None]) -> None:
    """Look at what the joiner gave to a batch.

    Raises:
        LogprobError: NaN or +inf; names the first utterance.
    """
    assert searcher.bad is not None
    if bool(searcher.bad.any()):
        at = int(searcher.bad.int().argmax())
        searcher.bad = torch.zeros_like(searcher.bad)
        raise LogprobError(
            "the joiner gives NaN or +inf, expected natural logs of probabilities",
            names[at],
        )


def results_of(
    searcher: Searcher, beam: Beam, lengths: Sequence[int]
) -> list[TransducerResult]:
    """The paths of each utterance, best first."""
    totals, order, may_end = finals(beam, searcher.fusion, searcher.options)
    found = []
    for i, num_frames in enumerate(lengths):
        paths = [
            path_of(rows_of(beam, i, hypothesis), total, complete, num_frames)
            for hypothesis, total, complete in zip(
                *(order[i].tolist(), totals[i].tolist(), may_end[i].tolist()),
                strict=True,
            )
            if total > -float("inf")
        ]
        if not paths:
            paths = [dead_path(num_frames, int(beam.frame[i].max()))]
        found.append(TransducerResult(tuple(paths)))
    return found
