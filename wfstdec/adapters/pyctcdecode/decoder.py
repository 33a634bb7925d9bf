"""Decoder with pyctcdecode's methods and outputs.

decoder = build_ctcdecoder(labels, "lm.arpa", unigrams, alpha=0.5, beta=1.5)
text = decoder.decode(logits)
beams = decoder.decode_beams(logits, hotwords=["kensho"])
text, lm_state, text_frames, logit_score, lm_score = beams[0]
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy import int64

from wfstdec.adapters import engine
from wfstdec.adapters.engine import Store, Utterance
from wfstdec.adapters.pyctcdecode import alphabet as defaults
from wfstdec.adapters.pyctcdecode import language_model as models
from wfstdec.adapters.pyctcdecode import search
from wfstdec.adapters.pyctcdecode.alphabet import CLOSED, Alphabet, code_points
from wfstdec.adapters.pyctcdecode.language_model import HotwordScorer, LanguageModel
from wfstdec.adapters.pyctcdecode.logprobs import KeptTokens, keep_tokens, read_logits
from wfstdec.adapters.pyctcdecode.search import Ending, Frames, HostModel
from wfstdec.errors import FormatError, InputError, OptionError, needs
from wfstdec.jit import kernel, read_only
from wfstdec.lm.automaton import NULL_AUTOMATON
from wfstdec.search.threads import CallBudget, DeferredSignals, Workers

WordFrames = tuple[str, Frames]
NULL_FRAMES: Frames = (-1, -1)
_OWN_METHODS = ("score", "score_partial_token", "get_start_state")
_NO_MODEL = (NULL_AUTOMATON, search.NO_WORDS, read_only(np.zeros(0, np.bool_)), 0)


class OutputBeam(NamedTuple):
    """Output beam of `decode_beams`."""

    text: str
    last_lm_state: Any  # of the language model, after the last word
    text_frames: list[WordFrames]
    logit_score: float  # log-sum of its alignments, nats
    lm_score: float  # with language model and hotwords

    def get_mp_safe_beam(self) -> OutputBeam:
        """Return a copy for another process, without the language model state."""
        state = self.last_lm_state
        safe = getattr(state, "get_mp_safe_state", None)
        if safe is not None or type(state).__module__ == "kenlm":
            state = None if safe is None else safe()
        return self._replace(last_lm_state=state)


class OutputBeamMPSafe(NamedTuple):
    """Output beam of `decode_beams_batch`: `OutputBeam` without the state."""

    text: str
    text_frames: list[WordFrames]
    logit_score: float
    lm_score: float

    @property
    def last_lm_state(self) -> None:
        """None, for compatibility with pyctcdecode's main branch."""


class Beam(NamedTuple):
    """Beam between two parts of an utterance; scores as in `OutputBeam`."""

    text: str
    next_word: str  # ended word that is not yet in the text; empty in outputs
    partial_word: str
    last_char: str | None  # label of the last frame; None if a new word must begin
    text_frames: list[Frames]
    partial_frames: Frames
    logit_score: float
    lm_score: float = 0.0
    is_closed: bool = False  # whether the partial word ends with the next token


LMBeam = Beam  # a beam of `partial_decode_beams`, with `lm_score`
EMPTY_START_BEAM = Beam("", "", "", None, [], NULL_FRAMES, 0.0)


Limits = tuple[int, float, float, bool, Iterable[str] | None, float]
"""Options of a call: the arguments of `decode_beams` after the logits."""


