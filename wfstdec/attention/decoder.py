"""The decoder for attention models that users hold: a model, language models, options.

decoder = AttentionDecoder(model, lm="pieces.arpa.gz",
options=AttentionOptions(beam_size=8, lm_scale=0.3))
hyps = decoder.decode(frames, lengths)             # of the encoder, [B, T, D]
details = decoder.texts(frames, lengths)           # every text with its rank
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from wfstdec.attention.backend import AttentionBackend, AttentionPath
from wfstdec.attention.model import AttentionModel, checked_table
from wfstdec.attention.options import AttentionOptions
from wfstdec.attention.search import is_looped
from wfstdec.boost.compile import BoostCompiler
from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.checks.looking import Pairs
from wfstdec.errors import OptionError
from wfstdec.lm.loading import AnyLM, lm_over, read_lm
from wfstdec.lm.ngram import NgramLM
from wfstdec.search.costs import CostAccount, insertion_cost
from wfstdec.search.decoder import Decoder
from wfstdec.search.hypothesis import Hypothesis
from wfstdec.search.paths.found import FoundReader
from wfstdec.search.paths.hypotheses import PathReader
from wfstdec.search.paths.words import BareTokens, Counted
from wfstdec.text.loading import separator_of
from wfstdec.text.symbols import TokenTable
from wfstdec.text.vocabulary import Vocabulary


class AttentionText(NamedTuple):
    """A text of an n-best list, with all that it is ordered by.

    Attributes:
        token_ids: All tokens, marks too, the end not.
        total_cost: As of `Hypothesis`: it is not divided by anything.
        rank: What the list is ordered by; more is better.
        attention_cost: What the model itself gives, the end included.
        boost_cost: Minus what its phrases are credited.
        end_credit: What `end_rule="compensated"` gave its end, nats.
        looped: Whether it ends in four times the same.
        reached_final: Whether it ended; False where no end was possible.
    """

    token_ids: tuple[int, ...]
    total_cost: float
    rank: float
    attention_cost: float
    boost_cost: float
    end_credit: float
    looped: bool
    reached_final: bool


class AttentionDecoder(Decoder[Tensor, Any]):
    """A beam search on an attention decoder; `AttentionOptions` says what is best.

    The result for an utterance depends on its frames, the model, the options and its
    boosts: not on the batch, padding, or the order of lists, as far as the model itself
    does not (a library may round products of other sizes otherwise).

    Language models and phrases are over the model's tokens, with a blank behind them
    that it does not have (`decoder.tokens`). Words have no times: all begin with the
    utterance and end with it.

    Args:
        model: An `AttentionModel`.
        lm: A language model over tokens, or a sequence of pairs of such and a weight,
            which may be below 0; None for none.
        options: Of the search.
        separator: The token between words. None takes the mark U+2581 of word pieces.
        unk_cost: As of `GreedyDecoder`.
        frame_shift_s: Seconds per frame of the encoder.
        batch_size: Utterances decoded side by side.
        device: Where the model is.
        dense: The model always sees K rows for each utterance, needed or not.

    Attributes:
        lms: Language models and their weights.

    Raises:
        InputError: One of its subclasses, for what does not fit the model.
    """

    options: AttentionOptions
    _backend: AttentionBackend
    _nbest_from = "search"

    def __init__(
        self,
        model: AttentionModel,
        *,
        lm: AnyLM | Sequence[tuple[AnyLM, float]] | None = None,
        options: AttentionOptions | None = None,
        separator: str | None = None,
        unk_cost: float | None = None,
        frame_shift_s: float = 0.02,
        batch_size: int = 24,
        device: str | torch.device = "cpu",
        dense: bool = False,
    ) -> None:
        if batch_size < 1:
            raise OptionError(f"batch_size={batch_size!r}, expected 1 or more")
        table = checked_table(model)
        self.model = model
        between = separator_of(separator, table)
        self._vocabulary = Vocabulary.of(table, separator=between)
        self.lms = _models(lm, table, unk_cost)
        backend = AttentionBackend(
            model,
            self.lms,
            frame_shift_s=frame_shift_s,
            batch_size=batch_size,
            device=device,
            dense=dense,
        )
        super().__init__(
            options or AttentionOptions(),
            backend,
            BoostCompiler((), {}, len(table)),
            num_tokens=len(table),
            frame_shift_s=frame_shift_s,
            threads=1,
        )
        self._cutter = BareTokens(table, between)

    def looked_at(self, logprobs: Pairs) -> Iterator[tuple[str, Any]]:
        """Pass utterances on: frames are no log-probs."""
        return iter(logprobs)

    def _inputs(self, backend: Any, logprobs: Any, lengths: Any) -> Any:
        """Check frames."""
        return backend.inputs(logprobs, lengths)

    @property
    def vocabulary(self) -> Vocabulary:
        """Its tokens, and the separator."""
        return self._vocabulary

    @property
    def tokens(self) -> TokenTable:
        """The model's tokens, and a blank behind them."""
        return self._vocabulary.tokens

    def texts(
        self,
        frames: Any,
        lengths: Any = None,
        boosts: Any = None,
        *,
        prompts: Sequence[Sequence[int]] | None = None,
    ) -> list[list[AttentionText]]:
        """The n-best list of each utterance, with ranks and all tokens.

        Args:
            frames: [B, T, D] or a sequence of [T, D], of the encoder.
            lengths: [B] frames of each; None for all.
            boosts: As of `decode`.
            prompts: What the decoder is given first, for each utterance; None takes
                the model's.

        Raises:
            InputError: As of `decode`; or not one prompt for each utterance.
        """
        utterances = self._backend.inputs(frames, lengths)
        compiled = self._boosts.compile(
            boosts, len(utterances), self.options.boost_scale
        )
        found = self._backend.found(utterances, self.options, compiled, prompts)
        num = self.options.nbest
        return [[_as_text(path) for path in paths[:num]] for paths in found]

    def _models(self) -> tuple[str, ...]:
        return tuple(lm.fingerprint for lm, _ in self.lms)

    def _reader(self, boosts: CompiledBoosts) -> AttentionReader:
        account = AttentionAccount(self.options, self.lms)
        names = self.tokens.names
        paths = PathReader(self._cutter, account, names, self.frame_shift_s)
        return AttentionReader(paths, boosts)


