"""Hotwords as pyctcdecode counts them: by word, and by the beginning of one.

    tree = compile_hotwords(["new york", "kensho"])    # three words
    weight * words of a text that are hot  +  weight * len(part) / len(shortest so begun)
"""

from __future__ import annotations

from collections.abc import Iterable

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
