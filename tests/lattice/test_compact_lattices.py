"""Compact lattices against all paths; archives against what Kaldi reads."""

import struct

import numpy as np
import pytest
from added_cases import frames, small_graph
from kaldi_archives import read_archive
from lattice_cases import paths_of, random_lattice
from text_graphs import text_graph

from wfstdec import BoostEntry, WfstDecoder
from wfstdec.errors import LatticeError, OptionError
from wfstdec.graph.arcs import LABEL_MASK
from wfstdec.io import KaldiLatticeWriter
from wfstdec.lattice.compact import compact_lattice


def best_of_texts(lattice):
    """The least total of each text, and all (labels, graph, acoustic) that it has."""
    least, ways = {}, {}
    costs, finals = lattice.arc_costs(), lattice.final_costs()
    for path, _ in paths_of(lattice):
        arcs = lattice.arcs[list(path)]
        end = int(arcs["nextstate"][-1]) if path else 0
        total = costs[list(path)].sum() + finals[end]
        acoustic = arcs["acoustic_cost"].sum(dtype=np.float64)
        labels = tuple(label for a in arcs if (label := int(a["ilabel"]) & LABEL_MASK))
        words = lattice.word_ids(np.array(path, np.int64))
        least[words] = min(total, least.get(words, np.inf))
        graph = total - lattice.scales.acoustic_scale * acoustic
        ways.setdefault(words, []).append((labels, graph, acoustic))
    return least, ways


def paths_in(compact):
    """All paths: (words, labels, graph cost, acoustic cost)."""
    waiting = [(0, (), (), 0.0, 0.0)]
    while waiting:
        state, words, labels, graph, acoustic = waiting.pop()
        if (final := compact.final[state]) is not None:
            yield (
                words,
                labels + final.labels,
                graph + final.graph_cost,
                acoustic + final.acoustic_cost,
            )
        for word, to, weight in compact.arcs[state]:
            waiting.append(
                (
                    to,
                    words + ((word,) if word else ()),
                    labels + weight.labels,
                    graph + weight.graph_cost,
                    acoustic + weight.acoustic_cost,
                )
            )


def assert_compact(lattice, compact):
    """Each text once, at its best cost, with the tokens of a path that costs it."""
    least, ways = best_of_texts(lattice)
    scale, found = lattice.scales.acoustic_scale, {}
    for words, labels, graph, acoustic in paths_in(compact):
        assert words not in found
        found[words] = graph + scale * acoustic
        assert any(
            labels == other
            and graph == pytest.approx(cost, abs=1e-4)
            and acoustic == pytest.approx(known, abs=1e-4)
            for other, cost, known in ways[words]
        )
    for words, cost in found.items():
        assert cost == pytest.approx(least[words], abs=1e-4)
    limit = min(least.values()) + compact.beam
    assert {w for w, cost in least.items() if cost <= limit - 1e-3} <= set(found)
    for state, row in enumerate(compact.arcs):
        assert [arc.word for arc in row] == sorted({arc.word for arc in row})
        assert all(arc.nextstate > state for arc in row)
    return len(found)


def test_each_text_is_there_once_with_its_best_cost_and_tokens():
    several = 0
    for seed in range(120):
        lattice = random_lattice(seed)
        compact = compact_lattice(lattice)
        assert compact.beam == lattice.lattice_beam
        several += assert_compact(lattice, compact) > 2
        narrow = compact_lattice(lattice, beam=1.0)
        assert assert_compact(lattice, narrow) <= len(best_of_texts(lattice)[0])
    assert several > 30


def test_where_there_are_too_many_states_the_beam_is_halved():
    halved = alone = 0
    for seed in range(60):
        lattice = random_lattice(seed)
        whole = compact_lattice(lattice)
        for most in (1, 2, 4):
            compact = compact_lattice(lattice, max_states=most)
            assert_compact(lattice, compact)
            halved += 0 < compact.beam < whole.beam
            if compact.beam == 0:
                (path,) = paths_in(compact)
                assert path[0] == lattice.word_ids(lattice.best_arcs())
                alone += 1
            else:
                assert compact.num_states <= most
    assert halved > 3 and alone > 10
    with pytest.raises(OptionError, match="beam=-1.0 and max_states=20000"):
        compact_lattice(lattice, beam=-1)


