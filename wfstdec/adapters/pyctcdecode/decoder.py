"""pyctcdecode's decoder: its calls, its outputs, another search behind them.

decoder = build_ctcdecoder(labels, "lm.arpa", unigrams, alpha=0.5, beta=1.5)
text = decoder.decode(logits)
beams = decoder.decode_beams(logits, hotwords=["kensho"])
text, lm_state, text_frames, logit_score, lm_score = beams[0]
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from wfstdec.adapters.pyctcdecode.alphabet import (
    Alphabet,
    compile_tokens,
    verify_alphabet_coverage,
)
from wfstdec.adapters.pyctcdecode.beams import (
    EMPTY_START_BEAM,
    Beam,
    OutputBeam,
    OutputBeamMPSafe,
)
from wfstdec.adapters.pyctcdecode.constants import (
    DEFAULT_ALPHA,
    DEFAULT_BEAM_WIDTH,
    DEFAULT_BETA,
    DEFAULT_HOTWORD_WEIGHT,
    DEFAULT_MIN_TOKEN_LOGP,
    DEFAULT_PRUNE_BEAMS,
    DEFAULT_PRUNE_LOGP,
    DEFAULT_SCORE_LM_BOUNDARY,
    DEFAULT_UNK_LOGP_OFFSET,
)
from wfstdec.adapters.pyctcdecode.folder import (
    ALPHABET,
    LANGUAGE_MODEL,
    download,
    names_in,
    read_text,
    write_text,
)
from wfstdec.adapters.pyctcdecode.language_model import (
    AbstractLanguageModel,
    LanguageModel,
)
from wfstdec.adapters.pyctcdecode.logprobs import KeptTokens, keep_tokens, read_logits
from wfstdec.adapters.pyctcdecode.ngrams import LMState, open_scorer, unigrams_of
from wfstdec.adapters.pyctcdecode.parameters import (
    Limits,
    Own,
    compiled_scorer,
    make_search,
)
from wfstdec.adapters.pyctcdecode.partial import (
    entered,
    near_the_best,
    read_beams,
    read_ended,
    with_words_ended,
)
from wfstdec.adapters.pyctcdecode.prefix_tree import begin, give_back, store_pool
from wfstdec.adapters.pyctcdecode.records import Search
from wfstdec.adapters.pyctcdecode.results import Found, read_endings
from wfstdec.adapters.pyctcdecode.search import AskedModel, ended, passed
from wfstdec.adapters.pyctcdecode.word_tree import (
    NO_HOTWORDS,
    HotwordScorer,
    WordTree,
    build_tree,
    split_hotwords,
)
from wfstdec.errors import FormatError, InputError, OptionError
from wfstdec.search.interrupts import Held, Pace
from wfstdec.search.scheduling import Workers


class BeamSearchDecoderCTC:
    """Prefix beam search with a word language model, as pyctcdecode 0.5.0 does it.

    Args:
        alphabet: The labels.
        language_model: None for none.
        threads: Utterances of a batch side by side; None for one per processor.
        faithful: Whether what is wrong in 0.5.0 is done as there; docs/pyctcdecode.md
            lists it.

    Raises:
        OptionError: `threads` is out of range.
    """

    model_container: ClassVar[dict[bytes, Any]] = {}
    """The language models of all decoders, None of one without; as in pyctcdecode they
    stay until `cleanup` or `clear_class_models`."""
    _ALPHABET_SERIALIZED_FILENAME = ALPHABET
    _LANGUAGE_MODEL_SERIALIZED_DIRECTORY = LANGUAGE_MODEL

    def __init__(
        self,
        alphabet: Alphabet,
        language_model: AbstractLanguageModel | None = None,
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
        self._own = Own(compile_tokens(alphabet), alphabet.is_bpe, faithful)
        self._pool, self._pace = store_pool(), Pace()
        self._hotwords: tuple[tuple[str, ...], WordTree] = ((), NO_HOTWORDS)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles are decoders of their own."""
        threads, faithful = self._threads, self._own.faithful
        made = partial(type(self), threads=threads, faithful=faithful)
        return made, (self._alphabet, self._language_model)

    @property
    def _language_model(self) -> Any:
        try:
            return self.model_container[self._model_key]
        except KeyError:
            raise OptionError(
                "the language model was cleaned up, expected a decoder in use"
            ) from None

    def cleanup(self) -> None:
        """Let the language model go; the decoder cannot be used any more."""
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
        """Change parameters of the language model, if there is one; None changes none.

        Raises:
            OptionError: A value is out of range.
        """
        given = {
            "alpha": alpha,
            "beta": beta,
            "unk_score_offset": unk_score_offset,
            "score_boundary": lm_score_boundary,
        }
        if self._language_model is not None:
            said = {name: value for name, value in given.items() if value is not None}
            self._language_model.reset_params(**said)

    def decode_beams(
        self,
        logits: Any,
        beam_width: int = DEFAULT_BEAM_WIDTH,
        beam_prune_logp: float = DEFAULT_PRUNE_LOGP,
        token_min_logp: float = DEFAULT_MIN_TOKEN_LOGP,
        prune_history: bool = DEFAULT_PRUNE_BEAMS,
        hotwords: Iterable[str] | None = None,
        hotword_weight: float = DEFAULT_HOTWORD_WEIGHT,
        lm_start_state: Any = None,
    ) -> list[OutputBeam]:
        """The beams of an utterance, best first.

        Args:
            logits: [T, V] logits, log-probs (natural log) or probabilities, NumPy or
                torch.
            beam_width: So many beams are kept.
            beam_prune_logp: Beams that are so much (below 0, nats) worse than the best
                are dropped.
            token_min_logp: Tokens whose log-prob is below it are left out of a frame,
                but for its best one.
            prune_history: Of beams whose last words are the same (as many as the
                language model looks at) only the best is kept.
            hotwords: Words and phrases; each of their words is worth `hotword_weight`.
            hotword_weight: Nats.
            lm_start_state: What an earlier call gave for the part before; None for the
                start of a sentence.

        Raises:
            ShapeError: The logits do not fit the labels.
            LogprobError: NaN or +inf.
            OptionError: A number is out of range, or a state of another model.
            BoostError: Hotwords that are no list of strings.
        """
        width = beam_width, beam_prune_logp, token_min_logp
        limits = Limits(*width, prune_history, hotwords, hotword_weight)
        found, states = self._find(logits, limits, lm_start_state, None)
        return [
            OutputBeam(one.text, states(one), one.words, one.logit_score, one.total)
            for one in found
        ]

    def decode(
        self,
        logits: Any,
        beam_width: int = DEFAULT_BEAM_WIDTH,
        beam_prune_logp: float = DEFAULT_PRUNE_LOGP,
        token_min_logp: float = DEFAULT_MIN_TOKEN_LOGP,
        hotwords: Iterable[str] | None = None,
        hotword_weight: float = DEFAULT_HOTWORD_WEIGHT,
        lm_start_state: Any = None,
    ) -> str:
        """The best text of an utterance; see `decode_beams`. It prunes histories."""
        width = beam_width, beam_prune_logp, token_min_logp
        limits = Limits(*width, True, hotwords, hotword_weight)
        return self._find(logits, limits, lm_start_state, 1)[0][0].text

    def decode_beams_batch(
        self,
        pool: Any,
        logits_list: Sequence[Any],
        beam_width: int = DEFAULT_BEAM_WIDTH,
        beam_prune_logp: float = DEFAULT_PRUNE_LOGP,
        token_min_logp: float = DEFAULT_MIN_TOKEN_LOGP,
        prune_history: bool = DEFAULT_PRUNE_BEAMS,
        hotwords: Iterable[str] | None = None,
        hotword_weight: float = DEFAULT_HOTWORD_WEIGHT,
    ) -> list[list[OutputBeamMPSafe]]:
        """`decode_beams` of many utterances, in threads, without states.

        Args:
            pool: Anything; not needed.
            logits_list: [T, V] arrays, or an array [B, T, V].
            beam_width: As all that follow, see `decode_beams`.
            beam_prune_logp: Nats.
            token_min_logp: Nats.
            prune_history: Whether beams that differ in words long past are dropped.
            hotwords: For all utterances.
            hotword_weight: Nats.
        """
        width = beam_width, beam_prune_logp, token_min_logp
        limits = Limits(*width, prune_history, _as_tuple(hotwords), hotword_weight)

        def decode(logits: Any) -> list[OutputBeamMPSafe]:
            found, _ = self._find(logits, limits, None, None)
            return [
                OutputBeamMPSafe(one.text, one.words, one.logit_score, one.total)
                for one in found
            ]

        return self._of_each(logits_list, decode)

    def decode_batch(
        self,
        pool: Any,
        logits_list: Sequence[Any],
        beam_width: int = DEFAULT_BEAM_WIDTH,
        beam_prune_logp: float = DEFAULT_PRUNE_LOGP,
        token_min_logp: float = DEFAULT_MIN_TOKEN_LOGP,
        hotwords: Iterable[str] | None = None,
        hotword_weight: float = DEFAULT_HOTWORD_WEIGHT,
    ) -> list[str]:
        """`decode` of many utterances, in threads; see `decode_beams_batch`."""
        width = beam_width, beam_prune_logp, token_min_logp
        limits = Limits(*width, True, _as_tuple(hotwords), hotword_weight)
        return self._of_each(
            logits_list, lambda logits: self._find(logits, limits, None, 1)[0][0].text
        )

    def get_starting_state(self) -> tuple[list[Beam], dict[Any, Any], dict[str, float]]:
        """The beams before an utterance that comes in parts, and two tables.

        They are for `partial_decode_beams`. The first table has the state that the
        language model starts in, at `("", False)`, last of three; the second is empty.
        """
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
        beam_width: int = DEFAULT_BEAM_WIDTH,
        beam_prune_logp: float = DEFAULT_PRUNE_LOGP,
        token_min_logp: float = DEFAULT_MIN_TOKEN_LOGP,
        prune_history: bool = DEFAULT_PRUNE_BEAMS,
        hotword_scorer: HotwordScorer | None = None,
        force_next_word: bool = False,
        is_end: bool = False,
    ) -> list[Beam]:
        """Decode a part of an utterance: beams in, beams out, best first.

            beams, *tables = decoder.get_starting_state()
            beams = decoder.partial_decode_beams(first, *tables, beams, 0)
            beams = decoder.partial_decode_beams(
                second, *tables, beams, len(first), is_end=True
            )

        Args:
            logits: [T, V] of this part.
            cached_lm_scores: From `get_starting_state`.
            cached_p_lm_scores: From there too.
            beams: Those of the part before.
            processed_frames: Frames before this part.
            beam_width: As this and the next three, see `decode_beams`.
            beam_prune_logp: Nats.
            token_min_logp: Nats.
            prune_history: Whether beams that differ in words long past are dropped.
            hotword_scorer: From `HotwordScorer.build_scorer`; None for no hotwords.
            force_next_word: Whether words under way end here.
            is_end: Whether the utterance does.

        Raises:
            As `decode_beams`.
        """
        scorer = hotword_scorer or HotwordScorer((), 0.0)
        width = beam_width, beam_prune_logp, token_min_logp
        limits = Limits(*width, prune_history, scorer.words, scorer.weight)
        start = cached_lm_scores.get(("", False), (0.0, 0.0, None))[2]
        labels = self._alphabet.labels
        search, asked, kept = self._prepared(logits, limits, start)
        with Held():
            given = self._pool, search, asked
            store = entered(*given, beams, labels, processed_frames)
            store = passed(store, search, kept, asked, self._pace)
            if is_end:
                store = ended(store, search, asked)
                found = read_ended(store)
            else:
                found = read_beams(store, labels)
                # Beams go out with their words ended, and come in once more, to be
                # merged.
                if force_next_word:
                    whole = with_words_ended(found)
                    frame = int(processed_frames) + len(kept.splits) - 1
                    give_back(self._pool, store)
                    store = entered(*given, whole, labels, frame)
                    found = read_beams(store, labels)
            give_back(self._pool, store)
        return found if is_end else near_the_best(found, beam_prune_logp, beam_width)

    def _of_each(self, items: Sequence[Any], function: Callable[[Any], Any]) -> list:
        """Call for every item, in threads where that helps; errors name the item."""

        def call(i: int) -> Any:
            try:
                return function(items[i])
            except InputError as error:
                error.utterance = i
                raise

        model = self._language_model
        asked = model is not None and compiled_scorer(model) is None
        # A model in Python need not know of threads.
        with Workers(1 if asked else self._threads) as workers:
            return workers.map(call, range(len(items)))

    def _find(
        self, logits: Any, limits: Limits, lm_start_state: Any, count: int | None
    ) -> tuple[list[Found], Callable[[Found], Any]]:
        """The endings of an utterance, and what gives their states to users."""
        model = self._language_model
        search, asked, kept = self._prepared(logits, limits, lm_start_state)
        with Held():
            store = self._pool.take(search.params.beam_width)
            begin(search, store)
            store = ended(passed(store, search, kept, asked, self._pace), search, asked)
            found = read_endings(store, count)
            give_back(self._pool, store)
        if asked is not None:
            return found, lambda one: asked.states[one.state]
        return found, lambda one: None if model is None else LMState(one.state)

    def _prepared(
        self, logits: Any, limits: Limits, lm_start_state: Any
    ) -> tuple[Search, AskedModel | None, KeptTokens]:
        """Prepare the search of an utterance and the tokens that it keeps."""
        frames = read_logits(logits, self._num_tokens)
        kept = keep_tokens(frames, limits.token_min_logp)
        words, (known, tree) = split_hotwords(limits.hotwords), self._hotwords
        if words != known:  # the tree of the last list is kept
            tree = build_tree(words)
            self._hotwords = (words, tree)
        search, asked = make_search(
            self._language_model, limits, lm_start_state, tree, self._own
        )
        return search, asked, kept

    def save_to_dir(self, filepath: str) -> None:
        """Write alphabet.json and language_model/ into a folder, as pyctcdecode does.

        Raises:
            FormatError: They cannot be written.
        """
        write_text(Path(filepath, ALPHABET), self._alphabet.dumps())
        if self._language_model is not None:
            inside = Path(filepath, LANGUAGE_MODEL)
            try:
                inside.mkdir()
            except OSError as error:
                raise FormatError(
                    f"{inside}: cannot make the folder: {error.strerror}"
                ) from error
            self._language_model.save_to_dir(str(inside))

    @staticmethod
    def parse_directory_contents(filepath: str) -> dict[str, str | None]:
        """Find the alphabet of a folder, and the folder of its language model, if any.

        Raises:
            FormatError: The alphabet is missing, or the folder has other things.
        """
        folder = Path(filepath)
        names = names_in(folder)
        if ALPHABET not in names:
            raise FormatError(
                f"{folder}: found {names}, expected {ALPHABET!r} among them"
            )
        names.remove(ALPHABET)
        if names and LANGUAGE_MODEL not in names:
            raise FormatError(
                f"{folder}: found {names} beside {ALPHABET!r}, expected nothing or "
                f"{LANGUAGE_MODEL!r}"
            )
        inside = str(folder / LANGUAGE_MODEL) if names else None
        return {"alphabet": str(folder / ALPHABET), "language_model": inside}

    @classmethod
    def load_from_dir(
        cls, filepath: str, unigram_encoding: str | None = None
    ) -> BeamSearchDecoderCTC:
        """Read a folder that `save_to_dir` wrote, or pyctcdecode's.

        Raises:
            FormatError: A file is missing, damaged, or one too many.
        """
        inside = cls.parse_directory_contents(filepath)["language_model"]
        path = Path(filepath, ALPHABET)
        try:
            alphabet = Alphabet.loads(read_text(path))
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
        """Download a decoder's folder from the Hugging Face hub, and read it.

        Args:
            model_id: Such as `"kensho/5gram-spanish-kenLM"`.
            cache_dir: Where downloads are kept; None for a folder of pyctcdecode's.
            kwargs: For `huggingface_hub.snapshot_download`.

        Raises:
            BackendError: huggingface_hub is not installed.
            FormatError: The folder is no decoder's.
        """
        return cls.load_from_dir(download(model_id, cache_dir, **kwargs))


