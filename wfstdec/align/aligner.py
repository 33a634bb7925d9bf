"""Forced aligner: reusable for texts with the same tokens and lexicon.

    aligner = ForcedAligner(tokens="tokens.txt", lexicon="lexicon.txt",
                            separator="<wb>", g2p="spelling")
    alignment = aligner.align(log_probs, "the cat sat")
    for word in alignment.words: word.text, word.start_s, word.end_s, word.confidence

The text becomes its own graph, `T o (L o G)` with the word sequence as G; the search is
that of `WfstDecoder`.
"""

import contextlib
import copy
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, Literal, Self

import numpy as np

from wfstdec.align.alignment import Alignment, AlignOptions
from wfstdec.align.reading import read_alignment
from wfstdec.align.search import (
    STAR,
    LogProbs,
    Transcript,
    WeightedPronunciations,
    search,
    text_graph,
)
from wfstdec.boost.compile import unknown_tokens_message
from wfstdec.boost.g2p import SPELLING, G2pLike, Pronouncer
from wfstdec.checks.inputs import OutputTokens, Pairs, checked
from wfstdec.checks.rows import check_frame_shift
from wfstdec.errors import (
    BoostError,
    LexiconError,
    OptionError,
    ShapeError,
    check_listed,
)
from wfstdec.fst.lexicon_fst import Fillers
from wfstdec.fst.topology import check_topology
from wfstdec.search.nearness import Nearness
from wfstdec.search.threads import DeferredSignals
from wfstdec.text.display import examples
from wfstdec.text.lexicon import (
    AUTO,
    Lexicon,
    Pronunciation,
    TokensLike,
    load_lexicon,
    load_tokens,
    separator_of,
    show,
    spelling_lexicon,
    token_named,
)
from wfstdec.text.normalize import AS_IT_STANDS, Normalizer, check_words
from wfstdec.text.tokens import TokenTable

Path = str | os.PathLike[str]

_log = logging.getLogger("wfstdec.align")


