"""Base of decoders for models with their own tokens: transducers and attention."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, Self, cast

import numpy as np
import torch
from torch import Tensor

from wfstdec.attention.model import EncoderModel
from wfstdec.boost.compile import BoostCompiler
from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.boost.phrases import PhraseBoosts, PhraseOptions
from wfstdec.checks.inputs import Pairs
from wfstdec.errors import BackendError, BoostError, OptionError, ShapeError
from wfstdec.lm import kernels
from wfstdec.lm.loading import AnyLM, lm_over, read_lm
from wfstdec.lm.ngram import NgramLM
from wfstdec.search.decoder import Decoder
from wfstdec.search.hypothesis import CostAccount, Hypothesis, insertion_cost
from wfstdec.search.logprobs import check_lengths, split_batch
from wfstdec.search.paths.hypotheses import Reader
from wfstdec.search.paths.words import BARE, Cutter
from wfstdec.text.lexicon import SentencePieceFile, is_mark, separator_of
from wfstdec.text.tokens import TokenTable
from wfstdec.text.vocabulary import Vocabulary

_METHODS = ("encode_as_pieces", "tokenize", "text_to_tokens")
"""Methods that split text into names: of SentencePiece, Transformers, NeMo."""

_ADVICE = "phrases are split into as few pieces as possible, not as the model does"

_log = logging.getLogger("wfstdec.boost")


def cutter(tokenizer: Any, tokens: TokenTable) -> Callable[[str], Sequence[str]] | None:
    """Return a function that splits text into tokens; None if a file is unusable."""
    if isinstance(tokenizer, SentencePieceFile):
        return tokenizer if _is_usable(tokenizer, tokens) else None
    for name in _METHODS:
        if hasattr(tokenizer, name):
            return getattr(tokenizer, name)
    if not callable(tokenizer):
        what = f"the model's tokenizer is a {type(tokenizer).__name__}"
        raise OptionError(f"{what}, expected a function, or one with {_METHODS[0]}")
    return tokenizer


def _is_usable(file: SentencePieceFile, tokens: TokenTable) -> bool:
    """Return whether a file is readable and has all tokens; warn if not."""
    if importlib.util.find_spec("sentencepiece") is None:
        how = "pip install sentencepiece"
        _log.warning("%s needs sentencepiece (%s): %s", file.path, how, _ADVICE)
        return False
    names = {name for i, name in enumerate(tokens.names) if i != tokens.blank}
    names -= set(map(file.model.id_to_piece, range(file.model.get_piece_size())))
    lacking = sorted(name for name in names if not is_mark(name))
    if lacking:
        text = "%s has no piece %r, which is a token of the model: %s"
        _log.warning(text, file.path, lacking[0], _ADVICE)
    return not lacking


class ModelBackend:
    """A model on one device, and batches of utterances for it."""

    can: frozenset[str] = frozenset()

    def __init__(
        self, model: Any, device: torch.device | str, batch_size: int, encodes: bool
    ) -> None:
        self.model, self.device = model, torch.device(device)
        self.batch_size, self.encodes = batch_size, encodes

    def inputs(self, frames: Any, lengths: Any) -> list[Any]:
        """Check the encoder's frames: [T, D] for each utterance, on the device."""
        if self.encodes:
            return self.encode(frames, lengths)
        given = self._tensors(frames, lengths)
        size = getattr(self.model, "frame_dim", None)
        if given and size not in (None, dim := given[0].shape[1]):
            raise ShapeError(f"D={dim}, expected D={size} as the model's encoder", 0)
        return given

    @torch.no_grad()
    def encode(self, features: Any, lengths: Any) -> list[Tensor]:
        """Return frames of the model's encoder; see `ModelDecoder.encode`."""
        given, size = self._tensors(features, lengths), self.model.input_dim
        if given and (dim := given[0].shape[1]) != size:
            text = f"features have F={dim} numbers a frame, the model expects F={size}"
            raise ShapeError(text, 0)
        found: list[Tensor] = [torch.empty(0)] * len(given)
        for group in self.groups(range(len(given)), given):
            sizes = torch.tensor([len(given[i]) for i in group])
            some = [given[i].float() for i in group]
            batch = torch.nn.utils.rnn.pad_sequence(some, batch_first=True)
            frames, counts = self.model.encode(batch, sizes.to(batch.device))
            for i, row, count in zip(group, frames, counts.tolist(), strict=True):
                found[i] = row[:count]
        return found

    def groups(self, which: Iterable[int], items: Sequence[Any]) -> Iterator[list[int]]:
        """Yield batches of items of similar length: padding is computed too."""
        order = sorted(which, key=lambda i: len(items[i]))
        for first in range(0, len(order), self.batch_size):
            yield order[first : first + self.batch_size]

    def _tensors(self, frames: Any, lengths: Any) -> list[Tensor]:
        def as_tensor(array: Any) -> Tensor:
            if isinstance(array, Tensor):
                return array.detach().to(self.device)
            return torch.from_numpy(np.array(array)).to(self.device)

        arrays = split_batch(frames, as_tensor)
        counts = check_lengths(lengths, len(arrays))
        found = []
        for i, (array, count) in enumerate(zip(arrays, counts, strict=True)):
            if array.ndim != 2 or not array.is_floating_point():
                expected = "expected floating-point [T, D] of the encoder"
                raise ShapeError(f"{array.dtype} {tuple(array.shape)}, {expected}", i)
            if count is not None and not 0 <= count <= len(array):
                raise ShapeError(f"length {count}, expected 0 to {len(array)}", i)
            size, expected = array.shape[1], arrays[0].shape[1]
            if size != expected:
                raise ShapeError(f"D={size}, expected D={expected} as of the first", i)
            found.append(array[:count])
        return found


