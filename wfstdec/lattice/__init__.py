"""Lattices: what a search kept, as arrays; n-best, posteriors, rescoring on them.

A lattice comes from `WfstDecoder.decode_lattice`, or from a file:

    save_lattices("dev.lat", lattices)              # by utterance id
    for utterance, lattice in open_lattices("dev.lat"): ...
    rescored(lattice, lm, lm_scale=0.8)             # another language model
    word_confidences(lattice, scale=0.5).confidences

`wfstdec.lattice_hypotheses` reads one: texts with words, times and costs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wfstdec.lattice.arrays import Lattice as Lattice
    from wfstdec.lattice.arrays import LatticeScales as LatticeScales
    from wfstdec.lattice.compact import CompactLattice as CompactLattice
    from wfstdec.lattice.file import LatticeFile as LatticeFile
    from wfstdec.lattice.file import LatticeWriter as LatticeWriter
    from wfstdec.lattice.file import open_lattices as open_lattices
    from wfstdec.lattice.file import save_lattices as save_lattices
    from wfstdec.lattice.mbr import minimum_bayes_risk as minimum_bayes_risk
    from wfstdec.lattice.mbr import posteriors as posteriors
    from wfstdec.lattice.mbr import word_confidences as word_confidences
    from wfstdec.lattice.nbest import nbest_paths as nbest_paths
    from wfstdec.lattice.rescaling import weighed as weighed
    from wfstdec.lattice.rescoring import rescored as rescored

_HOMES = {
    "CompactLattice": "compact",
    "Lattice": "arrays",
    "LatticeFile": "file",
    "LatticeScales": "arrays",
    "LatticeWriter": "file",
    "minimum_bayes_risk": "mbr",
    "nbest_paths": "nbest",
    "open_lattices": "file",
    "posteriors": "mbr",
    "rescored": "rescoring",
    "save_lattices": "file",
    "weighed": "rescaling",
    "word_confidences": "mbr",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
