"""Lexicons: the tokens of each word's pronunciations or spelling.

    lexicon = read_lexicon("lexicon.txt", tokens, separator="<wb>")
    lexicon.words[0], lexicon.pronunciations[0], lexicon.costs[0]     # 'a', (32,), 0.0
    lexicon, dropped = lexicon.restrict(model.index)      # the words that an LM has
    lexicon = spelling_lexicon(["hello"], tokens)         # h e l l o
    words = word_table(lexicon)                      # ids follow the order of the file

A word may have several entries. No entry contains the separator between words.
"""

from __future__ import annotations

import importlib
import logging
import math
import os
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from unicodedata import is_normalized, normalize

import numpy as np

from wfstdec.errors import LexiconError, OptionError, check_listed, levels_inside, needs
from wfstdec.text.display import few, short
from wfstdec.text.files import PathLike, read_lines, reading
from wfstdec.text.tokens import (
    DISAMBIGUATION,
    EPSILON,
    EPSILON_WORD,
    TokenTable,
    byte_name,
    byte_tokens,
    is_byte_level,
    token_table,
)

WORD_START = "\u2581"  # SentencePiece's mark of a space
MARKS = frozenset(("<s>", "</s>", "<unk>", "<UNK>", EPSILON_WORD))
_USUAL_NAMES = ("bpe.model", "tokenizer.model")
_ALTERNATE = re.compile(r"(.+)\(\d+\)")
_SPECIAL = re.compile(r"<.+>|\[.+\]")
_log = logging.getLogger(__name__)
_build_log = logging.getLogger("wfstdec.build")

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
        counts = f"{len(self):,} pronunciations of {len(words):,} words"
        return f"Lexicon({counts}: {few(words)})"

    def by_word(self) -> dict[str, list[Pronunciation]]:
        """Pronunciations of each word, in order."""
        found: dict[str, list[Pronunciation]] = {}
        for word, tokens in zip(self.words, self.pronunciations, strict=True):
            found.setdefault(word, []).append(tuple(tokens))
        return found

    def restrict(self, keep: Collection[str]) -> tuple[Lexicon, list[str]]:
        """Return the entries whose words are in `keep`, and the other words."""
        rows = [row for row, word in enumerate(self.words) if word in keep]
        dropped = dict.fromkeys(word for word in self.words if word not in keep)
        kept = Lexicon(
            tuple(self.words[row] for row in rows),
            tuple(self.pronunciations[row] for row in rows),
            self.costs[rows],
        )
        return kept, list(dropped)


