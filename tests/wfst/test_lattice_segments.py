"""Segments of the lattices of sessions: one after the other they are the lattice."""

import math
from dataclasses import replace
from itertools import pairwise

import naive_lattice
import numpy as np
import pytest
from added_cases import drawn_search
from lattice_cases import logprobs_of, random_lattice_case
from text_graphs import text_graph
from wfst_searches import UNBOUNDED, decoder_of, log

from wfstdec import SegmentReader, WfstDecoder, WfstOptions
from wfstdec.errors import InputError, LatticeError, OptionError
from wfstdec.lattice import nbest_paths, word_confidences
from wfstdec.lattice.arrays import check_lattice
from wfstdec.search.paths.lattice import hypotheses_of

NAMES = ("reference", "cpu")
TWO_WORDS = """
    0 1 a A 1
    0 2 a B 1.5
    1 3 b - 0
    2 3 b - 0.25
    3 4 a - 0
    4 5 b A 0
    4 6 b B 0.5
    5 0.5
    6 0.5
"""


@pytest.mark.parametrize("name", NAMES)
def test_segments_by_hand(name):
    decoder = decoder_of(name, text_graph(TWO_WORDS), replace(UNBOUNDED, nbest=2))
    x = log([[0, 1, 0], [0, 0, 1], [0, 1, 0], [0, 0, 1]])
    sessions = decoder.sessions(lattices=True)
    one = sessions.open()
    assert sessions.settled_lattices(one, min_frames=1) == []
    sessions.advance({one: x[:3]})
    first, second = sessions.settled_lattices(one, min_frames=1)
    assert sessions.settled_lattices(one, min_frames=1) == []
    assert first.states["graph_state"].tolist() == [0, 1, 2, 3]
    assert first.states["frame"].tolist() == [0, 1, 1, 2]
    assert first.states["final_excess"].tolist() == [math.inf] * 3 + [0]
    assert first.states["final_cost"].tolist() == [math.inf] * 3 + [0]
    assert (first.num_frames, first.search_cost, first.reached_final) == (2, 1, False)
    assert nbest_paths(first, 5).excess == [0, 0.75]
    assert (second.first_frame, second.num_frames, second.num_arcs) == (2, 1, 1)
    sessions.advance({one: x[3:]})
    last = sessions.close_lattice(one)
    assert (last.first_frame, last.num_frames, last.reached_final) == (3, 1, True)
    assert (last.search_cost, last.died_at_frame) == (0.5, None)
    texts = [
        [h.text for h in hypotheses_of(part, nbest_paths(part, 5))]
        for part in (first, second, last)
    ]
    assert texts == [["A", "B"], [""], ["A", "B"]]
    frames = hypotheses_of(last, nbest_paths(last, 1))[0].token_frames
    assert frames == ((3,), (4,))


def frames_with_one_state(case, num_frames, beam):
    """Frames that all paths that may yet be in the lattice pass in one state.

    Those are the ways into any state of the last frame that cost no more than the best
    one into it and the beam: what comes later is unknown.
    """
    case = case._replace(
        logprobs=case.logprobs[:num_frames], final=[math.inf] * len(case.final)
    )
    found = naive_lattice.all_paths(case)
    least = naive_lattice.least_of(found.paths)
    nextstate = {arc.number: arc.nextstate for arc in case.arcs}
    seen = [set() for _ in range(found.num_frames + 1)]
    for path in found.paths:
        if path.cost <= least[path.state] + beam:
            seen[0].add(0)
            for frame, arc in path.steps:
                seen[frame].add(nextstate[arc])
    return [frame for frame, states in enumerate(seen) if len(states) == 1 and frame]


@pytest.mark.parametrize("kind", ["bounded", "boosted", "bounded, boosted"])
def test_segments_end_where_the_oracle_says(kind):
    kinds = {"bounded": "bounded" in kind, "boosted": "boosted" in kind}
    found = late = 0
    for seed in range(80):
        rng = np.random.default_rng([23, seed, len(kind)])
        case, graph, options = random_lattice_case(rng, **kinds)
        x, beam = logprobs_of(case), options.beam_of_lattice
        sessions = WfstDecoder(graph, options, "cpu", threads=1).sessions(lattices=True)
        one, ends = sessions.open(case.bonus), []
        for frame in range(len(x)):
            sessions.advance({one: x[frame : frame + 1]})
            parts = sessions.settled_lattices(one, min_frames=1)
            assert all(
                a.num_frames + a.first_frame == b.first_frame
                for a, b in pairwise(parts)
            )
            new = [part.first_frame + part.num_frames for part in parts]
            ends += new
            late += any(end <= frame for end in new)
            assert ends == frames_with_one_state(case, frame + 1, beam), (seed, frame)
        found += len(ends)
    assert found > 40 and late > 3


