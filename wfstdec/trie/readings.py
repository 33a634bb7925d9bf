"""Tokens as words: where nothing but their names tells, and with their times.

texts, spans, is_over = pieces(tokens, names, separator)
words = timed(texts, spans, rows, frame_shift_s)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wfstdec.search.hypothesis import Word
from wfstdec.text.lexicon import WORD_START

Span = tuple[int, int]
"""The positions of a word's tokens: first, and one behind the last."""


def pieces(
    tokens: Sequence[int], names: Sequence[str], separator: int | None
) -> tuple[list[str], list[Span], bool]:
    """Words of bare tokens: cut at separators, or before a piece with a mark.

    Args:
        tokens: The tokens.
        names: What tokens are called.
        separator: The token between words, or None.

    Returns:
        Texts, positions, and whether the last word is over.
    """
    is_piece = any(name.startswith(WORD_START) for name in names)
    texts: list[str] = []
    spans: list[Span] = []
    new_word = True
    for i, token in enumerate(tokens):
        if token == separator:
            new_word = True
            continue
        name = names[token]
        by_mark = separator is None and is_piece
        if new_word or (by_mark and name.startswith(WORD_START)):
            texts.append("")
            spans.append((i, i))
        texts[-1] += name.removeprefix(WORD_START) if by_mark else name
        spans[-1] = (spans[-1][0], i + 1)
        new_word = separator is None and not is_piece
    return texts, spans, new_word


def timed(
    texts: Sequence[str], spans: Sequence[Span], rows: np.ndarray, shift: float
) -> list[Word]:
    """Words with their times; a mark alone is no word.

    Args:
        texts: What they are called.
        spans: Their tokens.
        rows: int32 [N, 3] or wider: token, first frame, one behind the last.
        shift: Seconds per frame.
    """
    words = []
    for text, (first, stop) in zip(texts, spans, strict=True):
        if text:
            start, end = int(rows[first, 1]), int(rows[stop - 1, 2])
            words.append(Word(text, start * shift, end * shift, start, end))
    return words