def read_lexicon(
    path: PathLike,
    tokens: TokensLike,
    *,
    separator: str | int | None = None,
    has_probs: bool | None = None,
) -> Lexicon:
    """Read a lexicon, `word tokens...` or `word probability tokens...` a line.

    Fields are separated by tabs or spaces. Lines that begin with `;;;` or `# ` and text
    after a lone `#` (unless that is a token) are comments. Duplicates are merged, with
    the higher probability, and their number is logged. Kaldi's disambiguation symbols
    (`#1`) at the end of entries are ignored. `word(2)`, as in cmudict, is another
    pronunciation of `word`, if an earlier entry has `word`. Words are read in Unicode's
    form NFC, as those of all files.

    Args:
        path: The file, plain or gzip.
        tokens: The table that the pronunciations refer to, as `token_table` takes it.
        separator: The token between words, by name or index; it is removed from the
            ends of pronunciations, as in Flashlight's lexicons.
        has_probs: Whether there are probabilities (of (0, 1], Kaldi's lexiconp); None:
            whether the second field of the first entry is a number and not a token.

    Raises:
        LexiconError: A malformed entry, or one that does not fit the tokens; the
            message names file and line.
        TokenTableError: The separator is not a token.
        FormatError: The file cannot be read or is not UTF-8.
    """
    tokens = load_tokens(tokens, None)
    between = _separator(separator, tokens)
    entries: dict[tuple[str, Pronunciation], float] = {}
    repeated = []
    seen = set()
    for number, (word, *fields) in _entries(read_lines(path), "#" not in tokens.ids):
        word = normalize("NFC", word)
        if (alternate := _ALTERNATE.fullmatch(word)) and alternate[1] in seen:
            word = alternate[1]
        seen.add(word)
        try:
            # The first entry decides for all entries.
            if has_probs is None:
                is_token = not fields or fields[0] in tokens.ids
                has_probs = not is_token and _number(fields[0]) is not None
            cost = _cost(word, "".join(fields[:1])) if has_probs else 0.0
            names = fields[1:] if has_probs else fields
            entry = word, _pronunciation(word, names, tokens, between)
        except LexiconError as error:
            raise LexiconError(f"{path}:{number}: {error}") from None
        num_entries = len(entries)
        if cost < entries.setdefault(entry, cost):
            entries[entry] = cost
        if len(entries) == num_entries:
            repeated.append(f"{word!r} in line {number}")
    if not entries:
        raise LexiconError(f"{path}: no entries, expected 'word tokens...' in lines")
    if repeated:
        text = "%s: %d duplicate entries are merged, first %s"
        _log.info(text, path, len(repeated), repeated[0])
    words, pronunciations = zip(*entries, strict=True)
    return Lexicon(words, pronunciations, np.array([*entries.values()], np.float32))


def spelling_lexicon(
    words: Iterable[str],
    tokens: TokensLike,
    *,
    separator: str | int | None = None,
    sentencepiece_model: PathLike | Any = None,
    skip: bool = False,
) -> Lexicon:
    """Spell words with the tokens themselves: characters, or SentencePiece pieces.

    With a SentencePiece model the word is cut by the model. Without one it is cut into
    the fewest tokens; ties go to longer first tokens. If tokens (other than the
    separator) begin with U+2581, or with `Ġ` in tables of byte-level BPE, so does each
    word. A character without a token is spelled by its bytes, if the table has them
    (`<0xC3>`). Tokens like `<s>` or `[UNK]`, the blank and the separator spell nothing.

    Args:
        words: Words; repeated ones count once, `<s>`, `</s>` and `<unk>` not at all.
        tokens: The token table, as `token_table` takes it.
        separator: The token between words, by name or index.
        sentencepiece_model: The `.model` file or processor that goes with the tokens.
        skip: Omit words that cannot be spelled, with a warning.

    Raises:
        LexiconError: A word cannot be spelled, or with `skip` no word can.
        TokenTableError: The separator is not a token.
        BackendError: A model is given and sentencepiece is not installed.
    """
    table = load_tokens(tokens, None)
    found, bad = spellable_words(
        words, table, separator=separator, sentencepiece_model=sentencepiece_model
    )
    if bad:
        pieces = spelling_pieces(table, [_separator(separator, table)])
        text = _cannot_spell(bad, len(bad) + len(found), pieces)
        if not skip or not len(found):
            raise LexiconError(text)
        warnings.warn(f"{text}; left out", stacklevel=levels_inside())
    return found


def spellable_words(
    words: Iterable[str],
    tokens: TokenTable,
    *,
    separator: str | int | None = None,
    sentencepiece_model: PathLike | Any = None,
) -> tuple[Lexicon, list[str]]:
    """Return a `spelling_lexicon` of the words that can be spelled, and the others."""
    check_listed("words", words)
    pieces = spelling_pieces(tokens, [_separator(separator, tokens)])
    bytes_of = byte_tokens(tokens.ids)
    if sentencepiece_model is not None:
        named = {tokens.names[token]: token for token in bytes_of.values()}
        spell = _sentencepiece_speller(sentencepiece_model, pieces | named)
    else:
        spell = _fewest_pieces_speller(pieces, bytes_of)
    unique = [word for word in dict.fromkeys(words) if word not in MARKS]
    # Tokens may be in another Unicode form than words.
    spelt = {
        word: next(filter(None, map(spell, [word, *_other_forms(word)])), None)
        for word in unique
    }
    known = {word: tokens for word, tokens in spelt.items() if tokens}
    costs = np.zeros(len(known), np.float32)
    found = Lexicon(tuple(known), tuple(known.values()), costs)
    return found, [word for word in unique if word not in known]