class BeamSearchDecoderCTC:
    """Prefix beam search with a word language model, as in pyctcdecode 0.5.0."""

    model_container: ClassVar[dict[bytes, Any]] = {}
    """Language models of all decoders, or None. As in pyctcdecode they are kept until
    `cleanup` or `clear_class_models`.
    """
    _ALPHABET_SERIALIZED_FILENAME = "alphabet.json"
    _LANGUAGE_MODEL_SERIALIZED_DIRECTORY = "language_model"

    def __init__(
        self,
        alphabet: Alphabet,
        language_model: models.AbstractLanguageModel | None = None,
        *,
        threads: int | None = None,
        faithful: bool = False,
    ) -> None:
        if threads is not None and threads < 1:
            raise OptionError(f"threads={threads!r}, expected 1 or more, or None")
        self._alphabet = alphabet
        self._num_tokens = len(alphabet.labels)
        self._model_key = os.urandom(16)
        self.model_container[self._model_key] = language_model
        self._threads = threads or len(os.sched_getaffinity(0))
        self._tokens = defaults.compile_tokens(alphabet, faithful)
        self._faithful = faithful
        self._pool, self._pace = search.store_pool(), CallBudget()
        self._hotwords: tuple[tuple[str, ...], search.WordTree] = ((), search.NO_WORDS)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles are independent decoders."""
        make = partial(type(self), threads=self._threads, faithful=self._faithful)
        return make, (self._alphabet, self._language_model)

    @property
    def _language_model(self) -> Any:
        try:
            return self.model_container[self._model_key]
        except KeyError:
            raise OptionError(
                "the language model was cleaned up, expected a decoder in use"
            ) from None

    def cleanup(self) -> None:
        """Drop the language model, after which the decoder is unusable."""
        self.model_container.pop(self._model_key, None)

    @classmethod
    def clear_class_models(cls) -> None:
        """Clean up all decoders."""
        cls.model_container.clear()

    def reset_params(
        self,
        alpha: float | None = None,
        beta: float | None = None,
        unk_score_offset: float | None = None,
        lm_score_boundary: bool | None = None,
    ) -> None:
        """Change parameters of the language model, if any; None keeps a value."""
        values = alpha, beta, unk_score_offset, lm_score_boundary
        if self._language_model is not None:
            params = dict(zip(LanguageModel.JSON_ATTRS, values, strict=True))
            given = {name: one for name, one in params.items() if one is not None}
            self._language_model.reset_params(**given)

    def decode_beams(
        self,
        logits: Any,
        beam_width: int = defaults.DEFAULT_BEAM_WIDTH,
        beam_prune_logp: float = defaults.DEFAULT_PRUNE_LOGP,
        token_min_logp: float = defaults.DEFAULT_MIN_TOKEN_LOGP,
        prune_history: bool = defaults.DEFAULT_PRUNE_BEAMS,
        hotwords: Iterable[str] | None = None,
        hotword_weight: float = defaults.DEFAULT_HOTWORD_WEIGHT,
        lm_start_state: Any = None,
    ) -> list[OutputBeam]:
        """Return the beams of an utterance, best first."""
        width = beam_width, beam_prune_logp, token_min_logp
        limits = *width, prune_history, hotwords, hotword_weight
        endings, state_of = self._decode(logits, limits, lm_start_state)
        return [OutputBeam(e.text, state_of(e), e.timed, *e[3:]) for e in endings]

    def decode(
        self,
        logits: Any,
        beam_width: int = defaults.DEFAULT_BEAM_WIDTH,
        beam_prune_logp: float = defaults.DEFAULT_PRUNE_LOGP,
        token_min_logp: float = defaults.DEFAULT_MIN_TOKEN_LOGP,
        hotwords: Iterable[str] | None = None,
        hotword_weight: float = defaults.DEFAULT_HOTWORD_WEIGHT,
        lm_start_state: Any = None,
    ) -> str:
        """Return the best text, with pruned histories; see `decode_beams`."""
        width = beam_width, beam_prune_logp, token_min_logp
        limits = *width, True, hotwords, hotword_weight
        return self._decode(logits, limits, lm_start_state, 1)[0][0].text

    def decode_beams_batch(
        self,
        pool: Any,
        logits_list: Sequence[Any],
        beam_width: int = defaults.DEFAULT_BEAM_WIDTH,
        beam_prune_logp: float = defaults.DEFAULT_PRUNE_LOGP,
        token_min_logp: float = defaults.DEFAULT_MIN_TOKEN_LOGP,
        prune_history: bool = defaults.DEFAULT_PRUNE_BEAMS,
        hotwords: Iterable[str] | None = None,
        hotword_weight: float = defaults.DEFAULT_HOTWORD_WEIGHT,
    ) -> list[list[OutputBeamMPSafe]]:
        """Return `decode_beams` of many utterances, in threads; `pool` is ignored."""
        width = beam_width, beam_prune_logp, token_min_logp
        limits = *width, prune_history, models.split_hotwords(hotwords), hotword_weight

        def decode(logits: Any) -> list[OutputBeamMPSafe]:
            beams = self.decode_beams(logits, *limits)
            return [OutputBeamMPSafe(beam.text, *beam[2:]) for beam in beams]

        return self._of_each(logits_list, decode)

    def decode_batch(
        self,
        pool: Any,
        logits_list: Sequence[Any],
        beam_width: int = defaults.DEFAULT_BEAM_WIDTH,
        beam_prune_logp: float = defaults.DEFAULT_PRUNE_LOGP,
        token_min_logp: float = defaults.DEFAULT_MIN_TOKEN_LOGP,
        hotwords: Iterable[str] | None = None,
        hotword_weight: float = defaults.DEFAULT_HOTWORD_WEIGHT,
    ) -> list[str]:
        """Return `decode` of many utterances, in threads; see `decode_beams_batch`."""
        width = beam_width, beam_prune_logp, token_min_logp
        limits = *width, models.split_hotwords(hotwords), hotword_weight
        return self._of_each(logits_list, lambda one: self.decode(one, *limits))

    def get_starting_state(self) -> tuple[list[Beam], dict[Any, Any], dict[str, float]]:
        """Return the beams before an utterance in parts, and two tables."""
        # The first has the language model's start state, at `("", False)`, last of
        # three.
        model = self._language_model
        scores = {}
        if model is not None:
            scores[("", False)] = (0.0, 0.0, model.get_start_state())
        return [EMPTY_START_BEAM], scores, {}

    def partial_decode_beams(
        self,
        logits: Any,
        cached_lm_scores: dict[Any, Any],
        cached_p_lm_scores: dict[str, float],
        beams: Sequence[Beam],
        processed_frames: int,
        beam_width: int = defaults.DEFAULT_BEAM_WIDTH,
        beam_prune_logp: float = defaults.DEFAULT_PRUNE_LOGP,
        token_min_logp: float = defaults.DEFAULT_MIN_TOKEN_LOGP,
        prune_history: bool = defaults.DEFAULT_PRUNE_BEAMS,
        hotword_scorer: HotwordScorer | None = None,
        force_next_word: bool = False,
        is_end: bool = False,
    ) -> list[Beam]:
        """Decode a part of an utterance; return its beams, best first."""
        # The tables are those of `get_starting_state`, `beams` those of the previous
        # part, `processed_frames` the number of frames in all previous parts.
        # `force_next_word` ends partial words here, and `is_end` the utterance.
        scorer = hotword_scorer or HotwordScorer((), 0.0)
        width = beam_width, beam_prune_logp, token_min_logp
        limits = *width, prune_history, scorer.words, scorer.weight
        start = cached_lm_scores.get(("", False), (0.0, 0.0, None))[2]
        utterance, kept = self._prepared(logits, limits, start, len(beams))
        enter = partial(_enter_beams, utterance, self._alphabet.labels)
        with DeferredSignals():
            enter(beams, processed_frames)
            utterance.advance(kept, len(kept.splits) - 1, self._pace)
            if is_end:
                search.end(utterance)
                ended = search.read_endings(utterance.store)
                result = [_as_beam(e.text, e.frames, *e[3:]) for e in ended]
            else:
                result = _read_beams(utterance.store, self._alphabet.labels)
                # Beams with ended words are entered again, to be merged.
                if force_next_word:
                    frame = int(processed_frames) + len(kept.splits) - 1
                    enter(_words_ended(result), frame)
                    result = _read_beams(utterance.store, self._alphabet.labels)
            engine.give_back(self._pool, utterance.store)
        if not is_end:
            best = max((beam.lm_score for beam in result), default=-math.inf)
            result = [b for b in result if b.lm_score >= best + beam_prune_logp]
            result = sorted(result, key=lambda beam: -beam.lm_score)[:beam_width]
        return result

    def _of_each(self, items: Sequence[Any], function: Callable[[Any], Any]) -> list:
        """Map a function over items, in threads if possible; errors name the item."""

        def call(i: int) -> Any:
            try:
                return function(items[i])
            except InputError as error:
                error.utterance = i
                raise

        model = self._language_model
        on_host = model is not None and _compiled_scorer(model) is None
        # A model in Python may not be thread-safe.
        with Workers(1 if on_host else self._threads) as workers:
            return workers.map(call, range(len(items)))

    def _decode(
        self, logits: Any, limits: Limits, start: Any = None, count: int | None = None
    ) -> tuple[list[Ending], Callable[[Ending], Any]]:
        lm = self._language_model
        utterance, kept = self._prepared(logits, limits, start)
        with DeferredSignals():
            search.begin(utterance.search, utterance.store)
            utterance.advance(kept, len(kept.splits) - 1, self._pace)
            search.end(utterance)
            endings = search.read_endings(utterance.store, count)
            engine.give_back(self._pool, utterance.store)
        if utterance.model is not None:
            return endings, lambda one: utterance.model.states[one.state]
        return endings, lambda one: None if lm is None else models.LMState(one.state)

    def _prepared(
        self, logits: Any, limits: Limits, start: Any, num_beams: int = 1
    ) -> tuple[Utterance, KeptTokens]:
        frames = read_logits(logits, self._num_tokens)
        width, prune_logp, token_min_logp, prune_history, hotwords, weight = limits
        kept = keep_tokens(frames, token_min_logp)
        words, (known, tree) = models.split_hotwords(hotwords), self._hotwords
        if words != known:  # reuse the tree of the last list
            tree = search.build_tree(words)
            self._hotwords = (words, tree)
        if not isinstance(width, int | np.integer) or width < 1:
            raise OptionError(f"beam_width={width!r}, expected 1 or more")
        if not prune_logp <= 0:
            raise OptionError(
                f"beam_prune_logp={prune_logp!r}, expected nats, 0 or below"
            )
        if np.isnan(token_min_logp):
            raise OptionError(f"token_min_logp={token_min_logp!r}, expected nats")
        if not np.isfinite(weight):  # infinity times no hotword is NaN
            raise OptionError(f"hotword_weight={weight!r}, expected nats")
        lm = self._language_model
        for one in getattr(lm, "_language_models", [lm]):
            if isinstance(one, LanguageModel):
                one.check_usable()
        if start is None and lm is not None:
            start = lm.get_start_state()
        scorer = _compiled_scorer(lm)
        arrays: tuple[Any, ...] = _NO_MODEL
        weights: tuple[Any, ...] = ()
        if scorer is not None:
            floats = map(float, (lm.alpha, lm.beta, lm.unk_score_offset))
            weights = *floats, bool(lm.score_boundary)
            first = scorer.check(start).state
            arrays = scorer.lm.automaton, lm.tree, lm.is_listed, first
        history = 1 if lm is None else max(1, lm.order - 1)
        given: tuple[Any, ...] = (
            *(self._tokens, tree, *arrays, width, float(prune_logp)),
            *(bool(prune_history), history, float(weight), self._alphabet.is_bpe),
            *(self._faithful, lm is not None, lm is not None and scorer is None),
        )
        what = search.Search(*given, *weights)
        host = HostModel(lm, start, what) if what.on_host else None
        store = self._pool.take(max(width, num_beams))
        return Utterance(search.advance, what, store, host), kept

    def save_to_dir(self, filepath: str) -> None:
        """Write alphabet.json and language_model/ into a folder."""
        folder = Path(filepath)
        name = self._ALPHABET_SERIALIZED_FILENAME
        models.write_text(folder / name, self._alphabet.dumps())
        if self._language_model is not None:
            inside = folder / self._LANGUAGE_MODEL_SERIALIZED_DIRECTORY
            try:
                inside.mkdir()
            except OSError as error:
                raise FormatError(
                    f"{inside}: cannot make the folder: {error.strerror}"
                ) from error
            self._language_model.save_to_dir(str(inside))

    @staticmethod
    def parse_directory_contents(filepath: str) -> dict[str, str | None]:
        """Return the paths of alphabet and language model (or None) in a folder."""
        alphabet = BeamSearchDecoderCTC._ALPHABET_SERIALIZED_FILENAME
        model = BeamSearchDecoderCTC._LANGUAGE_MODEL_SERIALIZED_DIRECTORY
        folder = Path(filepath)
        names = models.names_in(folder)
        if alphabet not in names:
            raise FormatError(
                f"{folder}: found {names}, expected {alphabet!r} among them"
            )
        names.remove(alphabet)
        if names and model not in names:
            raise FormatError(
                f"{folder}: found {names}, expected nothing else or {model!r}"
            )
        inside = str(folder / model) if names else None
        return {"alphabet": str(folder / alphabet), "language_model": inside}

    @classmethod
    def load_from_dir(
        cls, filepath: str, unigram_encoding: str | None = None
    ) -> BeamSearchDecoderCTC:
        """Read a folder of `save_to_dir`, of this class or of pyctcdecode."""
        files = cls.parse_directory_contents(filepath)
        path, inside = Path(str(files["alphabet"])), files["language_model"]
        try:
            alphabet = Alphabet.loads(models.read_text(path))
        except InputError as error:
            if error.path is None and not isinstance(error, FormatError):
                error.path = str(path)
            raise
        if inside is None:
            return cls(alphabet)
        return cls(alphabet, LanguageModel.load_from_dir(inside, unigram_encoding))

    @classmethod
    def load_from_hf_hub(
        cls, model_id: str, cache_dir: str | None = None, **kwargs: Any
    ) -> BeamSearchDecoderCTC:
        """Download a decoder's folder from the Hugging Face hub, and read it."""
        # `cache_dir` defaults to pyctcdecode's folder; `kwargs` are those of
        # `huggingface_hub.snapshot_download`.
        install = "; pip install huggingface_hub"
        with needs("huggingface_hub cannot be imported", install):
            from huggingface_hub import snapshot_download
        cache = cache_dir or str(Path.home() / ".cache" / "pyctcdecode")
        return cls.load_from_dir(snapshot_download(model_id, cache_dir=cache, **kwargs))