def random_words(rng, tmp_path):
    """A decoder of a small graph of words, log-probs, boosts."""
    reference, x, boosts = drawn_search(rng, tmp_path)
    options = WfstOptions(beam=6.0, lattice_beam=float(rng.choice([0.5, 2, 6])))
    return WfstDecoder(reference.graph, options, "cpu", threads=1), x, boosts


def test_words_come_out_once_with_the_times_of_the_whole(tmp_path):
    words, early = 0, 0
    for i in range(50):
        rng = np.random.default_rng([13, i])
        decoder, x, boosts = random_words(rng, tmp_path)
        (hypothesis,) = decoder.decode([x], boosts=[boosts])
        sessions = decoder.sessions(lattices=True)
        one, reader, found, sure = sessions.open(boosts), SegmentReader(), [], []
        for frame in x:
            sessions.advance({one: frame[None]})
            for part in sessions.settled_lattices(one, min_frames=1):
                found += reader.read(part)
                sure += word_confidences(part).confidences
        early += len(found) > 0
        last = sessions.close_lattice(one)
        found += reader.read(last, is_last=True)
        sure += word_confidences(last).confidences
        assert [word.confidence for word in found] == sure
        assert tuple(w._replace(confidence=None) for w in found) == hypothesis.words, i
        words += len(found)
    assert words > 60 and early > 3


@pytest.mark.parametrize("name", NAMES)
def test_no_frames_no_survivors_no_final_state(name):
    graph = text_graph("0 1 a A 1\n1 2 b B 1\n2 0\n0 3 - - 0.5\n3 0.25")
    decoder = decoder_of(name, graph, replace(UNBOUNDED, lattice_beam=9.0))
    sessions = decoder.sessions(lattices=True)
    frames = {"empty": [], "one": [[0, 1, 0]], "dead": [[0, 1, 0], [1, 0, 0]]}
    for session, x in frames.items():
        sessions.open(session=session)
        sessions.advance({session: log(x).reshape(len(x), 3)})
    assert sessions.settled_lattices("empty", min_frames=1) == []
    assert sessions.close_lattice("empty").num_states == 2
    for session in ("one", "dead"):
        (first,) = sessions.settled_lattices(session, min_frames=1)
        assert first.states["graph_state"].tolist() == [0, 1]
        last = sessions.close_lattice(session)
        check_lattice(last)
        assert (last.num_states, last.num_arcs, last.num_frames) == (1, 0, 0)
        assert last.died_at_frame == (None if session == "one" else 1)
        assert not last.reached_final
        reader = SegmentReader()
        words = [*reader.read(first), *reader.read(last, is_last=True)]
        assert [(w.text, w.end_frame, w.confidence) for w in words] == [("A", 1, 1.0)]


def test_errors():
    decoder = decoder_of("cpu", text_graph(TWO_WORDS))
    plain = decoder.sessions()
    for ask in (plain.settled_lattices, plain.close_lattice, plain.close_nbest):
        with pytest.raises(OptionError, match="lattices=True"):
            ask(plain.open())
    sessions = decoder.sessions(lattices=True)
    one = sessions.open()
    with pytest.raises(OptionError, match="min_frames=0, expected 1 or more"):
        sessions.settled_lattices(one, min_frames=0)
    with pytest.raises(InputError, match="is not open"):
        sessions.settled_lattices("none")
    sessions.advance({one: log([[0, 1, 0], [0, 0, 1], [0, 1, 0]])})
    first, second = sessions.settled_lattices(one, min_frames=1)
    reader = SegmentReader()
    reader.read(first)
    with pytest.raises(LatticeError, match="begins at frame 0, expected one from 2"):
        reader.read(first)
    reader.read(second)
