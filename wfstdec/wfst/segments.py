"""The words of a session's segments, with times and confidences.

    reader = SegmentReader(posterior_scale=0.5)
    for lattice in sessions.settled_lattices(session):
        words += reader.read(lattice)
    words += reader.read(sessions.close_lattice(session), is_last=True)

A segment may end within a word. A word belongs to the segment that has its label, which
says how sure it is; it comes out once, when the segments have its last token.
"""

from __future__ import annotations

import numpy as np

from wfstdec.errors import LatticeError
from wfstdec.lattice.arrays import Lattice
from wfstdec.lattice.mbr import word_confidences
from wfstdec.search.hypothesis import Word
from wfstdec.search.paths.label_path import PathTokens
from wfstdec.search.paths.traceback import History
from wfstdec.search.paths.word_cut import BEGINNING, Aligner
from wfstdec.wfst.lattice_paths import rule_of_lattice

_NOTHING = np.zeros(0, np.int64), np.zeros(0, np.float32)


class SegmentReader:
    """Reads the segments of one session, one after the other.

    Args:
        posterior_scale: Times all costs, where they become probabilities.
    """

    def __init__(self, posterior_scale: float = 1.0) -> None:
        self._scale = posterior_scale
        self._cut = BEGINNING  # behind the words that came out
        self._num_words = 0  # that came out
        self._sure: list[float] = []  # of the others
        self._started: tuple[Aligner, History] | None = None
        self._next_frame = 0

    def read(self, lattice: Lattice, *, is_last: bool = False) -> tuple[Word, ...]:
        """The words of the best path that can no longer change since the last call.

        Args:
            lattice: The next segment.
            is_last: Whether the session ends with it: then all that are left.

        Returns:
            Words with times within the session, and how sure they are.

        Raises:
            LatticeError: The segment does not begin where the one before ended.
            OptionError: The scale is below 0 or infinite.
        """
        aligner, history = self._of(lattice)
        arcs = lattice.best_arcs()
        self._sure += word_confidences(lattice, self._scale, arcs).confidences
        acoustic = lattice.arcs["acoustic_cost"][arcs]
        history.go_on(rule_of_lattice(lattice), arcs, acoustic)
        self._next_frame = lattice.first_frame + lattice.num_frames
        if is_last:
            since = self._cut.tokens, self._num_words
            path = history.read(0, *_NOTHING, since)
            frames = aligner.word_frames(path, lattice.reached_final, self._cut)
        else:
            path = history.settled.whole_since(self._cut.tokens, self._num_words)
            frames, self._cut = aligner.settled_frames(path, self._cut)
        return self._words(aligner, path, frames, lattice.frame_shift_s)

    def _of(self, lattice: Lattice) -> tuple[Aligner, History]:
        """What reads words, made with the first segment."""
        first = lattice.first_frame
        if self._started is None:
            history = History(rule_of_lattice(lattice), first)
            self._started = Aligner(lattice.tables), history
        elif first != self._next_frame:
            raise LatticeError(
                f"a segment that begins at frame {first}, expected one from "
                f"{self._next_frame} on: all of a session's, in order"
            )
        return self._started

    def _words(
        self, aligner: Aligner, path: PathTokens, frames: np.ndarray, shift: float
    ) -> tuple[Word, ...]:
        texts, count = aligner.texts(path, frames), len(frames)
        columns = *(frames * shift).T.tolist(), *frames.T.tolist(), self._sure[:count]
        self._sure, self._num_words = self._sure[count:], self._num_words + count
        return tuple(map(Word, texts, *columns))
