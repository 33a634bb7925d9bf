"""The searches behind the contract of all decoders: batches, and sessions.

backend = TransducerBackend(model, lms, device="cpu", batch_size=32)
results = backend.decode_batch(utterances, options, boosts)
search = backend.start(options, boosts)           # one utterance, in chunks
backend.advance([search], [frames])
search.finish()
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from wfstdec.boost.compile import CompiledBoosts
from wfstdec.errors import LogprobError, ShapeError
from wfstdec.search.logprobs import check_lengths, split_batch
from wfstdec.search.paths.so_far import PathSoFar
from wfstdec.search.paths.token_path import TokenRows, tokens_so_far
from wfstdec.transducer.automata import TorchNgramLM
from wfstdec.transducer.beam import Beam
from wfstdec.transducer.fusion import Fusion, Term
from wfstdec.transducer.hypotheses import (
    TransducerResult,
    dead_path,
    finals,
    path_of,
    rows_of,
)
from wfstdec.transducer.model import TransducerModel
from wfstdec.transducer.options import TransducerOptions
from wfstdec.transducer.phrases import TorchPhrases, phrases_of
from wfstdec.transducer.steps import Searcher, Source

_SETTLE_FROM = 64
"""Tokens that are the same in all hypotheses leave the beam when there are so many."""


class TransducerBackend:
    """A model with its language models, on one device.

    Args:
        model: The predictor and joiner.
        lms: Language models over its tokens, and their weights.
        device: Where the model is.
        batch_size: Utterances decoded side by side.
        dense: As of `Searcher`.
    """

    def __init__(
        self,
        model: TransducerModel,
        lms: Sequence[tuple[TorchNgramLM, float]],
        *,
        device: torch.device | str = "cpu",
        batch_size: int = 32,
        dense: bool | None = None,
    ) -> None:
        self.model, self.device = model, torch.device(device)
        self.batch_size, self.dense = batch_size, dense
        self._lms = [(lm.to(self.device), weight) for lm, weight in lms]

    def searcher(
        self, options: TransducerOptions, boosts: Sequence[CompiledBoosts]
    ) -> Searcher:
        """A search of some utterances, with their boosts."""
        terms, num = [], len(boosts)
        for lm, weight in self._lms:
            if weight * options.lm_scale:
                start = lm.start[:1].expand(num)
                terms.append(Term(lm, weight * options.lm_scale, start, True))
        lists = phrases_of(boosts)
        if any(one is not None for one in lists):
            flat = self.device.type != "cpu"
            phrases = TorchPhrases(lists, flat).to(self.device)
            start = phrases.start[phrases.model_of_list]
            terms.append(Term(phrases, 1.0, start, False))
        fusion = Fusion(terms)
        return Searcher(self.model, options, fusion, self.device, self.dense)

    def start(
        self, options: TransducerOptions, boosts: CompiledBoosts
    ) -> TransducerSearch:
        """Begin an utterance."""
        return TransducerSearch(self.searcher(options, [boosts]))

    def advance(
        self, searches: Sequence[TransducerSearch], chunks: Sequence[Tensor]
    ) -> None:
        """Pass searches through a chunk each."""
        for search, chunk in zip(searches, chunks, strict=True):
            search.advance(chunk)

    def as_utterances(self, frames: Any, lengths: Any, num_tokens: int) -> list[Tensor]:
        """One tensor [T, D] of frames for each utterance, on the device.

        Args:
            frames: [B, T, D] or a sequence of [T, D], torch or NumPy.
            lengths: [B] frames of each; None for all.
            num_tokens: Not asked for.

        Raises:
            ShapeError: Axes, D or lengths are wrong.
        """
        arrays = split_batch(frames, self._as_tensor)
        counts = check_lengths(lengths, len(arrays))
        found = []
        for i, (array, count) in enumerate(zip(arrays, counts, strict=True)):
            if array.ndim != 2 or not array.is_floating_point():
                raise ShapeError(
                    f"frames are {array.dtype} {tuple(array.shape)}, expected "
                    "floating-point [T, D] of the encoder",
                    i,
                )
            if count is not None and not 0 <= count <= len(array):
                raise ShapeError(f"length {count}, expected 0 to {len(array)}", i)
            if array.shape[1] != arrays[0].shape[1]:
                expected = arrays[0].shape[1]
                raise ShapeError(
                    f"frames have D={array.shape[1]}, expected D={expected} as of "
                    "the first utterance",
                    i,
                )
            found.append(array[:count])
        return found

    def _as_tensor(self, array: Any) -> Tensor:
        if isinstance(array, Tensor):
            return array.detach().to(self.device)
        return torch.from_numpy(np.array(array)).to(self.device)

    def decode_batch(
        self,
        utterances: Sequence[Tensor],
        options: TransducerOptions,
        boosts: Sequence[CompiledBoosts],
    ) -> list[TransducerResult]:
        """Decode whole utterances, those of like length together."""
        order = sorted(range(len(utterances)), key=lambda i: len(utterances[i]))
        found: dict[int, TransducerResult] = {}
        for first in range(0, len(order), self.batch_size):
            group = order[first : first + self.batch_size]
            searcher = self.searcher(options, [boosts[i] for i in group])
            source = _padded([utterances[i] for i in group], self.device)
            beam = searcher.run(searcher.start(len(group)), source)
            _check_numbers(searcher, group)
            lengths = [len(utterances[i]) for i in group]
            results = _results(searcher, beam, lengths)
            found.update(zip(group, results, strict=True))
        return [found[i] for i in range(len(utterances))]

    def memory_plan(
        self, num_utterances: int, num_frames: int | None = None
    ) -> dict[str, int]:
        """What the candidates of a step take at most, in bytes, of beams of 10."""
        num = min(num_utterances, self.batch_size) * 10
        labels = len(self.model.tokens) + 1
        return {"candidates": num * labels * 32, "tokens": num * 12 * (num_frames or 0)}


class TransducerSearch:
    """One utterance under way, frame by frame as they come.

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

    def advance(self, chunk: Tensor) -> None:
        """Pass the search through a chunk, [T, D]."""
        if not len(chunk):
            return
        if self._frames is not None and chunk.shape[1] != self._frames.shape[1]:
            raise ShapeError(
                f"frames have D={chunk.shape[1]}, expected D={self._frames.shape[1]} "
                "as of the first chunk"
            )
        frames = chunk if self._frames is None else torch.cat([self._frames, chunk])
        beam = self._searcher.run(self._beam, self._source(frames, len(chunk)))
        _check_numbers(self._searcher, None)
        self._come += len(chunk)
        live = torch.where(beam.live, beam.frame, self._come)
        gone = min(int(live.min()), self._come) - self._first
        self._frames, self._first = frames[gone:], self._first + gone
        self._beam = self._settle(beam)

    def _source(self, frames: Tensor, new: int = 0) -> Source:
        first, come = torch.tensor([[self._first], [self._come + new]])
        none = torch.zeros(1, dtype=torch.bool)
        source = Source(frames[None], first, come, none)
        return Source(*(part.to(self._searcher.device) for part in source))

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
            beam = self._searcher.run(beam, self._source(self._frames).ended())
            _check_numbers(self._searcher, None)
        (result,) = _results(self._searcher, beam, [self._come])
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


