"""What decoders do that record lattices: whole utterances, sessions, their options.

    lattices = decoder.decode_lattice(logprobs, lattice_beam=8.0)

    sessions = decoder.sessions(lattices=True)
    lattice = sessions.close_lattice(one)

A recording search is one that keeps more of what it found; it ends with `record`.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

from wfstdec.boost.compile import CompiledBoosts
from wfstdec.boost.lists import BoostsLike
from wfstdec.errors import BackendError, OptionError
from wfstdec.lattice.arrays import Lattice
from wfstdec.search.decoder import Decoder
from wfstdec.search.sessions import Sessions

_Chunk = TypeVar("_Chunk")
_Result = TypeVar("_Result")
_Item = TypeVar("_Item")


class RecordingSearch(Protocol):
    """One utterance under way, of which a lattice is wanted."""

    def advance(self, chunk: Any, /) -> None:
        """As `Search.advance`."""

    def record(self) -> Any:
        """End the utterance; what is kept of it."""


@runtime_checkable
class RecordingBackend(Protocol):
    """A backend that records lattices."""

    def start_recording(self, options: Any, boosts: CompiledBoosts) -> RecordingSearch:
        """Begin an utterance."""


@runtime_checkable
class RecordingBatchBackend(Protocol):
    """A backend that records the lattices of a whole batch."""

    def record_batch(
        self,
        utterances: Sequence[Any],
        options: Any,
        boosts: Sequence[CompiledBoosts],
    ) -> list[Any]:
        """What is kept of each utterance, [T, V]."""


class LatticeDecoder(Decoder[_Chunk, _Result]):
    """A decoder whose backends can record lattices; arguments as of `Decoder`."""

    _records = False

    @abstractmethod
    def _lattice(self, recorded: Any, boosts: CompiledBoosts) -> Lattice:
        """The lattice of what was recorded."""

    def _check_recording(self) -> None:
        """Raise where lattices cannot be made under these options."""

    def decode_lattice(
        self,
        logprobs: Any,
        lengths: Any = None,
        boosts: BoostsLike | Sequence = None,
        *,
        lattice_beam: float | None = None,
    ) -> list[Lattice]:
        """All that the search kept near the best path, of each utterance.

        Args:
            logprobs: As in `decode`.
            lengths: As in `decode`.
            boosts: As in `decode`.
            lattice_beam: Nats, at most the beam; `None` is that of the options.

        Raises:
            OptionError: `lattice_beam` is out of range, or the options allow none.
                Others as `decode`.
        """
        if lattice_beam is not None:
            other = self.with_options(lattice_beam=lattice_beam)
            return other.decode_lattice(logprobs, lengths, boosts)
        self._check_recording()
        utterances = self._utterances(logprobs, lengths)
        compiled = self._compiled(boosts, len(utterances))
        self._check_boosts(compiled)
        return self._recorded(utterances, compiled, self._lattice)

    def sessions(self, *, lattices: bool = False) -> Sessions:
        """Utterances that come in chunks, and that join and leave at any time.

        Args:
            lattices: Whether `close_lattice`, `close_nbest` or, of the WFST,
                `settled_lattices` will be asked for. Each session then keeps its
                lattice, pruned as it grows, but for the segments that it handed out.

        Raises:
            BackendError: The backend records no lattices.
            OptionError: The options allow none.
        """
        if not lattices:
            return super().sessions()
        self._check_recording()
        self._recording_backend()
        other = copy.copy(self)
        other._records = True
        return Sessions(other)

    def _open(self, boosts: BoostsLike) -> tuple[Any, CompiledBoosts]:
        if not self._records:
            return super()._open(boosts)
        (compiled,) = self._compiled([boosts], 1)
        self._check_boosts([compiled])
        backend = self._recording_backend()
        return backend.start_recording(self.options, compiled), compiled

    def _lattice_reader(self) -> Callable[[Any, CompiledBoosts], Lattice]:
        if not self._records:
            raise OptionError(
                "sessions that record no lattices, expected "
                "`decoder.sessions(lattices=True)`"
            )
        return lambda search, boosts: self._lattice(search.record(), boosts)

    def _recorded(
        self,
        utterances: Sequence[Any],
        boosts: list[CompiledBoosts],
        read: Callable[[Any, CompiledBoosts], _Item],
    ) -> list[_Item]:
        """What is made of each utterance's record."""
        if isinstance(self._backend, RecordingBatchBackend):
            found = self._backend.record_batch(utterances, self.options, boosts)
            return list(map(read, found, boosts))
        backend = self._recording_backend()

        def record(i: int) -> _Item:
            search = backend.start_recording(self.options, boosts[i])
            search.advance(utterances[i])
            return read(search.record(), boosts[i])

        return self._of_each(utterances, record)

    def _recording_backend(self) -> RecordingBackend:
        if isinstance(self._backend, RecordingBackend):
            return self._backend
        raise BackendError(
            "this backend records no lattices of sessions, expected backend='cpu', "
            "'reference' or 'auto'"
        )