def build_ctcdecoder(
    labels: list[str],
    kenlm_model_path: str | os.PathLike[str] | None = None,
    unigrams: Collection[str] | None = None,
    alpha: float = defaults.DEFAULT_ALPHA,
    beta: float = defaults.DEFAULT_BETA,
    unk_score_offset: float = defaults.DEFAULT_UNK_LOGP_OFFSET,
    lm_score_boundary: bool = defaults.DEFAULT_SCORE_LM_BOUNDARY,
    *,
    threads: int | None = None,
    faithful: bool = False,
) -> BeamSearchDecoderCTC:
    """Build a decoder.

    Args:
        labels: One for each output of the model; see `Alphabet.build_alphabet`.
        kenlm_model_path: An ARPA file, plain or gzip, or a KenLM binary; None decodes
            without a language model.
        unigrams: Known words; None takes those of an ARPA file.
        alpha: Weight of the language model.
        beta: Reward of a word, nats.
        unk_score_offset: Added to the log10-prob of unknown words.
        lm_score_boundary: Whether utterances begin with `<s>` and end with `</s>`.
        threads: Utterances of a batch decoded in parallel; None for one per processor.
        faithful: Whether the defects of 0.5.0 are reproduced.

    Raises:
        InputError: Invalid labels, language model or parameter.
    """
    alphabet = Alphabet.build_alphabet(labels)
    model = None
    scorer = None if kenlm_model_path is None else models.open_scorer(kenlm_model_path)
    if unigrams is None and scorer is not None:
        unigrams = models.unigrams_of(scorer, faithful)
    if unigrams is not None:
        defaults.verify_alphabet_coverage(alphabet, unigrams)
    if scorer is not None:
        params = alpha, beta, unk_score_offset, lm_score_boundary
        model = LanguageModel(scorer, unigrams, *params)
    return BeamSearchDecoderCTC(alphabet, model, threads=threads, faithful=faithful)


