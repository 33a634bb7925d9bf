"""Texts that differ only in how they are written, made alike.

    Normalizer(ignore_case=True).words(["Mister", "Quilter"])   # ('mister', 'quilter')
    Normalizer(normalize=True).words(["“Well-known”,", "it’s", "3.5"])
                                             # ('well', 'known', "it's", '3.5')

To ignore case is `str.casefold` of each word, which leaves the number of words: German
ß is ss. Of Turkish, i and ı are one letter then, in both cases. To
normalize is, word by word:

1. ’ ‘ ʼ ` and ´ become the apostrophe '
2. Unicode's NFKC (full-width forms, ligatures, composed accents), and case is ignored
3. an apostrophe between letters, and . , : between digits stay; so do accents and all
   other marks of scripts
4. soft hyphens and other marks of format go, but for the joiners of scripts
5. all other punctuation and symbols become spaces, hyphens and dashes too: one word may
   become several, or none

With `characters`, words are cut into characters (NFC) after that, and spaces do not
count: for languages that write none, and for character error rates.

Words that are marks, such as `<unk>` or `[noise]`, stay as they are. Numbers are not
spelled out and no language has rules of its own.

Two sides should have the same utterances; ids pair that are equal:

    pairing = Pairing.of(references, hypotheses, ("--ref", "--hyp"))
    pairing.check()                   # an error where nothing pairs
    pairing.remedy                    # "'a.wav' of --ref seems to be 'a' of --hyp ..."
"""

from __future__ import annotations

import functools
import logging
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from wfstdec.errors import FormatError, InputError
from wfstdec.text.display import named
from wfstdec.text.lexicon import is_mark

_APOSTROPHES = str.maketrans(dict.fromkeys("\u2019\u2018\u02bc\u0060\u00b4", "'"))
_ONE_I = str.maketrans("\u0130\u0131", "ii")  # with a dot, and a small one without
_JOINERS = "\u200c\u200d"
_INSIDE_NUMBERS = ".,:"


@dataclass(frozen=True)
class Normalizer:
    """Rules by which words are compared; without any they are left as they are.

    Attributes:
        ignore_case: Words that differ in case are the same.
        normalize: Words that differ in punctuation, or in how Unicode writes them, are
            the same too; case is ignored.
        characters: Characters are compared, in place of words.
    """

    ignore_case: bool = False
    normalize: bool = False
    characters: bool = False

    @property
    def flag(self) -> str:
        """The flag of the command line; empty for none."""
        flags = {"--normalize": self.normalize, "--ignore-case": self.ignore_case}
        flags["--characters"] = self.characters
        return next((flag for flag, is_given in flags.items() if is_given), "")

    @property
    def stronger(self) -> tuple[Normalizer, ...]:
        """Rules that go further than these, the mildest first."""
        if self.normalize:
            return ()
        stronger = (NORMALIZE,) if self.ignore_case else (IGNORE_CASE, NORMALIZE)
        return tuple(replace(one, characters=self.characters) for one in stronger)

    def word(self, word: str) -> tuple[str, ...]:
        """Normalise a word: one, or any number with `normalize` or `characters`."""
        if self.characters and not is_mark(word):
            found = replace(self, characters=False).word(word)
            return tuple(unicodedata.normalize("NFC", "".join(found)))
        if self.normalize:
            return _normalized(word)
        return (_folded(word),) if self.ignore_case else (word,)

    def words(self, words: Iterable[str]) -> tuple[str, ...]:
        """Normalise the words of a text."""
        if not self.flag:
            return tuple(words)
        return tuple(part for word in words for part in self.word(word))

    def texts(
        self, transcripts: Mapping[str, Iterable[str]]
    ) -> dict[str, tuple[str, ...]]:
        """Normalise the texts of many utterances."""
        return {name: self.words(words) for name, words in transcripts.items()}


AS_IT_STANDS = Normalizer()
IGNORE_CASE = Normalizer(ignore_case=True)
NORMALIZE = Normalizer(normalize=True)


def _folded(text: str) -> str:
    """A text without case, in any language: of Turkish, all four i are one."""
    return text.translate(_ONE_I).casefold()


@functools.lru_cache(1 << 16)
def _normalized(word: str) -> tuple[str, ...]:
    if is_mark(word):
        return (word,)
    text = _folded(unicodedata.normalize("NFKC", word.translate(_APOSTROPHES)))
    text = unicodedata.normalize("NFKC", text)  # case folding may undo some of it
    return tuple("".join(_character(text, i) for i in range(len(text))).split())