def build_ctcdecoder(
    labels: list[str],
    kenlm_model_path: str | os.PathLike[str] | None = None,
    unigrams: Collection[str] | None = None,
    alpha: float = DEFAULT_ALPHA,
    beta: float = DEFAULT_BETA,
    unk_score_offset: float = DEFAULT_UNK_LOGP_OFFSET,
    lm_score_boundary: bool = DEFAULT_SCORE_LM_BOUNDARY,
    *,
    threads: int | None = None,
    faithful: bool = False,
) -> BeamSearchDecoderCTC:
    """Make a decoder.

    Args:
        labels: One for each output of the model; see `Alphabet.build_alphabet`.
        kenlm_model_path: An ARPA file, plain or gzip, or a KenLM binary; None decodes
            without a language model.
        unigrams: The words that are known; None takes those of an ARPA file.
        alpha: Weight of the language model.
        beta: Reward of a word, nats.
        unk_score_offset: Added to the log10-prob of unknown words.
        lm_score_boundary: Whether utterances begin with `<s>` and end with `</s>`.
        threads: Utterances of a batch side by side; None for one per processor.
        faithful: Whether what is wrong in 0.5.0 is done as there.

    Raises:
        TokenTableError: Labels that are none.
        InputError: The language model is damaged or cannot be read.
        OptionError: A parameter is out of range.

    Warns (by logging):
        Where labels can spell few of the unigrams.
    """
    alphabet = Alphabet.build_alphabet(labels)
    scorer = None if kenlm_model_path is None else open_scorer(kenlm_model_path)
    if unigrams is None and scorer is not None:
        unigrams = unigrams_of(scorer, faithful)
    if unigrams is not None:
        verify_alphabet_coverage(alphabet, unigrams)
    language_model = None
    if scorer is not None:
        language_model = LanguageModel(
            scorer,
            unigrams,
            alpha=alpha,
            beta=beta,
            unk_score_offset=unk_score_offset,
            score_boundary=lm_score_boundary,
        )
    return BeamSearchDecoderCTC(
        alphabet, language_model, threads=threads, faithful=faithful
    )


def _as_tuple(hotwords: Iterable[str] | None) -> Iterable[str] | None:
    """Keep an iterable that is gone through for each utterance again."""
    if hotwords is None or isinstance(hotwords, str):
        return hotwords
    return tuple(hotwords)