def _common(beam: Beam) -> int:
    """How many first tokens all live hypotheses of the first utterance share."""
    live = beam.live[0].nonzero()[:, 0]
    if not len(live):
        return 0
    count = int(beam.length[0, live].min())
    rows = beam.rows[live][:, :count]
    same = (rows == rows[:1]).all(2).all(0)
    return int(same.long().cumprod(0).sum())


def _padded(utterances: Sequence[Tensor], device: torch.device) -> Source:
    """Frames of whole utterances side by side, what is behind them being zeros."""
    lengths = torch.tensor([len(one) for one in utterances], device=device)
    frames = torch.nn.utils.rnn.pad_sequence(list(utterances), batch_first=True)
    ended = torch.ones_like(lengths, dtype=torch.bool)
    return Source(frames, torch.zeros_like(lengths), lengths, ended)


def _check_numbers(searcher: Searcher, group: Sequence[int] | None) -> None:
    """Raise for the first utterance whose joiner gave no numbers."""
    assert searcher.bad is not None
    if bool(searcher.bad.any()):
        at = int(searcher.bad.int().argmax())
        searcher.bad = torch.zeros_like(searcher.bad)
        raise LogprobError(
            "the joiner gives NaN or +inf, expected natural logs of probabilities",
            None if group is None else group[at],
        )


def _results(
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
