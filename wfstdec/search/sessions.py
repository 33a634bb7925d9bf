"""Sessions: utterances that come in chunks, and that join and leave at any time.

    sessions = decoder.sessions()
    a, b = sessions.open(boosts), sessions.open()
    sessions.advance({a: chunk, b: chunk})         # any of them, chunks of any size
    sessions.partial(a).text                       # the words so far
    hypothesis = sessions.close(a)                 # the same as decode() of all chunks

Any chunking, in any company: the closed result is the offline one, bit for bit.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from wfstdec.errors import InputError, OptionError, naming
from wfstdec.search.contract import BatchBackend
from wfstdec.search.hypothesis import Hypothesis, Word

if TYPE_CHECKING:
    from wfstdec.boost.compile import CompiledBoosts
    from wfstdec.boost.lists import BoostsLike
    from wfstdec.lattice.arrays import Lattice
    from wfstdec.search.decoder import Decoder

SEGMENT_FRAMES = 50
"""The fewest frames of a segment of a lattice, where nobody says how many."""
SessionId = int | str
"""What a session is called."""


@dataclass(frozen=True)
class Partial:
    """The best hypothesis of a session so far.

    Attributes:
        words: In order; the last one may be only begun.
        num_settled: So many of the first words can no longer change, whatever comes.
        num_timed: Of these, so many have times that can no longer change.
        num_frames: Frames decoded.
        silent_frames: Frames since the last token of a word ended; all, if none began.
        final_cost: What ending here costs more than going on, nats; `inf` where no
            path can end here.
    """

    words: tuple[Word, ...]
    num_settled: int
    num_timed: int
    num_frames: int
    silent_frames: int
    final_cost: float

    @property
    def text(self) -> str:
        """The words, joined by spaces."""
        return " ".join(word.text for word in self.words)

    @property
    def settled_text(self) -> str:
        """Those that can no longer change."""
        return " ".join(word.text for word in self.words[: self.num_settled])


class _Session(NamedTuple):
    """A session under way."""

    search: Any
    boosts: CompiledBoosts
    reader: Any


class Sessions:
    """The sessions of one decoder; made by `Decoder.sessions`.

    Methods may be called from several threads; they wait for each other.
    """

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._sessions: dict[SessionId, _Session] = {}
        self._next = 0
        self._lock = threading.RLock()
        self._pool: ThreadPoolExecutor | None = None

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, session: SessionId) -> bool:
        return session in self._sessions

    def open(
        self, boosts: BoostsLike = None, *, session: SessionId | None = None
    ) -> SessionId:
        """Begin a session.

        Args:
            boosts: Of this utterance: word to bonus, compiled phrases, `Boosts`, None.
            session: What it is called; None for a number.

        Returns:
            What it is called.

        Raises:
            InputError: There is such a session already.
            BoostError: As in `Decoder.decode`.
        """
        with self._lock:
            if session is None:
                session, self._next = self._next, self._next + 1
            if session in self._sessions:
                raise InputError("is open already, expected another name", session)
            try:
                search, compiled = self._decoder._open(boosts)
            except InputError as error:
                error.utterance = session
                raise
            reader = self._decoder._partial_reader(compiled)
            self._sessions[session] = _Session(search, compiled, reader)
            return session

    def advance(self, chunks: Mapping[SessionId, Any]) -> None:
        """Pass sessions through a chunk each; others stay where they are.

        Args:
            chunks: [T, V] each, natural log, as in `Decoder.decode`; T may be 0.

        Raises:
            InputError: An unknown or closed session.
            ShapeError, LogprobError: As in `Decoder.decode`; the session is named as
                `utterance`. No session has moved: they go on from where they were.
        """
        with self._lock:
            under_way = [self._find(session).search for session in chunks]
            backend = self._decoder._backend
            try:
                arrays = self._decoder._utterances(list(chunks.values()), None)
                if isinstance(backend, BatchBackend):
                    backend.advance(under_way, arrays)
                    return
            except InputError as error:
                if isinstance(error.utterance, int):
                    error.utterance = list(chunks)[error.utterance]
                raise
            self._advance(under_way, arrays, list(chunks))

    def partial(self, session: SessionId) -> Partial:
        """The best hypothesis so far, and how much of it can no longer change.

        Raises:
            InputError: An unknown or closed session.
        """
        with self._lock:
            found = self._find(session)
            with naming(session):
                return found.reader.read(found.search.look())

    def close(self, session: SessionId) -> Hypothesis:
        """End a session; the best hypothesis.

        Raises:
            InputError: An unknown or closed session.
        """
        result, found = self._finish(session)
        return self._decoder._hypothesis(result, found.boosts)

    def close_nbest(self, session: SessionId) -> list[Hypothesis]:
        """End a session; its hypotheses, as `Decoder.decode_nbest` has them.

        After `settled_lattices`: of what follows on the segments.

        Raises:
            InputError: An unknown or closed session.
            OptionError: The decoder finds only the best one; the session goes on.
        """
        self._decoder._check_nbest()
        with self._lock:
            found = self._sessions.pop(session, None) or self._find(session)
            with naming(session):
                return self._decoder._finish_nbest(found.search, found.boosts)

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
            InputError: An unknown or closed session.
            OptionError: `min_frames` is out of range, or the sessions were not made
                with `lattices=True`.
        """
        if min_frames < 1:
            raise OptionError(f"min_frames={min_frames!r}, expected 1 or more")
        with self._lock:
            found = self._find(session)
            return self._decoder._settled(found.search, found.boosts, min_frames)

    def close_lattice(self, session: SessionId) -> Lattice:
        """End a session; its lattice, as `decode_lattice` of the decoder has it.

        After `settled_lattices`: what follows on the segments.

        Raises:
            InputError: An unknown or closed session.
            OptionError: The sessions were not made with `lattices=True`; the session
                goes on.
        """
        finish = self._decoder._lattice_reader()
        with self._lock:
            found = self._sessions.pop(session, None) or self._find(session)
            return finish(found.search, found.boosts)

    def _finish(self, session: SessionId) -> tuple[Any, _Session]:
        with self._lock:
            found = self._find(session)
            del self._sessions[session]
            with naming(session):
                return found.search.finish(), found

    def _find(self, session: SessionId) -> _Session:
        try:
            return self._sessions[session]
        except KeyError:
            raise InputError(
                f"no such session among the {len(self._sessions)} that are open, "
                "expected one that `open` gave and that was not closed",
                session,
            ) from None

    def _advance(
        self, searches: Sequence[Any], chunks: Sequence[Any], names: Sequence[SessionId]
    ) -> None:
        """Pass searches through their chunks, in threads where that helps."""
        threads = self._decoder.threads
        if threads == 1 or len(searches) < 2:
            _advance_each(searches, chunks, names)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(threads)
        order = sorted(range(len(chunks)), key=lambda i: -len(chunks[i]))
        shares = [order[first::threads] for first in range(threads)]
        done = [
            self._pool.submit(
                _advance_each,
                *([every[i] for i in one] for every in (searches, chunks, names)),
            )
            for one in shares
        ]
        for one in done:
            one.result()


def _advance_each(
    searches: Sequence[Any], chunks: Sequence[Any], names: Sequence[SessionId]
) -> None:
    for search, chunk, name in zip(searches, chunks, names, strict=True):
        if len(chunk):
            with naming(name):
                search.advance(chunk)