def test_the_beam_is_halved_where_the_work_exceeds_its_bound(monkeypatch):
    """Damage can make many paths of few texts: states alone do not bound the work."""
    halved = alone = 0
    monkeypatch.setattr("wfstdec.lattice.compact.WORK_PER_ARC", 0)
    for seed in range(60):
        lattice = random_lattice(seed)
        for most in (0, 8, 24):
            monkeypatch.setattr("wfstdec.lattice.compact.LEAST_WORK", most)
            compact = compact_lattice(lattice)
            assert_compact(lattice, compact)
            halved += 0 < compact.beam < lattice.lattice_beam
            alone += compact.beam == 0
    assert halved > 3 and alone > 3


def test_by_hand():
    graph = text_graph("0 1 a A 1\n0 2 a B 1.5\n1 3 b - 0\n2 3 b' - 0.25\n3 0.5")
    (lattice,) = WfstDecoder(graph, backend="cpu").decode_lattice(
        [np.full((2, 3), -0.5, np.float32)]
    )
    compact = compact_lattice(lattice)
    assert compact.arcs[0][0][::2] == (1, (1.0, 0.5, (2,)))
    assert [arc.word for arc in compact.arcs[0]] == [1, 2]
    ends = {compact.final[arc.nextstate] for arc in compact.arcs[0]}
    assert ends == {(0.5, 0.5, (3,)), (0.75, 0.5, (3,))}


@pytest.mark.parametrize("text", [False, True])
def test_what_is_read_is_what_was_written(text, tmp_path):
    lattices = {f"utt-{seed}": random_lattice(2) for seed in range(3)}
    path = tmp_path / "x.ark"
    with KaldiLatticeWriter(path, text=text) as write:
        made = [write(name, lattice) for name, lattice in lattices.items()]
    read = dict(read_archive(path))
    assert list(read) == list(lattices)
    for lattice, written, found in zip(
        lattices.values(), made, read.values(), strict=True
    ):
        assert_compact(lattice, found.__class__(found.arcs, found.final, 4.0))
        assert [len(row) for row in found.arcs] == [len(r) for r in written.arcs]


def test_the_bytes_of_a_compact_lattice(tmp_path):
    """Read here field by field, as Kaldi's sources lay them out."""
    graph = text_graph("0 1 a A 1\n1 1 b - 0.25\n1 0.5")
    (lattice,) = WfstDecoder(graph, backend="cpu").decode_lattice(
        [np.full((2, 3), -0.5, np.float32)]
    )
    with KaldiLatticeWriter(tmp_path / "x", words=tmp_path / "words") as write:
        write("one", lattice)
    data = (tmp_path / "x").read_bytes()
    expected = b"one " + bytes([0xD6, 0xFD, 0xB2, 0x7E])
    expected += struct.pack("<i", 6) + b"vector"
    expected += struct.pack("<i", 16) + b"compactlattice44"
    expected += struct.pack("<iiQqqq", 2, 0, 3, 0, 2, 0)
    infinite = struct.pack("<ffi", np.inf, np.inf, 0)
    expected += infinite + struct.pack("<q", 1)
    expected += struct.pack("<iiffiii", 1, 1, 1.0, 0.5, 1, 2, 1)
    expected += struct.pack("<ffiiq", 0.75, 0.5, 1, 3, 0)
    assert data == expected
    assert (tmp_path / "words").read_text() == "<eps> 0\nA 1\n"
    with KaldiLatticeWriter(tmp_path / "x", text=True) as write:
        write("one", lattice)
    text = "one \n0\t1\t1\t1,0.5,2\n1\t0.75,0.5,3\n\n"
    assert (tmp_path / "x").read_text() == text


@pytest.mark.share
def test_words_of_utterances_have_numbers_of_their_own(tmp_path):
    decoder = WfstDecoder(small_graph(tmp_path), backend="cpu")
    lists = [[BoostEntry(w, [" ".join(w)], 1.0)] for w in ("nab", "na", "nab")]
    lattices = decoder.decode_lattice(
        [frames("nab"), frames("na"), frames("nab")], boosts=lists
    )
    assert {lattice.words[-1] for lattice in lattices} == {"nab", "na"}
    with KaldiLatticeWriter(tmp_path / "x", words=tmp_path / "words") as write:
        for name, lattice in zip("abc", lattices, strict=True):
            write(name, lattice)
    words = (tmp_path / "words").read_text().splitlines()
    numbers = {int(i): word for word, i in map(str.split, words)}
    texts = [
        [numbers[word] for word in next(paths_in(found))[0]]
        for _, found in read_archive(tmp_path / "x")
    ]
    assert texts == [["nab"], ["na"], ["nab"]]


def test_ids_of_archives_are_words(tmp_path):
    path, lattice = tmp_path / "x.ark", random_lattice(2)
    with pytest.raises(LatticeError, match="an id of an archive, expected one word"):
        with KaldiLatticeWriter(path) as write:
            write("one two", lattice)
