"""The decoder that `ctc_decoder` makes, the checks of its inputs, and its answers."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from wfstdec.adapters.torchaudio.lexicon import Names
from wfstdec.adapters.torchaudio.models import Model
from wfstdec.adapters.torchaudio.records import Rules
from wfstdec.adapters.torchaudio.search import Search
from wfstdec.errors import InputError, LogprobError, ShapeError
from wfstdec.jit import read_only
from wfstdec.search.interrupts import Held, Pace, pass_through
from wfstdec.search.scheduling import Workers

Array = Any
"""A tensor of torch's where torch is installed, else a NumPy array."""


class CTCHypothesis(NamedTuple):
    """Answer for an utterance, one of the n best.

    Attributes:
        tokens: int64 [L], blanks and repeats left out; the silence before the first and
            that behind the last frame are among them.
        words: The words; none where there is no lexicon.
        score: Emissions, language model and all other scores together.
        timesteps: int32 [L], where each token begins; frames count from 1, 0 is the
            silence before them.
    """

    tokens: Array
    words: list[str]
    score: float
    timesteps: Array


class CTCDecoder:
    """A decoder as torchaudio has it; `ctc_decoder` makes one.

    Calls may come from several threads; the four streaming verbs are of one utterance.

    Args:
        rules: What is searched, and how.
        model: The language model.
        tokens: The tokens.
        words: The words, none without a lexicon.
        nbest: How many hypotheses are given, at most.
        threads: Utterances decoded side by side.
    """

    def __init__(
        self,
        rules: Rules,
        model: Model,
        tokens: Names,
        words: tuple[str, ...],
        *,
        nbest: int,
        threads: int,
    ) -> None:
        self.nbest = nbest
        self.blank = rules.blank
        self._rules, self._model = rules, model
        self._tokens, self._words = tokens, words
        self._threads = 1 if rules.asked else threads
        self._pace = Pace()
        self._search: Search | None = None
        self._ended = False

    def __call__(
        self, emissions: Array, lengths: Array | None = None
    ) -> list[list[CTCHypothesis]]:
        """Decode a batch.

        Args:
            emissions: float32 [B, T, V] on the CPU, a tensor or an array; log-probs, or
                scores of any scale.
            lengths: [B] frames to use of each; None uses all.

        Returns:
            For each utterance at most `nbest` hypotheses, the best first.

        Raises:
            ShapeError: Another type or shape than expected, or lengths out of range.
            LogprobError: NaN or plus infinity.
        """
        batch = _as_emissions(emissions, "B, T, V", len(self._tokens))
        counts = _as_lengths(lengths, batch)
        items = list(enumerate(zip(batch, counts, strict=True)))

        def decode(item: tuple[int, tuple[np.ndarray, int]]) -> list[CTCHypothesis]:
            utterance, (frames, count) = item
            search = self._begin()
            pass_through(search, _check_frames(frames[:count], utterance), self._pace)
            search.end()
            return self._hypotheses(search)

        with Workers(self._threads) as workers:
            return workers.map(decode, items)

    def decode_begin(self) -> None:
        """Begin an utterance that comes in pieces."""
        self._search, self._ended = self._begin(), False

    def decode_step(self, emissions: Array) -> None:
        """Decode further frames of it, float32 [T, V]; errors as of a call.

        Raises:
            InputError: No utterance has begun, or it has ended.
        """
        search = self._open("decode_step")
        frames = _as_emissions(emissions, "T, V", len(self._tokens))
        with Held():
            pass_through(search, _check_frames(frames), self._pace)

    def decode_end(self) -> None:
        """End it.

        Raises:
            InputError: No utterance has begun, or it has ended.
        """
        with Held():
            self._open("decode_end").end()
            self._ended = True

    def get_final_hypothesis(self) -> list[CTCHypothesis]:
        """Hypotheses of the utterance, best first; before its end, as it looks.

        Raises:
            InputError: No utterance has begun.
        """
        if self._search is None:
            raise InputError("get_final_hypothesis, expected decode_begin before it")
        with Held():
            return self._hypotheses(self._search)

    def idxs_to_tokens(self, idxs: Iterable[Any]) -> list[str]:
        """The tokens of a hypothesis, by name.

        Raises:
            InputError: A number that no token has.
        """
        last, numbers = len(self._tokens) - 1, [int(idx) for idx in idxs]
        for number in numbers:
            if not 0 <= number <= last:
                raise InputError(f"token {number}, expected 0 to {last}")
        return [self._tokens.names[number] for number in numbers]

    def _begin(self) -> Search:
        return Search(self._rules, self._model, len(self._tokens))

    def _open(self, verb: str) -> Search:
        """The utterance that has begun and not ended."""
        if self._search is None or self._ended:
            found = "after decode_end" if self._ended else "without decode_begin"
            raise InputError(f"{verb} {found}, expected decode_begin before it")
        return self._search

    def _hypotheses(self, search: Search) -> list[CTCHypothesis]:
        found = []
        for score, tokens, words in search.paths(self.nbest):
            begins = np.append(True, tokens[1:] != tokens[:-1])
            frames = np.flatnonzero(begins & (tokens != self.blank))
            said = [self._words[word] for word in words[words >= 0]]
            times = _as_array(frames.astype(np.int32))
            tokens = _as_array(tokens[frames].astype(np.int64))
            found.append(CTCHypothesis(tokens, said, score, times))
        return found


