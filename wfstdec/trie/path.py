"""What a search over tokens hands over at the end: paths, the same by every backend."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class TokenPath(NamedTuple):
    """An alignment and its reading as words.

    Attributes:
        token: int32 [N], the tokens, blanks left out.
        start: int32 [N], the first frame of each token.
        end: int32 [N], one behind the last frame of each token.
        pron: int32 [W], the pronunciations of the words, positions in
            `LexiconTrie.pron_word`.
        pron_end: int32 [W], one behind the last token of each, a position in `token`.
        acoustic: The unscaled acoustic cost; NaN where alignments were summed.
        search_cost: The total as the search added it up: float32 steps, float64 base.
        complete: Whether the tokens are whole words and the end was accepted.
        num_frames: Frames that the path covers.
        died_at_frame: The frame that no entry survived, or -1.
    """

    token: np.ndarray
    start: np.ndarray
    end: np.ndarray
    pron: np.ndarray
    pron_end: np.ndarray
    acoustic: float
    search_cost: float
    complete: bool
    num_frames: int
    died_at_frame: int
