"""Base of all decoders: batches, threads, boosts, sessions, choice of backend.

`"auto"` uses CUDA for log-probs on a GPU and for batch sizes at which it was measured
to be faster than the CPU. Otherwise it uses the CPU. The results are bit-identical.
"""

import contextlib
import copy
import hashlib
import importlib
import math
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property, partial, wraps
from typing import Any, ClassVar, Generic, Literal, NamedTuple, Self, TypeVar, cast

import numpy as np

from wfstdec.boost.compile import BoostCompiler, PhraseCompiler, phrase_compiler
from wfstdec.boost.compiled import CompiledBoosts, DecoderKey, check_made_for
from wfstdec.boost.lists import BoostEntry, BoostsLike
from wfstdec.boost.phrases import PhraseOptions
from wfstdec.checks.inputs import InputCheck, OutputTokens, Pairs, checked
from wfstdec.checks.rows import check_frame_shift
from wfstdec.errors import BackendError, InputError, OptionError, WfstdecError
from wfstdec.lattice.arrays import Lattice
from wfstdec.lm.automaton import Unit
from wfstdec.search.backend import AUTO, make_backend
from wfstdec.search.hypothesis import Hypothesis
from wfstdec.search.logprobs import as_rows
from wfstdec.search.nearness import with_acoustic_confidences
from wfstdec.search.paths.hypotheses import Reader
from wfstdec.search.paths.lattice import confidences_of
from wfstdec.search.sessions import NO_LATTICES, Sessions
from wfstdec.search.threads import (
    LATTICES,
    MEMORY_PLANS,
    SESSION_LATTICES,
    CallBudget,
    Read,
    Workers,
)
from wfstdec.text.tokens import TokenTable
from wfstdec.text.vocabulary import Vocabulary


def _run(decoder: Any, boosts: BoostsLike, lattices: bool, sessions: bool) -> None:
    """Decode one word with one boost list: whole, in chunks, with lattices."""
    rows = decoder.made_up_input()
    read = decoder.decode([rows], boosts=[boosts])
    if lattices:
        decoder.decode_lattice([rows], boosts=[boosts])
    if decoder._nbest_from == "search" or (lattices and decoder.nbest_of_lattices):
        read += decoder.decode_nbest([rows], boosts=[boosts])[0]
    keeps = lattices and SESSION_LATTICES in decoder._backend.can
    for with_lattices in [False, *[True] * keeps] if sessions else []:
        under_way = decoder.sessions(lattices=with_lattices)
        one = under_way.open(boosts)
        under_way.advance({one: rows})
        under_way.partial(one)
        if with_lattices:
            under_way.close_lattice(one)
        else:
            read.append(under_way.close(one))
    for hypothesis in read:
        _ = hypothesis.text, hypothesis.total_cost  # computed on first access


def _kinds(decoder: Any) -> Iterator[Callable[[], BoostsLike]]:
    """Yield lists of words, with and without bonuses, of phrases, and of OOV words."""
    vocabulary = decoder.vocabulary
    words = list(vocabulary.words[1:3])
    if not words:
        return
    yield lambda: dict.fromkeys(words, 1.0)
    yield lambda: words
    phrase = " ".join(words)
    yield lambda: decoder.phrase_compiler().compile({phrase: 1.0})
    yield lambda: [words[0], phrase]
    apart = (vocabulary.tokens.blank, *vocabulary.separators)
    names = [n for i, n in enumerate(vocabulary.tokens.names) if i not in apart]
    oov = BoostEntry("\N{FIRE}", [names[:2]], 1.0)
    yield lambda: [oov]
    yield lambda: [oov, words[0], phrase]


_Chunk = TypeVar("_Chunk")
_Found = TypeVar("_Found")


_Decode = TypeVar("_Decode", bound=Callable[..., Any])


def by_id(decode: _Decode) -> _Decode:
    """Make a method also accept log-probs by id: it then returns a dict by id."""

    @wraps(decode)
    def decode_any(self: Any, logprobs: Any, *args: Any, **others: Any) -> Any:
        if not isinstance(logprobs, Mapping):
            return decode(self, logprobs, *args, **others)
        ids = list(logprobs)
        try:
            found = decode(self, [logprobs[one] for one in ids], *args, **others)
        except InputError as error:
            if isinstance(error.utterance, int):
                error.utterance = ids[error.utterance]
            raise
        return dict(zip(ids, found, strict=True))

    return cast(_Decode, decode_any)