def phrases_of(boosts: Sequence[CompiledBoosts]) -> list[PhraseBoosts | None]:
    """Return the phrases of each utterance."""
    for i, one in enumerate(boosts):
        if one.words or (one.phrases is not None and not one.of_tokens):
            raise BoostError("boosts of words, expected phrases of tokens", i)
    return [one.phrases for one in boosts]


Input = Literal["frames", "features"]
"""Input of the decoder: frames of the encoder, or the encoder's features."""
Weighted = list[tuple[NgramLM, float]]
"""Language models and their weights."""
Paths = Sequence[Any]
"""Paths of an utterance, best first; at least one."""


class ModelDecoder(Decoder[Any, Paths]):
    """Search on a model with its own tokens; see `TransducerDecoder`."""

    # Phrases are tokenised as the model does: by its `tokenizer`, if it has one, such
    # as the SentencePiece model in its folder.
    _backend: Any
    _nbest_from = "search"
    # With 20,000 phrases whose later labels pay more, many are output by mistake.
    phrase_options = PhraseOptions(uniform=True)

    def __init__(
        self,
        backend: ModelBackend,
        options: Any,
        table: TokenTable,
        lms: Weighted,
        separator: str | None,
        frame_shift_s: float,
    ) -> None:
        self.model, self.lms = backend.model, lms
        self.input: Input = "features" if backend.encodes else "frames"
        between = separator_of(separator, table)
        self.vocabulary = Vocabulary.of(table, separator=between)
        given: Any = options, backend, BoostCompiler((), {}, len(table))
        super().__init__(*given, frame_shift_s=frame_shift_s, threads=1)
        self._cutter = Cutter(BARE, self.vocabulary)

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
        """Return a decoder of features; `load` loads its model on a torch device."""
        if threads is not None:
            torch.set_num_threads(threads)
        try:
            device = torch.device("cpu" if backend == "auto" else backend)
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError) as error:
            expected = f"expected 'auto' or a device of torch ({error})"
            raise BackendError(f"backend {backend!r}, {expected}") from error
        model, make = load(device), cast(Any, cls)
        shift = frame_shift_s * model.stride
        return make(model, input="features", frame_shift_s=shift, device=device, **more)

    @property
    def num_tokens(self) -> int:
        """V, the blank included; for features, the numbers per frame."""
        return self.model.input_dim if self.input == "features" else len(self.tokens)

    def made_up_input(self) -> np.ndarray:
        """Return zero frames, or features, for warming up."""
        width = self.num_tokens
        if self.input == "frames":
            width = getattr(self.model, "frame_dim", None) or width
        return np.zeros((8, width), np.float32)

    def checked(self, logprobs: Pairs) -> Iterator[tuple[str, Any]]:
        """Yield utterances unchanged: frames and features are not log-probs."""
        return iter(logprobs)

    def _inputs(self, backend: Any, logprobs: Any, lengths: Any) -> Any:
        return backend.inputs(logprobs, lengths)

    @property
    def has_nbest(self) -> bool:
        """Whether it searches with a beam."""
        return getattr(self.options, "width", self.options.beam_size) > 1

    @property
    def input_frame_shift_s(self) -> float:
        """Seconds per frame of the input of `decode`, frames or features."""
        shorter = self.model.stride if self.input == "features" else 1
        return self.frame_shift_s / shorter

    @property
    def _cut_text(self) -> Callable[[str], Sequence[str]] | None:
        tokenizer = getattr(self.model, "tokenizer", None)
        if tokenizer is not None:
            return cutter(tokenizer, self.tokens)
        # Names of pieces have spaces as `Ġ`.
        if name := next((n for n in self.tokens.names if n.startswith("Ġ")), None):
            text = "the model has pieces like %r and no tokenizer: %s"
            _log.warning(text, name, _ADVICE)
        return None

    @torch.no_grad()
    def encode(self, features: Any, lengths: Any = None) -> list[Tensor]:
        """Return frames of the model's encoder, [T', D] for each utterance.

        Args:
            features: [B, T, F] or a sequence of [T, F].
            lengths: [B] frames of features; None for all.

        Raises:
            ShapeError: Axes, F or lengths are wrong.
        """
        return self._backend.encode(features, lengths)

    def _decode_confident(
        self, logprobs: Any, lengths: Any, boosts: Any, posterior_scale: float
    ) -> list[Hypothesis]:
        if not self.has_nbest:
            raise OptionError("confidences of a search for one text, expected a beam")
        every: Any = {"nbest": None}
        lists = self.with_options(**every).decode_nbest(logprobs, lengths, boosts)
        return [one[0].with_posteriors(one, posterior_scale) for one in lists]

    def _models(self) -> tuple[str, ...]:
        return tuple(lm.fingerprint for lm, _ in self.lms)

    def _search(self, utterances: Any, boosts: Any, **how: Any) -> Any:
        found, read = super()._search(utterances, boosts), how.get("read")
        return found if read is None else read(range(len(found)), found)

    def _boost_cost(self, path: Any, boosts: CompiledBoosts) -> float:
        return boosts.cost((), path.tokens.token)

    def _reader(self, boosts: CompiledBoosts) -> ModelPathReader:
        account = ModelAccount(self.options, self.lms, self._boost_cost)
        names, shift = self.tokens.names, self.frame_shift_s
        return ModelPathReader(self._cutter, account, names, shift, boosts)


