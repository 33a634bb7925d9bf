"""Hotwords as pyctcdecode counts them: by word, and by the beginning of one.

tree = compile_hotwords(split_hotwords(["new york", "kensho"]))    # three words
weight * words of a text that are hot  +  weight * len(part) / len(shortest so begun)
"""

from __future__ import annotations

from collections.abc import Iterable

from wfstdec.adapters.pyctcdecode.constants import DEFAULT_HOTWORD_WEIGHT
from wfstdec.adapters.pyctcdecode.word_tree import WordTree, build_tree
from wfstdec.errors import BoostError

NO_HOTWORDS = build_tree([])


def split_hotwords(hotwords: Iterable[str] | None) -> tuple[str, ...]:
    """The words of a list of hotwords, sorted, each once; empty ones are left out.

    Raises:
        BoostError: It is a string, or has something else than strings.
    """
    if hotwords is None:
        return ()
    if isinstance(hotwords, str):
        raise BoostError(
            f"hotwords {hotwords!r}, expected a list of words: [{hotwords!r}]"
        )
    words: set[str] = set()
    for one in hotwords:
        if not isinstance(one, str):
            raise BoostError(f"hotword {one!r}, expected a string")
        words.update(one.split())
    return tuple(sorted(words))


def compile_hotwords(words: tuple[str, ...]) -> WordTree:
    """The tree of what `split_hotwords` gave."""
    return build_tree(words) if words else NO_HOTWORDS


class HotwordScorer:
    """The same in Python, for whoever asks for scores outside of a search.

    Args:
        words: Hotwords; phrases count word by word.
        weight: Nats of each.
    """

    def __init__(self, words: Iterable[str], weight: float) -> None:
        self._words = frozenset(words)
        self._weight = weight
        self._shortest: dict[str, int] = {}
        for word in sorted(self._words, key=len, reverse=True):
            for end in range(len(word) + 1):
                self._shortest[word[:end]] = len(word)

    @classmethod
    def build_scorer(
        cls,
        hotwords: Iterable[str] | None = None,
        weight: float = DEFAULT_HOTWORD_WEIGHT,
    ) -> HotwordScorer:
        """The scorer of a list of hotwords.

        Raises:
            BoostError: It is a string, or has something else than strings.
        """
        return cls(split_hotwords(hotwords), weight)

    def __contains__(self, item: str) -> bool:
        """Whether a hotword begins so."""
        return item in self._shortest

    def score(self, text: str) -> float:
        """What the hotwords of a text are worth."""
        return self._weight * sum(word in self._words for word in text.split())

    def score_partial_token(self, token: str) -> float:
        """What the beginning of a hotword is worth."""
        if token not in self:
            return 0.0
        return self._weight * len(token) / self._shortest[token]
