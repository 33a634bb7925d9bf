"""What a search over tokens hands over at the end: paths, the same by every backend."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class TokenPath(NamedTuple):
    """An alignment and its reading as words.

    Attributes:
        rows: int32 [N, 4], of each token, blanks left out: token, first frame, one
            behind the last frame, pronunciation that ended before it or -1 (a position
            in `LexiconTrie.pron_word`).
        last_pron: The pronunciation that ends with the last token, -1 for none.
        acoustic: The unscaled acoustic cost; NaN where alignments were summed.
        search_cost: The total as the search added it up: float32 steps, float64 base.
        complete: Whether the tokens are whole words and the end was accepted.
        num_frames: Frames that the path covers.
        died_at_frame: The frame that no entry survived, or -1.
    """

    rows: np.ndarray
    last_pron: int
    acoustic: float
    search_cost: float
    complete: bool
    num_frames: int
    died_at_frame: int

    @property
    def token(self) -> np.ndarray:
        """The tokens, int32 [N]."""
        return self.rows[:, 0]

    @property
    def pron(self) -> np.ndarray:
        """The pronunciations of the words, int32 [W]."""
        ended = self.rows[:, 3]
        ended = ended[ended >= 0]
        return (
            np.append(ended, np.int32(self.last_pron)) if self.last_pron >= 0 else ended
        )