class AttentionReader(FoundReader[Any]):
    """Reads what searches of an attention model found; see `FoundReader`."""

    def hypothesis(self, found: list[AttentionPath]) -> Hypothesis:
        """Read the best text."""
        return self._paths.hypothesis(found[0], self._boosts)

    def nbest(self, found: list[AttentionPath], num: int | None) -> list[Hypothesis]:
        """Read the texts, at most so many."""
        paths = found[:num]
        return self._paths.hypotheses(paths, [self._boosts] * len(paths))


class AttentionAccount(NamedTuple):
    """Counts the costs of texts: what is left of a total is the model's.

    Attributes:
        options: Scales and penalties.
        lms: Language models and their weights.
    """

    options: AttentionOptions
    lms: Sequence[tuple[NgramLM, float]]

    def of(self, path: AttentionPath, counted: Counted, boosts: Any) -> CostAccount:
        """The account of a text."""
        graph = 0.0
        for lm, weight in self.lms:
            if weight:
                cost = lm.total(path.token)
                if not path.reached_final:
                    cost -= lm.final(_state_after(lm, path.token))
                graph += weight * cost
        insertion = insertion_cost(self.options.token_insertion, len(path.token))
        return CostAccount.of_total(
            self.options,
            total=-path.text.total + 0.0,
            graph=graph,
            insertion=insertion,
            boost=-path.boost + 0.0,
        )


def _state_after(lm: NgramLM, labels: np.ndarray) -> int:
    state = lm.start
    for label in labels.tolist():
        _, state = lm.step(state, label)
    return state


def _as_text(path: AttentionPath) -> AttentionText:
    text = path.text
    return AttentionText(
        token_ids=text.tokens,
        total_cost=-text.total + 0.0,
        rank=text.rank,
        attention_cost=-text.attention + 0.0,
        boost_cost=path.end_credit - path.boost + 0.0,
        end_credit=path.end_credit,
        looped=is_looped(text.tokens),
        reached_final=text.reached_final,
    )


def _models(
    lm: Any, tokens: TokenTable, unk_cost: float | None
) -> list[tuple[NgramLM, float]]:
    """Language models over the tokens, with their weights."""
    if lm is None:
        return []
    pairs = lm if isinstance(lm, list | tuple) else [(lm, 1.0)]
    found = []
    for one, weight in pairs:
        if not abs(weight) < float("inf"):
            raise OptionError(f"a language model's weight {weight!r}, expected nats")
        found.append((lm_over(read_lm(one), tokens, unk_cost), float(weight)))
    return found
