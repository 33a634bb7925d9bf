"""Decoder with torchaudio's interface; `ctc_decoder` builds it from files."""

import functools
import importlib
import math
import os
from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any, NamedTuple, NoReturn

import numpy as np

from wfstdec.adapters.engine import Utterance, give_back
from wfstdec.adapters.torchaudio import models, search
from wfstdec.adapters.torchaudio.models import Model, Names, Spellings
from wfstdec.adapters.torchaudio.search import Rules
from wfstdec.errors import (
    BackendError,
    InputError,
    LogprobError,
    OptionError,
    ShapeError,
)
from wfstdec.jit import read_only
from wfstdec.search.logprobs import check_lengths
from wfstdec.search.threads import CallBudget, DeferredSignals, Workers
from wfstdec.trie.lexicon_trie import LexiconTrie, parents_of, trie_of

File = str | os.PathLike[str]
Array = Any  # a torch tensor where torch is installed, else a NumPy array


class CTCHypothesis(NamedTuple):
    """Hypothesis of an utterance."""

    tokens: Array  # int64 [L], without blanks and repeats; silence before and after
    words: list[str]  # empty without a lexicon
    score: float  # sum of emissions, language model and all other scores
    # int32 [L], first frames of tokens; frames count from 1, 0 is the silence
    timesteps: Array


class CTCDecoder:
    """Decoder with torchaudio's methods; `ctc_decoder` builds one."""

    # Calls are thread-safe; the four streaming methods share one utterance.

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
        self.nbest, self.blank = nbest, rules.blank
        self._rules, self._model = rules, model
        self._tokens, self._words = tokens, words
        self._threads = 1 if rules.on_host else threads
        self._pool = search.store_pool(rules.beam_size, len(tokens))
        self._pace = CallBudget()
        self._open: Utterance | None = None
        self._ended = False

    def __call__(
        self, emissions: Array, lengths: Array | None = None
    ) -> list[list[CTCHypothesis]]:
        """Decode a batch: at most `nbest` hypotheses of each utterance, best first."""
        # `emissions`: float32 [B, T, V] on the CPU, a tensor or an array; log-probs, or
        # scores of any scale. `lengths`: [B] frames to use of each; None uses all.
        batch = _as_emissions(emissions, "B, T, V", len(self._tokens))
        counts = _as_lengths(lengths, batch)

        def decode(i: int) -> list[CTCHypothesis]:
            frames = _check_frames(batch[i, : counts[i]], i)
            utterance = self._begin()
            utterance.advance(frames, len(frames), self._pace)
            search.end(utterance)
            hypotheses = self._hypotheses(utterance)
            give_back(self._pool, utterance.store)
            return hypotheses

        with Workers(self._threads) as workers:
            return workers.map(decode, range(len(batch)))

    def decode_begin(self) -> None:
        """Begin an utterance that arrives in pieces."""
        self._open, self._ended = self._begin(), False

    def decode_step(self, emissions: Array) -> None:
        """Decode more frames, float32 [T, V]; errors as of a call."""
        utterance = self._opened("decode_step")
        frames = _as_emissions(emissions, "T, V", len(self._tokens))
        with DeferredSignals():
            utterance.advance(_check_frames(frames), len(frames), self._pace)

    def decode_end(self) -> None:
        """End the utterance."""
        with DeferredSignals():
            search.end(self._opened("decode_end"))
            self._ended = True

    def get_final_hypothesis(self) -> list[CTCHypothesis]:
        """Return hypotheses, best first; before `decode_end` the partial ones."""
        if self._open is None:
            raise InputError("get_final_hypothesis, expected decode_begin before it")
        with DeferredSignals():
            return self._hypotheses(self._open)

    def idxs_to_tokens(self, idxs: Iterable[Any]) -> list[str]:
        """Return the tokens of a hypothesis, by name."""
        count, numbers = len(self._tokens), [int(idx) for idx in idxs]
        for number in numbers:
            if not 0 <= number < count:
                raise InputError(f"token {number}, expected 0 to {count - 1}")
        return [self._tokens.names[number] for number in numbers]

    def _begin(self) -> Utterance:
        store = self._pool.take(self._rules.beam_size)
        return search.begin(self._rules, self._model, store)

    def _opened(self, verb: str) -> Utterance:
        if self._open is None or self._ended:
            state = "after decode_end" if self._ended else "without decode_begin"
            raise InputError(f"{verb} {state}, expected decode_begin before it")
        return self._open

    def _hypotheses(self, utterance: Utterance) -> list[CTCHypothesis]:
        hypotheses = []
        for score, tokens, words in search.paths(utterance.store, self.nbest):
            begins = np.append(True, tokens[1:] != tokens[:-1])
            frames = np.flatnonzero(begins & (tokens != self.blank))
            names = [self._words[word] for word in words[words >= 0]]
            times = _as_array(frames.astype(np.int32))
            tokens = _as_array(tokens[frames].astype(np.int64))
            hypotheses.append(CTCHypothesis(tokens, names, score, times))
        return hypotheses