def _compiled_scorer(model: Any) -> models.NgramScorer | None:
    if not isinstance(model, LanguageModel) or any(
        getattr(type(model), name) is not getattr(LanguageModel, name)
        for name in _OWN_METHODS
    ):
        return None
    return model.scorer if isinstance(model.scorer, models.NgramScorer) else None


def _as_beam(text: str, frames: list[Frames], logit: float, *rest: Any) -> Beam:
    return Beam(text, "", "", None, frames, NULL_FRAMES, logit, *rest)


def _enter_beams(
    utterance: Utterance, labels: Sequence[str], beams: Sequence[Beam], first_frame: int
) -> None:
    """Enter beams of a user, with all of their state, into the store."""
    search.begin(utterance.search, utterance.store)
    words = [[*b.text.split(), *b.next_word.split(), b.partial_word] for b in beams]
    for one, beam in zip(words, beams, strict=True):
        one[-1] += chr(CLOSED) * (beam.is_closed and one[-1] != "")
    splits, chars = code_points([word for one in words for word in one])
    ends = np.cumsum([len(one) for one in words])
    places = np.zeros((2, len(beams)), np.int64)
    given = (chars, splits, ends), places
    while status := _enter_words(utterance.search, utterance.store, *given):
        utterance.provide(status)
    while sum(len(b.text_frames) for b in beams) > len(utterance.store.trace):
        utterance.provide(engine.GROW_TRACE)
    store, (texts, parts), num_traces = utterance.store, places, 0
    if utterance.model is not None:
        new = np.arange(1, store.counts[engine.HISTORIES])
        utterance.model.score(store, new, parts)
    tokens = {label: token for token, label in reversed(list(enumerate(labels)))}
    for i, beam in enumerate(beams):
        trace = -1
        for frames in beam.text_frames:
            store.trace[num_traces] = (trace, *frames)
            trace, num_traces = num_traces, num_traces + 1
        text, part, logit = int(texts[i]), int(parts[i]), beam.logit_score
        last = -1 if beam.last_char is None else tokens[beam.last_char]
        score = store.histories["score"][text] + store.parts["score"][part]
        place = text, part, last, trace, *beam.partial_frames
        store.beam[i] = (logit, logit + score, *place, -1)
    where = [engine.BEAM, engine.FRAMES, engine.TRACE]
    store.counts[where] = len(beams), first_frame, num_traces


