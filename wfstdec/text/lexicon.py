"""Lexicons: the tokens of each word's pronunciations or spelling.

    lexicon = read_lexicon("lexicon.txt", tokens, separator="<wb>")
    lexicon.words[0], lexicon.pronunciations[0], lexicon.costs[0]     # 'a', (32,), 0.0
    lexicon, dropped = lexicon.restrict(model.index)      # the words that an LM has
    lexicon = spelling_lexicon(["hello"], tokens)         # h e l l o

A word may have several entries. The separator between words is no part of any.
"""

from __future__ import annotations

import importlib
import logging
import math
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, repeat
from typing import Any
from unicodedata import is_normalized

import numpy as np

from wfstdec.errors import LexiconError, check_listed, needs
from wfstdec.text.display import few
from wfstdec.text.files import read_lines, reading
from wfstdec.text.tokens import EPSILON_WORD, TokenTable

WORD_START = "\u2581"  # SentencePiece's mark of a space
MARKS = frozenset(("<s>", "</s>", "<unk>", "<UNK>", EPSILON_WORD))
_SPACES = re.compile("[ \t]+")
_SPECIAL = re.compile(r"<.+>|\[.+\]")
_log = logging.getLogger(__name__)

Pronunciation = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Lexicon:
    """Pronunciations of words, one per entry, in the order of the file.

    Attributes:
        words: The word of each entry; words with several entries repeat.
        pronunciations: Its tokens, at least one, never the blank or the separator.
        costs: float32 [N], -ln of its probability; 0 where none was given.
    """

    words: tuple[str, ...]
    pronunciations: tuple[Pronunciation, ...]
    costs: np.ndarray

    def __post_init__(self) -> None:
        check_listed("words", self.words)

    def __len__(self) -> int:
        return len(self.words)

    def __repr__(self) -> str:
        words = list(dict.fromkeys(self.words))
        return (
            f"Lexicon({len(self):,} pronunciations of {len(words):,} words: "
            f"{few(words)})"
        )

    def by_word(self) -> dict[str, list[Pronunciation]]:
        """The pronunciations of each word, in order."""
        found: dict[str, list[Pronunciation]] = {}
        for word, tokens in zip(self.words, self.pronunciations, strict=True):
            found.setdefault(word, []).append(tuple(tokens))
        return found

    def restrict(self, keep: Collection[str]) -> tuple[Lexicon, list[str]]:
        """The entries whose words are in `keep`; the words that are not, once each."""
        rows = [row for row, word in enumerate(self.words) if word in keep]
        dropped = dict.fromkeys(word for word in self.words if word not in keep)
        kept = Lexicon(
            tuple(self.words[row] for row in rows),
            tuple(self.pronunciations[row] for row in rows),
            self.costs[rows],
        )
        return kept, list(dropped)


def read_lexicon(
    path: str | os.PathLike[str],
    tokens: TokenTable,
    *,
    separator: str | int | None = None,
    has_probs: bool | None = None,
) -> Lexicon:
    """Read a lexicon, `word tokens...` or `word probability tokens...` a line.

    Fields stand between tabs or spaces. Lines that begin with `;;;` or `# ` and what
    follows a lone `#` (unless that is a token) are comments. An entry that comes twice
    is read once, with the higher probability, and their number is logged. Alternates
    written `word(2)`, as in cmudict, are words of their own.

    Args:
        path: The file, plain or gzip.
        tokens: The table that the pronunciations refer to.
        separator: The token between words, by name or index; it is taken off the ends
            of pronunciations, where Flashlight's lexicons have it.
        has_probs: Whether there are probabilities (of (0, 1], Kaldi's lexiconp); None
            asks the first entry: is its second field a number and not a token?

    Raises:
        LexiconError: A malformed entry, or one that does not fit the tokens; the
            message names file and line.
        TokenTableError: The separator is not a token.
        FormatError: The file cannot be read or is not UTF-8.
    """
    between = _separator(separator, tokens)
    entries: dict[tuple[str, Pronunciation], float] = {}
    repeated = []
    for number, (word, *fields) in _entries(read_lines(path), "#" not in tokens.ids):
        try:
            # The first entry decides for all: a file mixes no forms.
            if has_probs is None:
                is_token = not fields or fields[0] in tokens.ids
                has_probs = not is_token and _number(fields[0]) is not None
            cost = _cost(word, "".join(fields[:1])) if has_probs else 0.0
            names = fields[1:] if has_probs else fields
            entry = word, _pronunciation(word, names, tokens, between)
        except LexiconError as error:
            raise LexiconError(f"{path}:{number}: {error}") from None
        if entry in entries:
            repeated.append(f"{entry[0]!r} in line {number}")
        entries[entry] = min(cost, entries.get(entry, cost))
    if not entries:
        raise LexiconError(
            f"{path}: no entries, expected 'word tokens...' in each line"
        )
    if repeated:
        text = "%s: %d entries come twice and are read once, first %s"
        _log.info(text, path, len(repeated), repeated[0])
    words, pronunciations = zip(*entries, strict=True)
    return Lexicon(words, pronunciations, np.array(list(entries.values()), np.float32))


