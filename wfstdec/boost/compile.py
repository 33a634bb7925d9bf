"""Compile boost lists: from `BoostList` to `CompiledBoosts`, the input of searches.

boosts = ["bartley", "new york"]                     # default bonuses
boosts = {"bartley": 4.0, "new york": 3.0}           # nats for each occurrence
boosts = [BoostEntry("fuchs", ["f j u k s"]), "new york"]  # and OOV words
boosts = compiler.compile(["new york"])              # phrases, token by token
boosts = Boosts({"bartley": 4.0}, compiler.compile(["new york"]))
boosts = [None, boosts]                              # one list per utterance
"""

from __future__ import annotations

import contextlib
import os
import threading
import warnings
from collections import ChainMap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import cached_property, partial
from itertools import chain
from operator import itemgetter
from typing import Any, Generic, NamedTuple, TypeVar

from wfstdec.boost.automatic import DefaultBonuses, bonuses_of_lengths
from wfstdec.boost.compiled import CompiledBoosts, compile_word_boosts, scaled_boosts
from wfstdec.boost.g2p import G2pResult, Pronouncer
from wfstdec.boost.lists import (
    BoostList,
    BoostsLike,
    WordMatcher,
    first_of,
    is_one_list,
    of_each,
    taken_message,
)
from wfstdec.boost.phrases import (
    Defaults,
    PhraseBoosts,
    PhraseOptions,
    Speller,
    Spelling,
    by_lexicon,
    by_table,
    by_tokenizer,
    by_words,
    compile_phrases,
)
from wfstdec.errors import BoostError, BoostWarning, OptionError, levels_inside
from wfstdec.lazy import check_methods
from wfstdec.lm.automaton import Unit
from wfstdec.text.lexicon import show, word_ids
from wfstdec.text.tokens import TokenTable
from wfstdec.text.vocabulary import OovWords, Vocabulary

_LARGE = 20.0  # nats: a larger bonus is probably a mistake
_SMALL = 0.5  # nats: a smaller bonus has little effect
_ONLY_TOKENS = (
    "but this decoder has no words, expected phrases of tokens: compile them by a "
    "PhraseCompiler with the token table"
)
_TOTALS = PhraseOptions(weights_are_totals=True)
"""Bonuses of several words are phrases whose weight is a total."""
_Made = TypeVar("_Made")


class _Key(tuple):
    def __init__(self, _: tuple) -> None:
        self._hash = super().__hash__()

    def __hash__(self) -> int:
        return self._hash


class LruCache(Generic[_Made]):
    """LRU cache of 64 entries with a lock per key; pickled empty."""

    _MOST = 64

    def __init__(self) -> None:
        self._entries: dict[tuple, tuple[threading.Lock, list[_Made]]] = {}
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()

    def get(self, key: tuple, make: Callable[[], _Made]) -> _Made:
        """Return the value of a key, created on the first call."""
        with self._lock:
            lock, made = self._entries.pop(key, (threading.Lock(), []))
            self._entries[key] = lock, made
            if len(self._entries) > self._MOST:
                del self._entries[next(iter(self._entries))]
        with lock:
            if not made:
                made.append(make())
        return made[0]


