"""Lattices: what a search kept, as arrays; n-best, posteriors, rescoring on them.

A lattice comes from `WfstDecoder.decode_lattice`, or from a file:

    save_lattices("dev.lat", lattices)              # by utterance id
    for utterance, lattice in open_lattices("dev.lat"): ...

`wfstdec.lattice_hypotheses` reads one: texts with words, times and costs.
"""