class Decoder(ABC, Generic[_Chunk, _Found]):
    """A search with options and a backend; see `WfstDecoder` and `TrieDecoder`.

    Attributes:
        vocabulary: Tokens and words that it can output, and the token between words.
    """

    # Source of n-best lists; None where the search keeps only the best.
    _nbest_from: ClassVar[Literal["search", "lattice"] | None] = None
    # Family of the models that it decodes, as `EncoderSpec.family`.
    family: ClassVar[str] = "ctc"
    can_stream: ClassVar[bool] = True  # whether sessions take frames as they come
    phrase_options: ClassVar[PhraseOptions] = PhraseOptions()
    vocabulary: Vocabulary  # set by each kind of decoder

    def __init__(
        self,
        options: Any,
        backend: Any,
        boosts: BoostCompiler,
        *,
        frame_shift_s: float,
        threads: int | None,
    ) -> None:
        check_frame_shift(frame_shift_s)
        if threads is not None and threads < 1:
            raise OptionError(f"threads={threads!r}, expected 1 or more, or None")
        self.options = options
        self.frame_shift_s = frame_shift_s
        self.threads = threads or len(os.sched_getaffinity(0))
        self._backend = backend
        self._boosts = boosts
        totals = replace(self.phrase_options, weights_are_totals=True)
        boosts.make_phrases = partial(self.phrase_compiler, totals)
        self._input_check = InputCheck(self._output_tokens)
        self._pace = CallBudget()

    def __repr__(self) -> str:
        changed = {
            field.name: value
            for field in fields(self.options)
            if (value := getattr(self.options, field.name)) != field.default
        }
        given = ", ".join(f"{name}={value!r}" for name, value in changed.items())
        return (
            f"{type(self).__name__}({self._repr_of_model()}, "
            f"{type(self.options).__name__}({given}), "
            f"backend={type(self._backend).__name__}, "
            f"frame_shift_s={self.frame_shift_s:g}, threads={self.threads})"
        )

    def _repr_of_model(self) -> str:
        return repr(self.vocabulary)

    @abstractmethod
    def _reader(self, boosts: CompiledBoosts) -> Reader[_Found]:
        """Make the reader of searches with these boosts."""

    @property
    def tokens(self) -> TokenTable:
        """The token table, the blank included."""
        return self.vocabulary.tokens

    @property
    def separator(self) -> int | None:
        """The token between words, or None."""
        return self.vocabulary.separator

    @property
    def num_tokens(self) -> int:
        """V, the blank included."""
        return len(self.tokens)

    @property
    def input_frame_shift_s(self) -> float:
        """Seconds per frame of the input of `decode`."""
        return self.frame_shift_s

    def with_options(self, **changes: Any) -> Self:
        """Return a decoder with some options changed; it shares all arrays.

        Raises:
            OptionError: A value is out of range, or the option is fixed.
        """
        other = copy.copy(self)
        other.options = replace(self.options, **changes)
        other._pace = CallBudget()
        return other

    @by_id
    def decode(
        self,
        logprobs: Any,
        lengths: Any = None,
        boosts: BoostsLike | Sequence = None,
        *,
        confidence: bool = False,
        posterior_scale: float = 1.0,
    ) -> list[Hypothesis]:
        """Decode whole utterances and return the best `Hypothesis` of each, in order.

            [hyp] = decoder.decode(logprobs)                    # one utterance, [T, V]
            hyps = decoder.decode(batch, lengths)               # [B, T, V]
            hyps = decoder.decode([a, b], boosts=["quilter", "new york"])
            [hyp] = decoder.decode(logprobs, confidence=True)   # word.confidence
            by_id = decoder.decode(np.load("dev.npz"))          # a dict, in order

        Args:
            logprobs: One utterance, a [T, V] array; or many, a [B, T, V] array or a
                sequence of [T, V] arrays, or a mapping from ids to these. Natural logs
                of probabilities (log-softmax), T frames of V tokens, the blank
                included; NumPy or torch, float16 or wider. `-inf` is an impossible
                token.
            lengths: [B] frames of each utterance, in order, where a batch is padded;
                `None` for all.
            boosts: Words and phrases to boost. One list for all utterances, or one
                entry for each: a list (default bonuses), word or phrase to bonus in
                nats (above 0 favours), compiled phrases, `Boosts`, `compile_boosts` of
                these, or `None`. A sequence of strings is one list for all. A decoder
                without words takes lists as `phrase_compiler` spells them.
            confidence: Whether words get confidences, 0 to 1: from a lattice the
                probability that the word is correct, and `acoustic_confidence`, see
                `Word`. Slower; the rest of the hypotheses is unchanged.
            posterior_scale: Multiplies all costs, for confidences only; `wfstdec tune
                --posterior-scale` finds it.

        Returns:
            A hypothesis for each utterance, in order; a dict by id of a mapping.

        Raises:
            ShapeError: Axes, V, lengths or the number of boosts are wrong.
            LogprobError: NaN or +inf.
            BoostError: A boost is not a word with a finite number, or does not fit.
            OptionError: Boosts compiled by another decoder. These four errors name the
                utterance's position as `utterance`. Confidences from a decoder that
                records no lattices.
            DeviceError: A device failed; names the missing utterances, and
                has the hypotheses of the others.

        Warns:
            BoostWarning: Boosted words are unknown, or were matched with words that
                differ in case, Unicode form or punctuation around them; names them.
        """
        if confidence:
            return self._decode_confident(logprobs, lengths, boosts, posterior_scale)
        backend, logprobs = self._taken(logprobs, lengths, boosts)
        utterances = self._inputs(backend, logprobs, lengths)
        compiled = self._compiled(boosts, len(utterances))

        def read(which: Sequence[int], found: Sequence[_Found]) -> list[Hypothesis]:
            return self._read(found, [compiled[i] for i in which])

        return self._search(utterances, compiled, backend=backend, read=read)

    def _taken(self, logprobs: Any, lengths: Any, boosts: Any) -> tuple[Any, Any]:
        """Choose the backend of a batch; return it and the batch as a list."""
        return self._backend, logprobs

    def _decode_confident(
        self, logprobs: Any, lengths: Any, boosts: Any, posterior_scale: float
    ) -> list[Hypothesis]:
        self._check_lattices()
        if not 0 <= posterior_scale < math.inf:
            raise OptionError(
                f"posterior_scale={posterior_scale!r}, expected a number, 0 or more"
            )

        def read(reader: Reader[_Found], found: Any) -> Hypothesis:
            sure = confidences_of(reader.lattice(found), scale=posterior_scale)
            return reader.hypothesis(found).with_confidences(sure)

        found = self._read_each(logprobs, lengths, boosts, read)
        rows = as_rows(logprobs, lengths, len(self.tokens))
        blanks = [self.tokens.blank] * len(found)
        return list(map(with_acoustic_confidences, found, rows, blanks))

    def _read_each(
        self,
        logprobs: Any,
        lengths: Any,
        boosts: Any,
        read: Callable[[Reader[_Found], Any], Any],
        *,
        record: bool = True,
    ) -> list[Any]:
        """Search whole utterances and apply `read` to each result."""
        # Each is read at once: a large batch's lattices are never all in memory.
        utterances = self._inputs(self._backend, logprobs, lengths)
        compiled = self._compiled(boosts, len(utterances))

        def read_each(which: Sequence[int], found: Sequence[Any]) -> list[Any]:
            pairs = zip(which, found, strict=True)
            return [read(self._reader(compiled[i]), one) for i, one in pairs]

        return self._search(utterances, compiled, record=record, read=read_each)

    def checked(self, logprobs: Pairs) -> Iterator[tuple[str, Any]]:
        """Yield pairs of id and log-probs unchanged; warn about suspicious ones.

        Warns:
            LogprobWarning: As `wfstdec.checks.inputs.checked`.
        """
        self._input_check.skip_first()  # they are checked here
        return checked(logprobs, self._output_tokens())

    @by_id
    def decode_nbest(
        self, logprobs: Any, lengths: Any = None, boosts: BoostsLike | Sequence = None
    ) -> list[list[Hypothesis]]:
        """Return at most `options.nbest` hypotheses of different texts, best first.

        Arguments as in `decode`. Each list has at least one. With `WfstDecoder` the
        first is that of `decode`, bit for bit, and each list is an `NbestList` of the
        lattice's best texts within `lattice_beam`; `is_exact` is True if none of these
        is missing. With `TrieDecoder` without a lexicon, each text is represented by
        its best path.

        Raises:
            OptionError: The decoder returns only the best hypothesis.
            WfstdecError: As `decode`.
        """
        record = self._nbest_from == "lattice"
        self._check_nbest(record)
        num = self.options.nbest
        return self._read_each(
            *(logprobs, lengths, boosts),
            lambda reader, found: reader.nbest(found, num),
            record=record,
        )

    @by_id
    def decode_lattice(
        self,
        logprobs: Any,
        lengths: Any = None,
        boosts: BoostsLike | Sequence = None,
        *,
        lattice_beam: float | None = None,
    ) -> list[Lattice]:
        """Return each utterance's lattice: all paths within `lattice_beam` of the best.

        Args:
            logprobs: As in `decode`.
            lengths: As in `decode`.
            boosts: As in `decode`.
            lattice_beam: Nats, at most the beam; `None` is that of the options.

        Raises:
            OptionError: `lattice_beam` is out of range, the options allow none, or the
                decoder records none. Others as `decode`.
        """
        self._check_lattices()
        if lattice_beam is not None:
            other = self.with_options(lattice_beam=lattice_beam)
            return other.decode_lattice(logprobs, lengths, boosts)
        return self._read_each(
            logprobs, lengths, boosts, lambda reader, found: reader.lattice(found)
        )

    def compile_boosts(self, boosts: BoostsLike) -> CompiledBoosts:
        """Compile an utterance's boost list ahead; results are the same.

            session = sessions.open(decoder.compile_boosts(["quilter", "new york"]))

        It is laid out for the CPU. It can be pickled; `compile_boosts` of the copy lays
        it out again.

        Raises:
            BoostError: As `decode`.
            OptionError: Compiled by another decoder.

        Warns:
            BoostWarning: As `decode`, which then issues none.
        """
        try:
            [compiled] = self._compiled([boosts], 1)
        except InputError as error:
            error.utterance = None  # there is only one
            raise
        if compiled.made_for is None:
            compiled = replace(compiled, made_for=self._made_for())
        self._backend.prepare(self.options, compiled)
        self._reader(compiled)
        return compiled

    def is_rare(self, word: str, commonest: int) -> bool | None:
        """Return whether a word is outside the commonest of the language model.

        Case and outer punctuation are ignored. None without a language model.
        """
        return self._boosts.is_rare(word, commonest)

    def phrase_compiler(
        self,
        options: PhraseOptions | None = None,
        *,
        unit: Unit | None = None,
        boundary: str | None = None,
        sentencepiece_model: str | os.PathLike[str] | None = None,
    ) -> PhraseCompiler:
        """Return a compiler of phrases to boost.

            compiler = decoder.phrase_compiler(unit="token")
            decoder.decode(logprobs, boosts=compiler.compile(["new york"]))

        Args:
            options: Amounts of phrases by their weights. None means `PhraseOptions()`,
                or `uniform=True` for transducers and attention decoders. Without
                options, or where weights are totals, phrases without weights have
                default amounts derived from the list; otherwise their weight is 1.
            unit: Whether phrases are credited by `"word"` or by `"token"`; `None` is
                by word where the decoder has words.
            boundary: The token between words: phrases of tokens then match whole words
                only. `None` is the separator, unless it is optional.
            sentencepiece_model: Segments phrases where no lexicon does; `None` uses as
                few pieces as possible.

        Raises:
            OptionError: By words without a lexicon; a boundary for phrases of words; a
                SentencePiece model with a lexicon.
            BackendError: A SentencePiece model without sentencepiece installed.
            TokenTableError: The boundary is not a token.
        """
        is_automatic = options is None or options.weights_are_totals
        return phrase_compiler(
            self.vocabulary,
            options or self.phrase_options,
            unit=unit,
            boundary=boundary,
            sentencepiece_model=sentencepiece_model,
            tokenizer=self._cut_text,
            matcher=self._boosts.matcher if self.vocabulary.words else None,
            defaults=self._boosts.defaults_of_phrases if is_automatic else None,
        )

    @property
    def _cut_text(self) -> Callable[[str], Sequence[str]] | None:
        """Function that tokenises text as in training; None without one."""
        return None

    def sessions(self, *, lattices: bool = False) -> Sessions:
        """Return sessions, which decode utterances that arrive in chunks.

        Args:
            lattices: Whether sessions record lattices, for `close_lattice`,
                `close_nbest` and (WFST) `settled_lattices`.

        Raises:
            BackendError: The backend records no lattices of sessions.
            OptionError: The options allow none, or the decoder records none.
        """
        if lattices:
            self._check_lattices()
            if SESSION_LATTICES not in self._backend.can:
                raise BackendError(
                    "this backend records no lattices of sessions, expected "
                    "backend='cpu' or 'auto'"
                )
        return Sessions(self, lattices)

    def memory_plan(
        self, num_utterances: int, num_frames: int | None = None
    ) -> dict[str, int]:
        """Plan a batch's memory on the device in bytes; larger batches are split.

        Args:
            num_utterances: Utterances of a batch.
            num_frames: Frames of each; `None` where they arrive in chunks.

        Returns:
            `"graph"` (once; a trie's lexicon and language model), `"scratch"` (kept for
            the next batch), `"utterances"`, `"logprobs"` (if they come from the host),
            `"total"`, and `"limit"`, the bound for all work on the device.

        Raises:
            BackendError: The backend is not on a device with its own memory.
        """
        if MEMORY_PLANS not in self._backend.can:
            raise BackendError(
                "this backend works in the host's memory, expected 'cuda' for a plan"
            )
        return self._backend.memory_plan(num_utterances, num_frames, self.options)

    def made_up_input(self) -> np.ndarray:
        """Return synthetic log-probs of a vocabulary word, [T, V], for warming up."""
        vocabulary = self.vocabulary
        prons, blank = vocabulary.pronunciations, vocabulary.tokens.blank
        has_words = len(prons.splits) > 1
        tokens = prons.tokens[: prons.splits[1]].tolist() if has_words else []
        between = list(vocabulary.separators[:1])
        spoken = [blank]
        for token in (*between, *tokens, *between):
            spoken += [token, blank]
        rows = np.full((len(spoken), self.num_tokens), -12, np.float32)
        rows[np.arange(len(spoken)), spoken] = -0.01
        return rows

    def warm_up(
        self, boosts: BoostsLike = None, *, lattices: bool = True, sessions: bool = True
    ) -> None:
        """Compile or load all kernels of this decoder by decoding a word.

        Call it when a server starts or a container is built, so that no request waits
        for compilation. Compiled kernels are cached for other processes.

        Args:
            boosts: A typical list; `None` generates one of each kind: words, phrases,
                OOV words.
            lattices: Whether lattices will be requested.
            sessions: Whether utterances will arrive in chunks.

        Raises:
            BoostError: The boosts are invalid.
        """
        lattices = lattices and self.records_lattices
        sessions = sessions and self.can_stream
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the generated words
            _run(self, None, lattices, sessions)
            if boosts is not None:
                _run(self, boosts, lattices, sessions)
                return
            for kind in _kinds(self):
                with contextlib.suppress(InputError):  # a search without this kind
                    _run(self, kind(), lattices, sessions)

    @property
    def is_on_device(self) -> bool:
        """Whether it searches in a device's memory."""
        return MEMORY_PLANS in self._backend.can

    @property
    def records_lattices(self) -> bool:
        """Whether `decode_lattice` works, for some options."""
        return LATTICES in self._backend.can

    @property
    def has_nbest(self) -> bool:
        """Whether it returns several hypotheses, from which words get confidences."""
        return self._nbest_from is not None

    @property
    def nbest_of_lattices(self) -> bool:
        """Whether n-best lists are read from lattices, in sessions too."""
        return self._nbest_from == "lattice"

    def _check_lattices(self) -> None:
        if not self.records_lattices:
            raise OptionError(
                f"{type(self).__name__} records no lattices, expected a WfstDecoder or "
                "a TrieDecoder"
            )

    def _check_nbest(self, lattices: bool) -> None:
        if self._nbest_from is None:
            raise OptionError(
                f"{type(self).__name__} finds only the best hypothesis, expected a "
                "decoder with n-best lists, such as TrieDecoder"
            )
        if self._nbest_from == "lattice" and not lattices:
            raise OptionError(NO_LATTICES)
        if self._nbest_from == "search" and lattices and self.options.nbest > 1:
            raise OptionError(
                f"nbest={self.options.nbest!r} in sessions with lattices, which keep "
                "no texts apart, expected `lattice_hypotheses` of `close_lattice`, or "
                "sessions without lattices"
            )

    def _output_tokens(self) -> OutputTokens:
        return OutputTokens.of(self.vocabulary)

    def _inputs(self, backend: Any, logprobs: Any, lengths: Any) -> Sequence[_Chunk]:
        utterances = backend.inputs(logprobs, lengths)
        self._input_check.batch(logprobs, utterances, self.tokens.blank)
        return utterances

    def _compiled(self, boosts: Any, n: int) -> list[CompiledBoosts]:
        compiled = self._boosts.compile(boosts, n, float(self.options.boost_scale))
        check_made_for(compiled, self._made_for)
        self._check_boosts(compiled)
        return compiled

    def _ready(self, boosts: BoostsLike) -> CompiledBoosts:
        [compiled] = self._compiled([boosts], 1)
        self._backend.prepare(self.options, compiled)
        return compiled

    def _made_for(self) -> DecoderKey:
        return DecoderKey(self._fingerprint, float(self.options.boost_scale))

    @cached_property
    def _fingerprint(self) -> str:
        """32 hex digits of everything that compiled boosts depend on."""
        parts = (type(self).__name__, self.vocabulary.fingerprint, *self._models())
        return hashlib.blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()

    def _models(self) -> tuple[str, ...]:
        """Return fingerprints of its language models or graph."""
        return ()

    def _check_boosts(self, boosts: list[CompiledBoosts]) -> None:
        """Raise if the search does not support these boosts."""

    def _search(
        self,
        utterances: Sequence[Any],
        boosts: list[CompiledBoosts],
        *,
        backend: Any = None,
        record: bool = False,
        read: Read | None = None,
    ) -> list[Any]:
        """Search whole utterances in threads, as `Backend.decode`."""
        backend = backend or self._backend
        with Workers(self.threads, self._pace) as workers:
            return backend.decode(
                *(utterances, self.options, boosts),
                record=record,
                workers=workers,
                read=read,
            )

    def _read(
        self, found: Sequence[_Found], boosts: Sequence[CompiledBoosts]
    ) -> list[Hypothesis]:
        """Read the best paths; those with the same OOV words together."""
        positions: dict[int, list[int]] = {}
        for i, one in enumerate(boosts):
            positions.setdefault(id(one.oov), []).append(i)
        if len(positions) == 1:
            return self._reader(boosts[0]).hypotheses(found, boosts)
        read: dict[int, Hypothesis] = {}
        for group in positions.values():
            reader, given = self._reader(boosts[group[0]]), [boosts[i] for i in group]
            made = reader.hypotheses([found[i] for i in group], given)
            read.update(zip(group, made, strict=True))
        return [read[i] for i in range(len(found))]


