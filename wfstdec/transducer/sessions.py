"""Utterances that come in chunks, a search each, side by side; paths of what is found.

search = TransducerSearch(searcher)
advance_together([(search, chunk, name), ...], batch_size=32)
search.look(), search.finish()
paths_of(beam, fusion, options, lengths)           # of utterances that have ended
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from wfstdec.errors import LogprobError, ShapeError, naming
from wfstdec.search.paths.so_far import PathSoFar
from wfstdec.search.paths.token_path import (
    NO_PRON,
    TokenPath,
    TokenRows,
    tokens_so_far,
)
from wfstdec.transducer.beam import Beam, Source, side_by_side, taken_apart
from wfstdec.transducer.fusion import Fusion
from wfstdec.transducer.options import TransducerOptions
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

    Attributes:
        searcher: That of all the company.
        beam: Of the session.
    """

    def __init__(self, searcher: Searcher) -> None:
        self.searcher = searcher
        self.beam = searcher.start(1)
        self._rest: Coming | None = None
        self._settled: list[np.ndarray] = []

    @property
    def company(self) -> object:
        """Searches of the same company can be advanced side by side."""
        models = tuple(id(term.model) for term in self.searcher.fusion.terms)
        return models, self.searcher.options

    def advance(self, chunk: Tensor) -> None:
        """Pass the search through a chunk, [T, D]."""
        advance_together([(self, chunk, 0)], 1)

    def coming(self, chunk: Tensor) -> Coming:
        """Join a chunk to the frames at hand.

        Raises:
            ShapeError: D is another.
        """
        if self._rest is None:
            return Coming(chunk, 0, len(chunk))
        frames, first, come = self._rest
        if chunk.shape[1] != frames.shape[1]:
            raise ShapeError(
                f"frames have D={chunk.shape[1]}, expected D={frames.shape[1]} as of "
                "the first chunk"
            )
        return Coming(torch.cat([frames, chunk]), first, come + len(chunk))

    def move(self, coming: Coming, beam: Beam) -> None:
        """Stand where a search through these frames came to."""
        frames, first, come = coming
        live = torch.where(beam.live, beam.frame, come)
        gone = min(int(live.min()), come) - first
        self._rest = Coming(frames[gone:], first + gone, come)
        count = _common(beam) if beam.rows.shape[1] >= _SETTLE_FROM else 0
        # Tokens that all hypotheses have at the same frames leave the beam.
        if count:
            self._settled.append(rows_of(beam, 0, 0)[:count])
            beam = beam._replace(
                length=(beam.length - count).clamp(min=0),
                shared=(beam.shared - count).clamp(min=0),
                rows=beam.rows[:, count:],
                before=beam.before + count,
            )
        self.beam = beam

    def finish(self) -> list[TokenPath]:
        """End the utterance."""
        beam, searcher = self.beam, self.searcher
        come = 0
        if self._rest is not None:
            source, come = source_of([self._rest], searcher.device), self._rest.come
            beam = searcher.run(beam, source.ended())
            check_numbers(searcher, [None])
        (paths,) = paths_of(beam, searcher.fusion, searcher.options, [come])
        return [
            path._replace(rows=np.concatenate([*self._settled, path.rows]))
            for path in paths
        ]

    def look(self) -> PathSoFar[TokenRows]:
        """How far the search has come."""
        beam, best = self.beam, int(self.beam.score[0].argmax())
        rows = np.concatenate([*self._settled, rows_of(beam, 0, best)])
        ends = self.searcher.fusion.final(beam.fusion, beam.score.shape[1])
        return tokens_so_far(
            rows,
            sum(map(len, self._settled)) + _common(beam),
            num_frames=0 if self._rest is None else self._rest.come,
            final_cost=-float(ends[best]) + 0.0,
        )


@torch.no_grad()
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
            searches, comings, names = zip(
                *members[first : first + batch_size], strict=True
            )
            searcher = searches[0].searcher
            beam = side_by_side([search.beam for search in searches])
            after = searcher.run(beam, source_of(comings, searcher.device))
            check_numbers(searcher, names)
            moves += zip(searches, comings, taken_apart(after), strict=True)
    # Only now: no member of any company can fail any more.
    for search, coming, beam in moves:
        search.move(coming, beam)


def source_of(comings: Sequence[Coming], device: torch.device) -> Source:
    """Frames of several utterances side by side, what is behind them being zeros."""
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


def rows_of(beam: Beam, utterance: int, hypothesis: int) -> np.ndarray:
    """The tokens of a hypothesis as `TokenPath` has them, int32 [N, 4]."""
    count = int(beam.length[utterance, hypothesis])
    row = utterance * beam.score.shape[1] + hypothesis
    rows = np.full((count, 4), NO_PRON, np.int32)
    rows[:, :3] = beam.rows[row, :count].cpu().numpy()
    return rows


def paths_of(
    beam: Beam, fusion: Fusion, options: TransducerOptions, lengths: Sequence[int]
) -> list[list[TokenPath]]:
    """The paths of each utterance, best first, with their ends.

    Args:
        beam: Behind the last frame.
        fusion: Of the batch.
        options: How hypotheses are ranked.
        lengths: Frames of each utterance.
    """
    ends = fusion.final(beam.fusion, beam.score.numel()).view(beam.score.shape)
    with_end = beam.score + ends
    may_end = with_end > -float("inf")
    # Where none may end, all count without it.
    total = torch.where(may_end.any(1, keepdim=True), with_end, beam.score)
    length = beam.before + beam.length + 1
    rank = total / length if options.length_norm else total
    order = torch.sort(rank, dim=1, descending=True, stable=True)[1]
    totals, ended = total.tolist(), may_end.tolist()
    found, unknown = [], float("nan")
    for i, num_frames in enumerate(lengths):
        paths = [
            TokenPath(
                *(rows_of(beam, i, k), NO_PRON, unknown, -totals[i][k] + 0.0),
                *(ended[i][k], num_frames, -1),
            )
            for k in order[i].tolist()
            if totals[i][k] > -float("inf")
        ]
        # No hypothesis survived: nothing was said.
        if not paths:
            rows, died_at = np.zeros((0, 4), np.int32), int(beam.frame[i].max())
            lost = (float("inf"), False, num_frames, died_at)
            paths = [TokenPath(rows, NO_PRON, unknown, *lost)]
        found.append(paths)
    return found
