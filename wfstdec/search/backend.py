"""The protocol of a decoder's backend.

    utterances = backend.inputs(logprobs, lengths)     # checked
    found = backend.decode(utterances, options, boosts)

    search = backend.start(options, boosts[0])         # one in chunks
    backend.advance([search], [chunk])                 # any number of times
    search.look()                                      # how far it has come
    search.finish()

Utterances of CTC models are log-probs, float32 [T, V], and results are paths, with what
was recorded for lattices.
"""

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.errors import BackendError
from wfstdec.search.threads import Read, Workers

_Chunk = TypeVar("_Chunk")


class Backend(Protocol[_Chunk]):
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
    ) -> Any:
        """Begin an utterance that arrives in chunks.

        The search has `advance(chunk)`, `look()`: how far it has come, and `finish()`.
        With lattices, and `SEGMENTS` in `can`, it also has `settle(min_frames)`: the
        segments settled since the last call, which it forgets.
        """

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