@check_methods
class PhraseCompiler:
    """Compile phrases to `PhraseBoosts`; the last 64 lists are cached.

        compiler = PhraseCompiler(by_lexicon(lexicon), tokens)
        boosts = compiler.compile({"new york": 1.0, "san jose": 2.0})

    Args:
        speller: From `boost.phrases`, or a function from a list of phrases to the
            spellings of each: sequences of labels; none if it cannot be spelled.
        labels: A token table or a word table.
        options: The amounts.
        boundary: The token between words: phrases then match whole words only.
        matcher: Maps words of phrases to words of the table; None maps none.
        defaults: Returns amounts of phrases without weights by their numbers of labels;
            None uses the weight 1.
    """

    def __init__(
        self,
        speller: Speller,
        labels: TokenTable | Sequence[str],
        options: PhraseOptions | None = None,
        boundary: int | None = None,
        matcher: WordMatcher | None = None,
        defaults: Defaults | None = None,
    ) -> None:
        self.options = options or PhraseOptions()
        self._matcher, self._defaults = matcher, defaults
        self.boundary = boundary
        self.unit: Unit = "token" if isinstance(labels, TokenTable) else "word"
        self.num_labels = len(labels)
        self.speller = speller
        self._remembered: LruCache[PhraseBoosts] = LruCache()

    def __repr__(self) -> str:
        return f"PhraseCompiler(unit={self.unit!r}, {self.options!r})"

    def compile(
        self, phrases: Mapping[str, float] | Iterable[str] | BoostList
    ) -> PhraseBoosts:
        """Compile a list; an equal list, in any order, returns the same object.

        Args:
            phrases: Phrase to weight (negative values penalise), or phrases; a checked
                boost list. Without a weight, or with None, the amount follows from the
                list if the compiler has `defaults`, otherwise the weight is 1.

        Raises:
            BoostError: A phrase is not a string or is empty, has two weights, or a
                weight is not a number.

        Warns:
            BoostWarning: Phrases that cannot be spelled, and words that were matched
                with others; names them.
        """
        if not isinstance(phrases, BoostList):
            phrases = BoostList.weighted(phrases)
        numbers, how = phrases.numbers, show
        if self._matcher is not None:
            numbers, taken = self._matcher.match(numbers)
            how = self._matcher.shown
            if taken:
                warn(taken_message(taken))
        given = self.speller, self.options, self.unit, self.num_labels, self.boundary
        boosts = self._remembered.get(
            tuple(sorted(numbers.items(), key=itemgetter(0))),
            lambda: compile_phrases(numbers, *given, self._defaults),
        )
        if unknown := boosts.unknown:
            shown = first_of(unknown, how)
            text = f"{len(unknown)} boosted phrases cannot be spelt and have no effect"
            warn(f"{text}: {shown}")
        if self._defaults is not None:
            _warn_of_small(_small(numbers, boosts.amounts))
        return boosts


class _LazyBonuses:
    """Default bonuses, prepared at the first call; pickled without their source."""

    def __init__(self, make: Callable[[], DefaultBonuses]) -> None:
        self._make = make

    @cached_property
    def made(self) -> DefaultBonuses:
        return self._make()

    def __call__(self, texts: Iterable[str]) -> dict[str, float]:
        return self.made.of(texts)

    def __getstate__(self) -> dict[str, DefaultBonuses]:
        return {"made": self.made}  # not the function: it may hold a decoder