def spelling_lexicon(
    words: Iterable[str],
    tokens: TokenTable,
    *,
    separator: str | int | None = None,
    sentencepiece_model: str | os.PathLike[str] | None = None,
) -> Lexicon:
    """Spell words with the tokens themselves: characters, or SentencePiece pieces.

    With a SentencePiece model the word is cut as the model does. Without one it is
    cut into the fewest tokens, of several ways the one whose first tokens are longer.
    Where tokens (other than the separator) begin with U+2581 each word does too. Tokens
    like `<s>` or `[UNK]`, the blank and the separator spell nothing.

    Args:
        words: Words; repeated ones count once, `<s>`, `</s>` and `<unk>` not at all.
        tokens: The token table.
        separator: The token between words, by name or index.
        sentencepiece_model: The `.model` file that goes with the tokens.

    Raises:
        LexiconError: Words that cannot be spelt: a few of them and their number.
        TokenTableError: The separator is not a token.
        BackendError: A model is given and sentencepiece is not installed.
    """
    found, bad = spellable_words(
        words, tokens, separator=separator, sentencepiece_model=sentencepiece_model
    )
    if bad:
        pieces = spelling_pieces(tokens, [_separator(separator, tokens)])
        raise LexiconError(_cannot_spell(bad, len(bad) + len(found), pieces))
    return found


def spellable_words(
    words: Iterable[str],
    tokens: TokenTable,
    *,
    separator: str | int | None = None,
    sentencepiece_model: str | os.PathLike[str] | None = None,
) -> tuple[Lexicon, list[str]]:
    """Make a `spelling_lexicon` of words that can be spelt; and name the others."""
    check_listed("words", words)
    pieces = spelling_pieces(tokens, [_separator(separator, tokens)])
    if sentencepiece_model is not None:
        spell = _sentencepiece_speller(sentencepiece_model, pieces)
    else:
        marked = any(name.startswith(WORD_START) for name in pieces)
        spell = _fewest_pieces_speller(pieces, WORD_START if marked else "")
    unique = [word for word in dict.fromkeys(words) if word not in MARKS]
    spelt = {word: spell(word) for word in unique}
    known = {word: tokens for word, tokens in spelt.items() if tokens}
    costs = np.zeros(len(known), np.float32)
    found = Lexicon(tuple(known), tuple(known.values()), costs)
    return found, [word for word in unique if word not in known]


def spelling_pieces(
    tokens: TokenTable, fillers: Collection[int | None]
) -> dict[str, int]:
    """The tokens that may spell words, by name."""
    none = {tokens.blank, *fillers}
    return {n: t for n, t in tokens.ids.items() if t not in none and not is_mark(n)}


def show(text: str) -> str:
    """Show a text; names its Unicode form where that is not the usual one."""
    form = "" if is_normalized("NFC", text) else " (decomposed Unicode, not NFC)"
    return repr(text) + form


