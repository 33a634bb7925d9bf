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
from wfstdec.search.paths.lattice import rule_of_lattice
from wfstdec.search.paths.traceback import History
from wfstdec.search.paths.word_cut import Aligner, aligner_of
from wfstdec.search.paths.words import BEGINNING, timed

_NOTHING = np.zeros(0, np.int64), np.zeros(0, np.float32)


class SegmentReader:
    """Reads the segments of one session, one after the other.

    Args:
        posterior_scale: Times all costs, where they become probabilities.
    """

    def __init__(self, posterior_scale: float = 1.0) -> None:
        self._scale = posterior_scale
        self._cut = BEGINNING  # behind the words that came out
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
        since = self._cut.tokens, self._cut.words
        if is_last:
            path = history.read(0, *_NOTHING, since)
            words = aligner.words(path, self._cut, complete=lattice.reached_final)
            self._cut = self._cut._replace(words=since[1] + len(words.texts))
        else:
            path = history.settled.whole_since(*since)
            words, self._cut = aligner.settled_words(path, self._cut)
        found, count = timed(words, lattice.frame_shift_s), len(words.texts)
        sure, self._sure = self._sure[:count], self._sure[count:]
        pairs = zip(found, sure, strict=True)
        return tuple(word._replace(confidence=one) for word, one in pairs)

    def _of(self, lattice: Lattice) -> tuple[Aligner, History]:
        """Reader of words, made with the first segment."""
        first = lattice.first_frame
        if self._started is None:
            history = History(rule_of_lattice(lattice), first)
            self._started = aligner_of(lattice.vocabulary), history
        elif first != self._next_frame:
            raise LatticeError(
                f"a segment that begins at frame {first}, expected one from "
                f"{self._next_frame} on: all of a session's, in order"
            )
        return self._started
