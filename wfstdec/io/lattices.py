"""Lattices for other people's tools: OpenFst files and Kaldi's text archives.

    with open("dev.lat.txt", "w") as file:
        for utterance, lattice in open_lattices("dev.lat").items():
            file.write(kaldi_lattice(utterance, lattice))
    lattice_copy ark,t:dev.lat.txt ark:dev.lat.ark          # Kaldi's, from there on

    write_lattice_fst(lattice, "one.fst")       # for kaldifst, pynini, OpenFst's tools

State 0 is the start. Input labels are token + 1, as in graphs; Kaldi, which expects
transition ids there, never looks at them unless asked for phones or times.
"""

from __future__ import annotations

import numpy as np

from wfstdec.fst.openfst_binary import FstContent, format_fst
from wfstdec.graph.arcs import LABEL_MASK, FstArrays
from wfstdec.lattice.arrays import Lattice
from wfstdec.text.files import PathLike, atomic_write


def lattice_fst(lattice: Lattice) -> FstArrays:
    """A lattice as a plain FST: tokens to words, costs scaled and added up."""
    arcs = lattice.arcs
    splits = np.searchsorted(arcs["state"], np.arange(lattice.num_states + 1))
    return FstArrays(
        start=0,
        final_cost=lattice.final_costs().astype(np.float32),
        state_arc_splits=splits,
        ilabel=(arcs["ilabel"] & LABEL_MASK).astype(np.int32),
        olabel=arcs["olabel"].astype(np.int32),
        nextstate=arcs["nextstate"].astype(np.int32),
        cost=lattice.arc_costs().astype(np.float32),
    )


def write_lattice_fst(lattice: Lattice, path: PathLike) -> None:
    """Write a lattice as an OpenFst file of type vector, over the tropical semiring.

    Raises:
        FormatError: The file cannot be written.
    """
    data = format_fst(FstContent(lattice_fst(lattice)), "vector")
    with atomic_write(path) as file:
        file.write(data)


def kaldi_lattice(
    utterance: str, lattice: Lattice, numbers: np.ndarray | None = None
) -> str:
    """A lattice as an entry of a Kaldi text archive of lattices.

    The two costs of an arc are: all but the acoustic one, scaled; the acoustic one,
    before its scale. So Kaldi's acoustic scale is that of the search.

    Args:
        utterance: Its id.
        lattice: Any.
        numbers: int64 [W], what to call each word; None for their own numbers.
    """
    arcs, acoustic = lattice.arcs, lattice.arcs["acoustic_cost"].astype(np.float64)
    # The rest of the total, so that both costs of an arc add up to ours.
    graph = lattice.arc_costs() - lattice.scales.acoustic_scale * acoustic
    final = lattice.final_costs()
    lines, row = [f"{utterance} "], 0
    label = (arcs["ilabel"] & LABEL_MASK).tolist()
    for state in range(lattice.num_states):
        while row < len(arcs) and arcs["state"][row] == state:
            to, word = arcs["nextstate"][row], arcs["olabel"][row]
            word = word if numbers is None else numbers[word]
            costs = f"{graph[row]:.7g},{acoustic[row]:.7g}"
            lines.append(f"{state}\t{to}\t{label[row]}\t{word}\t{costs}")
            row += 1
        if final[state] < np.inf:
            lines.append(f"{state}\t{final[state]:.7g},0")
    return "\n".join([*lines, "", ""])