def is_mark(name: str) -> bool:
    """Tell whether a token is a mark that spells nothing, as `<unk>` or `[PAD]`."""
    return _SPECIAL.fullmatch(name) is not None


def _separator(separator: str | int | None, tokens: TokenTable) -> int | None:
    if separator is None:
        return None
    token = separator
    if isinstance(token, str):
        token = tokens.index(token, "separator")
    if not 0 <= token < len(tokens) or token == tokens.blank:
        raise LexiconError(
            f"separator is {separator!r}, expected one of the V={len(tokens)} tokens "
            f"and not the blank {tokens.names[tokens.blank]!r}"
        )
    return token


def _entries(
    lines: list[str], hash_is_comment: bool
) -> Iterator[tuple[int, list[str]]]:
    """Line numbers and fields of the lines that are neither empty nor comments."""
    for number, line in enumerate(lines, start=1):
        if line.startswith((";;;", "# ")) or line == "#":
            continue
        fields = _SPACES.split(line.strip(" \t"))
        if hash_is_comment and "#" in fields[1:]:
            del fields[fields.index("#", 1) :]
        if fields[0]:
            yield number, fields


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _cost(word: str, text: str) -> float:
    prob = _number(text) or 0.0
    if not 0.0 < prob <= 1.0:
        raise LexiconError(
            f"{word!r} has {text!r}, expected a probability above 0 and up to 1"
        )
    return 0.0 - math.log(prob)


def _pronunciation(
    word: str, names: list[str], tokens: TokenTable, separator: int | None
) -> Pronunciation:
    try:
        found = [tokens.ids[name] for name in names]
    except KeyError as error:
        raise LexiconError(
            f"{word!r} uses token {tokens.lacks(error.args[0])}"
        ) from None
    # Flashlight's lexicons end each word with it; here it stands between words.
    while found and found[-1] == separator:
        found.pop()
    if word == EPSILON_WORD:
        raise LexiconError(f"word {word!r} stands for no word, expected another name")
    if not found:
        raise LexiconError(f"{word!r} has no pronunciation, expected tokens after it")
    if tokens.blank in found:
        name = tokens.names[tokens.blank]
        raise LexiconError(f"{word!r} uses the blank {name!r}, expected other tokens")
    if separator is not None and separator in found:
        raise LexiconError(
            f"{word!r} has the separator {tokens.names[separator]!r} inside, "
            "expected it at the end only"
        )
    return tuple(found)


def _fewest_pieces_speller(
    pieces: dict[str, int], prefix: str
) -> Callable[[str], Pronunciation | None]:
    longest = max(map(len, pieces), default=0)

    def spell(word: str) -> Pronunciation | None:
        text = prefix + word
        best: list[Pronunciation | None] = [None] * len(text) + [()]
        # From the end: the best rest is known when a piece before it is tried.
        for start in reversed(range(len(text))):
            for stop in range(min(len(text), start + longest), start, -1):
                piece = pieces.get(text[start:stop])
                rest, known = best[stop], best[start]
                if piece is None or rest is None:
                    continue
                if known is None or len(rest) + 1 < len(known):
                    best[start] = (piece, *rest)
        return best[0]

    return spell


def _sentencepiece_speller(
    path: str | os.PathLike[str], pieces: dict[str, int]
) -> Callable[[str], Pronunciation | None]:
    model = load_sentencepiece(path)

    def spell(word: str) -> Pronunciation | None:
        names = model.encode(word, out_type=str)
        known = tuple(pieces[name] for name in names if name in pieces)
        return known if len(known) == len(names) else None

    return spell


def load_sentencepiece(path: str | os.PathLike[str]) -> Any:
    """Read a SentencePiece model."""
    hint = ": pip install sentencepiece; or leave the model out"
    with needs("a SentencePiece model needs sentencepiece", hint):
        sentencepiece = importlib.import_module("sentencepiece")
    with reading(path, "SentencePiece model"):
        return sentencepiece.SentencePieceProcessor(model_file=os.fspath(path))