def ctc_decoder(
    lexicon: File | None,
    tokens: File | Sequence[str],
    lm: File | Any | None = None,
    lm_dict: File | None = None,
    nbest: int = 1,
    beam_size: int = 50,
    beam_size_token: int | None = None,
    beam_threshold: float = 50,
    lm_weight: float = 2,
    word_score: float = 0,
    unk_score: float = float("-inf"),
    sil_score: float = 0,
    log_add: bool = False,
    blank_token: str = "-",
    sil_token: str = "|",
    unk_word: str = "<unk>",
    *,
    threads: int = 1,
) -> CTCDecoder:
    """Build a decoder. All arguments except `threads` are torchaudio's.

    Args:
        lexicon: A file of words and their tokens; None decodes tokens.
        tokens: A file with a token on each line, or the tokens.
        lm: A language model of KenLM's over the lexicon's words or over tokens, an
            object like a `CTCDecoderLM`, or None.
        lm_dict: A file with the labels of the language model, one on each line; None
            takes the words of the lexicon, or the tokens.
        nbest: Maximum number of hypotheses.
        beam_size: Hypotheses kept after each frame.
        beam_size_token: Tokens expanded in a frame; None for all.
        beam_threshold: Largest distance from the best score.
        lm_weight: Factor of the language model's scores (KenLM's are log10).
        word_score: Added for each word.
        unk_score: Added for each unknown word; -inf for none.
        sil_score: Added for each frame of silence.
        log_add: Sum alignments; otherwise the best one counts.
        blank_token: The blank.
        sil_token: The silence between words.
        unk_word: The label of unknown words.
        threads: Utterances decoded in parallel; one where `lm` is an object.

    Raises:
        InputError: A file cannot be read, is malformed or lacks a word, token or label;
            an option is out of range.
    """
    _at_least(nbest=nbest, beam_size=beam_size, threads=threads)
    table = models.read_names(tokens, "tokens")
    spellings = models.read_spellings(lexicon) if lexicon else None
    if lm_dict is not None:
        if not isinstance(lm_dict, str | os.PathLike):
            raise OptionError(f"lm_dict={lm_dict!r}, expected a file, or None")
        labels = models.read_names(lm_dict, "labels of lm_dict")
        is_file = isinstance(lm, str | os.PathLike)
        if is_file and spellings is None and len(labels) < len(table):
            raise ShapeError(
                f"lm_dict has {len(labels)} entries, expected one for each token"
            )
    else:
        labels = table
        if spellings is not None:  # `<unk>`, the last, represents all other words
            numbers = {word: number for number, word in enumerate(spellings)}
            labels = Names(tuple(spellings), numbers, "words", len(spellings) - 1)
    model = models.model_of(lm, labels)
    given = {"lm_weight": lm_weight, "word_score": word_score, "sil_score": sil_score}
    scores = {name: _number(name, value) for name, value in given.items()}
    scores["unk_score"] = _number("unk_score", unk_score, -math.inf)
    most_tokens = beam_size_token or len(table)
    _at_least(beam_size_token=most_tokens)
    unk = -1  # where no unknown word may end
    if spellings is not None and unk_score != -math.inf:
        unk = labels.index(unk_word, "unk_word")
    bounds, weight = model.bounds(len(labels)), scores["lm_weight"]
    label_gain = np.full(len(bounds), math.inf)
    if weight >= 0:
        # 0 times infinity would be NaN.
        known = np.isfinite(bounds) if weight == 0 else slice(None)
        label_gain[known] = weight * bounds[known]
    unk_gain = label_gain[unk] + scores["unk_score"] if unk >= 0 else -math.inf
    trie, node_score = _spelled(spellings, labels, table, model)
    gains = search.arc_gains(trie, label_gain + scores["word_score"], unk_gain)
    rules = Rules(
        trie=trie,
        node_score=read_only(node_score),
        arc_kind=read_only(search.arc_kinds(trie)),
        arc_gain=read_only(gains),
        label_gain=read_only(label_gain),
        automaton=model.automaton,
        on_host=model.custom is not None,
        has_lexicon=spellings is not None,
        log_add=bool(log_add),
        beam_size=int(beam_size),
        beam_size_token=int(most_tokens),
        beam_threshold=_number("beam_threshold", beam_threshold, math.inf),
        blank=table.index(blank_token, "blank_token"),
        sil=table.index(sil_token, "sil_token"),
        unk=unk,
        **scores,
    )
    words = () if spellings is None else labels.names
    counts = {"nbest": int(nbest), "threads": int(threads)}
    return CTCDecoder(rules, model, table, words, **counts)