def _other_forms(word: str) -> list[str]:
    return [] if word.isascii() else [normalize(form, word) for form in ("NFC", "NFD")]


def spelling_pieces(
    tokens: TokenTable, fillers: Collection[int | None]
) -> dict[str, int]:
    """Return the tokens that may spell words, by name."""
    none = {tokens.blank, *fillers}
    return {n: t for n, t in tokens.ids.items() if t not in none and not is_mark(n)}


def show(text: str) -> str:
    """Return a repr with the Unicode form if it is not NFC."""
    form = "" if is_normalized("NFC", text) else " (decomposed Unicode, not NFC)"
    return repr(text) + form


def is_mark(name: str) -> bool:
    """Return whether a token spells nothing, such as `<unk>` or `[PAD]`."""
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
    for number, line in enumerate(lines, start=1):
        if line.startswith((";;;", "# ")) or line == "#":
            continue
        # Not `line.split()`: other spaces are tokens in some tables.
        fields = [*filter(None, line.replace("\t", " ").split(" "))]
        if hash_is_comment and "#" in fields[1:]:
            del fields[fields.index("#", 1) :]
        if fields:
            yield number, fields


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _cost(word: str, text: str) -> float:
    prob = _number(text) or 0.0
    if not 0.0 < prob <= 1.0:
        found = f"{word!r} has {text!r}"
        raise LexiconError(f"{found}, expected a probability above 0 and up to 1")
    return 0.0 - math.log(prob)


def _pronunciation(
    word: str, names: list[str], tokens: TokenTable, separator: int | None
) -> Pronunciation:
    while names and DISAMBIGUATION.fullmatch(names[-1]) and names[-1] not in tokens.ids:
        names = names[:-1]
    try:
        found = tuple(map(tokens.ids.__getitem__, names))
    except KeyError as error:
        lacks = tokens.lacks(error.args[0])
        raise LexiconError(f"{word!r} uses token {lacks}") from None
    # Flashlight's lexicons end each word with it; here it is between words.
    while found and found[-1] == separator:
        found = found[:-1]
    if word == EPSILON_WORD:
        raise LexiconError(f"word {word!r} is not a word, expected another name")
    if not found:
        raise LexiconError(f"{word!r} has no pronunciation, expected tokens after it")
    if tokens.blank in found:
        name = tokens.names[tokens.blank]
        raise LexiconError(f"{word!r} uses the blank {name!r}, expected other tokens")
    if separator is not None and separator in found:
        inside = f"{word!r} has the separator {tokens.names[separator]!r} inside"
        raise LexiconError(f"{inside}, expected it at the end only")
    return found


def _fewest_pieces_speller(
    pieces: dict[str, int], bytes_of: dict[int, int]
) -> Callable[[str], Pronunciation | None]:
    longest = max(map(len, pieces), default=0)
    mark = WORD_START if any(name.startswith(WORD_START) for name in pieces) else ""
    is_bytes = not mark and is_byte_level(pieces)

    def spell(word: str) -> Pronunciation | None:
        text = byte_name(f" {word}".encode()) if is_bytes else mark + word
        # From the end: the token count of the rest is known before a piece is tried.
        num = [math.inf] * len(text) + [0]
        first: list[tuple[Pronunciation, int]] = [((), 0)] * len(text)
        for start in reversed(range(len(text))):
            one = text[start]
            if bytes_of and one not in pieces and one != WORD_START:
                data = one.encode("utf-8", "replace")
                if all(map(bytes_of.__contains__, data)):
                    num[start] = num[start + 1] + len(data)
                    first[start] = tuple(map(bytes_of.__getitem__, data)), start + 1
            for stop in range(min(len(text), start + longest), start, -1):
                piece = pieces.get(text[start:stop])
                if piece is not None and num[stop] + 1 < num[start]:
                    num[start], first[start] = num[stop] + 1, ((piece,), stop)
        found: list[int] = []
        at = 0
        while num[0] < math.inf and at < len(text):
            tokens, at = first[at]
            found += tokens
        return tuple(found) or None

    return spell


