"""Backends of decoders: a search space laid out for one kind of machine.

    utterances = backend.inputs(logprobs, lengths)     # checked, one array each
    found = backend.decode(utterances, options, boosts)

    backend.prepare(options, boosts[0])                # lay out boosts ahead of `start`
    search = backend.start(options, boosts[0])         # one in chunks
    backend.advance([search], [chunk])                 # any number of times
    search.look()                                      # partial result
    search.finish()

`backend.can` names its abilities, listed in `search.threads`. Utterances of CTC models
are log-probs, float32 [T, V]. Results are paths, with lattice records if requested.
With `SEGMENTS`, `search.settle(min_frames)` returns the lattice segments settled since
the last call. The base classes are `threads.HostBackend` and
`gpu.backend.BatchingBackend`.
"""

import importlib
from collections.abc import Mapping
from typing import Any

from wfstdec.errors import BackendError

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