def download_pretrained_files(model: str) -> NoReturn:
    """Raise `BackendError`: this library downloads nothing."""
    raise BackendError(
        f"download_pretrained_files({model!r}) is not in wfstdec, which downloads "
        "nothing, expected files; fetch them once with torchaudio and give their paths"
    )


def _spelled(
    spellings: Spellings | None, labels: Names, tokens: Names, model: Model
) -> tuple[LexiconTrie, np.ndarray]:
    """Return a lexicon's trie, and the best score of a first word below each node."""
    if spellings is None:
        return trie_of(()), np.zeros(1, np.float32)
    entries = models.spelt_entries(spellings, labels, tokens)
    trie = trie_of([(spelt, word, 0.0) for spelt, word, _ in entries])
    words = sorted({word for _, word, _ in entries})
    first = dict(zip(words, model.first_scores(words).tolist(), strict=True))
    scores = np.array([first[word] for _, word, _ in entries], np.float32)
    return trie, search.smear(trie.node_pron_splits, parents_of(trie), scores)


def _at_least(**counts: int) -> None:
    for name, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
            raise OptionError(f"{name}={value!r}, expected 1 or more")


def _number(name: str, value: Any, infinite: float | None = None) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number) and number != infinite:
        raise OptionError(f"{name}={value!r}, expected a number")
    return number


@functools.cache
def _torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError:
        return None


def _as_array(array: np.ndarray) -> Array:
    return array if _torch() is None else _torch().from_numpy(array)


def _as_emissions(emissions: Any, axes: str, num_tokens: int) -> np.ndarray:
    """Return emissions as an array without a copy; `axes` such as "B, T, V"."""
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
            f"emissions have V={array.shape[-1]} tokens, expected the {num_tokens}"
        )
    return array


def _as_lengths(lengths: Any, emissions: np.ndarray) -> list[int | None]:
    size, frames = emissions.shape[:2]
    _check_device("lengths", lengths)
    counts = check_lengths(lengths, size)
    for utterance, count in enumerate(counts):
        if count is not None and not 0 <= count <= frames:
            raise ShapeError(f"length {count}, expected 0 to T={frames}", utterance)
    return counts


def _check_device(what: str, given: Any) -> None:
    """Refuse an array on another device: memory is read in place."""
    device = getattr(given, "device", "cpu")
    if getattr(device, "type", str(device)) != "cpu":
        raise ShapeError(
            f"{what} are on {device}, expected a tensor on the CPU; call .cpu()"
        )


def _check_frames(frames: np.ndarray, utterance: int | None = None) -> np.ndarray:
    """Return the frames of an utterance, float32 [T, V] in C order, read-only."""
    if frames.size and not frames.max() < np.inf:  # also true for NaN
        t, n = np.argwhere(~(frames < np.inf))[0].tolist()
        raise LogprobError(
            f"{float(frames[t, n])} in frame {t}, token {n}, expected a number",
            utterance,
        )
    return read_only(frames.view())
