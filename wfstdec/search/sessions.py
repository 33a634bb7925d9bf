"""Sessions: utterances that arrive in chunks, opened and closed at any time.

    sessions = decoder.sessions()
    a, b = sessions.open(boosts), sessions.open()
    sessions.advance({a: chunk, b: chunk})         # any of them, chunks of any size
    sessions.partial(a).text                       # the words so far
    sessions.partials([a, b])                      # of several sessions, faster
    hypothesis = sessions.close(a)                 # the same as decode() of all chunks

The final result is bit-identical to the offline one for any chunks.
"""

import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from wfstdec.boost.lists import BoostsLike
from wfstdec.checks.inputs import SESSION_FRAMES, UTTERANCES
from wfstdec.errors import InputError, OptionError, SessionError, naming
from wfstdec.lattice.arrays import Lattice
from wfstdec.lazy import check_methods
from wfstdec.search.hypothesis import Hypothesis, Partial, word_later_by
from wfstdec.search.paths.hypotheses import Reader
from wfstdec.search.threads import SEGMENTS, DeferredSignals, Workers
from wfstdec.text.display import few

SEGMENT_FRAMES = 50  # default minimum of frames of a lattice segment
SessionId = int | str
"""Name of a session."""
NO_LATTICES = (
    "sessions that record no lattices, expected `decoder.sessions(lattices=True)`"
)


@dataclass
class _Session:
    search: Any
    reader: Reader
    offset_s: float
    unchecked: list[np.ndarray] | None  # first frames, until they are checked
    partial: Partial | None = None  # None after new frames


