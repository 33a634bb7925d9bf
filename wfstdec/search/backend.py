"""Protocols of a decoder's backend and of a search.

    utterances = backend.inputs(logprobs, lengths)     # checked
    found = backend.decode(utterances, options, boosts)

    search = backend.start(options, boosts[0])         # one in chunks
    backend.advance([search], [chunk])                 # any number of times
    search.look()                                      # how far it has come
    search.finish()

Utterances of CTC models are log-probs, float32 [T, V], and results are paths, with what
was recorded for lattices.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.errors import BackendError
from wfstdec.search.threads import Read, Workers

_Chunk = TypeVar("_Chunk")
_Chunk_contra = TypeVar("_Chunk_contra", contravariant=True)
_Found_co = TypeVar("_Found_co", covariant=True)


class Search(Protocol[_Chunk_contra, _Found_co]):
    """Search of an utterance under way.

    With lattices, and `SEGMENTS` in `Backend.can`, it also has `settle(min_frames)`:
    the segments settled since the last call, which it forgets.
    """

    def advance(self, chunk: _Chunk_contra, /) -> None:
        """Decode a chunk, one of `Backend.inputs`."""

    def look(self) -> Any:
        """How far it has come; results are the same without a look."""

    def finish(self) -> _Found_co:
        """End the utterance."""


class Backend(Protocol[_Chunk, _Found_co]):
    """A model that is searched, laid out for one kind of machine."""

    @property
    def can(self) -> frozenset[str]:
        """Abilities: `LATTICES` and others of `search.threads`."""

    def inputs(self, logprobs: Any, lengths: Any) -> Sequence[_Chunk]:
        """Check the user's arrays; one array per utterance."""

    def decode(
        self,
        utterances: Sequence[_Chunk],
        options: Any,
        boosts: Sequence[CompiledBoosts],
        *,
        record: bool = False,
        workers: Workers = ...,
        read: Read | None = None,
    ) -> list[Any]:
        """Decode whole utterances, in any groups; `read` is applied to each group."""

    def prepare(self, options: Any, boosts: CompiledBoosts) -> None:
        """Lay out boosts ahead of `start`."""

    def start(
        self, options: Any, boosts: CompiledBoosts, *, record: bool = False
    ) -> Search[_Chunk, _Found_co]:
        """Begin an utterance that arrives in chunks."""

    def advance(
        self,
        searches: Sequence[Any],
        chunks: Sequence[_Chunk],
        *,
        names: Sequence[int | str] | None = None,
        workers: Workers = ...,
    ) -> None:
        """Decode a chunk of each search; `names`: of the searches, for errors."""


AUTO = "auto"


def make_backend(backends: Mapping[str, str], name: str, searched: Any) -> Any:
    """Make the backend of that name; `"auto"` is the CPU."""
    if name == AUTO:
        name = "cpu"
    if name not in backends:
        known = ", ".join(map(repr, (AUTO, *backends)))
        raise BackendError(f"backend {name!r}, expected one of {known}")
    module, _, maker = backends[name].partition(":")
    return getattr(importlib.import_module(module), maker)(searched)
