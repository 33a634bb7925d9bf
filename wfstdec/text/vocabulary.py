"""Vocabulary of a decoder: tokens, words, pronunciations, OOV words, open words.

    spelling = open_spelling(tokens, separator, lexicon)
    spelling.text([17, 4])      # 'fuchs' of pieces or letters, '<f j u k s>' of phones

An open word is any sequence of tokens other than the blank, separators, and marks such
as `<unk>`; its text is the spelling of its tokens.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, pairwise, repeat
from typing import Any, Literal, NamedTuple

import numpy as np

from wfstdec.jit.records import WeakCache
from wfstdec.text.lexicon import WORD_START, Lexicon, spelling_pieces
from wfstdec.text.tokens import EPSILON_WORD, TokenTable, byte_texts, byte_tokens

Kind = Literal["pieces", "letters", "phones", "[unk]"]
KINDS: tuple[Kind, ...] = ("pieces", "letters", "phones", "[unk]")
UNK: Kind = "[unk]"  # Kind and text of open words that match any speech


@dataclass(frozen=True, eq=False)
class OpenSpelling:
    """Spelling of open words by tokens."""

    # Kind of the tokens: `"pieces"` (U+2581 begins a word), `"letters"`, or `"phones"`
    # (they do not spell the lexicon's words); `UNK`: any
    kind: Kind
    texts: tuple[str, ...]  # Text of each of the V tokens
    begins: np.ndarray  # bool [V], tokens that may begin an open word
    extends: np.ndarray  # bool [V], tokens that may follow inside one
    is_bytes: bool = False  # Whether texts are bytes of UTF-8, as Latin-1

    @property
    def is_spelled(self) -> bool:
        """Whether the text of an open word is a spelling, not phones."""
        return self.kind in ("pieces", "letters")

    def text(self, tokens: Sequence[int]) -> str:
        """Return the text of an open word; empty if its tokens spell nothing."""
        if self.kind == UNK:
            return UNK
        text = "".join(self.texts[token] for token in tokens)
        if self.is_bytes:
            return decoded(text).strip()
        return text if self.is_spelled else f"<{text.rstrip()}>"


def decoded(text: str) -> str:
    """Decode Latin-1 bytes as UTF-8; an incomplete character is U+FFFD."""
    return text.encode("latin-1").decode("utf-8", "replace")


def open_spelling(
    tokens: TokenTable, separator: int | None, lexicon: Lexicon | None
) -> OpenSpelling:
    """Return the spelling of open words; a lexicon distinguishes phones."""
    fillers = () if separator is None else (separator,)
    if separator is None:
        pieces = spelling_of("pieces", tokens, fillers)
        if pieces.begins.any():
            return pieces
    if lexicon is None:
        return spelling_of("letters", tokens, fillers)
    spelled = sum(
        "".join(tokens.names[token] for token in one).casefold() == word.casefold()
        for word, one in zip(lexicon.words, lexicon.pronunciations, strict=True)
    )
    kind: Kind = "letters" if 2 * spelled > len(lexicon) else "phones"
    return spelling_of(kind, tokens, fillers)


def spelling_of(
    kind: Kind, tokens: TokenTable, fillers: Collection[int]
) -> OpenSpelling:
    """Return the spelling of open words by tokens of a kind."""
    names = tokens.names
    usable = np.zeros(len(names), bool)
    usable[list(spelling_pieces(tokens, fillers).values())] = True
    if kind == UNK:  # also across ends of words
        pieces = spelling_of("pieces", tokens, fillers).begins
        extends = usable | np.isin(np.arange(len(names)), list(fillers))
        return OpenSpelling(kind, names, pieces if pieces.any() else usable, extends)
    if kind == "letters":
        return OpenSpelling(kind, names, usable, usable)
    if kind == "phones":
        return OpenSpelling(kind, tuple(f"{name} " for name in names), usable, usable)
    marked = np.array([name.startswith(WORD_START) for name in names])
    # A piece with the mark inside crosses the end of a word.
    whole = usable & np.array([WORD_START not in name[1:] for name in names])
    texts = tuple(name.removeprefix(WORD_START) for name in names)
    if bytes_of := byte_tokens(tokens.ids):
        whole[[token for byte, token in bytes_of.items() if byte > ord(" ")]] = True
        texts = tuple(text.removeprefix(" ") for text in byte_texts(names) or ())
    return OpenSpelling(kind, texts, whole & marked, whole & ~marked, bool(bytes_of))


@dataclass(frozen=True, eq=False, repr=False)
class Pronunciations:
    """Token sequences of words, packed, sorted by word id."""

    word: np.ndarray  # int32 [P], word id of each pronunciation, non-decreasing
    splits: np.ndarray  # int32 [P + 1], of the tokens
    tokens: np.ndarray  # int32, the token ids
    # float32 [P], -ln of the probability, 0 if unknown. The graph's arcs include these
    # costs; here they select the segmentation of tokens into given words
    cost: np.ndarray

    @staticmethod
    def from_lists(
        entries: Iterable[tuple[int, tuple[int, ...]]],
        costs: Iterable[float] | None = None,
    ) -> Pronunciations:
        """Pack `(word id, tokens)` pairs; duplicates keep the lowest cost."""
        least: dict[tuple[int, tuple[int, ...]], float] = {}
        for entry, cost in zip(entries, costs or repeat(0.0), strict=False):
            least[entry] = min(cost, least.get(entry, cost))
        rows = sorted(least)
        each = [tokens for _, tokens in rows]
        splits = np.cumsum([0, *map(len, each)]).astype(np.int32)
        return Pronunciations(
            word=np.array([word for word, _ in rows], np.int32),
            splits=splits,
            tokens=np.fromiter(chain.from_iterable(each), np.int32, int(splits[-1])),
            cost=np.array([least[row] for row in rows], np.float32),
        )

    @staticmethod
    def of_lexicon(lexicon: Lexicon, word_ids: Mapping[str, int]) -> Pronunciations:
        """Pack the entries of a lexicon; words without an id are skipped."""
        known = [word in word_ids for word in lexicon.words]
        entries = zip(lexicon.words, lexicon.pronunciations, strict=True)
        return Pronunciations.from_lists(
            [(word_ids[word], tokens) for word, tokens in entries if word in word_ids],
            lexicon.costs[np.array(known, bool)].tolist(),
        )

    @staticmethod
    def empty() -> Pronunciations:
        """Return no pronunciations, for a graph from elsewhere."""
        return Pronunciations.from_lists([])

    def joined_with(self, others: Pronunciations) -> Pronunciations:
        """Return these and other pronunciations; those of a word are in this order."""
        at, lengths = np.searchsorted(self.word, others.word, "right"), others.lengths
        return Pronunciations(
            word=np.insert(self.word, at, others.word),
            splits=np.insert(
                np.insert(self.lengths, at, lengths).cumsum(dtype=np.int32), 0, 0
            ),
            tokens=np.insert(
                self.tokens, self.splits[at].repeat(lengths), others.tokens
            ),
            cost=np.insert(self.cost, at, others.cost),
        )

    @property
    def lengths(self) -> np.ndarray:
        """Number of tokens of each, int32 [P]."""
        return np.diff(self.splits)

    def lexicon(self, words: Sequence[str]) -> Lexicon:
        """Return a lexicon; `words` are those of the ids."""
        pairs = pairwise(self.splits.tolist())
        tokens = self.tokens.tolist()
        return Lexicon(
            tuple(words[word] for word in self.word.tolist()),
            tuple(tuple(tokens[begin:end]) for begin, end in pairs),
            self.cost,
        )

    def __len__(self) -> int:
        return len(self.word)

    @cached_property
    def word_splits(self) -> np.ndarray:
        """First pronunciation of each word, int32 [max word id + 2]."""
        top = int(self.word[-1]) if len(self.word) else 0
        return np.searchsorted(self.word, np.arange(top + 2)).astype(np.int32)


OPEN_WORD = "<open>"  # entry of a word table for all open words


@dataclass(frozen=True, eq=False, repr=False)
class OovWords(Pronunciations):
    """OOV words of a decoder, and further pronunciations of its words."""

    # Texts of the ids from `num_known` on, sorted
    words: tuple[str, ...]
    # W, the size of the decoder's word table; smaller ids are its words
    num_known: int
    # float32 [P], bonus in nats for each occurrence, above 0 favours; 0 for words of
    # the decoder, whose bonuses are in `CompiledBoosts.words`
    bonus: np.ndarray

    @classmethod
    def of(
        cls,
        prons: Mapping[str, Sequence[tuple[int, ...]]],
        bonuses: Mapping[str, float],
        word_ids: Mapping[str, int],
        num_known: int,
    ) -> OovWords | None:
        """Pack the pronunciations of a list; return None without any."""
        if not any(prons.values()):
            return None
        # Sorted: ids, and with them ties of the search, must not depend on the list's
        # order.
        words = tuple(sorted(word for word in prons if word not in word_ids))
        new = {word: num_known + i for i, word in enumerate(words)}
        packed = Pronunciations.from_lists(
            (new[word] if word in new else word_ids[word], one)
            for word, ways in prons.items()
            for one in ways
        )
        # Further pronunciations of known words have their bonus by the word id.
        of_new = [0.0, *(bonuses.get(word, 0.0) for word in words)]
        number = np.maximum(packed.word - num_known + 1, 0)
        bonus = np.array(of_new, np.float32)[number]
        arrays = packed.word, packed.splits, packed.tokens, packed.cost
        return cls(*arrays, words, num_known, bonus)

    def __repr__(self) -> str:
        return f"OovWords({len(self)} pronunciations, {len(self.words)} words)"

    def total(self, words: Sequence[int]) -> float:
        """Return the sum of the bonuses of word ids, with repetitions, in nats."""
        bonus = dict(zip(self.word.tolist(), self.bonus.tolist(), strict=True))
        return sum(bonus.get(int(word), 0.0) for word in words)


class OpenWord(NamedTuple):
    """Label of open words: `fst/topology.py`."""

    word: int  # its word id; the text is `OPEN_WORD`
    kind: Kind
    token_cost: float  # nats for each of their tokens
    word_cost: float | None = None  # nats for each word; None if unknown


class Oov(NamedTuple):
    """Parts of a vocabulary with OOV words."""

    own: Vocabulary  # without OOV words, whose ids follow
    pronunciations: Pronunciations  # of OOV words, and further ones of its words


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Tokens and words of a graph, a decoder or a lattice."""

    tokens: TokenTable
    words: tuple[str, ...] = ()  # by id, `words[0]` being `<eps>`; may be empty
    # By word id or as a lexicon, which may have further words; may be empty
    entries: Pronunciations | Lexicon = field(default_factory=Pronunciations.empty)
    separators: tuple[int, ...] = ()  # tokens between words: separator, silence
    separated: bool = False  # whether one of these is always between two words
    open_word: OpenWord | None = None
    oov: Oov | None = None  # the part of an utterance's OOV words

    @classmethod
    def of(
        cls,
        tokens: TokenTable,
        words: Sequence[str] = (),
        lexicon: Lexicon | None = None,
        *,
        separator: int | None = None,
        separator_optional: bool = False,
    ) -> Vocabulary:
        """Return the vocabulary of a decoder without a graph."""
        return cls(
            tokens,
            tuple(words),
            Pronunciations.empty() if lexicon is None else lexicon,
            () if separator is None else (separator,),
            separator is not None and not separator_optional,
        )

    def __repr__(self) -> str:
        words = f"{max(0, len(self.words) - 1):,} words"
        return f"Vocabulary({len(self.tokens)} tokens, {words})"

    @property
    def own(self) -> Vocabulary:
        """The vocabulary without an utterance's OOV words."""
        return self if self.oov is None else self.oov.own

    @property
    def separator(self) -> int | None:
        """The one token that may separate words; None if there are several or none."""
        return self.separators[0] if len(self.separators) == 1 else None

    @property
    def separator_optional(self) -> bool:
        """Whether that token may be left out between words."""
        return self.separator is not None and not self.separated

    @cached_property
    def pronunciations(self) -> Pronunciations:
        """Token sequences of each word, by word id; may be empty."""
        if self.oov is not None:  # joined here: decoding needs only the parts
            return self.own.pronunciations.joined_with(self.oov.pronunciations)
        if isinstance(self.entries, Pronunciations):
            return self.entries
        opened = -1 if self.open_word is None else self.open_word.word
        ids = {word: i for i, word in enumerate(self.words) if i != opened}
        return Pronunciations.of_lexicon(self.entries, ids)

    @cached_property
    def fingerprint(self) -> str:
        """32 hex digits over tokens, words, pronunciations and separators."""
        prons = self.pronunciations
        between = (*self.separators, self.separated, self.open_word)
        texts = json.dumps([self.tokens.fingerprint, self.words, between])
        digest = hashlib.blake2b(texts.encode(), digest_size=16)
        for array in (prons.word, prons.splits, prons.tokens, prons.cost):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    @cached_property
    def lexicon(self) -> Lexicon | None:
        """Token sequences of each word as a lexicon; None without any."""
        if self.oov is None and isinstance(self.entries, Lexicon):
            return self.entries
        return self.pronunciations.lexicon(self.words) if self.words else None

    @cached_property
    def open_spelling(self) -> OpenSpelling | None:
        """Spelling of open words, if any."""
        if self.open_word is None:
            return None
        return spelling_of(self.open_word.kind, self.tokens, self.separators)

    def with_open_word(
        self, kind: Kind, token_cost: float, word_cost: float
    ) -> Vocabulary:
        """Return this with a label of open words at the end; costs as in `OpenWord`."""
        opened = OpenWord(len(self.words), kind, token_cost, word_cost)
        return replace(self, words=(*self.words, OPEN_WORD), open_word=opened)

    def with_tokens_as_words(self) -> Vocabulary:
        """Return this with each token as a word, whose id is the token's ilabel."""
        words = (EPSILON_WORD, *self.tokens.names)
        return replace(self, words=words, separated=False)

    def with_oov(self, oov: OovWords | None) -> Vocabulary:
        """Return this with an utterance's OOV words, cached while `oov` exists."""
        return self if oov is None else self._made.of(oov)

    def extended(
        self, words: tuple[str, ...], pronunciations: Pronunciations
    ) -> Vocabulary:
        """Return this with words and pronunciations appended."""
        oov = Oov(self, pronunciations)
        return replace(self, words=(*self.words, *words), oov=oov)

    @cached_property
    def _made(self) -> WeakCache[OovWords, Vocabulary]:
        return WeakCache(self._extended_by)

    def _extended_by(self, oov: OovWords) -> Vocabulary:
        # Their ids also follow those of open words.
        beyond = np.where(oov.word < oov.num_known, 0, len(self.words) - oov.num_known)
        word = (oov.word + beyond).astype(np.int32)
        more = Pronunciations(word, oov.splits, oov.tokens, oov.cost)
        return self.extended(oov.words, more)

    def __getstate__(self) -> dict[str, Any]:
        return {name: x for name, x in self.__dict__.items() if name != "_made"}
