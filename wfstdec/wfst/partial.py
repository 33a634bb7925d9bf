"""The words of a search under way: those that are settled are read once."""

from __future__ import annotations

import numpy as np

from wfstdec.search.hypothesis import Word
from wfstdec.search.paths.label_path import PathSoFar, PathTokens
from wfstdec.search.paths.word_cut import BEGINNING, Aligner
from wfstdec.search.sessions import Partial


class PartialReader:
    """Reads one session.

    Args:
        aligner: Of the graph.
        frame_shift_s: Seconds per frame.
    """

    def __init__(self, aligner: Aligner, frame_shift_s: float) -> None:
        self._aligner, self._shift = aligner, frame_shift_s
        self._timed: list[Word] = []
        self._cut = BEGINNING  # behind them

    def read(self, path: PathSoFar) -> Partial:
        """The words of a search, as of now."""
        whole = path.settled.whole_since(self._cut.tokens, len(self._timed))
        frames, self._cut = self._aligner.settled_frames(whole, self._cut)
        self._timed += self._words(whole, frames)
        rest = path.said_since(self._cut.tokens, len(self._timed))
        frames = self._aligner.word_frames(rest, False, self._cut)
        words = (*self._timed, *self._words(rest, frames))
        return Partial(
            words=words,
            num_settled=path.settled.num_words,
            num_timed=len(self._timed),
            num_frames=path.num_frames,
            silent_frames=path.num_frames - self._speech_end(rest),
            final_cost=path.final_cost,
        )

    def _words(self, path: PathTokens, frames: np.ndarray) -> list[Word]:
        texts = self._aligner.texts(path, frames)
        times = (frames * self._shift).T.tolist()
        return list(map(Word, texts, *times, *frames.T.tolist()))

    def _speech_end(self, rest: PathTokens) -> int:
        """One behind the last frame of a token that is no filler, 0 for none."""
        spoken = np.flatnonzero(~self._aligner.are_fillers(rest))
        if len(spoken):
            return int(rest.end[spoken[-1]])
        return self._timed[-1].end_frame if self._timed else 0