def _sentencepiece_speller(
    path: PathLike, pieces: dict[str, int]
) -> Callable[[str], Pronunciation | None]:
    model = load_sentencepiece(path)

    def spell(word: str) -> Pronunciation | None:
        names = model.encode(word, out_type=str)
        known = tuple(pieces[name] for name in names if name in pieces)
        return known if len(known) == len(names) else None

    return spell


def load_sentencepiece(path: PathLike | Any) -> Any:
    """Read a SentencePiece model, or return a processor."""
    if not isinstance(path, str | os.PathLike):
        if not hasattr(path, "encode_as_pieces"):
            expected = "expected a file or a SentencePieceProcessor"
            raise OptionError(f"sentencepiece_model={short(path)}, {expected}")
        return path
    hint = ": pip install sentencepiece; or leave the model out"
    with needs("a SentencePiece model needs sentencepiece", hint):
        sentencepiece = importlib.import_module("sentencepiece")
    with reading(path, "SentencePiece model"):
        processor = sentencepiece.SentencePieceProcessor()
        processor.Load(os.fspath(path))
        return processor


class SentencePieceFile:
    """SentencePiece model, read when text is first cut."""

    def __init__(self, path: PathLike) -> None:
        self.path = os.fspath(path)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path,)

    def __call__(self, text: str) -> list[str]:
        """Return the names of a text's pieces."""
        return self.model.encode(text, out_type=str)

    @cached_property
    def model(self) -> Any:
        """The processor."""
        return load_sentencepiece(self.path)


def tokenizer_beside(path: PathLike) -> SentencePieceFile | None:
    """Return the SentencePiece model in a file's folder, if any."""
    folder = Path(path).parent
    for name in _USUAL_NAMES:
        if (folder / name).is_file():
            return SentencePieceFile(folder / name)
    return None


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


TokensLike = PathLike | TokenTable | Sequence[str] | Mapping[str, int] | Any
"""File, table, names in order, `{name: token}`, or tokenizer."""
AUTO = "auto"  # separator `|` for tables of Hugging Face, none for others
_warned: set[str] = set()  # Fingerprints of tables whose separator was logged


def load_tokens(tokens: TokensLike, blank: int | str | None) -> TokenTable:
    """Read or build a token table, or check that a table has this blank."""
    if not isinstance(tokens, TokenTable):
        return token_table(tokens, blank)
    if blank is not None and token_table(tokens.names, blank) != tokens:
        raise OptionError(
            f"blank={blank!r} with a token table whose blank is "
            f"{tokens.names[tokens.blank]!r}, expected the same or None"
        )
    return tokens


LexiconLike = PathLike | Lexicon | Mapping[str, Any] | Iterable[tuple[str, Any]]
"""File, lexicon, or words with a pronunciation or a list of them: `c a t`, or names."""