class BoostCompiler:
    """Compiles users' boosts for the words and tokens of one decoder."""

    # `words`: the word table, `words[0]` being `<eps>`; empty without words.
    # `defaults`: creates the source of default bonuses.

    def __init__(
        self,
        words: Sequence[str],
        word_ids: Mapping[str, int],
        num_tokens: int,
        defaults: Callable[[], DefaultBonuses] | None = None,
        pronouncer: Pronouncer | str = "this decoder has no words",
        *,
        exact: bool = False,
    ) -> None:
        self.matcher = WordMatcher(word_ids, exact=exact)
        self._words, self.word_ids = words, word_ids
        self.pronouncer = pronouncer
        self._num_tokens = num_tokens
        self._lazy = _LazyBonuses(defaults or partial(DefaultBonuses, words))
        # Creates the compiler of lists for decoders without words.
        self.make_phrases: Callable[[], PhraseCompiler] | None = None
        self._remembered: LruCache[_Compiled] = LruCache()
        self._given: LruCache[_Compiled] = LruCache()  # the same, by the user's value

    @property
    def defaults_of_phrases(self) -> Defaults:
        """Function from the phrases of a list to their bonuses, nats."""
        if not self._words:
            return partial(bonuses_of_lengths, self._num_tokens)
        return self._lazy

    def is_rare(self, word: str, commonest: int) -> bool | None:
        """Return whether a word is none of the commonest; see `Decoder.is_rare`."""
        return self._lazy.made.is_rare(self.matcher.candidates(word), commonest)

    def compile(
        self, boosts: BoostsLike | Sequence, n: int, scale: float = 1.0
    ) -> list[CompiledBoosts]:
        """Return the compiled boosts of N utterances; equal lists are compiled once."""
        if is_one_list(boosts):
            of_all = self._compile_one(boosts, scale)
            self._warn_of([of_all])
            return [of_all.boosts] * n
        # By identity: lists are not hashable, and one list for many is one object.
        done: dict[int, _Compiled] = {}
        each = of_each(boosts, n)
        for i, one in enumerate(each):
            try:
                if id(one) not in done:
                    done[id(one)] = self._compile_one(one, scale)
            except BoostError as error:
                error.utterance = i
                raise
        self._warn_of(done.values())
        return [done[id(one)].boosts for one in each]

    def _compile_one(self, given: BoostsLike, scale: float) -> _Compiled:
        if isinstance(given, CompiledBoosts):
            return _Compiled(given)

        def checked() -> _Compiled:
            listed = BoostList.of(given)
            key = listed.content, scale
            return self._remembered.get(key, lambda: self._compile(listed, scale))

        # Lists that were passed before are not checked again.
        if not isinstance(given, dict | list | tuple):
            return checked()
        numbers = tuple(given.values()) if isinstance(given, dict) else ()
        try:
            key = _Key((type(given), tuple(given), numbers, scale))
        except TypeError:  # not hashable: the check reports it
            return checked()
        return self._given.get(key, checked)

    def _compile(self, listed: BoostList, scale: float) -> _Compiled:
        numbers, phrases = listed.numbers, listed.phrases
        if not self._words and (numbers or listed.pronunciations):
            return self._compile_tokens(listed, scale)
        large = {text: n for text, n in numbers.items() if n is not None and n > _LARGE}
        numbers, taken = self.matcher.match(numbers, listed.pronunciations)
        prons, unknown_tokens = self._prons_of(numbers, listed.pronunciations)
        bonuses = self._with_defaults(numbers, prons)
        oov = OovWords.of(prons, bonuses, self.word_ids, len(self._words))
        # An OOV word gets its bonus on its arcs, not by its id.
        new = oov.words if oov else ()
        several = {text: bonus for text, bonus in bonuses.items() if " " in text}
        single = bonuses.keys() - several.keys() - {*new}
        words, unknown = compile_word_boosts(
            {text: bonuses[text] for text in single}, self.word_ids
        )
        if several:
            known = len(self._words)
            added = {word: known + i for i, word in enumerate(new)}
            speller = by_words(ChainMap(added, self.word_ids))  # type: ignore[arg-type]
            size = known + len(new)
            phrases = compile_phrases(several, speller, _TOTALS, "word", size)
            unknown += phrases.unknown
        if phrases is not None:
            phrases = self._checked(phrases, len(new))
        made = scaled_boosts(CompiledBoosts(words, phrases, oov), scale)
        without = [text for text in single if numbers.get(text) is None]
        alike = self._lazy.made.alike(without) if len(without) > 1 else ()
        small = _small(numbers, bonuses)
        reports = unknown, unknown_tokens, listed.phrases, taken, large, alike, small
        return _Compiled(made, *reports)

    def _compile_tokens(self, listed: BoostList, scale: float) -> _Compiled:
        if self._phrases is None or listed.pronunciations or listed.phrases:
            raise BoostError(f"boosts has pronunciations or two lists, {_ONLY_TOKENS}")
        with collected_warnings() as texts:
            phrases = self._checked(self._phrases.compile(listed), 0)
        no_words = compile_word_boosts(None, {})[0]
        made = scaled_boosts(CompiledBoosts(no_words, phrases), scale)
        return _Compiled(made, texts=texts)

    @cached_property
    def _phrases(self) -> PhraseCompiler | None:
        return None if self.make_phrases is None else self.make_phrases()

    def _prons_of(
        self, numbers: Iterable[str], pronounced: Mapping[str, Sequence[tuple]]
    ) -> G2pResult:
        """Return pronunciations that the decoder lacks, of the words of a list."""
        pronouncer = self.pronouncer
        if isinstance(pronouncer, str):
            if not pronounced:
                return G2pResult({}, {})
            raise BoostError(
                f"{min(pronounced)!r} has pronunciations, but {pronouncer}"
            )
        prons = {word: pronouncer.read(word, one) for word, one in pronounced.items()}
        # A dict keeps the order: programs receive the same one each time.
        words = dict.fromkeys(word for text in numbers for word in text.split())
        missing = [w for w in words if w not in self.word_ids and w not in prons]
        found, unknown_tokens = pronouncer.say(missing) if missing else ({}, {})
        return G2pResult(prons | found, unknown_tokens)

    def _with_defaults(
        self, numbers: Mapping[str, float | None], prons: Mapping[str, list[Spelling]]
    ) -> dict[str, float]:
        """Return all bonuses of a list, and those of OOV words only in phrases."""
        new = {word: s for word, s in prons.items() if word not in self.word_ids}
        without = {text: None for text, bonus in numbers.items() if bonus is None}
        without |= dict.fromkeys(word for word in new if word not in numbers)
        others = numbers.keys() - without.keys()
        bonuses = self._lazy.made.of(without, new, others) if without else {}
        return bonuses | {text: one for text, one in numbers.items() if one is not None}

    def _warn_of(self, compiled: Collection[_Compiled]) -> None:
        for text in dict.fromkeys(t for one in compiled for t in one.texts):
            warn(text)
        if large := {text: n for one in compiled for text, n in one.large.items()}:
            warn(
                f"{len(large)} bonuses are above {_LARGE:g} nats, expected a few nats: "
                + first_of(sorted(large), lambda text: f"{large[text]:g} of {text!r}")
            )
        if taken := {word: w for one in compiled for word, w in one.taken.items()}:
            warn(taken_message(taken))
        if alike := _all_of([one.alike for one in compiled]):
            warn(
                f"boosted words sound the same ({len(alike)} pairs), and the language "
                "model chooses: " + first_of(alike, lambda p: f"{p[0]!r} and {p[1]!r}")
            )
        _warn_of_small(_all_of([one.small for one in compiled]))
        if unknown := sorted({word for one in compiled for word in one.unknown}):
            warn(
                f"{len(unknown)} boosted words are not in the decoder's table and have "
                f"no effect: {first_of(unknown, self.matcher.shown)}; expected its "
                "words, or pronunciations or g2p for others"
                + unknown_tokens_message(one.unknown_tokens for one in compiled)
            )

    def _checked(self, phrases: PhraseBoosts, num_oov: int) -> PhraseBoosts | None:
        """Return the phrases, None if they have no effect."""
        of_words = phrases.unit == "word"
        if of_words and not self._words:
            raise BoostError(f"boosts has phrases of words, {_ONLY_TOKENS}")
        size = len(self._words) if of_words else self._num_tokens
        if phrases.num_labels not in (size, size + num_oov * of_words):
            raise BoostError(
                f"boosts has phrases over {phrases.num_labels} {phrases.unit}s, "
                f"expected {size}: compile them for this decoder's {phrases.unit} table"
            )
        return phrases if phrases.num_arcs else None