def _character(text: str, i: int) -> str:
    """Map a character to itself, a space, or nothing."""
    category = unicodedata.category(text[i])
    if category == "Cf":
        return text[i] if text[i] in _JOINERS else ""
    if category[0] not in "PSZC":
        return text[i]
    before, after = text[max(i - 1, 0) : i], text[i + 1 : i + 2]
    if text[i] == "'":
        return text[i] if _is_of_word(before) and _is_of_word(after) else " "
    if text[i] in _INSIDE_NUMBERS and before.isdigit() and after.isdigit():
        return text[i]
    return " "


def _is_of_word(character: str) -> bool:
    return bool(character) and unicodedata.category(character)[0] in "LNM"


TRIED = 50  # ids of one side that are looked for on the other
CLEARLY = 0.02  # a share of words that is worth a warning

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Pairing:
    """Utterance ids of two sides."""

    names: tuple[str, str]  # of the sides in messages: flags or files
    num_both: int  # ids that both sides have
    only_left: tuple[str, ...]  # ids that the first side alone has, in order
    only_right: tuple[str, ...]

    @classmethod
    def of(
        cls, left: Iterable[str], right: Iterable[str], names: tuple[str, str]
    ) -> Pairing:
        """Compare the ids of two sides."""
        first, second = dict.fromkeys(left), dict.fromkeys(right)
        only_left = tuple(one for one in first if one not in second)
        only_right = tuple(one for one in second if one not in first)
        return cls(names, len(first) - len(only_left), only_left, only_right)

    def check(self) -> None:
        """Refuse sides that have no utterance in common."""
        if self.num_both:
            return
        left, right = self.names
        looks = [
            f"those of {name} look like {ids[0]!r}" if ids else f"there are no {name}"
            for name, ids in ((left, self.only_left), (right, self.only_right))
        ]
        raise FormatError(
            f"no utterance of {left} is in {right}, expected the same ids; "
            + "; ".join([", ".join(looks), *filter(None, [self.remedy])])
        )

    @property
    def message(self) -> str:
        """Message about ids that are on one side only, with a remedy; or empty."""
        left, right = self.names
        sides = (self.only_left, left, right), (self.only_right, right, left)
        parts = [
            f"{len(ids)} utterances of {name} are not in {other}: {named(ids)}"
            for ids, name, other in sides
            if ids
        ]
        return "; ".join([*parts, *filter(None, [self.remedy])])

    @functools.cached_property
    def remedy(self) -> str:
        """How ids of one side are written on the other; empty if it is not known."""
        pairs, others = [], self.only_right[: TRIED**2]
        for one in self.only_left[:TRIED]:
            alike = [other for other in others if _is_alike(one, other)]
            pairs += [(one, *alike)] if len(alike) == 1 else []
        fewer = min(len(self.only_left), len(self.only_right), TRIED)
        if not pairs or 2 * len(pairs) < fewer:
            return ""
        (one, other), (left, right) = pairs[0], self.names
        return f"{one!r} of {left} seems to be {other!r} of {right}, and so for others"


def _is_alike(one: str, other: str) -> bool:
    """Tell whether one id is in the other, as a part of its own, in any case."""
    short, whole = sorted((one.casefold(), other.casefold()), key=len)
    part = rf"(?<![^\W_]){re.escape(short)}(?![^\W_])"
    return short in whole and re.search(part, whole) is not None


def check_words(
    expected: Iterable[str],
    known: Iterable[str],
    normalizer: Normalizer,
    names: tuple[str, str],
    *,
    error: type[InputError] = FormatError,
) -> None:
    """Warn by the log where more words of one side occur on another by other rules."""
    counts, vocabulary = Counter(expected), set(known)
    total = counts.total()
    if not total or not vocabulary:
        return
    share, lacking = _share(counts, vocabulary, normalizer)
    for other in normalizer.stronger:
        better, lacking_then = _share(counts, vocabulary, other)
        stronger = [_share(counts, vocabulary, one)[0] for one in other.stronger]
        # The gentlest rule that helps clearly, unless a stronger one helps clearly
        # more.
        if better - share < CLEARLY or max(stronger, default=0) - better >= CLEARLY:
            continue
        words = (word for word in lacking if word not in lacking_then)
        fixed = named(words)
        found = (
            f"{100 * share:.0f} % of the words of {names[0]} are words of {names[1]} "
            f"as they are written, {100 * better:.0f} % with {other.flag}: {fixed}"
        )
        if share == 0:
            raise error(f"{found}; expected words alike, or {other.flag}")
        _log.warning("%s", found)
        return


def _share(
    counts: Mapping[str, int], vocabulary: Iterable[str], normalizer: Normalizer
) -> tuple[float, dict[str, None]]:
    """The share of words that are known, and the words that are not."""
    known = {part for word in vocabulary for part in normalizer.word(word)}
    lacking = {w: None for w in counts if not known.issuperset(normalizer.word(w))}
    missing = sum(counts[word] for word in lacking)
    return 1 - missing / sum(counts.values()), lacking