class ModelAccount(NamedTuple):
    """Costs of paths; the rest of a total is the model's."""

    # Alignments are summed, and language models may weight blanks: a path has no cost
    # of the model alone.

    options: Any  # scales and penalties
    lms: Weighted  # language models and their weights
    # returns the cost of a path's credit
    boost_cost: Callable[[Any, CompiledBoosts], float]

    def of(
        self, path: Any, _words: list[int], _cost: float, boosts: CompiledBoosts
    ) -> CostAccount:
        """Return the account of a path."""
        labels = np.ascontiguousarray(path.tokens.token, np.int32)
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


class ModelPathReader(Reader[Paths]):
    """Reads results of model searches; see `Reader`."""

    def best(self, found: Paths) -> Any:
        """Return the best path."""
        return found[0]

    def nbest(self, found: Paths, num: int | None) -> list[Hypothesis]:
        """Read the best paths; greedy search has one."""
        return self.read(found[:num])


def net_of(
    model: Any, frame_shift_s: float | None, default: float
) -> tuple[Any, float]:
    """Return the net of a `SpeechModel`, or a net itself, and the frame shift."""
    spec = getattr(model, "spec", None)
    if spec is None or not hasattr(model, "net"):
        return model, default if frame_shift_s is None else frame_shift_s
    return model.net, spec.frame_shift_s


def check_input(model: Any, input: str, batch_size: int) -> None:
    """Raise if a model cannot decode this input."""
    if input not in ("frames", "features"):
        raise OptionError(f"input={input!r}, expected 'frames' or 'features'")
    if input == "features" and not isinstance(model, EncoderModel):
        expected = "expected 'frames', or one with `encode`, `input_dim` and `stride`"
        raise OptionError(f"'features' with a model that has no encoder, {expected}")
    if batch_size < 1:
        raise OptionError(f"batch_size={batch_size!r}, expected 1 or more")


def weighted_lms(
    lm: AnyLM | Sequence[tuple[AnyLM, float]] | None,
    tokens: TokenTable,
    unk_cost: float | None,
) -> Weighted:
    """Return language models over a model's tokens, with their weights."""
    if lm is None:
        return []
    pairs: Any = lm if isinstance(lm, list | tuple) else [(lm, 1.0)]
    found = []
    for one, weight in pairs:
        if not abs(weight) < float("inf"):
            raise OptionError(f"a model's weight {weight!r}, expected a number")
        found.append((lm_over(read_lm(one), tokens, unk_cost), float(weight)))
    return found
