"""The backends of a decoder: a model that is searched, laid out for a kind of machine.

    utterances = backend.inputs(logprobs, lengths)     # checked, one array each
    found = backend.decode(utterances, options, boosts)

    backend.prepare(options, boosts[0])                # lay out boosts ahead of `start`
    search = backend.start(options, boosts[0])         # one in chunks
    backend.advance([search], [chunk])                 # any number of times
    search.look()                                      # how far it has come
    search.finish()

`backend.can` has its abilities, of `search.threads`. Utterances of CTC models are
log-probs, float32 [T, V], and results are paths, with what was recorded for lattices.
With `SEGMENTS`, `search.settle(min_frames)` gives the segments of a lattice that were
settled since the last call. `threads.HostBackend` and `gpu.backend.BatchingBackend` are
the bases.
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
