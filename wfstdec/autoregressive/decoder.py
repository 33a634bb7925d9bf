"""Decoders of models as users hold them: a model, language models, options.

class AttentionDecoder(ModelDecoder):         # adds its search and its options
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, Self, cast

import numpy as np
import torch
from torch import Tensor

from wfstdec.autoregressive.backend import ModelBackend
from wfstdec.autoregressive.model import EncoderModel
from wfstdec.autoregressive.tokenizers import cutter
from wfstdec.boost.compile import BoostCompiler
from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.checks.looking import Pairs
from wfstdec.errors import BackendError, OptionError
from wfstdec.lm import kernels
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

Input = Literal["frames", "features"]
"""What is decoded: frames of the encoder, or what goes into it."""
Weighted = list[tuple[NgramLM, float]]
"""Language models and their weights."""


Paths = Sequence[Any]
"""Paths of an utterance that a search found, best first; at least one."""


class ModelDecoder(Decoder[Any, Paths]):
    """A search on a model that hears its own tokens; see `TransducerDecoder`.

    Phrases are cut as the model cuts text: by its `tokenizer`, if it has one, such as
    the SentencePiece model that was found beside its file.

    Args:
        model: What the backend asks; for `input="features"` an `EncoderModel` too.
        backend: The search.
        options: Of the search.
        table: The model's tokens, a blank among them.
        lms: From `weighted_lms`.
        separator: The token between words. None takes the mark U+2581 of word pieces.
        input: What is decoded.
        frame_shift_s: Seconds per frame of the encoder.

    Attributes:
        lms: Language models and their weights.
    """

    _backend: Any
    _nbest_from = "search"

    def __init__(
        self,
        model: Any,
        backend: ModelBackend,
        options: Any,
        *,
        table: TokenTable,
        lms: Weighted,
        separator: str | None,
        input: Input,
        frame_shift_s: float,
    ) -> None:
        self.model, self.input, self.lms = model, input, lms
        between = separator_of(separator, table)
        self.vocabulary = Vocabulary.of(table, separator=between)
        given: Any = backend
        super().__init__(
            options,
            given,
            BoostCompiler((), {}, len(table)),
            frame_shift_s=frame_shift_s,
            threads=1,
        )
        self._cutter = BareTokens(table, between)

    @classmethod
    def of_features(
        cls,
        load: Callable[[torch.device], Any],
        *,
        backend: str = "auto",
        frame_shift_s: float = 0.02,
        threads: int | None = None,
        **more: Any,
    ) -> Self:
        """A decoder of features, with the encoder of its model.

        Args:
            load: Loads the model to a device.
            backend: `"auto"` (the CPU), or a device of torch: `"cpu"`, `"cuda"`.
            frame_shift_s: Seconds per frame of features.
            threads: Of torch; None leaves them as they are.
            **more: Other arguments of this kind of decoder, such as `lm`.

        Raises:
            BackendError: There is no such device.
        """
        device = torch_device(backend, threads)
        model, make = load(device), cast(Any, cls)
        shift = frame_shift_s * model.stride
        return make(model, input="features", frame_shift_s=shift, device=device, **more)

    @property
    def num_tokens(self) -> int:
        """V, the blank included; of features, how many numbers a frame has."""
        return self.model.input_dim if self.input == "features" else len(self.tokens)

    def looked_at(self, logprobs: Pairs) -> Iterator[tuple[str, Any]]:
        """Pass utterances on: frames and features are no log-probs."""
        return iter(logprobs)

    def _inputs(self, backend: Any, logprobs: Any, lengths: Any) -> Any:
        """Check frames."""
        return backend.inputs(logprobs, lengths)

    @property
    def input_frame_shift_s(self) -> float:
        """Seconds per frame of what is given to `decode`: features are shorter."""
        shorter = self.model.stride if self.input == "features" else 1
        return self.frame_shift_s / shorter

    @property
    def _cut_text(self) -> Callable[[str], Sequence[str]] | None:
        tokenizer = getattr(self.model, "tokenizer", None)
        return None if tokenizer is None else cutter(tokenizer, self.tokens)

    @torch.no_grad()
    def encode(self, features: Any, lengths: Any = None) -> list[Tensor]:
        """Frames of the model's encoder, [T', D] for each utterance.

        Args:
            features: [B, T, F] or a sequence of [T, F].
            lengths: [B] frames of features; None for all.

        Raises:
            ShapeError: Axes, F or lengths are wrong.
        """
        return self._backend.encode(features, lengths)

    def _models(self) -> tuple[str, ...]:
        return tuple(lm.fingerprint for lm, _ in self.lms)

    def _boost_cost(self, path: Any, boosts: CompiledBoosts) -> float:
        """Cost of what boosts credited a path."""
        return boosts.cost((), path.token)

    def _reader(self, boosts: CompiledBoosts) -> PathsReader:
        account = ModelAccount(self.options, self.lms, self._boost_cost)
        names, shift = self.tokens.names, self.frame_shift_s
        return PathsReader(PathReader(self._cutter, account, names, shift), boosts)


class ModelAccount(NamedTuple):
    """Counts the costs of paths: what is left of a total is the model's.

    Alignments are added up, and blanks may be weighed by language models: no path has
    a cost of the model's own.

    Attributes:
        options: Scales and penalties.
        lms: Language models and their weights.
        boost_cost: Tells the cost of what a path was credited.
    """

    options: Any
    lms: Weighted
    boost_cost: Callable[[Any, CompiledBoosts], float]

    def of(self, path: Any, counted: Counted, boosts: CompiledBoosts) -> CostAccount:
        """The account of a path."""
        labels = np.ascontiguousarray(path.token, np.int32)
        graph, costs = 0.0, np.empty(len(labels), np.float32)
        for lm, weight in self.lms:
            if weight:
                start = lm.automaton.model_start[0]
                state = kernels.walk(lm.automaton, 0, start, labels, costs)
                # `</s>` where the end was accepted.
                final = lm.automaton.final_cost[state] if path.reached_final else 0.0
                graph += weight * (float(costs.sum(dtype=np.float64)) + float(final))
        return CostAccount.of_total(
            self.options,
            total=path.search_cost,
            graph=graph,
            insertion=insertion_cost(self.options.token_insertion, len(labels)),
            boost=self.boost_cost(path, boosts),
        )


class PathsReader(FoundReader[Paths]):
    """Reads what searches of models found; see `FoundReader`."""

    def best(self, found: Paths) -> Any:
        """Find the best path."""
        return found[0]

    def nbest(self, found: Paths, num: int | None) -> list[Hypothesis]:
        """Read the paths, at most so many; a greedy search finds one."""
        paths = found[:num]
        return self._paths.hypotheses(paths, [self._boosts] * len(paths))


def check_input(model: Any, input: str, batch_size: int) -> None:
    """Raise where a model cannot be decoded so.

    Raises:
        OptionError: An unknown input, features without an encoder, or no batch.
    """
    if input not in ("frames", "features"):
        raise OptionError(f"input={input!r}, expected 'frames' or 'features'")
    if input == "features" and not isinstance(model, EncoderModel):
        raise OptionError(
            "input='features' with a model that has no encoder, expected "
            "input='frames', or a model with `encode`, `input_dim` and `stride`"
        )
    if batch_size < 1:
        raise OptionError(f"batch_size={batch_size!r}, expected 1 or more")


def weighted_lms(
    lm: AnyLM | Sequence[tuple[AnyLM, float]] | None,
    tokens: TokenTable,
    unk_cost: float | None,
    *,
    least: float = 0.0,
) -> Weighted:
    """Language models over a model's tokens, with their weights.

    Args:
        lm: One, pairs of one and its weight, or None.
        tokens: Of the model.
        unk_cost: As of `GreedyDecoder`.
        least: No weight is below.

    Raises:
        OptionError: A weight is out of range.
        InputError: As of `read_lm` and `lm_over`.
    """
    if lm is None:
        return []
    pairs: Any = lm if isinstance(lm, list | tuple) else [(lm, 1.0)]
    found = []
    for one, weight in pairs:
        if not (least <= weight < float("inf") and weight > -float("inf")):
            expected = "0 or up" if least == 0 else "nats"
            raise OptionError(
                f"a language model's weight {weight!r}, expected {expected}"
            )
        found.append((lm_over(read_lm(one), tokens, unk_cost), float(weight)))
    return found


def torch_device(backend: str, threads: int | None = None) -> torch.device:
    """The device of torch that a backend's name stands for.

    Args:
        backend: `"auto"` (the CPU), or a device of torch: `"cpu"`, `"cuda"`.
        threads: Of torch; None leaves them as they are.

    Raises:
        BackendError: There is no such device.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    try:
        device = torch.device("cpu" if backend == "auto" else backend)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise BackendError(
            f"backend {backend!r}, expected 'auto' or a device of torch ({error})"
        ) from error
    return device
