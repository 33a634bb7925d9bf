"""Two sides that should have the same utterances or words, and what differs if not.

    pairing = Pairing.of(references, hypotheses, ("--ref", "--hyp"))
    pairing.check()                   # an error where nothing pairs
    pairing.remedy                    # "those of --ref have '.wav' at the end, ..."
    check_words(references, words, AS_IT_STANDS, ("--ref", "--hyp"))

Ids pair that are equal. Of others a few forms are tried (in one case, without a
folder, an ending, a part before or behind), to say how they differ: nothing is paired
by them.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath

from wfstdec.errors import FormatError, InputError
from wfstdec.text.normalize import Normalizer

NAMED_AT_MOST = 5
"""Examples in a message."""
TRIED_AT_MOST = 2000
"""Ids of each side of which forms are tried."""
CLEARLY = 0.02
"""A share of words that is worth a warning."""
_EDGE = re.compile(r"[-_/.:]")

_log = logging.getLogger(__name__)


_Pair = tuple[str, str]
"""Ids of both sides that differ in form alone."""


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
            f"{len(ids)} utterances of {name} are not in {other}: {_named(ids)}"
            for ids, name, other in sides
            if ids
        ]
        return "; ".join([*parts, *filter(None, [self.remedy])])

    @cached_property
    def remedy(self) -> str:
        """How ids of one side become those of the other; empty if it is not known."""
        left, right = self.only_left[:TRIED_AT_MOST], self.only_right[:TRIED_AT_MOST]
        tried = [
            _paired(left, _forms, right, str.casefold),
            [(b, a) for a, b in _paired(right, _forms, left, str.casefold)],
            _paired(left, lambda one: iter([_core(one)]), right, _core),
        ]
        pairs, fewer = max(tried, key=len), min(len(left), len(right))
        if not pairs or 2 * len(pairs) < fewer:
            return ""
        kinds = Counter(_difference(pair, self.names) for pair in pairs)
        (kind, count), *_ = kinds.most_common(1)
        if count == len(pairs):
            return f"{kind}, but for which {count} of {fewer} pair"
        one, other = pairs[0]
        return (
            f"{one!r} of {self.names[0]} seems to be {other!r} of {self.names[1]} "
            f"({kind}), and so {len(pairs)} of {fewer}"
        )


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
        fixed = _named([word for word in lacking if word not in lacking_then])
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


def _paired(
    left: Iterable[str],
    forms: Callable[[str], Iterator[str]],
    right: Iterable[str],
    key: Callable[[str], str],
) -> list[_Pair]:
    """Ids of one side a form of which is the key of another, both once."""
    keys = [key(one) for one in right]
    times = Counter(keys)
    by_key = {k: one for k, one in zip(keys, right, strict=True) if times[k] == 1}
    found: dict[str, str] = {}
    for one in left:
        other = next((by_key[form] for form in forms(one) if form in by_key), None)
        if other is not None:
            found.setdefault(other, one)
    return [(one, other) for other, one in found.items()]


def _forms(utterance: str) -> Iterator[str]:
    """An id in one case, whole, then without more and more before or behind."""
    folded = utterance.casefold()
    yield folded
    edges = list(_EDGE.finditer(folded))
    yield from (folded[edge.end() :] for edge in edges)
    yield from (folded[: edge.start()] for edge in reversed(edges))


def _core(utterance: str) -> str:
    """An id in one case, without folders and ending."""
    return PurePath(utterance.casefold()).stem


def _difference(pair: _Pair, names: tuple[str, str]) -> str:
    left, right = map(str.casefold, pair)
    if left == right:
        return "they differ in case"
    longer, shorter, name = pair[0], right, names[0]
    if left in right:
        longer, shorter, name = pair[1], left, names[1]
    if shorter not in longer.casefold():
        return "they differ in folders or endings"
    begin = longer.casefold().index(shorter)
    before, after = longer[:begin], longer[begin + len(shorter) :]
    places = [f"{before!r} in front"] if before else []
    places += [f"{after!r} at the end"] if after else []
    case = "" if pair[0] in pair[1] or pair[1] in pair[0] else ", other case"
    return f"those of {name} have {' and '.join(places)}{case}"


def _named(found: Iterable[str]) -> str:
    listed = list(found)
    more = " ..." if len(listed) > NAMED_AT_MOST else ""
    return " ".join(listed[:NAMED_AT_MOST]) + more