class _Compiled(NamedTuple):
    """Compiled boosts, and warnings."""

    boosts: CompiledBoosts
    unknown: Sequence[str] = ()  # words that the decoder does not have
    unknown_tokens: Mapping[str, Sequence[str]] = {}  # names of g2p, and their words
    phrases: PhraseBoosts | None = None  # kept alive: the list is known by their id
    taken: Mapping[str, str] = {}  # words that were taken for others
    large: Mapping[str, float] = {}
    alike: Sequence[tuple[str, str]] = ()  # pairs of words that sound the same
    small: Sequence[str] = ()  # texts whose bonuses follow from the list, and are small
    texts: Sequence[str] = ()  # warnings of phrases of tokens


_collected: ContextVar[list[str] | None] = ContextVar("collected", default=None)


@contextlib.contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """Collect the texts of this thread's warnings instead of issuing them."""
    # `warnings.catch_warnings` affects all threads.
    texts: list[str] = []
    before = _collected.set(texts)
    try:
        yield texts
    finally:
        _collected.reset(before)


def warn(text: str) -> None:
    """Issue or collect a warning about boosts."""
    if (texts := _collected.get()) is not None:
        texts.append(text)
    else:
        warnings.warn(text, BoostWarning, stacklevel=levels_inside())


def _small(
    numbers: Mapping[str, float | None], bonuses: Mapping[str, float]
) -> list[str]:
    without = (text for text, number in numbers.items() if number is None)
    return sorted(text for text in without if bonuses.get(text, _SMALL) < _SMALL)


