"""Grapheme-to-phoneme conversion by files, programs and models.

    G2p("cmudict.dict")                   # a lexicon, in any phones that have tokens
    G2p("phonetisaurus-apply --model m")  # a program: words in, `word<TAB>phones` out
    G2p("hama")                           # a model: pip install hama==1.7.0
    G2p("pieces.model")                   # SentencePiece; "spelling" needs no model
    G2p({"fuchs": ["f j u k s"]})         # or a function of a word, or a `Lexicon`
    G2p("say.sh", phones="phones.txt")    # with a table from phones to tokens

Phones are tokens of the same name; without one, tokens that differ only in stress,
length and ties; or ARPAbet's in IPA.
"""

from __future__ import annotations

import functools
import importlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from wfstdec.boost.phrases import Spelling, by_table
from wfstdec.errors import BoostError, FormatError, OptionError, needs
from wfstdec.text.display import short
from wfstdec.text.files import read_lines
from wfstdec.text.lexicon import WORD_START, Lexicon
from wfstdec.text.tokens import TokenTable

Ways = Sequence[str | Sequence[str]] | str
"""Pronunciations, each the names of phones; a string is one."""
SPELLING, HAMA = "spelling", "hama"
ARPABET = dict(
    pair.split("=")
    for pair in """
    AA=ɑ AE=æ AH0=ə AH=ʌ AO=ɔ AW=aʊ AY=aɪ B=b CH=t͡ʃ D=d DH=ð EH=ɛ ER=ɝ EY=eɪ F=f G=g
    HH=h IH=ɪ IY=i JH=d͡ʒ K=k L=l M=m N=n NG=ŋ OW=oʊ OY=ɔɪ P=p R=ɹ S=s SH=ʃ T=t TH=θ
    UH=ʊ UW=u V=v W=w Y=j Z=z ZH=ʒ
    """.split()
)
"""ARPAbet in IPA, as in cmudict; stress matters for one vowel only."""
_IGNORED = str.maketrans({"ɡ": "g"} | dict.fromkeys("ˈˌːˑ͜͡"))
"""Stress, length, ties; and Unicode's second letter for g."""
_PROBABILITY = re.compile(r"[01]?\.\d+([eE]-?\d+)?|1(\.0*)?")
_ALTERNATE = re.compile(r"\(\d+\)$")
_SHOWN = 200  # characters of a program's output in an error


class G2p:
    """Grapheme-to-phoneme conversion.

    Args:
        source: A function from a word to pronunciations, a mapping from word to them, a
            `Lexicon` over the decoder's tokens; or a string: the file of a lexicon or
            of a SentencePiece model (`.model`), a program with its arguments,
            `"hama"`, or `"spelling"`. A program reads words, one per line, and writes
            one line per pronunciation: the word, a tab, phones; columns in between are
            ignored.
        phones: Phone to tokens, names with spaces between them; or a file of lines
            `phone tokens...`. A phone without tokens is dropped. Others map by name.

    Raises:
        OptionError: The source is none of these.
        FormatError: A file cannot be read.
        BackendError: hama is not installed.
    """

    def __init__(
        self,
        source: Callable[[str], Ways] | Mapping[str, Ways] | Lexicon | _Path,
        phones: Mapping[str, str] | _Path | None = None,
    ) -> None:
        self._given = source, phones
        self.sentencepiece_model: str | None = None
        self._source = self._found(source)
        if isinstance(phones, str | os.PathLike):
            lines = (line for line in read_lines(phones) if not line.startswith("# "))
            rows = (line.split() for line in lines if line.strip())
            self._phones = {phone: names for phone, *names in rows}
        else:
            self._phones = {one: name.split() for one, name in (phones or {}).items()}

    def __repr__(self) -> str:
        source, phones = self._given
        more = "" if phones is None else ", phones given"
        return f"G2p({source!r}{more})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._given

    def say(self, words: Sequence[str], tokens: TokenTable) -> _Names:
        """Return pronunciations of words as names of tokens, in the table or not."""
        if isinstance(self._source, Lexicon):
            lists, names = self._source.by_word(), tokens.names
            spoken = {word: sorted({*lists.get(word, ())}) for word in words}
            return {w: [tuple(names[t] for t in p) for p in spoken[w]] for w in words}
        known = dict(self._phones)
        bare = {name.translate(_IGNORED): name for name in tokens.names}

        def named(phone: str) -> list[str]:
            if phone not in known:
                known[phone] = [_token_of(phone, tokens.ids, bare)]
            return known[phone]

        found: _Names = {}
        for word, ways in self._source(words).items():
            spelt = (map(named, names_of_tokens(one, word)) for one in ways)
            found[word] = list(dict.fromkeys(tuple(chain(*one)) for one in spelt))
        return found

    def _found(self, source: Any) -> Any:
        self.spells = source == SPELLING
        if self.spells or isinstance(source, Lexicon):
            return source
        if isinstance(source, Mapping):
            source = source.get
        elif source == HAMA:
            source = _hama()
        elif isinstance(source, str | os.PathLike):
            path = Path(source)
            if path.suffix == ".model" and path.is_file():
                self.spells, self.sentencepiece_model = True, str(path)
                return None
            # Programs before files: a path with arguments is not a file.
            if isinstance(source, str) and (command := _command(source)):
                return partial(_run, command)
            if not path.is_file():
                raise OptionError(
                    f"g2p={str(source)!r}, expected a lexicon's file, a SentencePiece "
                    f"model, a program, {HAMA!r} or {SPELLING!r}: no file and no "
                    "program has this name"
                )
            source = _lexicon_file(path)
        if not callable(source):
            raise OptionError(
                f"g2p={source!r}, expected a function of a word, a mapping, a lexicon, "
                "or a string: see `G2p`"
            )
        return lambda words: {word: _ways(source(word)) for word in words}