@kernel
def _enter_words(arrays, store, words, places):
    chars, splits, ends = words
    word = 0
    for beam in range(len(ends)):
        text, part = int64(0), int64(0)
        while word < ends[beam]:
            part = search.extend(arrays, store, int64(0), chars, splits, word)
            if part < 0:
                return engine.GROW_PARTS
            word += 1
            if word < ends[beam]:
                text = search.text_child(arrays, store, text, part)
                if text < 0:
                    return engine.GROW_HISTORIES
        places[0, beam], places[1, beam] = text, part
    return engine.OK


def _read_beams(store: Store, labels: Sequence[str]) -> list[Beam]:
    beams, result = store.beam[: store.counts[engine.BEAM]], []
    texts = search.read_texts(store, beams, False)
    for words, frames, row in zip(*texts, beams.tolist(), strict=True):
        logit, total, _, part, last, _, start, end, _ = row
        label = None if last < 0 else labels[last]
        closed = bool(store.parts["symbol"][part] == CLOSED)
        partial_word = " ".join(words), "", search.text_of(store, part), label
        result.append(
            Beam(*partial_word, frames, (start, end), logit, total, is_closed=closed)
        )
    return result


def _words_ended(beams: Sequence[Beam]) -> list[Beam]:
    """End the partial words; merge equal texts and sum their alignments."""
    merged: dict[str, Beam] = {}
    for beam in beams:
        words, frames, logit = [beam.text], beam.text_frames, beam.logit_score
        if beam.partial_word:
            words, frames = [*words, beam.partial_word], [*frames, beam.partial_frames]
        text = " ".join(filter(None, words))
        if text in merged:
            logit = float(np.logaddexp(merged[text].logit_score, logit))
        merged[text] = _as_beam(text, frames, logit)
    return list(merged.values())
