"""Text normalization for comparisons: case, punctuation and Unicode form.

    Normalizer(ignore_case=True).words(["Mister", "Quilter"])   # ('mister', 'quilter')
    Normalizer(normalize=True).words(["“Well-known”,", "it’s", "3.5"])
                                             # ('well', 'known', "it's", '3.5')

`ignore_case` applies `str.casefold` to each word, which keeps the number of words:
German ß is ss. The Turkish i and ı become one letter, in both cases. `normalize` does,
word by word:

1. ’ ‘ ʼ ` and ´ become the apostrophe '
2. Unicode's NFKC (full-width forms, ligatures, composed accents) and case folding
3. an apostrophe between letters, . , : between digits, accents and all other marks of
   scripts are kept
4. soft hyphens and other format marks are removed, except the joiners of scripts
5. all other punctuation and symbols become spaces, including hyphens and dashes: one
   word may become several, or none

With `characters`, words are then cut into characters (NFC), without spaces: for
unspaced languages, and for character error rates.

Marks such as `<unk>` or `[noise]` are unchanged. Numbers are not spelled out, and there
are no rules for single languages.

`Pairing` matches the utterances of two sides by id:

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
    """Rules for comparing words; without any they are compared exactly.

    Attributes:
        ignore_case: Ignore case.
        normalize: Ignore case, punctuation and Unicode form.
        characters: Compare characters instead of words.
    """

    ignore_case: bool = False
    normalize: bool = False
    characters: bool = False

    @property
    def flag(self) -> str:
        """Flag of the command line; empty for none."""
        flags = {"--normalize": self.normalize, "--ignore-case": self.ignore_case}
        flags["--characters"] = self.characters
        return next((flag for flag, is_given in flags.items() if is_given), "")

    @property
    def stronger(self) -> tuple[Normalizer, ...]:
        """Return rules that go further than these, the mildest first."""
        if self.normalize:
            return ()
        stronger = (NORMALIZE,) if self.ignore_case else (IGNORE_CASE, NORMALIZE)
        return tuple(replace(one, characters=self.characters) for one in stronger)

    def word(self, word: str) -> tuple[str, ...]:
        """Normalise a word to one or, except for `ignore_case`, any number of words."""
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
    return text.translate(_ONE_I).casefold()


@functools.lru_cache(1 << 16)
def _normalized(word: str) -> tuple[str, ...]:
    if is_mark(word):
        return (word,)
    text = _folded(unicodedata.normalize("NFKC", word.translate(_APOSTROPHES)))
    text = unicodedata.normalize("NFKC", text)  # case folding may undo a part
    return tuple("".join(_character(text, i) for i in range(len(text))).split())


def _character(text: str, i: int) -> str:
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


TRIED = 50  # ids of one side to look up on the other
CLEARLY = 0.02  # share of words that causes a warning

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Pairing:
    """Utterance ids of two sides."""

    names: tuple[str, str]  # names of the sides in messages: flags or files
    num_both: int  # ids that both sides have
    only_left: tuple[str, ...]  # ids of the first side only, in order
    only_right: tuple[str, ...]

    @classmethod
    def of(
        cls, left: Iterable[str], right: Iterable[str], names: tuple[str, str]
    ) -> Pairing:
        """Return the pairing of the ids of two sides."""
        first, second = dict.fromkeys(left), dict.fromkeys(right)
        only_left = tuple(one for one in first if one not in second)
        only_right = tuple(one for one in second if one not in first)
        return cls(names, len(first) - len(only_left), only_left, only_right)

    def check(self) -> None:
        """Raise if no id is on both sides."""
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
        """Warning about ids on one side only, with a remedy; or empty."""
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
        """Spelling of ids of one side on the other; empty if unknown."""
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
    """Return whether one id is a delimited part of the other, in any case."""
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
    """Log a warning if other rules match clearly more words of one side."""
    counts, vocabulary = Counter(expected), set(known)
    total = counts.total()
    if not total or not vocabulary:
        return
    share, lacking = _share(counts, vocabulary, normalizer)
    for other in normalizer.stronger:
        better, lacking_then = _share(counts, vocabulary, other)
        stronger = [_share(counts, vocabulary, one)[0] for one in other.stronger]
        # The mildest rule that helps clearly, unless a stronger one helps clearly more.
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
    known = {part for word in vocabulary for part in normalizer.word(word)}
    lacking = {w: None for w in counts if not known.issuperset(normalizer.word(w))}
    missing = sum(counts[word] for word in lacking)
    return 1 - missing / sum(counts.values()), lacking