CPU, CUDA = "cpu", "cuda"
SMALL_V = 64
MIN_BATCH = {("wfst", True): 32, ("trie", False): 32, ("trie", True): 128}
"""Batch size from which CUDA was faster than 16 CPU threads, by search and whether V is
at most `SMALL_V`: one H200, 2026-11-28 (docs/evidence/gpu.md). Others use the CPU."""
_DLPACK_CUDA = 2


class BackendChoice(NamedTuple):
    """Decision of `"auto"`: `"cpu"` or `"cuda"`, and the deciding rule."""

    backend: str
    why: str


class _OnGpu:
    """The model on the GPU, transferred on first use."""

    def __init__(self, room: str, searched: Any) -> None:
        self.room, self.searched = room, searched

    def __reduce__(self) -> tuple[Any, ...]:
        # The other machine may lack a GPU.
        return _OnGpu, (self.room, self.searched)

    @cached_property
    def backend(self) -> Any:
        """The backend on the GPU, or the error that prevents one."""
        try:
            module = importlib.import_module(f"{self.room}.backend")
            return module.backend_for(self.searched)
        except WfstdecError as error:
            return error


class ChoosingDecoder(Decoder[_Chunk, _Found]):
    """Decoder in which `"auto"` chooses the backend of each batch.

    Attributes:
        last_choice: Choice of `"auto"` for the last batch, with its reason; initially
            None.
    """

    _backends: ClassVar[Mapping[str, str]]

    def __init__(
        self,
        options: Any,
        backend: str,
        searched: Any,
        boosts: BoostCompiler,
        **others: Any,
    ) -> None:
        made = make_backend(self._backends, backend, searched)
        super().__init__(options, made, boosts, **others)
        self._gpu: _OnGpu | None = None
        if backend == AUTO:
            self._gpu = _OnGpu(self._backends[CUDA].rpartition(".")[0], searched)
        self.last_choice: BackendChoice | None = None

    def choose_backend(
        self, num_utterances: int, *, on_gpu: bool = False
    ) -> BackendChoice:
        """Return the backend that `"auto"` takes for a batch, and why.

        Args:
            num_utterances: Utterances of the batch.
            on_gpu: Whether their log-probs are on the GPU.

        Raises:
            BackendError: The decoder has a backend by name.
        """
        if self._gpu is None:
            raise BackendError("a backend by name, expected backend='auto'")
        return self._choice(self._gpu, num_utterances, on_gpu, lambda: [])

    def _choice(
        self, gpu: _OnGpu, count: int, on_gpu: bool, boosts: Callable[[], Any]
    ) -> BackendChoice:
        search, small = gpu.room.split(".")[1], len(self.tokens) <= SMALL_V
        least = MIN_BATCH.get((search, small))
        if not on_gpu and (least is None or count < least):
            wanted = "no batch" if least is None else f"batches of {least} or more"
            return BackendChoice(
                CPU,
                f"{count} utterances with V={len(self.tokens)}: CUDA was measured to "
                f"be faster for {wanted}",
            )
        if isinstance(gpu.backend, WfstdecError):
            return BackendChoice(CPU, str(gpu.backend))
        if (why := self._why_not_on_gpu(boosts())) is not None:
            return BackendChoice(CPU, f"backend 'cuda': {why}")
        where = "log-probs on the GPU" if on_gpu else f"a batch of {count}"
        return BackendChoice(CUDA, where)

    def _why_not_on_gpu(self, boosts: Any) -> str | None:
        """Return why no GPU search supports options and boosts; None where one does."""
        return None

    def _taken(self, logprobs: Any, lengths: Any, boosts: Any) -> tuple[Any, Any]:
        if self._gpu is None:
            return self._backend, logprobs
        if not isinstance(logprobs, list | tuple) and not hasattr(logprobs, "shape"):
            logprobs = list(logprobs)
        count, on_gpu = batch_of(logprobs)
        self.last_choice = self._choice(
            self._gpu, count, on_gpu, lambda: self._compiled(boosts, count)
        )
        is_cpu = self.last_choice.backend == CPU
        return self._backend if is_cpu else self._gpu.backend, logprobs


def batch_of(logprobs: Any) -> tuple[int, bool]:
    """Return the number of utterances of a batch, and whether they are on a GPU."""
    arrays = list(logprobs) if isinstance(logprobs, list | tuple) else [logprobs]
    count = len(arrays)
    if count == 1 and len(getattr(arrays[0], "shape", ())) == 3:
        count = arrays[0].shape[0]
    device = getattr(arrays[0], "__dlpack_device__", None) if arrays else None
    return count, device is not None and device()[0] == _DLPACK_CUDA