@functools.cache
def _torch() -> Any:
    """The module torch; None where it is not installed."""
    try:
        return importlib.import_module("torch")
    except ImportError:
        return None


def _as_array(array: np.ndarray) -> Array:
    return array if _torch() is None else _torch().from_numpy(array)


def _as_emissions(emissions: Any, axes: str, num_tokens: int) -> np.ndarray:
    """The emissions as an array of the same memory.

    Args:
        emissions: float32, a tensor of torch's on the CPU or an array.
        axes: What its axes are, such as `"B, T, V"`.
        num_tokens: V, blank included.

    Raises:
        ShapeError: Of another type, on a device, or of another shape.
    """
    _check_device("emissions", emissions)
    if hasattr(emissions, "detach"):
        emissions = emissions.detach()
    dtype = str(getattr(emissions, "dtype", type(emissions).__name__))
    if dtype.removeprefix("torch.") != "float32":
        raise ShapeError(f"emissions are {dtype}, expected float32")
    array = np.asarray(emissions)
    if array.ndim != len(axes.split(",")):
        raise ShapeError(
            f"emissions have {array.ndim} axes {array.shape}, expected [{axes}]"
        )
    if array.shape[-1] != num_tokens:
        raise ShapeError(
            f"emissions have V={array.shape[-1]} tokens, expected the {num_tokens} of "
            "the decoder's list, blank included"
        )
    return array


def _as_lengths(lengths: Any, emissions: np.ndarray) -> list[int]:
    """The frames of each utterance; all where `lengths` is None.

    Raises:
        ShapeError: Another number of utterances, no integers, or more than there are.
    """
    size, frames = emissions.shape[:2]
    if lengths is None:
        return [frames] * size
    _check_device("lengths", lengths)
    counts = np.asarray(lengths)
    if counts.shape != (size,) or (size and counts.dtype.kind not in "iu"):
        raise ShapeError(
            f"lengths are {counts.dtype} {counts.shape}, expected {size} integers"
        )
    for utterance, count in enumerate(counts.tolist()):
        if not 0 <= count <= frames:
            raise ShapeError(f"length {count}, expected 0 to T={frames}", utterance)
    return [int(count) for count in counts]


def _check_device(what: str, given: Any) -> None:
    """Refuse what is on a device, and name that: memory is read where it lies."""
    device = getattr(given, "device", "cpu")
    if getattr(device, "type", str(device)) != "cpu":
        raise ShapeError(
            f"{what} are on {device}, expected a tensor on the CPU; call .cpu()"
        )


def _check_frames(frames: np.ndarray, utterance: int | None = None) -> np.ndarray:
    """The frames of an utterance, float32 [T, V] in C order, read-only.

    Raises:
        LogprobError: NaN, or plus infinity.
    """
    if frames.size and not frames.max() < np.inf:  # NaN is not less either
        t, n = np.argwhere(~(frames < np.inf))[0].tolist()
        raise LogprobError(
            f"{float(frames[t, n])} in frame {t}, token {n}, expected a number or -inf",
            utterance,
        )
    return read_only(frames.view())
