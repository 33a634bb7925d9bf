"""Kaldi's archives of lattices, as its sources lay them out.

    for utterance, compact in read_archive("dev.ark"): ...

Of lattices that are not compact each arc becomes one, perhaps with word 0.
"""

import struct
from pathlib import Path

import numpy as np

from wfstdec.lattice.compact import CompactArc, CompactLattice, Weight


def read_archive(path):
    data, at = Path(path).read_bytes(), 0
    while at < len(data):
        space = data.index(b" ", at)
        utterance = data[at:space].decode()
        if data[space + 1 : space + 2] == b"\n":
            end = data.index(b"\n\n", space)
            found, at = text_lattice(data[space + 2 : end].decode()), end + 2
        else:
            binary = Binary(data, space + 1)
            found, at = binary.lattice(), binary.at
        yield utterance, found


def text_lattice(text):
    lines = [line.split() for line in text.splitlines()]
    num = 1 + max(int(line[0]) for line in lines)
    rows, final = [[] for _ in range(num)], [None] * num
    for state, *others, costs in lines:
        graph, acoustic, *labels = costs.split(",")
        labels = [int(label) for one in labels for label in one.split("_") if label]
        if others:
            to, *label, word = map(int, others)
            labels += [one for one in label if one]
            weight = Weight(float(graph), float(acoustic), tuple(labels))
            rows[int(state)].append(CompactArc(word, to, weight))
        else:
            final[int(state)] = Weight(float(graph), float(acoustic), tuple(labels))
    return CompactLattice(rows, final, np.inf)


class Binary:
    def __init__(self, data, at):
        self.data, self.at = data, at

    def take(self, form):
        found = struct.unpack_from(f"<{form}", self.data, self.at)
        self.at += struct.calcsize(f"<{form}")
        return found

    def name(self):
        (size,) = self.take("i")
        return self.take(f"{size}s")[0]

    def weight(self, is_compact):
        graph, acoustic = self.take("ff")
        (size,) = self.take("i") if is_compact else (0,)
        return Weight(graph, acoustic, self.take(f"{size}i"))

    def arc(self, is_compact):
        label, word = self.take("ii")
        weight = self.weight(is_compact)
        if not is_compact:
            weight = weight._replace(labels=(label,) if label else ())
        return CompactArc(word, self.take("i")[0], weight)

    def lattice(self):
        (magic,) = self.take("i")
        assert magic == 2125659606 and self.name() == b"vector"
        is_compact = {b"compactlattice44": True, b"lattice4": False}[self.name()]
        _, flags, _, start, num_states, _ = self.take("iiQqqq")
        assert not flags and start == 0
        rows, final = [], []
        for _ in range(num_states):
            weight = self.weight(is_compact)
            final.append(weight if weight.graph_cost < np.inf else None)
            rows.append([self.arc(is_compact) for _ in range(self.take("q")[0])])
        return CompactLattice(rows, final, np.inf)
