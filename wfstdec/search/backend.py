"""Protocols of a decoder's backend, of a search, and of readers of results.

    utterances = backend.inputs(logprobs, lengths)     # checked
    found = backend.decode(utterances, options, boosts)

    search = backend.start(options, boosts[0])         # one that comes in chunks
    backend.advance([search], [chunk])                 # any number of times
    reader.partial(search.look())                      # what was said so far
    reader.hypothesis(search.finish())

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
from wfstdec.lattice.arrays import Lattice
from wfstdec.search.hypothesis import Hypothesis, Partial
from wfstdec.search.threads import Read, Workers

_Chunk = TypeVar("_Chunk")
_Chunk_contra = TypeVar("_Chunk_contra", contravariant=True)
_Found_co = TypeVar("_Found_co", covariant=True)
_Found_contra = TypeVar("_Found_contra", contravariant=True)


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

        `read`: what to make of each, as soon as it is found; None leaves it.
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


class Reader(Protocol[_Found_contra]):
    """Reads what searches of one boost list found; one for each session.

    Only what the decoder and its backend can do is asked for.
    """

    def hypothesis(self, found: _Found_contra) -> Hypothesis:
        """Read the best hypothesis."""

    def hypotheses(
        self, found: Sequence[_Found_contra], boosts: Sequence[CompiledBoosts]
    ) -> list[Hypothesis]:
        """Read the best of each of many searches."""

    def partial(self, look: Any) -> Partial:
        """Read how far a search has come: of one search, again and again."""

    def nbest(self, found: Any, num: int | None) -> list[Hypothesis]:
        """Read hypotheses, best first: `num` at most, or all that there are."""
        raise AssertionError("this decoder finds only the best")

    def lattice(self, found: Any) -> Lattice:
        """Read the lattice of what was recorded."""
        raise AssertionError("this decoder records no lattices")

    def segments(self, settled: Any) -> list[Lattice]:
        """Read what `Search.settle` gave."""
        raise AssertionError("this decoder hands out no segments")


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