_Path = str | os.PathLike[str]
_Names = dict[str, list[tuple[str, ...]]]
"""Word to pronunciations, each the names of tokens."""
G2pLike = G2p | Callable[[str], Ways] | Mapping[str, Ways] | Lexicon | _Path
"""A `G2p`, or its source."""


def _token_of(phone: str, ids: Mapping[str, int], bare: Mapping[str, str]) -> str:
    """Return the token name of a phone; a phone without a token keeps its own."""
    if phone in ids:
        return phone
    plain = phone.rstrip("012")  # ARPAbet's stress
    ipa = ARPABET.get(phone) or ARPABET.get(plain, "")
    for other in (phone, plain, ipa):
        if name := bare.get(other.translate(_IGNORED)):
            return name
    return phone


def _lexicon_file(path: Path) -> Callable[[str], Ways]:
    # Case is ignored if a word is not found as written.

    @functools.cache
    def entries() -> tuple[_Names, _Names]:
        exact: _Names = {}
        folded: _Names = {}
        for line in read_lines(path):
            # Comments of CMUdict, old and new.
            if line.startswith((";;;", "# ")):
                continue
            word, *phones = line.split(" #")[0].split() or [""]
            # Kaldi's lexiconp.txt has a column of probabilities.
            if phones and _PROBABILITY.fullmatch(phones[0]):
                del phones[0]
            if phones:
                # CMUdict numbers alternative pronunciations: `read(2)`.
                word = _ALTERNATE.sub("", word)
                exact.setdefault(word, []).append(tuple(phones))
                folded.setdefault(word.casefold(), []).append(tuple(phones))
        if not exact:
            raise FormatError(f"{path}: no entries, expected 'word phones' lines")
        return exact, folded

    def say(word: str) -> Ways:
        exact, folded = entries()
        return exact.get(word) or folded.get(word.casefold(), [])

    return say


def _hama() -> Callable[[str], Ways]:
    """Return hama's model, cached by word."""
    install = ": pip install hama==1.7.0; or give a lexicon or a program"
    with needs("g2p='hama' needs hama", install):
        hama = importlib.import_module("hama")
    model = functools.cache(hama.G2PModel)  # loaded with the first word

    @functools.cache
    def say(word: str) -> Ways:
        # it transcribes a word with an apostrophe by phones of another language
        found = model().predict(word.lower().replace("'", "")).alignments
        phonemes = [one.phoneme for one in found if one.phoneme.strip()]
        return [tuple(phonemes)] if phonemes else []

    return say


def _command(text: str) -> list[str]:
    path = Path(text)
    if path.is_file():
        with path.open("rb") as file:
            runs = file.read(4).startswith((b"#!", b"\x7fELF"))
        return [os.path.abspath(path)] if runs and os.access(path, os.X_OK) else []
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise OptionError(f"g2p={text!r}: {error}, expected a command") from None
    return words if words and shutil.which(words[0]) else []


def _run(command: list[str], words: Sequence[str]) -> dict[str, list[str]]:
    text = "".join(f"{word}\n" for word in words)
    shown = shlex.join(command)
    try:
        done = subprocess.run(command, input=text.encode(), capture_output=True)
        lines = done.stdout.decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BoostError(f"g2p {shown!r}: {error}") from error
    if done.returncode:
        message = done.stderr.decode(errors="replace").strip()[-_SHOWN:]
        raise BoostError(
            f"g2p {shown!r} ended with {done.returncode}, expected 0: {message}"
        )
    found: dict[str, list[str]] = {}
    for line in filter(str.strip, lines):
        word, *columns = line.split("\t")
        if not columns:
            raise BoostError(
                f"g2p {shown!r} wrote {line[:_SHOWN]!r}, expected a word, a tab, phones"
            )
        # An empty column: the program has no pronunciation.
        if columns[-1].strip():
            found.setdefault(word, []).append(columns[-1])
    return {word: found[word] for word in words if word in found}


