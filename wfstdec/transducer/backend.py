"""Backend of the transducer decoder: batches, and sessions."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from wfstdec.attention.model_decoder import ModelBackend, phrases_of
from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.boost.phrases import PhraseBoosts
from wfstdec.errors import OptionError, ShapeError, naming
from wfstdec.jit.records import WeakCache
from wfstdec.search.paths.tokens import PartialPath, Path, PathTokens, without_labels
from wfstdec.transducer.automata import TorchNgramLM, TorchPhrases
from wfstdec.transducer.beam import Beam, Source, side_by_side, taken_apart
from wfstdec.transducer.model import CheckedModel, TransducerModel
from wfstdec.transducer.options import TransducerOptions
from wfstdec.transducer.pricing import Fusion, Term
from wfstdec.transducer.steps import Searcher

_SETTLE_FROM = 64
"""Tokens common to all hypotheses leave the beam from this number on."""


class FrameBuffer(NamedTuple):
    """Frames for a search: kept ones and new ones."""

    frames: Tensor  # [T, D]
    first: int  # index of the first frame
    come: int  # number of frames of the utterance so far


class TransducerSearch:
    """Frame-by-frame search of one utterance that arrives in chunks."""

    def __init__(self, searcher: Searcher) -> None:
        self.searcher = searcher
        self.beam = searcher.start(1)
        self._rest: FrameBuffer | None = None
        self._settled: list[np.ndarray] = []

    @property
    def company(self) -> object:
        """Key of searches that can be advanced in one batch."""
        models = tuple(id(term.model) for term in self.searcher.fusion.terms)
        return models, self.searcher.options

    def coming(self, chunk: Tensor) -> FrameBuffer:
        """Append a chunk to the kept frames."""
        if self._rest is None:
            return FrameBuffer(chunk, 0, len(chunk))
        frames, first, come = self._rest
        if chunk.shape[1] != frames.shape[1]:
            raise ShapeError(
                f"D={chunk.shape[1]}, expected D={frames.shape[1]} as before"
            )
        return FrameBuffer(torch.cat([frames, chunk]), first, come + len(chunk))

    def move(self, coming: FrameBuffer, beam: Beam) -> None:
        """Set the state to that after these frames."""
        frames, first, come = coming
        live = torch.where(beam.live, beam.frame, come)
        gone = min(int(live.min()), come) - first
        self._rest = FrameBuffer(frames[gone:], first + gone, come)
        count = _common(beam) if beam.rows.shape[1] >= _SETTLE_FROM else 0
        # Tokens that all hypotheses share, at the same frames, leave the beam.
        if count:
            self._settled.append(rows_of(beam, 0, 0)[:count])
            beam = beam._replace(
                length=(beam.length - count).clamp(min=0),
                shared=(beam.shared - count).clamp(min=0),
                rows=beam.rows[:, count:],
                before=beam.before + count,
            )
        self.beam = beam

    def finish(self) -> list[Path]:
        """End the utterance."""
        beam, searcher, come = self.beam, self.searcher, 0
        if self._rest is not None:
            source, come = source_of([self._rest], searcher.device), self._rest.come
            beam = searcher.run(beam, source.ended(), [None])
        settled = self._settled
        (paths,) = paths_of(beam, searcher.fusion, searcher.options, [come], settled)
        return paths

    def look(self, since: tuple[int, int] = (0, 0)) -> PartialPath:
        """Return the partial result; `since`: settled tokens to skip."""
        beam, best = self.beam, int(self.beam.score[0].argmax())
        rows = np.concatenate([*self._settled, rows_of(beam, 0, best)])
        ends = self.searcher.fusion.final(beam.fusion, beam.score.shape[1])
        num_settled = sum(map(len, self._settled)) + _common(beam)
        return PartialPath(
            tokens_of(rows[since[0] :]),
            max(0, num_settled - since[0]),
            num_labels=0,
            num_frames=0 if self._rest is None else self._rest.come,
            final_cost=-float(ends[best]) + 0.0,
        )


def source_of(comings: Sequence[FrameBuffer], device: torch.device) -> Source:
    """Batch the frames of several utterances, padded with zeros."""
    frames = torch.nn.utils.rnn.pad_sequence(
        [coming.frames for coming in comings], batch_first=True
    )
    first, come = torch.tensor([[c.first, c.come] for c in comings]).unbind(1)
    none = torch.zeros(len(comings), dtype=torch.bool)
    return Source(*(part.to(device) for part in (frames, first, come, none)))


def _common(beam: Beam) -> int:
    live = beam.live[0].nonzero()[:, 0]
    if not len(live):
        return 0
    rows = beam.rows[live][:, : int(beam.length[0, live].min())]
    same = (rows == rows[:1]).all(2).all(0)
    return int(same.long().cumprod(0).sum())


def rows_of(beam: Beam, utterance: int, hypothesis: int) -> np.ndarray:
    """Return the tokens of a hypothesis with their frames, int32 [N, 3]."""
    count = int(beam.length[utterance, hypothesis])
    row = utterance * beam.score.shape[1] + hypothesis
    return beam.rows[row, :count].cpu().numpy().astype(np.int32)


def tokens_of(rows: np.ndarray) -> PathTokens:
    """Return the path of rows as in `rows_of`."""
    return without_labels(rows.T.copy())


def paths_of(
    beam: Beam,
    fusion: Fusion,
    options: TransducerOptions,
    lengths: Sequence[int],
    settled: Sequence[np.ndarray] = (),
) -> list[list[Path]]:
    """Return the paths of each utterance, best first, with their ends.

    `settled`: rows before those of the beam.
    """
    ends = fusion.final(beam.fusion, beam.score.numel()).view(beam.score.shape)
    with_end = beam.score + ends
    may_end = with_end > -float("inf")
    # Without a hypothesis that may end, all count without end costs.
    total = torch.where(may_end.any(1, keepdim=True), with_end, beam.score)
    length = beam.before + beam.length + 1
    rank = total / length if options.length_norm == "mean" else total
    order = torch.sort(rank, dim=1, descending=True, stable=True)[1]
    totals, ended = total.tolist(), may_end.tolist()
    found, unknown = [], float("nan")
    for i, num_frames in enumerate(lengths):
        paths = [
            Path(
                tokens_of(np.concatenate([*settled, rows_of(beam, i, k)])),
                *(0.0, unknown, -totals[i][k] + 0.0),
                *(ended[i][k], num_frames, -1),
            )
            for k in order[i].tolist()
            if totals[i][k] > -float("inf")
        ]
        # No hypothesis survived: an empty text.
        if not paths:
            tokens = tokens_of(np.concatenate([*settled, np.zeros((0, 3), np.int32)]))
            lost = float("inf"), False, num_frames, int(beam.frame[i].max())
            paths = [Path(tokens, 0.0, unknown, *lost)]
        found.append(paths)
    return found


class TransducerBackend(ModelBackend):
    """A model with its language models, on one device."""

    def __init__(
        self,
        model: TransducerModel,
        device: torch.device | str,
        batch_size: int,
        encodes: bool,
        lms: Sequence[tuple[TorchNgramLM, float]],
    ) -> None:
        super().__init__(model, device, batch_size, encodes)
        self._checked = CheckedModel(model)
        self.dense: bool | None = None  # of searches; None: by the device
        self._lms = [(lm.to(self.device), weight) for lm, weight in lms]
        self._alone: WeakCache[PhraseBoosts, TorchPhrases] = WeakCache(
            lambda one: self._laid_out([one])
        )

    def __reduce__(self) -> tuple[Any, ...]:
        given = self.model, self.device, self.batch_size, self.encodes
        return type(self), (*given, self._lms)

    def searcher(
        self, options: TransducerOptions, boosts: Sequence[CompiledBoosts]
    ) -> Searcher:
        """Return a search of some utterances, with their boosts."""
        terms, lists = [], phrases_of(boosts)
        for lm, weight in self._lms:
            if scaled := weight * options.lm_scale:
                terms.append(Term(lm, scaled, lm.start[:1].expand(len(lists)), True))
        if any(one is not None for one in lists):
            phrases, which = self._phrases(lists)
            terms.append(Term(phrases, 1.0, phrases.start[which], False))
        fusion = Fusion(terms)
        return Searcher(self._checked, options, fusion, self.device, self.dense)

    def prepare(self, options: TransducerOptions, boosts: CompiledBoosts) -> None:
        """Lay out boosts; the layout lives as long as they do."""
        [phrases] = phrases_of([boosts])
        if phrases is not None:
            self._alone.of(phrases)

    @torch.no_grad()
    def decode(
        self,
        utterances: Sequence[Tensor],
        options: TransducerOptions,
        boosts: Sequence[CompiledBoosts],
        **_: Any,
    ) -> list[list[Path]]:
        """Decode whole utterances, those of like length together."""
        found: dict[int, list[Path]] = {}
        for group in self.groups(range(len(utterances)), utterances):
            searcher = self.searcher(options, [boosts[i] for i in group])
            lengths = [len(utterances[i]) for i in group]
            whole = [FrameBuffer(utterances[i], 0, len(utterances[i])) for i in group]
            source = source_of(whole, self.device).ended()
            beam = searcher.run(searcher.start(len(group)), source, group)
            paths = paths_of(beam, searcher.fusion, options, lengths)
            found.update(zip(group, paths, strict=True))
        return [found[i] for i in range(len(utterances))]

    def start(
        self, options: TransducerOptions, boosts: CompiledBoosts, **_: Any
    ) -> TransducerSearch:
        """Begin an utterance."""
        if self.encodes:
            raise OptionError("sessions of features, expected input='frames'")
        return TransducerSearch(self.searcher(options, [boosts]))

    @torch.no_grad()
    def advance(
        self,
        searches: Sequence[TransducerSearch],
        chunks: Sequence[Tensor],
        *,
        names: Sequence[int | str] | None = None,
        **_: Any,
    ) -> None:
        """Advance searches by a chunk each, as `Backend.advance`."""
        # Searches with the same boosts are batched, `batch_size` at a time.
        companies: dict[object, list[tuple[TransducerSearch, FrameBuffer, Any]]] = {}
        called = range(len(chunks)) if names is None else names
        for search, chunk, name in zip(searches, chunks, called, strict=True):
            if len(chunk):
                # Everything is checked first: an error must leave all searches
                # unchanged.
                with naming(name):
                    one = search, search.coming(chunk), name
                companies.setdefault(search.company, []).append(one)
        moves: list[tuple[TransducerSearch, FrameBuffer, Beam]] = []
        for members in companies.values():
            for first in range(0, len(members), self.batch_size):
                group = members[first : first + self.batch_size]
                together, comings, given = zip(*group, strict=True)
                searcher = together[0].searcher
                beam = side_by_side([search.beam for search in together])
                after = searcher.run(beam, source_of(comings, self.device), given)
                moves += zip(together, comings, taken_apart(after), strict=True)
        # Only now, when no search can fail any more.
        for search, coming, beam in moves:
            search.move(coming, beam)

    def _phrases(
        self, lists: Sequence[PhraseBoosts | None]
    ) -> tuple[TorchPhrases, Tensor]:
        """Return phrases on the model's device, and the index of each utterance."""
        # Equal lists are laid out once.
        different = {id(one): one for one in lists if one is not None}
        if len(different) > 1:
            phrases = self._laid_out(lists)
            return phrases, phrases.model_of_list
        [only] = different.values()
        which = [0 if one is only else 1 for one in lists]
        return self._alone.of(only), torch.tensor(which, device=self.device)

    def _laid_out(self, lists: Sequence[PhraseBoosts | None]) -> TorchPhrases:
        return TorchPhrases(lists, self.device.type != "cpu").to(self.device)
