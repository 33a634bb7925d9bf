"""Lattices as arrays: n-best lists, posteriors, rescoring.

A lattice comes from `WfstDecoder.decode_lattice`, or from a file:

    save_lattices("dev.lat", lattices)              # by utterance id
    for utterance, lattice in open_lattices("dev.lat"): ...
    rescored(lattice, lm, lm_scale=0.8)             # another language model
    word_confidences(lattice, scale=0.5).confidences

`wfstdec.lattice_hypotheses` reads one: texts with words, times and costs.
"""

from wfstdec.lazy import names_of_stub

__getattr__, __dir__, __all__ = names_of_stub(__name__, __file__)