class ForcedAligner:
    """Finds the times of the words and tokens of a known text.

    Args:
        tokens: The V output units of the acoustic model: a file, names in order,
            `{name: token}`, a tokenizer or a table; see `token_table`.
        lexicon: A file or object with pronunciations. `None` spells all words.
        separator: The token between words: `s* (w s+)* [w]`. `"auto"` is `|` for tokens
            of a Hugging Face model, otherwise none; None is none.
        separator_optional: Whether the separator may be missing: `s* (w s*)*`.
        silence: A token allowed between words, not with a separator.
        silence_prob: Its probability at each place.
        g2p: Pronunciations of words that the lexicon lacks: a function from a word to
            pronunciations, each the names of tokens between spaces or in a sequence; a
            lexicon or its file; `"spelling"`, with the tokens themselves; `None`: none,
            unless all words of the lexicon are spelled.
        sentencepiece_model: Without a lexicon, splits words into pieces; `None` uses as
            few pieces as possible.
        unknown: Treatment of a word without a pronunciation, such as a number:
            `"wildcard"` accepts any speech of a frame or more, reported as a misfit;
            `"error"` raises. `<star>` in a text is such a word too.
        normalizer: Matches words that are not in the lexicon as written; with
            `normalize` a word may become several, or none.
        topology: Of CTC, as `build_graph` takes it.
        blank: The blank by name or index; `None` detects it.
        options: Of the search.
        frame_shift_s: Seconds per frame of log-probs.
        backend: `"cpu"`.

    Raises:
        InputError: One of its subclasses, for an error in a file or an option.
    """

    def __init__(
        self,
        tokens: TokensLike,
        lexicon: Path | Lexicon | None = None,
        *,
        separator: str | None = AUTO,
        separator_optional: bool = False,
        silence: str | None = None,
        silence_prob: float = 0.5,
        g2p: G2pLike | None = None,
        sentencepiece_model: Path | None = None,
        unknown: Literal["wildcard", "error"] = "wildcard",
        normalizer: Normalizer = AS_IT_STANDS,
        topology: str = "normal",
        blank: int | str | None = None,
        options: AlignOptions | None = None,
        frame_shift_s: float = 0.02,
        backend: str = "cpu",
    ) -> None:
        check_topology(topology)
        check_frame_shift(frame_shift_s)
        if unknown not in ("wildcard", "error"):
            text = f"unknown={unknown!r}, expected 'wildcard' or 'error'"
            raise OptionError(text)
        self.tokens = load_tokens(tokens, blank)
        self.options = options or AlignOptions()
        self.topology, self.frame_shift_s = topology, frame_shift_s
        self._backend = backend
        between = separator_of(separator, self.tokens, lexicon=lexicon, silence=silence)
        self._fillers = Fillers(
            separator=between,
            separator_optional=separator_optional,
            silence=token_named(silence, self.tokens, "silence"),
            silence_prob=silence_prob,
        )
        self._output_tokens = OutputTokens.spelled(self.tokens, self._fillers.tokens)
        if lexicon is not None:
            lexicon = load_lexicon(lexicon, self.tokens, between)
            words = frozenset(chain.from_iterable(lexicon.pronunciations))
            self._output_tokens = replace(self._output_tokens, words=words)
        self._transcriber = Transcriber(
            *(self.tokens, lexicon, self._fillers.tokens),
            g2p=g2p,
            sentencepiece_model=sentencepiece_model,
            allows_wildcards=unknown == "wildcard",
            normalizer=normalizer,
        )

    def __repr__(self) -> str:
        return f"ForcedAligner({self.tokens!r}, {self.options!r})"

    def check_words(self, words: Iterable[str]) -> None:
        """Warn or raise `LexiconError` if words are not written as in the lexicon."""
        check_listed("words", words)
        self._transcriber.check(words)

    @property
    def num_tokens(self) -> int:
        """V, the blank included."""
        return len(self.tokens)

    def with_options(self, **changes: Any) -> Self:
        """Return an aligner of the same model with some options changed."""
        other = copy.copy(self)
        other.options = replace(self.options, **changes)
        return other

    def checked(self, logprobs: Pairs) -> Iterator[tuple[str, Any]]:
        """Yield utterances unchanged; warn if the first ones look suspicious."""
        return checked(logprobs, self._output_tokens)

    def align(self, logprobs: Any, text: str | Sequence[str]) -> Alignment:
        """Align one utterance; the log-probs are read in chunks, three times or more.

        Args:
            logprobs: [T, V] array, natural log, NumPy (memory-mapped too) or torch,
                float16 or wider; `-inf` is an impossible token.
            text: Its words, separated by white space, or in a sequence.

        Raises:
            LexiconError: Words without a pronunciation: all of the text, or with
                `unknown="error"` any.
            ShapeError: Axes or V are wrong.
            LogprobError: NaN or +inf.
        """
        if getattr(logprobs, "ndim", None) != 2:
            raise ShapeError(
                f"logprobs has {getattr(logprobs, 'ndim', 'no')} axes, expected [T, V]"
            )
        with DeferredSignals():
            transcript = self._transcriber.transcript(text)
            options, tokens = self.options, self.tokens
            star, star_cost = None, None
            if options.insert_cost is not None or transcript.wildcards:
                star, star_cost = len(tokens), options.insert_frame_cost
                tokens = TokenTable((*tokens.names, STAR), tokens.blank)
            read = LogProbs(logprobs, self.num_tokens, star_cost)
            given = tokens, self._fillers, self.topology, options
            graph = text_graph(transcript, *given, star)
            found = search(graph, read, options, self.frame_shift_s, self._backend)
            near = Nearness.of(read, found.hypothesis, tokens.blank)
            fillers = self._fillers
            is_needed = fillers.separator is not None and not fillers.separator_optional
            # Skipped words need no frames.
            least = (
                0
                if options.skip_cost is not None
                else transcript.least_frames(int(is_needed))
            )
            return read_alignment(found, near, transcript, star, options, least)


