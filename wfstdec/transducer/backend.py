"""The searches behind the contract of all decoders: batches, and sessions.

backend = TransducerBackend(model, lms, device="cpu", batch_size=32)
results = backend.decode(utterances, options, boosts)
search = backend.start(options, boosts[0])        # one utterance, in chunks
backend.advance([search], [frames])
search.finish()
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.boost.phrases import PhraseBoosts
from wfstdec.errors import LogprobError, OptionError, ShapeError, naming
from wfstdec.jit.pool import Once
from wfstdec.search.contract import Read
from wfstdec.search.logprobs import check_lengths, split_batch
from wfstdec.search.paths.so_far import PathSoFar
from wfstdec.search.paths.token_path import TokenRows, tokens_so_far
from wfstdec.search.scheduling import ALONE, Workers
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
from wfstdec.transducer.model_checks import CheckedModel
from wfstdec.transducer.options import TransducerOptions
from wfstdec.transducer.phrases import TorchPhrases, phrases_of
from wfstdec.transducer.source import Source
from wfstdec.transducer.steps import Searcher

_SETTLE_FROM = 64
"""Tokens that are the same in all hypotheses leave the beam when there are so many."""


class TransducerBackend:
    """A model with its language models, on one device.

    Args:
        model: The predictor and joiner.
        lms: Language models over its tokens, and their weights.
        device: Where the model is.
        batch_size: Utterances decoded side by side.
        encodes: Whether features come, and the model's encoder goes first.
        dense: As of `Searcher`.
    """

    can: frozenset[str] = frozenset()

    def __init__(
        self,
        model: TransducerModel,
        lms: Sequence[tuple[TorchNgramLM, float]],
        *,
        device: torch.device | str = "cpu",
        batch_size: int = 32,
        encodes: bool = False,
        dense: bool | None = None,
    ) -> None:
        self.model, self.device = model, torch.device(device)
        self._checked = CheckedModel(model)
        self.batch_size, self.encodes, self.dense = batch_size, encodes, dense
        self._lms = [(lm.to(self.device), weight) for lm, weight in lms]
        self._made_of = model, lms
        self._alone: Once[PhraseBoosts, TorchPhrases] = Once(
            lambda one: self._laid_out([one])
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what it is made of; boosts that were laid out stay behind."""
        more: dict[str, Any] = {
            "device": self.device,
            "batch_size": self.batch_size,
            "encodes": self.encodes,
            "dense": self.dense,
        }
        return partial(type(self), *self._made_of, **more), ()

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
            phrases, which = self._phrases(lists)
            start = phrases.start[which]
            terms.append(Term(phrases, 1.0, start, False))
        fusion = Fusion(terms)
        return Searcher(self._checked, options, fusion, self.device, self.dense)

    def prepare(self, options: TransducerOptions, boosts: CompiledBoosts) -> None:
        """Lay out boosts; they are kept while they live."""
        [phrases] = phrases_of([boosts])
        if phrases is not None:
            self._alone.of(phrases)

    def inputs(self, frames: Any, lengths: Any) -> list[Tensor]:
        """One tensor [T, D] of frames of the encoder for each utterance, on the device.

        Args:
            frames: [B, T, D] or a sequence of [T, D], torch or NumPy; of features,
                which are encoded, where that is what is decoded.
            lengths: [B] frames of each; None for all.

        Raises:
            ShapeError: Axes, D or lengths are wrong.
        """
        if self.encodes:
            return self.encode(frames, lengths)
        given = self._tensors(frames, lengths)
        size = getattr(self.model, "frame_dim", None)
        for i, one in enumerate(given):
            if size is not None and one.shape[1] != size:
                raise ShapeError(
                    f"frames have D={one.shape[1]}, expected D={size} as the model's "
                    "encoder gives them",
                    i,
                )
        return given

    @torch.no_grad()
    def encode(self, features: Any, lengths: Any) -> list[Tensor]:
        """Frames of the model's encoder; see `TransducerDecoder.encode`."""
        given = self._tensors(features, lengths)
        model: Any = self.model
        for i, one in enumerate(given):
            if one.shape[1] != model.input_dim:
                raise ShapeError(
                    f"features have F={one.shape[1]} numbers a frame, the model "
                    f"expects F={model.input_dim}",
                    i,
                )
        order = sorted(range(len(given)), key=lambda i: len(given[i]))
        found: list[Tensor] = [torch.empty(0)] * len(given)
        for first in range(0, len(order), self.batch_size):
            group = order[first : first + self.batch_size]
            sizes = torch.tensor([len(given[i]) for i in group])
            batch = torch.nn.utils.rnn.pad_sequence(
                [given[i].float() for i in group], batch_first=True
            )
            frames, counts = model.encode(batch, sizes.to(batch.device))
            for i, row, count in zip(group, frames, counts.tolist(), strict=True):
                found[i] = row[:count]
        return found

    @torch.no_grad()
    def decode(
        self,
        utterances: Sequence[Tensor],
        options: TransducerOptions,
        boosts: Sequence[CompiledBoosts],
        *,
        record: bool = False,
        workers: Workers = ALONE,
        read: Read | None = None,
    ) -> list[Any]:
        """Decode whole utterances, those of like length together."""
        assert not record
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
        return [
            found[i] if read is None else read(i, found[i])
            for i in range(len(utterances))
        ]

    def start(
        self,
        options: TransducerOptions,
        boosts: CompiledBoosts,
        *,
        record: bool = False,
    ) -> TransducerSearch:
        """Begin an utterance.

        Raises:
            OptionError: It is one of features.
        """
        assert not record
        if self.encodes:
            raise OptionError(
                "sessions of features, expected input='frames': an encoder may need "
                "whole utterances"
            )
        return TransducerSearch(self.searcher(options, [boosts]))

    def advance(
        self,
        searches: Sequence[TransducerSearch],
        chunks: Sequence[Tensor],
        *,
        names: Sequence[int | str] | None = None,
        workers: Workers = ALONE,
    ) -> None:
        """Pass searches through a chunk each, as `Backend.advance`."""
        called = range(len(chunks)) if names is None else names
        for search, chunk, name in zip(searches, chunks, called, strict=True):
            with naming(name):
                search.advance(chunk)

    def _phrases(
        self, lists: Sequence[PhraseBoosts | None]
    ) -> tuple[TorchPhrases, Tensor]:
        """Phrases where the model is, and which of their starts is an utterance's.

        A list that all have is laid out once.
        """
        different = {id(one): one for one in lists if one is not None}
        if len(different) > 1:
            phrases = self._laid_out(lists)
            return phrases, phrases.model_of_list
        [only] = different.values()
        which = [0 if one is only else 1 for one in lists]
        return self._alone.of(only), torch.tensor(which, device=self.device)

    def _laid_out(self, lists: Sequence[PhraseBoosts | None]) -> TorchPhrases:
        return TorchPhrases(lists, self.device.type != "cpu").to(self.device)

    def _tensors(self, frames: Any, lengths: Any) -> list[Tensor]:
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