def _all_of(found: Sequence[Sequence[Any]]) -> Sequence[Any]:
    """Return sorted reports of several lists, each once; of one list unchanged."""
    return found[0] if len(found) == 1 else sorted(set(chain.from_iterable(found)))


def _warn_of_small(texts: Sequence[str]) -> None:
    if texts:
        reason = "they are likely or short, sound as likelier words, or are many"
        warn(
            f"less than {_SMALL:g} nats for {len(texts)} boosts without a number, "
            f"since {reason}: {first_of(texts)}"
        )


def unknown_tokens_message(found: Iterable[Mapping[str, Sequence[str]]]) -> str:
    """Name tokens that the table lacks and their words, as the end of a message."""
    words: dict[str, set[str]] = {}
    for one in found:
        for name, some in one.items():
            words.setdefault(name, set()).update(some)
    most = sorted(words.items(), key=lambda item: (-len(item[1]), item[0]))
    shown = first_of([f"{n!r} in {len(w)} ({min(w)!r})" for n, w in most], str)
    return f"; g2p has names that are no tokens: {shown}" if shown else ""


Tokenizer = Callable[[str], Sequence[str]]
"""Function from text to names of tokens."""


def phrase_compiler(
    vocabulary: Vocabulary,
    options: PhraseOptions | None = None,
    *,
    unit: Unit | None = None,
    boundary: str | None = None,
    sentencepiece_model: str | os.PathLike[str] | None = None,
    tokenizer: Tokenizer | None = None,
    matcher: WordMatcher | None = None,
    defaults: Defaults | None = None,
) -> PhraseCompiler:
    """Return a compiler of phrases; see `Decoder.phrase_compiler`."""
    # `tokenizer`: tokenises phrases without a lexicon or a SentencePiece model; with
    # one, it warns about phrases that it tokenises differently.
    if vocabulary.words and sentencepiece_model is not None:
        raise OptionError(
            f"sentencepiece_model={os.fspath(sentencepiece_model)!r} for a decoder "
            "that has words, expected None: its lexicon spells phrases"
        )
    if unit not in (None, "word", "token"):
        raise OptionError(f"unit={unit!r}, expected 'word', 'token' or None")
    words = vocabulary.words
    if (unit or ("word" if words else "token")) == "word":
        if not words:
            raise OptionError(
                "unit='word', expected 'token': this decoder has no words"
            )
        if boundary is not None:
            raise OptionError(
                f"boundary={boundary!r} with phrases of words, expected unit='token'"
            )
        speller = by_words(word_ids(words))
        return PhraseCompiler(speller, words, options, None, matcher, defaults)
    tokens = vocabulary.tokens
    edge = None if boundary is None else tokens.index(boundary, "boundary")
    between, optional = edge, False
    if edge is None:
        # The default boundary is the separator if it is between all words: an optional
        # separator does not mark word ends.
        between, optional = vocabulary.separator, vocabulary.separator_optional
        edge = None if optional else between
    if vocabulary.lexicon is not None:
        lexicon = vocabulary.lexicon
        speller = by_lexicon(lexicon, separator=between, separator_optional=optional)
        return PhraseCompiler(speller, tokens, options, edge, matcher, defaults)
    own = getattr(tokenizer, "spell", None)  # a ModelTokenizer
    if tokenizer is not None and own is None:
        own = by_tokenizer(tokenizer, tokens=tokens)
    if own is None or sentencepiece_model is not None:
        given = {"separator": between, "sentencepiece_model": sentencepiece_model}
        speller = by_table(tokens, **given)  # type: ignore[arg-type]
        own = speller if own is None else partial(_spelt_as_given, speller, own)
    return PhraseCompiler(own, tokens, options, edge, matcher, defaults)


def _spelt_as_given(
    speller: Speller, own: Speller, phrases: Sequence[str]
) -> Sequence[Sequence[Spelling]]:
    """Spell phrases by one speller; warn if the model's tokenizer differs."""
    spelt, expected = speller(phrases), own(phrases)
    pairs = zip(phrases, spelt, expected, strict=True)
    if differ := [text for text, a, b in pairs if a and not {*a} & {*b}]:
        warn(
            f"{len(differ)} boosted phrases have other pieces than the model's own "
            f"tokenizer cuts and may have no effect: {first_of(differ)}"
        )
    return spelt