@check_methods
class Sessions:
    """Concurrent sessions; created by `Decoder.sessions`.

    Methods may be called from several threads; a lock serialises them.
    """

    def __init__(self, decoder: Any, lattices: bool) -> None:
        self._decoder, self._lattices = decoder, lattices
        self._backend, self._options = decoder._backend, decoder.options
        self._num_opened = self._next = 0
        self._sessions: dict[SessionId, _Session] = {}
        self._lock = threading.RLock()
        self._workers = Workers(decoder.threads)

    def __len__(self) -> int:
        return len(self._sessions)

    def __repr__(self) -> str:
        named = f": {few(list(self._sessions))}" if self._sessions else ""
        return f"Sessions({len(self)} open{named})"

    def __reduce__(self) -> tuple[Any, ...]:
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
        """Open a session; others continue while its boost list is compiled.

        Args:
            boosts: Of this utterance, in any form that `Decoder.decode` takes; lists
                from `compile_boosts` need no compilation here.
            session: Its name; None for a number.
            offset_s: Seconds of the recording before its first frame. Times of words
                and tokens include it; frames and lattices do not.

        Returns:
            Its name.

        Raises:
            SessionError: The name is in use.
            OptionError: `offset_s` is not a finite number.
            BoostError, OptionError: As in `Decoder.decode`.
        """
        if not math.isfinite(offset_s):
            raise OptionError(f"offset_s={offset_s!r}, expected seconds")
        with self._lock, DeferredSignals():
            if session is None:
                session, self._next = self._next, self._next + 1
            self._check_new(session)
        try:
            compiled = self._decoder._ready(boosts)
            reader = self._decoder._reader(compiled)
            with self._lock:
                self._check_new(session)
                search = self._backend.start(
                    self._options, compiled, record=self._lattices
                )
                # A check costs as much as a few chunks, so only some sessions have one.
                checked = self._num_opened < UTTERANCES or self._num_opened % 8 == 0
                unchecked: list[np.ndarray] | None = [] if checked else None
                self._sessions[session] = _Session(search, reader, offset_s, unchecked)
                self._num_opened += 1
        except InputError as error:
            error.utterance = session
            raise
        return session

    def advance(self, chunks: Mapping[SessionId, Any]) -> None:
        """Decode one chunk of each of some sessions.

        If Ctrl-C interrupts it, each session has decoded all, some or none of its chunk
        and can continue from `partial(session).num_frames`.

        Args:
            chunks: [T, V] each, natural log, as in `Decoder.decode`; T may be 0.

        Raises:
            SessionError: An unknown or closed session.
            ShapeError, LogprobError: As in `Decoder.decode`; the session is named as
                `utterance`, and no session has changed.
        """
        with self._lock, DeferredSignals():
            names, under_way = list(chunks), [self._find(name) for name in chunks]
            try:
                arrays = self._backend.inputs(list(chunks.values()), None)
            except InputError as error:
                if isinstance(error.utterance, int):
                    error.utterance = names[error.utterance]
                raise
            for one in under_way:
                one.partial = None
            searches = [one.search for one in under_way]
            self._backend.advance(searches, arrays, names=names, workers=self._workers)
            for one, array in zip(under_way, arrays, strict=True):
                if one.unchecked is not None and isinstance(array, np.ndarray):
                    # Copied: the caller may overwrite its memory with the next chunks.
                    one.unchecked.append(array[:SESSION_FRAMES].copy())
                    self._check_first(one, SESSION_FRAMES)

    def partial(self, session: SessionId) -> Partial:
        """Return the best hypothesis so far, and which of its words are settled.

        Raises:
            SessionError: An unknown or closed session.
        """
        return self.partials([session])[0]

    def partials(self, sessions: Sequence[SessionId]) -> list[Partial]:
        """Return `partial` of each session; sessions without new frames are cached.

        Raises:
            SessionError: An unknown or closed session.
        """
        with self._lock:
            found = list(map(self._find, sessions))
            groups: dict[Any, dict[SessionId, _Session]] = {}  # read together
            for session, one in zip(sessions, found, strict=True):
                if one.partial is None:
                    kind = id(getattr(one.search, "kind", one)), id(one.reader.cutter)
                    groups.setdefault(kind, {})[session] = one
            if groups:
                with DeferredSignals():
                    for group in groups.values():
                        self._look(group)
            return [one.partial for one in found if one.partial is not None]

    def _look(self, sessions: dict[SessionId, _Session]) -> None:
        group = list(sessions.values())
        try:
            partials = Reader.partials(
                [one.reader for one in group], [one.search for one in group]
            )
        except Exception:
            with naming(next(iter(sessions))):
                raise
        for one, partial in zip(group, partials, strict=True):
            if one.offset_s:
                words = (word_later_by(word, one.offset_s) for word in partial.words)
                partial = replace(partial, words=tuple(words))
            one.partial = partial

    def close(self, session: SessionId) -> Hypothesis:
        """End a session and return its best hypothesis.

        Raises:
            SessionError: An unknown or closed session.
        """
        found, ended = self._finish(session)
        best = ended.reader.hypothesis(found)
        return best.later_by(ended.offset_s) if ended.offset_s else best

    def close_nbest(self, session: SessionId) -> list[Hypothesis]:
        """End a session and return the list of `Decoder.decode_nbest`.

        After `settled_lattices`: of the frames after the segments.

        Raises:
            SessionError: An unknown or closed session.
            OptionError: The decoder keeps only the best one; the session stays open.
        """
        self._decoder._check_nbest(self._lattices)
        found, ended = self._finish(session)
        with naming(session):
            nbest = ended.reader.nbest(found, self._options.nbest)
        if ended.offset_s:
            for i, one in enumerate(nbest):  # in place: it may be an `NbestList`
                nbest[i] = one.later_by(ended.offset_s)
        return nbest

    def settled_lattices(
        self, session: SessionId, *, min_frames: int = SEGMENT_FRAMES
    ) -> list[Lattice]:
        """Return the lattice segments that were settled since the last call.

        A segment ends where all paths that can still be output share one state. It is a
        lattice, with the frames of the session. The session drops it, so that memory
        stays bounded. The segments and the lattice of `close_lattice` together are the
        whole lattice, arc for arc. Segment ends do not depend on the times of the
        calls.

        Args:
            session: Of `decoder.sessions(lattices=True)`.
            min_frames: The minimum of frames of a segment, 1 or more.

        Raises:
            SessionError: An unknown or closed session.
            OptionError: `min_frames` is out of range, or the sessions lack
                `lattices=True`.
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
        """End a session and return its lattice, as `Decoder.decode_lattice`.

        After `settled_lattices`: the lattice after the segments.

        Raises:
            SessionError: An unknown or closed session.
            OptionError: The sessions lack `lattices=True`; the session stays open.
        """
        self._check_lattices()
        found, ended = self._finish(session)
        return ended.reader.lattice(found)

    def end_threads(self) -> None:
        """End the threads that advance sessions; `advance` starts new ones."""
        with self._lock, DeferredSignals():
            self._workers.end_threads()

    def _check_lattices(self) -> None:
        if not self._lattices:
            raise OptionError(NO_LATTICES)

    def _check_first(self, session: _Session, least: int) -> None:
        if session.unchecked and sum(map(len, session.unchecked)) >= least:
            frames, session.unchecked = np.concatenate(session.unchecked), None
            self._decoder._input_check.session(frames)

    def _finish(self, session: SessionId) -> tuple[Any, _Session]:
        with self._lock, DeferredSignals():
            found = self._find(session)
            self._check_first(found, 0)
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