def load_lexicon(
    lexicon: LexiconLike, table: TokenTable, separator: int | None
) -> Lexicon:
    """Read or build a lexicon; the separator is a token, as from `separator_of`."""
    if isinstance(lexicon, Lexicon):
        return lexicon
    if isinstance(lexicon, str | os.PathLike):
        name = None if separator is None else table.names[separator]
        return read_lexicon(lexicon, table, separator=name)
    listed: Any = lexicon.items() if isinstance(lexicon, Mapping) else lexicon
    entries: dict[tuple[str, Pronunciation], None] = {}
    for entry in listed if isinstance(listed, Iterable) else [listed]:
        match entry:
            case (str(word), str(one)):
                spelt: list = [one.split()]
            case (str(word), [str(one), str(), *_]) if " " not in "".join(entry[1]):
                raise LexiconError(
                    f"lexicon has {short(entry)}: one pronunciation or several? "
                    f"expected {one + ' ...'!r}, or a list of lists"
                )
            case (str(word), [*several]):
                spelt = [p.split() if isinstance(p, str) else p for p in several]
            case _:
                word, spelt = "", []
        good = all(
            isinstance(p, list | tuple) and {*map(type, p)} == {str} for p in spelt
        )
        if not (word and spelt and good):
            raise LexiconError(
                f"lexicon has {short(entry)}, expected a file, a Lexicon, or words "
                "with pronunciations: {'cat': 'c a t'}; `spelling_lexicon` spells words"
            )
        for names in spelt:
            entries[word, _pronunciation(word, names, table, separator)] = None
    if not entries:
        raise LexiconError("lexicon has no entries, expected words with pronunciations")
    words, prons = zip(*entries, strict=True)
    return Lexicon(words, prons, np.zeros(len(words), np.float32))


def token_named(name: str | None, table: TokenTable, option: str) -> int | None:
    """Return the token of an option, or None."""
    return None if name is None else table.index(name, option)


def separator_of(
    name: str | None,
    table: TokenTable,
    *,
    lexicon: LexiconLike | None = None,
    silence: str | None = None,
) -> int | None:
    """Return the token between words; `"auto"` is `|` in tables of Hugging Face."""
    if name != AUTO or name in table.ids:
        return token_named(name, table, "separator")
    token = table.word_delimiter
    entries = lexicon.pronunciations if isinstance(lexicon, Lexicon) else ()
    if token is None or silence is not None or any(token in one for one in entries):
        return None
    # Logged once per table: several decoders often share one.
    if table.fingerprint not in _warned:
        _warned.add(table.fingerprint)
        _build_log.warning(
            "'|' is the token between words, as in tables of Hugging Face; "
            "separator='|' (--separator '|') confirms it, None (none) disables it"
        )
    return token


def sayable(
    lexicon: Lexicon, vocabulary: Collection[str], unk_cost: float | None = None
) -> Lexicon:
    """Return the entries whose words the language model has; log the differences."""
    words, known = {*vocabulary} - MARKS, frozenset(lexicon.words)
    if lacking := sorted(words - known):
        text = "%d of %d words of the language model are not in the lexicon: %s"
        _build_log.info(text, len(lacking), len(words), few(lacking, 5))
    marks = {"<s>", "</s>"} & set(lexicon.words)
    if marks:
        raise LexiconError(
            f"{min(marks)!r} is a word of the lexicon, expected spoken words: "
            "a sentence has <s> and </s> by itself"
        )
    # The model can then score every word.
    if unk_cost is not None:
        return lexicon
    kept, dropped = lexicon.restrict(vocabulary)
    if dropped:
        text = "%d of %d lexicon words are not in the language model and are dropped, "
        text += "such as %s; unk_cost would keep them"
        counts = len(dropped), len(set(lexicon.words))
        _build_log.warning(text, *counts, ", ".join(map(repr, dropped[:3])))
    if not len(kept):
        raise LexiconError(
            f"none of the {len(dropped)} lexicon words is in the language model, "
            "expected some: do they differ in case?"
        )
    return kept


def word_table(lexicon: Lexicon) -> tuple[str, ...]:
    """Return the words by id: `<eps>`, then those of the lexicon in order."""
    return (EPSILON_WORD, *dict.fromkeys(lexicon.words))


def word_ids(words: Sequence[str]) -> dict[str, int]:
    """Return the ids of a word table's words, without `<eps>` (id 0)."""
    return {word: i for i, word in enumerate(words) if i != EPSILON}
