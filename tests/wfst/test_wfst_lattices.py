"""Lattices and n-best lists of every backend that records them, bit for bit."""

import dataclasses

import numpy as np
import pytest
from lattice_searches import bits
from text_graphs import text_graph
from wfst_searches import UNBOUNDED, decoder_of, log

from wfstdec.errors import OptionError
from wfstdec.lattice import nbest_paths
from wfstdec.lattice.arrays import check_lattice

BACKENDS = ("reference", "cpu")


TWO_WAYS = """
    0 1 a A 1
    0 2 a B 1.5
    1 3 b - 0
    2 3 b - 0.25
    3 0.5
"""


@pytest.mark.parametrize("name", BACKENDS)
def test_a_lattice_by_hand(name):
    graph = text_graph(TWO_WAYS)
    options = dataclasses.replace(UNBOUNDED, lattice_beam=2.0, word_insertion=0.25)
    decoder = decoder_of(name, graph, options)
    x = log([[0, 1, 0], [0, 0, 0.5]])
    (lattice,) = decoder.decode_lattice([x], boosts={"B": 0.25})
    assert lattice.states["frame"].tolist() == [0, 1, 1, 2]
    assert lattice.states["graph_state"].tolist() == [0, 1, 2, 3]
    assert lattice.states["final_cost"].tolist() == [np.inf, np.inf, np.inf, 0.5]
    assert lattice.arcs["state"].tolist() == [0, 0, 1, 2]
    assert lattice.arcs["nextstate"].tolist() == [1, 2, 3, 3]
    assert lattice.arcs["graph_cost"].tolist() == [1, 1.5, 0, 0.25]
    assert lattice.arcs["insertion_cost"].tolist() == [0.25, 0.25, 0, 0]
    assert lattice.arcs["boost_cost"].tolist() == [0, -0.25, 0, 0]
    assert lattice.arcs["excess"].tolist() == [0, 0, 0, 0.5]
    assert lattice.arcs["acoustic_cost"][2:] == pytest.approx(np.log([2, 2]))
    assert lattice.search_cost == pytest.approx(1.75 + np.log(2))
    assert [lattice.words[w] for w in lattice.word_ids(lattice.best_arcs())] == ["A"]
    assert nbest_paths(lattice, 5).excess == [0.0, 0.5]
    with pytest.raises(OptionError, match="lattice_beam=9.0, expected a number"):
        decoder.with_options(beam=3.0).decode_lattice([x], lattice_beam=9.0)
    (narrow,) = decoder.decode_lattice([x], boosts={"B": 0.25}, lattice_beam=0.25)
    assert (narrow.num_states, narrow.num_arcs) == (3, 2)


@pytest.mark.parametrize("name", BACKENDS)
def test_no_frames_no_survivors_no_final_state(name):
    graph = text_graph("0 1 a A 1\n1 2 b B 1\n2 0\n0 3 - - 0.5\n3 0.25")
    decoder = decoder_of(name, graph)
    frames = [[], [[0, 1, 0]], [[0, 1, 0], [1, 0, 0]]]
    logprobs = [log(f).reshape(len(f), 3) for f in frames]
    empty, one, dead = decoder.decode_lattice(logprobs)
    assert (empty.num_frames, empty.num_states, empty.reached_final) == (0, 2, True)
    assert empty.search_cost == 0.75
    assert (one.reached_final, one.died_at_frame, one.num_frames) == (False, None, 1)
    assert one.states["final_cost"].tolist() == [np.inf, 0]
    assert (dead.reached_final, dead.died_at_frame, dead.num_frames) == (False, 1, 1)
    assert bits(dead)[:2] == bits(one)[:2]
    for lattice in (empty, one, dead):
        check_lattice(lattice)
    for hypotheses in decoder.with_options(nbest=3).decode_nbest(logprobs):
        assert hypotheses.is_exact and len(hypotheses) == 1


def test_a_lattice_after_one_with_phrases_has_nothing_of_it():
    """Arrays are borrowed: what phrases left there was read, and written beyond."""
    graph = text_graph(TWO_WAYS.replace("2 3 b - 0.25", "2 3 b C 0.25"))
    x = log([[0, 1, 0], [0, 0, 0.5]])
    plain = decoder_of("cpu", graph, dataclasses.replace(UNBOUNDED, lattice_beam=2.0))
    (expected,) = plain.decode_lattice([x])
    phrases = plain.phrase_compiler(unit="word").compile({"A C": 1.0, "B C": 1.0})
    decoder = decoder_of("cpu", graph, plain.options)
    (boosted,) = decoder.decode_lattice([x], boosts=phrases)
    assert boosted.states["boost_state"].any()
    (found,) = decoder.decode_lattice([x])
    assert not found.states["boost_state"].any()
    assert bits(found) == bits(expected)
