"""The words of a search under way, of any search: those that are settled are read once.

reader = PartialReader(cutter, frame_shift_s)         # of one session
partial = reader.read(search.look())                  # a `PathSoFar`
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wfstdec.search.hypothesis import Word
from wfstdec.search.paths.so_far import PathSoFar
from wfstdec.search.paths.words import BEGINNING, Cutter, timed
from wfstdec.search.sessions import Partial


class PartialReader:
    """Reads one session.

    Args:
        cutter: How its paths are cut into words.
        frame_shift_s: Seconds per frame.
    """

    def __init__(self, cutter: Cutter[Any], frame_shift_s: float) -> None:
        self._cutter, self._shift = cutter, frame_shift_s
        self._timed: list[Word] = []  # settled words
        self._cut = BEGINNING  # behind them

    def read(self, path: PathSoFar[Any]) -> Partial:
        """The words of a search, as of now."""
        whole = path.settled.whole_since(self._cut.tokens, self._cut.words)
        words, self._cut = self._cutter.settled_words(whole, self._cut)
        self._timed += timed(words, self._shift)
        rest = path.said_since(self._cut.tokens, self._cut.words)
        begun = timed(self._cutter.words(rest, self._cut), self._shift)
        return Partial(
            words=(*self._timed, *begun),
            num_settled=max(path.settled.num_words, len(self._timed)),
            num_timed=len(self._timed),
            num_frames=path.num_frames,
            silent_frames=path.num_frames - self._speech_end(rest),
            final_cost=path.final_cost,
        )

    def _speech_end(self, rest: Any) -> int:
        """Frame behind the last token that is spoken, 0 for none."""
        spoken = np.flatnonzero(self._cutter.are_spoken(rest))
        if len(spoken):
            return int(rest.end[spoken[-1]])
        return self._timed[-1].end_frame if self._timed else 0