def _ways(given: Ways | None) -> Sequence[str | Sequence[str]]:
    return [given] if isinstance(given, str) else list(given or ())


def names_of_tokens(given: object, word: str) -> Sequence[str]:
    """Return the names of tokens in a pronunciation, a string or a sequence."""
    names = given.split() if isinstance(given, str) else given
    if not isinstance(names, Sequence) or not all(isinstance(n, str) for n in names):
        raise BoostError(
            f"a pronunciation of {short(word)} is {short(given)}, expected the names "
            "of tokens"
        )
    return names


_SAMPLE = 200  # sample of words that decides whether a lexicon is of spellings


class G2pResult(NamedTuple):
    """Pronunciations of words, without words that have none."""

    pronunciations: dict[str, list[Spelling]]  # token ids
    # names that the token table lacks, and their words, which are dropped
    unknown_tokens: dict[str, list[str]]


class Pronouncer:
    """Pronunciations in a decoder's tokens: read, spelled, or by `G2p`."""

    def __init__(
        self,
        tokens: TokenTable,
        lexicon: Lexicon | Callable[[], Lexicon],
        separators: Sequence[int] = (),
        g2p: G2pLike | None = None,
    ) -> None:
        self._tokens, self._lexicon = tokens, lexicon
        self._barred = {tokens.blank, *separators}
        self._separator = separators[0] if len(separators) == 1 else None
        self._g2p = G2p(g2p) if g2p is not None and not isinstance(g2p, G2p) else g2p

    def say(self, words: Sequence[str]) -> G2pResult:
        """Return the pronunciations of words, without those that have none."""
        g2p = self._g2p
        if self._spells_by_itself if g2p is None else g2p.spells:
            return G2pResult(self._spelt(words), {})
        if g2p is None:
            return G2pResult({}, {})
        found: dict[str, list[Spelling]] = {}
        unknown_tokens: dict[str, list[str]] = {}
        for word, ways in g2p.say(words, self._tokens).items():
            for names in ways:
                unknown = [name for name in names if name not in self._tokens.ids]
                for name in dict.fromkeys(unknown):
                    unknown_tokens.setdefault(name, []).append(word)
                if names and not unknown:
                    found.setdefault(word, []).append(self._ids(word, names))
        return G2pResult(found, unknown_tokens)

    def read(self, word: str, prons: Sequence[tuple[str, ...]]) -> list[Spelling]:
        """Return token ids of pronunciations that the decoder lacks."""
        known = self._known.get(word, ())
        found = [self._ids(word, names) for names in prons]
        return [one for one in found if one not in known]

    def _ids(self, word: str, names: Sequence[str]) -> Spelling:
        ids = self._tokens.ids
        try:
            found = tuple([ids[name] for name in names])
        except KeyError as error:
            lacking = self._tokens.lacks(error.args[0])
            raise BoostError(
                f"a pronunciation of {word!r} uses token {lacking}"
            ) from None
        if not self._barred.isdisjoint(found):
            bad = next(name for name in names if ids[name] in self._barred)
            raise BoostError(
                f"a pronunciation of {word!r} has {bad!r} in it, expected neither the "
                "blank nor the separator"
            )
        return found

    def _spelt(self, words: Sequence[str]) -> dict[str, list[Spelling]]:
        spell = by_table(
            self._tokens,
            separator=self._separator,
            sentencepiece_model=getattr(self._g2p, "sentencepiece_model", None),
        )
        pairs = zip(words, spell(words), strict=True)
        return {word: [tuple(one) for one in ways] for word, ways in pairs if ways}

    @cached_property
    def _known(self) -> dict[str, list[Spelling]]:
        made = self._lexicon
        return (made if isinstance(made, Lexicon) else made()).by_word()

    @cached_property
    def _spells_by_itself(self) -> bool:
        """Whether most words of a sample are what their tokens spell."""
        words, names = list(islice(self._known, _SAMPLE)), self._tokens.names
        spelled = 0
        for word in words:
            texts = ("".join(names[t] for t in one) for one in self._known[word])
            spelled += any(text.removeprefix(WORD_START) == word for text in texts)
        return 2 * spelled > len(words)
