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

import torch
from torch import Tensor

from wfstdec.autoregressive.backend import ModelBackend, phrases_of
from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.boost.phrases import PhraseBoosts
from wfstdec.errors import OptionError
from wfstdec.jit.pool import Once
from wfstdec.search.paths.token_path import TokenPath
from wfstdec.transducer.automata import TorchNgramLM
from wfstdec.transducer.fusion import Fusion, Term
from wfstdec.transducer.model import TransducerModel
from wfstdec.transducer.model_checks import CheckedModel
from wfstdec.transducer.options import TransducerOptions
from wfstdec.transducer.phrases import TorchPhrases
from wfstdec.transducer.sessions import (
    Coming,
    TransducerSearch,
    advance_together,
    check_numbers,
    paths_of,
    source_of,
)
from wfstdec.transducer.steps import Searcher


class TransducerBackend(ModelBackend):
    """A model with its language models, on one device.

    Args:
        model: The predictor and joiner.
        lms: Language models over its tokens, and their weights.
        device: Where the model is.
        batch_size: Utterances decoded side by side.
        encodes: Whether features come, and the model's encoder goes first.
        dense: As of `Searcher`.
    """

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
        super().__init__(model, device, batch_size, encodes)
        self._checked, self.dense = CheckedModel(model), dense
        self._lms = [(lm.to(self.device), weight) for lm, weight in lms]
        self._made_of = model, lms
        self._alone: Once[PhraseBoosts, TorchPhrases] = Once(
            lambda one: self._laid_out([one])
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what it is made of; boosts that were laid out stay behind."""
        names = ("device", "batch_size", "encodes", "dense")
        more = {name: getattr(self, name) for name in names}
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

    @torch.no_grad()
    def decode(
        self,
        utterances: Sequence[Tensor],
        options: TransducerOptions,
        boosts: Sequence[CompiledBoosts],
        **_: Any,
    ) -> list[list[TokenPath]]:
        """Decode whole utterances, those of like length together."""
        order = sorted(range(len(utterances)), key=lambda i: len(utterances[i]))
        found: dict[int, list[TokenPath]] = {}
        for first in range(0, len(order), self.batch_size):
            group = order[first : first + self.batch_size]
            searcher = self.searcher(options, [boosts[i] for i in group])
            lengths = [len(utterances[i]) for i in group]
            whole = [Coming(utterances[i], 0, len(utterances[i])) for i in group]
            source = source_of(whole, self.device).ended()
            beam = searcher.run(searcher.start(len(group)), source)
            check_numbers(searcher, group)
            paths = paths_of(beam, searcher.fusion, options, lengths)
            found.update(zip(group, paths, strict=True))
        return [found[i] for i in range(len(utterances))]

    def start(
        self,
        options: TransducerOptions,
        boosts: CompiledBoosts,
        **_: Any,
    ) -> TransducerSearch:
        """Begin an utterance.

        Raises:
            OptionError: It is one of features.
        """
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
        **_: Any,
    ) -> None:
        """Pass searches through a chunk each, as `Backend.advance`.

        Those with the same boosts go side by side, `batch_size` at a time.

        Raises:
            InputError: Of a chunk or the model; no search has moved.
        """
        called = range(len(chunks)) if names is None else names
        given = zip(searches, chunks, called, strict=True)
        advance_together(list(given), self.batch_size)

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
