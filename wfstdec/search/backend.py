"""Protocols of a decoder's backend and of a search.

    utterances = backend.inputs(logprobs, lengths)     # checked
    found = backend.decode(utterances, options, boosts)

    search = backend.start(options, boosts[0])         # one that comes in chunks
    backend.advance([search], [chunk])                 # any number of times
    search.look()                                      # how far it has come
    search.finish()

What an utterance is made of is the search's own affair: log-probs, float32 [T, V], for
those of CTC models, where a chunk is some of its frames. So is what it finds: paths
and, where lattices are recorded, what was recorded.
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

    Where a lattice is recorded, and the backend can `SEGMENTS`, it has a further
    method `settle(min_frames)`: the settled segments of at least that many frames since
    the last call, which it forgets.
    """

    def advance(self, chunk: _Chunk_contra, /) -> None:
        """Pass the search through a chunk, one of `Backend.inputs`."""

    def look(self) -> Any:
        """Tell how far it has come; it goes on as if not asked."""

    def finish(self) -> _Found_co:
        """End the utterance."""


class Backend(Protocol[_Chunk, _Found_co]):
    """A model that is searched, laid out for one kind of machine.

    Attributes:
        can: What not all backends can do, `LATTICES` and others of `search.threads`.
    """

    @property
    def can(self) -> frozenset[str]:
        """Names of abilities."""

    def inputs(self, logprobs: Any, lengths: Any) -> Sequence[_Chunk]:
        """Check what users give; one array per utterance, where searches want them."""

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
        """Decode whole utterances, in whatever groups and order are quickest.

        `read`: what to make of each group, as soon as it is found; None leaves it.
        """

    def prepare(self, options: Any, boosts: CompiledBoosts) -> None:
        """Lay out boosts, so that `start` does not; may be called at any time."""

    def start(
        self, options: Any, boosts: CompiledBoosts, *, record: bool = False
    ) -> Search[_Chunk, _Found_co]:
        """Begin an utterance that comes in chunks."""

    def advance(
        self,
        searches: Sequence[Any],
        chunks: Sequence[_Chunk],
        *,
        names: Sequence[int | str] | None = None,
        workers: Workers = ...,
    ) -> None:
        """Pass searches of the same options through a chunk each.

        `names`: what errors call each; None for their positions.
        """


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
