"""Sessions: utterances that come in chunks, and that join and leave at any time.

    sessions = decoder.sessions()
    a, b = sessions.open(boosts), sessions.open()
    sessions.advance({a: chunk, b: chunk})         # any of them, chunks of any size
    sessions.partial(a).text                       # the words so far
    hypothesis = sessions.close(a)                 # the same as decode() of all chunks

Any chunking, in any company: the closed result is the offline one, bit for bit.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.boost.lists import BoostsLike
from wfstdec.checks.inputs import SESSION_FRAMES, UTTERANCES
from wfstdec.errors import InputError, OptionError, SessionError, naming
from wfstdec.lattice.arrays import Lattice
from wfstdec.search.backend import Backend
from wfstdec.search.hypothesis import Hypothesis, Partial, word_later_by
from wfstdec.search.paths.hypotheses import Reader
from wfstdec.search.threads import SEGMENTS, DeferredSignals, Workers
from wfstdec.text.display import few

SEGMENT_FRAMES = 50
"""The fewest frames of a segment of a lattice, where nobody says how many."""
SessionId = int | str
"""What a session is called."""


class _Session(NamedTuple):
    """A session under way."""

    search: Any
    reader: Reader
    offset_s: float


class Sessions:
    """Utterances under way side by side; made by `Decoder.sessions`.

    Methods may be called from several threads; they wait for each other.

    Args:
        backend: Searches them.
        options: Of the search.
        compile_boosts: Makes of a user's boost list what the search takes, laid out
            where the backend can. Called by several threads at a time.
        reader: Makes what reads a search of such boosts.
        threads: Sessions that are advanced side by side.
        lattices: Whether lattices are recorded.
        check_nbest: Raises where there are no n-best lists.
        check_input: Warns where the first frames of a session are no log-probs.
    """

    def __init__(
        self,
        backend: Backend,
        options: Any,
        compile_boosts: Callable[[BoostsLike], CompiledBoosts],
        reader: Callable[[CompiledBoosts], Reader],
        *,
        threads: int,
        lattices: bool,
        check_nbest: Callable[[], None],
        check_input: Callable[[np.ndarray], None],
    ) -> None:
        self._backend, self._options, self._lattices = backend, options, lattices
        self._compile, self._reader = compile_boosts, reader
        self._check_nbest, self._check_input = check_nbest, check_input
        self._unchecked: dict[SessionId, list[Any]] = {}
        self._num_opened = 0
        self._sessions: dict[SessionId, _Session] = {}
        self._next = 0
        self._lock = threading.RLock()
        self._workers = Workers(threads)

    def __len__(self) -> int:
        return len(self._sessions)

    def __repr__(self) -> str:
        """Name the sessions that are open."""
        named = f": {few(list(self._sessions))}" if self._sessions else ""
        return f"Sessions({len(self)} open{named})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Refuse to be pickled."""
        raise TypeError(
            "sessions are under way in this process and cannot be pickled or copied; "
            "pickle the decoder and call its `sessions()` there"
        )

    def __contains__(self, session: SessionId) -> bool:
        return session in self._sessions

    def open(
        self,
        boosts: BoostsLike = None,
        *,
        session: SessionId | None = None,
        offset_s: float = 0.0,
    ) -> SessionId:
        """Begin a session.

        Other sessions go on while a list is compiled; with what the decoder's
        `compile_boosts` gave nothing is compiled here.

        Args:
            boosts: Of this utterance: word to bonus, compiled phrases, `Boosts`,
                `CompiledBoosts`, None.
            session: What it is called; None for a number.
            offset_s: Seconds of the recording before its first frame: all times of
                words and tokens, in `partial` and in hypotheses, count from there.
                Frames, and the lattices that it may give, count from its own first.

        Returns:
            What it is called.

        Raises:
            SessionError: There is such a session already.
            OptionError: `offset_s` is no finite number.
            BoostError, OptionError: As in `Decoder.decode`.
        """
        if not math.isfinite(offset_s):
            raise OptionError(f"offset_s={offset_s!r}, expected seconds")
        with self._lock, DeferredSignals():
            if session is None:
                session, self._next = self._next, self._next + 1
            self._check_new(session)
        try:
            compiled = self._compile(boosts)
            reader = self._reader(compiled)
            with self._lock:
                self._check_new(session)
                search = self._backend.start(
                    self._options, compiled, record=self._lattices
                )
                self._sessions[session] = _Session(search, reader, offset_s)
                # A check costs as much as a few chunks: not every session has one.
                if self._num_opened < UTTERANCES or self._num_opened % 8 == 0:
                    self._unchecked[session] = []
                self._num_opened += 1
        except InputError as error:
            error.utterance = session
            raise
        return session

    def advance(self, chunks: Mapping[SessionId, Any]) -> None:
        """Pass sessions through a chunk each; others stay where they are.

        Args:
            chunks: [T, V] each, natural log, as in `Decoder.decode`; T may be 0.

        Interrupted by Ctrl-C, each has passed through some of its chunk, or none or
        all: `partial(session).num_frames` tells how much. It can go on with the rest.

        Raises:
            SessionError: An unknown or closed session.
            ShapeError, LogprobError: As in `Decoder.decode`; the session is named as
                `utterance`. No session has moved: they go on from where they were.
        """
        with self._lock, DeferredSignals():
            under_way = [self._find(session).search for session in chunks]
            names = list(chunks)
            try:
                arrays = self._backend.inputs(list(chunks.values()), None)
            except InputError as error:
                if isinstance(error.utterance, int):
                    error.utterance = names[error.utterance]
                raise
            self._backend.advance(under_way, arrays, names=names, workers=self._workers)
            if self._unchecked:
                for session, array in zip(names, arrays, strict=True):
                    self._check_first(session, array)

    def partial(self, session: SessionId) -> Partial:
        """The best hypothesis so far, and how much of it can no longer change.

        Raises:
            SessionError: An unknown or closed session.
        """
        with self._lock, DeferredSignals():
            found = self._find(session)
            with naming(session):
                partial = found.reader.partial(found.search.look())
        if not found.offset_s:
            return partial
        words = tuple(word_later_by(word, found.offset_s) for word in partial.words)
        return replace(partial, words=words)

    def close(self, session: SessionId) -> Hypothesis:
        """End a session; the best hypothesis.

        Raises:
            SessionError: An unknown or closed session.
        """
        found, ended = self._finish(session)
        best = ended.reader.hypothesis(found)
        return best.later_by(ended.offset_s) if ended.offset_s else best

    def close_nbest(self, session: SessionId) -> list[Hypothesis]:
        """End a session; its hypotheses, as `Decoder.decode_nbest` has them.

        After `settled_lattices`: of what follows on the segments.

        Raises:
            SessionError: An unknown or closed session.
            OptionError: The decoder finds only the best one; the session goes on.
        """
        self._check_nbest()
        found, ended = self._finish(session)
        with naming(session):
            nbest = ended.reader.nbest(found, self._options.nbest)
        if ended.offset_s:
            for i, one in enumerate(nbest):  # in place: the list says more than it has
                nbest[i] = one.later_by(ended.offset_s)
        return nbest

    def settled_lattices(
        self, session: SessionId, *, min_frames: int = SEGMENT_FRAMES
    ) -> list[Lattice]:
        """The segments of a session's lattice that were settled since the last call.

        A segment ends where all paths that may still come out go through one state. It
        is a lattice in its own right, whose frames are those of the session. The
        session forgets it, so that its memory stays bounded; segments and the lattice
        that `close_lattice` then gives, one after the other, are the whole one, arc for
        arc. Where segments end does not depend on when they are asked for.

        Args:
            session: Made with `lattices=True`.
            min_frames: The fewest frames of a segment, 1 or more.

        Raises:
            SessionError: An unknown or closed session.
            OptionError: `min_frames` is out of range, or the sessions were not made
                with `lattices=True`.
        """
        if min_frames < 1:
            raise OptionError(f"min_frames={min_frames!r}, expected 1 or more")
        with self._lock, DeferredSignals():
            self._check_lattices()
            if SEGMENTS not in self._backend.can:
                raise OptionError(
                    "sessions that hand out no settled lattices, expected those of a "
                    "WfstDecoder by backend='cpu' or 'auto'"
                )
            found = self._find(session)
            return found.reader.segments(found.search.settle(min_frames))

    def close_lattice(self, session: SessionId) -> Lattice:
        """End a session; its lattice, as `decode_lattice` of the decoder has it.

        After `settled_lattices`: what follows on the segments.

        Raises:
            SessionError: An unknown or closed session.
            OptionError: The sessions were not made with `lattices=True`; the session
                goes on.
        """
        self._check_lattices()
        found, ended = self._finish(session)
        return ended.reader.lattice(found)

    def end_threads(self) -> None:
        """End the threads that advance sessions side by side.

        For whoever stops for good, or for long: `advance` makes others.
        """
        with self._lock, DeferredSignals():
            self._workers.end_threads()

    def _check_lattices(self) -> None:
        if not self._lattices:
            raise OptionError(
                "sessions that record no lattices, expected "
                "`decoder.sessions(lattices=True)`"
            )

    def _check_first(self, session: SessionId, chunk: Any) -> None:
        """Check the first frames of a session once there are enough of them."""
        chunks = self._unchecked.get(session)
        if chunks is not None and isinstance(chunk, np.ndarray):
            # Chunks may be the caller's memory, which the next ones overwrite.
            chunks.append(chunk[:SESSION_FRAMES].copy())
            if sum(map(len, chunks)) >= SESSION_FRAMES:
                self._check_input(np.concatenate(self._unchecked.pop(session)))

    def _finish(self, session: SessionId) -> tuple[Any, _Session]:
        with self._lock, DeferredSignals():
            found = self._find(session)
            if rest := self._unchecked.pop(session, None):
                self._check_input(np.concatenate(rest))
            del self._sessions[session]
            with naming(session):
                return found.search.finish(), found

    def _check_new(self, session: SessionId) -> None:
        if session in self._sessions:
            raise SessionError("is open already, expected another name", session)

    def _find(self, session: SessionId) -> _Session:
        try:
            return self._sessions[session]
        except KeyError:
            others = few(list(self._sessions)) or "none"
            raise SessionError(
                "is not open: it was closed, or never opened, expected one that `open` "
                f"gave and that was not closed (open are: {others})",
                session,
            ) from None