class Transcriber:
    """Source of pronunciations: a lexicon, `g2p`, or spelling."""

    def __init__(
        self,
        tokens: TokenTable,
        lexicon: Lexicon | None,
        separators: Sequence[int] = (),
        *,
        g2p: G2pLike | None = None,
        sentencepiece_model: Path | None = None,
        allows_wildcards: bool = False,
        normalizer: Normalizer = AS_IT_STANDS,
    ) -> None:
        self._normalizer, self._allows_wildcards = normalizer, allows_wildcards
        # One extra token, the last, represents any speech.
        self._wildcard: WeightedPronunciations = (((len(tokens),), 0.0),)
        self._known: dict[str, WeightedPronunciations] = {}
        if sentencepiece_model is not None and (lexicon or g2p) is not None:
            raise OptionError(
                "sentencepiece_model with a lexicon or g2p, expected one of them"
            )
        given = lexicon or Lexicon((), (), np.zeros(0, np.float32))
        columns = given.words, given.pronunciations, given.costs.tolist()
        for word, tokens_, cost in zip(*columns, strict=True):
            self._known[word] = (*self._known.get(word, ()), (tokens_, cost))
        self._lexicon_words = tuple(self._known)
        self._compared: dict[tuple[str, ...], WeightedPronunciations] = {}
        for word in self._lexicon_words if normalizer.flag else ():
            parts = normalizer.word(word)
            ways = dict.fromkeys((*self._compared.get(parts, ()), *self._known[word]))
            self._compared[parts] = tuple(ways)
        if lexicon is None and g2p is None:
            g2p = SPELLING
        self._spells_all = lexicon is None and not callable(g2p)
        self._spell: Callable[[Sequence[str]], Lexicon] | None = None
        if sentencepiece_model is not None:
            self._spell = partial(
                spelling_lexicon,
                tokens=tokens,
                separator=separators[0] if separators else None,
                sentencepiece_model=sentencepiece_model,
            )
        self._lacking = ""
        self._pronouncer = Pronouncer(tokens, given, separators, g2p)

    def transcript(self, text: str | Sequence[str]) -> Transcript:
        """Look up the words of a text, split at white space, or as given."""
        words = tuple(text.split()) if isinstance(text, str) else tuple(text)
        if self._normalizer.flag:
            words = tuple(one for word in words for one in self._looked_up(word))
        wild = {STAR} - self._known.keys() if self._allows_wildcards else set()
        missing = list(dict.fromkeys(w for w in words if w not in self._known))
        missing = [word for word in missing if word not in wild]
        if missing:
            self._known |= self._prons_of(missing)
            missing = [word for word in missing if word not in self._known]
        if missing and self._allows_wildcards and not {*words} <= {*missing} | wild:
            found = examples(show(word) for word in missing)
            hint = self._case_hint(missing)
            _log.warning("unknown words are any speech: %s%s", found, hint)
            wild, missing = wild | {*missing}, []
        if missing:
            named = (f"{show(w)} (word {words.index(w) + 1})" for w in missing[:6])
            raise LexiconError(
                f"the text has {len(missing)} words that the lexicon does not have: "
                f"{examples(named)}; expected words as written there, or g2p "
                f"for others{self._lacking}{self._case_hint(missing)}"
            )
        entries = (self._wildcard if w in wild else self._known[w] for w in words)
        places = frozenset(i for i, word in enumerate(words) if word in wild)
        return Transcript(words, tuple(entries), places)

    def check(self, words: Iterable[str]) -> None:
        """Check that words of texts are written as those of the lexicon."""
        given = words, self._lexicon_words, self._normalizer
        check_words(*given, ("the texts", "the lexicon"), error=LexiconError)

    def _case_hint(self, missing: Sequence[str]) -> str:
        """Count the words that exist in another case, if case matters."""
        if self._normalizer.flag:
            return ""
        written = {write(word) for word in missing for write in (str.lower, str.upper)}
        known = written & self._known.keys()
        if self._spells_all:  # without calling a user's function
            with contextlib.suppress(LexiconError):
                known |= dict(self._pronounced(sorted(written - known))).keys()
        number = sum(not known.isdisjoint((w.lower(), w.upper())) for w in missing)
        return f"; {number} of them in another case: --ignore-case" if number else ""

    def _looked_up(self, word: str) -> tuple[str, ...]:
        """Return the known form of a word: itself, its parts, or nothing."""
        if word in self._known:
            return (word,)
        parts = self._normalizer.word(word)
        if parts in self._compared:
            self._known[word] = self._compared[parts]
            return (word,)
        if len(parts) == 1:
            return (word,) if parts[0].casefold() == word.casefold() else parts
        return tuple(one for part in parts for one in self._looked_up(part))

    def _prons_of(self, words: Sequence[str]) -> dict[str, WeightedPronunciations]:
        """Return pronunciations of words that the lexicon lacks, if any."""
        # Without case, tries the word as written, then in lower and in upper case.
        spellings: list[Callable[[str], str]] = [str]
        if self._normalizer.flag:
            spellings += [str.casefold, str.upper]
        prons: dict[str, WeightedPronunciations] = {}
        for write in spellings:
            left = {write(word): word for word in words if word not in prons}
            try:
                found = self._pronounced(list(left)) if left else ()
                prons |= {left[w]: tuple((t, 0.0) for t in ways) for w, ways in found}
            except LexiconError:
                if write is spellings[-1]:
                    raise
        return prons

    def _pronounced(
        self, words: Sequence[str]
    ) -> Iterable[tuple[str, Sequence[Pronunciation]]]:
        if self._spell is not None:
            try:
                spelt = self._spell(words)
            except LexiconError:
                if len(words) == 1 or not self._allows_wildcards:
                    raise
                one_by_one: list[Any] = []
                for word in words:
                    with contextlib.suppress(LexiconError):
                        one_by_one += self._pronounced([word])
                return one_by_one
            ways = ([tokens] for tokens in spelt.pronunciations)
            return zip(spelt.words, ways, strict=True)
        try:
            result = self._pronouncer.say(words)
        except BoostError as error:
            raise LexiconError(error.message) from None
        self._lacking = unknown_tokens_message([result.unknown_tokens])
        return result.pronunciations.items()
