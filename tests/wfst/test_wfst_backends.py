"""Every backend of the search gives what the specification gives, bit for bit."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from text_graphs import text_graph
from wfst_searches import UNBOUNDED, decoder_of, log

from wfstdec import WfstOptions
from wfstdec.errors import BackendError
from wfstdec.search.backend import make_backend
from wfstdec.search.hypothesis import Token, Word
from wfstdec.wfst.options import BACKENDS

OTHERS = [name for name in BACKENDS if name != "reference"]


HELLO = """
    0 0 _  -   0
    0 1 h  hi  0.5
    1 1 h' -   0
    1 2 i  -   0.25
    2 2 i' -   0
    2 0 _  -   0
    2 3 -  -   1
    3 0.125
"""


@pytest.mark.parametrize("name", BACKENDS)
def test_an_utterance_by_hand(name):
    graph = text_graph(HELLO, tokens="_ h i", said=["hi h i"])
    p = [[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.1, 0.6, 0.3], [0.1, 0.2, 0.7]]
    options = dataclasses.replace(
        UNBOUNDED, acoustic_scale=0.5, lm_scale=2.0, word_insertion=0.75
    )
    decoder = decoder_of(name, graph, options)
    (hyp,) = decoder.decode([log(p)], boosts={"hi": 3.0})
    assert hyp.text == "hi"
    assert hyp.words == (Word("hi", 0.25, 1.0, 1, 4),)
    tokens = Token("h", 0.25, 0.75, 1, 3), Token("i", 0.75, 1.0, 3, 4)
    assert hyp.tokens == tokens
    assert hyp.graph_cost == 0.5 + 0.25 + 1 + 0.125
    assert hyp.acoustic_cost == pytest.approx(-np.log(0.8 * 0.7 * 0.6 * 0.7), 1e-6)
    assert (hyp.insertion_cost, hyp.boost_cost) == (0.75, -3.0)
    total = 0.5 * hyp.acoustic_cost + 2.0 * hyp.graph_cost + 0.75 - 3.0
    assert hyp.total_cost == pytest.approx(total, 1e-12)
    assert (hyp.reached_final, hyp.num_frames, hyp.died_at_frame) == (True, 4, None)


@pytest.mark.parametrize("name", BACKENDS)
def test_no_frames_give_an_empty_hypothesis(name):
    graph = text_graph("0 1 - - 0.5\n1 1 a A 0\n1 0.25")
    hyp, other = decoder_of(name, graph).decode([np.zeros((0, 3), np.float32)] * 2)
    assert (hyp.text, hyp.words, hyp.tokens, hyp.num_frames) == ("", (), (), 0)
    assert hyp.total_cost == hyp.graph_cost == 0.75
    assert hyp.reached_final
    assert hyp == other


@pytest.mark.parametrize("name", BACKENDS)
def test_a_graph_of_one_state_and_no_arc(name):
    graph = text_graph("0 0.5")
    empty, two_frames = decoder_of(name, graph).decode(
        [np.zeros((0, 3), np.float32), np.zeros((2, 3), np.float32)]
    )
    assert (empty.reached_final, empty.total_cost) == (True, 0.5)
    assert (two_frames.reached_final, two_frames.died_at_frame) == (False, 0)
    assert (two_frames.num_frames, two_frames.total_cost) == (0, 0.0)


@pytest.mark.parametrize("name", BACKENDS)
def test_a_search_that_dies_keeps_what_it_has(name):
    graph = text_graph("0 1 a A 1\n1 2 b B 1\n2 0")
    p = [[0, 1, 0], [0, 0.5, 0.5], [1, 1, 1], [1, 1, 1]]
    (hyp,) = decoder_of(name, graph).decode([log(p)])
    assert hyp.text == "A B"
    assert (hyp.reached_final, hyp.died_at_frame, hyp.num_frames) == (False, 2, 2)
    assert hyp.graph_cost == 2  # and no final cost
    assert hyp.acoustic_cost == pytest.approx(np.log(2), 1e-6)


@pytest.mark.parametrize("name", BACKENDS)
def test_impossible_tokens_stay_impossible_at_scale_zero(name):
    graph = text_graph("0 1 a A 0\n0 1 b B 5\n1 0")
    options = dataclasses.replace(UNBOUNDED, acoustic_scale=0.0)
    (hyp,) = decoder_of(name, graph, options).decode([log([[0, 0, 1]])])
    assert (hyp.text, hyp.total_cost) == ("B", 5.0)


@pytest.mark.parametrize("name", BACKENDS)
def test_ties_go_to_the_lower_arc_and_from_epsilon_to_emitting_arcs(name):
    parallel = text_graph("0 1 a B 1\n0 1 a A 1\n1 0")
    assert decoder_of(name, parallel).decode([log([[0, 1, 0]])])[0].text == "A"
    # Both reach state 1 at cost 1: over 2 and epsilon, or at once.
    text = "0 2 a B 0\n2 1 - - 1\n0 1 a A 1\n1 0"
    assert decoder_of(name, text_graph(text)).decode([log([[0, 1, 0]])])[0].text == "A"
    # Final states 1 and 2 tie: the lower state, although its arc is the later one.
    text = "0 2 a B 0\n0 1 b A 0\n1 0\n2 0"
    assert decoder_of(name, text_graph(text)).decode([log([[0, 1, 1]])])[0].text == "A"


@pytest.mark.parametrize("name", BACKENDS)
def test_max_active_counts_distinct_states(name):
    """State 1 is reached over four arcs, and is one of two all the same."""
    text = "0 1 a A 0\n0 1 a B 0\n0 1 a C 0\n0 1 b D 0\n0 2 b E 0.5\n2 3 b - 0\n3 0"
    options = WfstOptions(beam=9, max_active=2)
    logprobs = np.zeros((2, 3), np.float32)
    (hyp,) = decoder_of(name, text_graph(text), options).decode([logprobs])
    assert (hyp.text, hyp.reached_final) == ("E", True)
    options = WfstOptions(beam=9, max_active=1)
    (hyp,) = decoder_of(name, text_graph(text), options).decode([logprobs])
    assert (hyp.text, hyp.died_at_frame) == ("A", 1)


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("limit", [1, 2, 3, 5, 8, 9])
def test_max_active_is_exact_among_equal_costs(name, limit):
    """Nine states tie: the `limit` lowest remain, each to a final state of its own."""
    fan = [f"0 {s} a - 0\n{s} {s + 9} b W{s} {9 - s}" for s in range(1, 10)]
    finals = [f"{s + 9} 0" for s in range(1, 10)]
    graph = text_graph("\n".join(fan + finals))
    options = WfstOptions(beam=np.inf, max_active=limit)
    (hyp,) = decoder_of(name, graph, options).decode([np.zeros((2, 3), np.float32)])
    assert hyp.text == f"W{limit}"


@pytest.mark.parametrize("name", BACKENDS)
def test_blank_options(name):
    text = "0 0 _ - 0\n0 1 a A 0\n1 0 _ - 0\n1 0\n0 0"
    p = log([[0.6, 0.4, 0], [0.9, 0.1, 0]])
    expected = {
        (0.0, None): ("", [0.6, 0.9]),
        (1.0, None): ("A", [0.4, 0.9 / np.e]),
        (1.0, 0.95): ("A", [0.4, 0.9 / np.e]),
        (1.0, 0.6): ("", [0.6 / np.e, 0.9 / np.e]),  # the posterior before the penalty
        (9.0, 0.7): ("A", [0.4, 0.9 / np.e**9]),
    }
    for (penalty, threshold), (words, factors) in expected.items():
        options = dataclasses.replace(
            UNBOUNDED, blank_penalty=penalty, blank_skip_threshold=threshold
        )
        (hyp,) = decoder_of(name, text_graph(text), options).decode([p])
        assert hyp.text == words, (penalty, threshold)
        assert hyp.acoustic_cost == pytest.approx(-np.log(factors).sum(), 1e-6)


@pytest.mark.parametrize("name", OTHERS)
def test_costs_that_cancel_do_not_hide_a_label(name):
    """B costs all that the beam allows; 0.03 of it is lost next to 1e6."""
    text = "0 1 a A 0\n0 2 b B 0.03\n1 3 a - 0\n2 4 b - -1e6\n3 0\n4 -2"
    x = np.array([[-np.inf, 0, 0], [-np.inf, 0, -1e6 - 1]], np.float32)
    for backend in ("reference", name):
        decoder = decoder_of(backend, text_graph(text), WfstOptions(beam=1.0))
        assert decoder.decode([x])[0].text == "B"


def test_an_unknown_backend_is_named_with_those_there_are():
    with pytest.raises(BackendError, match="'gpu', expected one of 'auto', 'cpu'"):
        make_backend(BACKENDS, "gpu", text_graph("0 0"))


OTHER_CASES = [pytest.param(i, marks=pytest.mark.share) for i in range(20, 160, 20)]


@pytest.mark.parametrize("first", [0, *OTHER_CASES])
def test_the_kernels_as_plain_python(first):
    """In a process of its own, since numba reads its settings when it is imported."""
    root = Path(__file__).parents[2]
    script = root / "tests" / "support" / "interpreted.py"
    command = [sys.executable, str(script), str(first), "20"]
    path = os.pathsep.join([str(root), *filter(None, sys.path)])
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}
    )
    assert (done.stdout, done.stderr) == ("20 cases agree\n", "")
