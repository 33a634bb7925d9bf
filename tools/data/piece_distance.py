"""How unlike two SentencePiece pieces are, by their spelling.

    distances = piece_distances(["▁the", "▁they", "ing"])       # float [V, V]
    distances[0, 1]                                             # 0.8

A weighted edit distance that stands in for sound: vowels replace vowels, and consonants
their relatives, at half price. A space mark, an `e`, `h` or apostrophe comes and goes
cheaply.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

RELATIVES = "aeiouy", "td", "pb", "kcgq", "szcx", "fv", "mn", "lr", "wuv", "jgy", "iy"
CHEAP = {"▁": 0.6, "e": 0.5, "h": 0.5, "'": 0.3}
RELATED, OTHER, LETTER = 0.5, 1.0, 0.8
_SPECIAL = re.compile(r"<.+>")


def piece_distances(pieces: Sequence[str]) -> np.ndarray:
    """Distances float [V, V], symmetric; inf from and to pieces like `<unk>`.

    d[i, j] = min(d[i-1, j] + gap, d[i, j-1] + gap, d[i-1, j-1] + substitution)
    for all pairs of pieces at once, i and j being positions in the two spellings
    """
    alphabet = sorted(set("".join(pieces)))
    swap, gap = _letter_costs(alphabet)
    codes, lengths = _codes(pieces, alphabet)
    num, longest = codes.shape
    result = np.full((num, num), np.inf)
    row = [np.zeros((num, num), np.float32)]
    for j in range(longest):
        row.append(row[j] + gap[codes[:, j]][None, :])
    for i in range(longest + 1):
        for j in range(longest + 1):
            mine = (lengths == i)[:, None] & (lengths == j)[None, :]
            result[mine] = row[j][mine]
        if i == longest:
            break
        drop = gap[codes[:, i]][:, None]
        following = [row[0] + drop]
        for j in range(longest):
            change = row[j] + swap[codes[:, i][:, None], codes[:, j][None, :]]
            insert = following[j] + gap[codes[:, j]][None, :]
            following.append(np.minimum(np.minimum(row[j + 1] + drop, insert), change))
        row = following
    special = [bool(_SPECIAL.fullmatch(piece)) for piece in pieces]
    result[special, :] = np.inf
    result[:, special] = np.inf
    return result


def _letter_costs(alphabet: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Cost of one letter for another [N, N], and of a letter for none [N]."""
    swap = np.full((len(alphabet), len(alphabet)), OTHER, np.float32)
    for group in RELATIVES:
        own = [alphabet.index(letter) for letter in group if letter in alphabet]
        swap[np.ix_(own, own)] = RELATED
    np.fill_diagonal(swap, 0.0)
    gap = np.array([CHEAP.get(letter, LETTER) for letter in alphabet], np.float32)
    return swap, gap


def _codes(
    pieces: Sequence[str], alphabet: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Letters of each piece as numbers [V, longest], and their count [V]."""
    lengths = np.array([len(piece) for piece in pieces])
    codes = np.zeros((len(pieces), lengths.max()), np.int64)
    for i, piece in enumerate(pieces):
        codes[i, : len(piece)] = [alphabet.index(letter) for letter in piece]
    return codes, lengths