def _cannot_spell(bad: list[str], total: int, pieces: dict[str, int]) -> str:
    known = set("".join(pieces))
    missing = sorted(set("".join(bad)) - known)
    listed = ", ".join(map(show, bad[:5])) + (", ..." if len(bad) > 5 else "")
    lacks = f"; no token has {', '.join(map(repr, missing[:5]))}" if missing else ""
    swapped = sum(known.issuperset(word.swapcase()) for word in bad)
    if 2 * swapped > len(bad):
        lacks += ", but in the other case"
        lacks += f" for {swapped} words" if swapped < len(bad) else ""
    return (
        f"{len(bad)} of {total} words cannot be spelt with the token table, "
        f"expected none: {listed}{lacks}"
    )


@dataclass(frozen=True, eq=False)
class Pronunciations:
    """The token sequences of each word, in rows, sorted by word id."""

    word: np.ndarray  # int32 [P], the word id of each pronunciation, non-decreasing
    splits: np.ndarray  # int32 [P + 1], of the tokens
    tokens: np.ndarray  # int32, the token ids
    # float32 [P], -ln of the probability, 0 where none is known. The graph's arcs have
    # these costs too; here they decide between ways to cut tokens into the same words
    cost: np.ndarray

    def __repr__(self) -> str:
        num_words = len(np.unique(self.word))
        return f"Pronunciations({len(self):,} of {num_words:,} words)"

    @staticmethod
    def from_lists(
        entries: Iterable[tuple[int, tuple[int, ...]]],
        costs: Iterable[float] | None = None,
    ) -> Pronunciations:
        """Pack `(word id, tokens)` pairs; of equal ones the least cost is kept."""
        least: dict[tuple[int, tuple[int, ...]], float] = {}
        for entry, cost in zip(entries, costs or repeat(0.0), strict=False):
            least[entry] = min(cost, least.get(entry, cost))
        rows = sorted(least)
        return Pronunciations(
            word=np.array([word for word, _ in rows], np.int32),
            splits=np.cumsum([0, *(len(one) for _, one in rows)]).astype(np.int32),
            tokens=np.array([t for _, tokens in rows for t in tokens], np.int32),
            cost=np.array([least[row] for row in rows], np.float32),
        )

    @staticmethod
    def of_lexicon(lexicon: Lexicon, word_ids: Mapping[str, int]) -> Pronunciations:
        """Pack the entries of a lexicon; those of words without an id are left out."""
        known = [word in word_ids for word in lexicon.words]
        entries = zip(lexicon.words, lexicon.pronunciations, strict=True)
        return Pronunciations.from_lists(
            [(word_ids[word], tokens) for word, tokens in entries if word in word_ids],
            lexicon.costs[np.array(known, bool)].tolist(),
        )

    @staticmethod
    def empty() -> Pronunciations:
        """No pronunciation at all, as in a graph that came from elsewhere."""
        return Pronunciations.from_lists([])

    def joined_with(self, others: Pronunciations) -> Pronunciations:
        """Join other pronunciations to these; those of a word stand in this order."""
        word = np.concatenate([self.word, others.word])
        order = np.argsort(word, kind="stable")
        lengths = np.concatenate([np.diff(self.splits), np.diff(others.splits)])
        tokens = np.concatenate([self.tokens, others.tokens])
        # Sorted by the new place of each pronunciation, tokens in one keep their order.
        row = np.argsort(np.repeat(np.argsort(order), lengths), kind="stable")
        return Pronunciations(
            word=word[order],
            splits=np.concatenate([[0], np.cumsum(lengths[order])]).astype(np.int32),
            tokens=tokens[row],
            cost=np.concatenate([self.cost, others.cost])[order],
        )

    def lexicon(self, words: Sequence[str]) -> Lexicon:
        """Make a lexicon of them; `words` are those of the ids."""
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
        """Where each word's pronunciations stand, int32 [max word id + 2]."""
        top = int(self.word[-1]) if len(self.word) else 0
        return np.searchsorted(self.word, np.arange(top + 2)).astype(np.int32)
