"""Sessions: any schedule of openings, chunks and closings gives what `decode` gives."""

import numpy as np
import pytest
from random_graphs import random_boosts, random_graph, random_logprobs, random_options

from wfstdec.errors import InputError, LogprobError, ShapeError
from wfstdec.wfst.backends import BACKENDS
from wfstdec.wfst.decoder import WfstDecoder

CASES = {"reference": 40, "cpu": 150}


def fields(hypothesis):
    """All of a hypothesis, in a form that tells bits apart."""
    return repr(hypothesis), hypothesis.token_ids, hypothesis.token_frames


def play(rng, decoder, utterances, boosts, look=0.3):
    """Open, advance and close sessions at random; what was found, and all partials."""
    sessions, found, partials = decoder.sessions(), {}, {}
    waiting, under_way = list(range(len(utterances)))[::-1], {}
    while waiting or under_way:
        if waiting and (not under_way or rng.random() < 0.3):
            i = waiting.pop()
            name = sessions.open(boosts[i], session=f"u{i}" if i % 2 else None)
            under_way[name], partials[i] = (i, 0), []
        chosen = [name for name in under_way if rng.random() < 0.6]
        chunks = {}
        for name in chosen:
            i, at = under_way[name]
            size = int(rng.integers(0, 5))
            chunks[name] = utterances[i][at : at + size]
            under_way[name] = i, at + len(chunks[name])
        sessions.advance(chunks)
        for name in list(under_way):
            i, at = under_way[name]
            if rng.random() < look:
                partials[i].append(sessions.partial(name))
            if at == len(utterances[i]) and rng.random() < 0.5:
                found[i] = sessions.close(name)
                del under_way[name]
    assert len(sessions) == 0
    return [found[i] for i in range(len(utterances))], partials


@pytest.mark.parametrize("name", CASES)
def test_any_schedule_gives_the_offline_result(name):
    for seed in range(CASES[name]):
        rng = np.random.default_rng([7, seed])
        graph, options = random_graph(rng), random_options(rng)
        decoder = WfstDecoder(graph, options, name, threads=1 + seed % 2)
        num_tokens = len(graph.tokens)
        utterances = [
            random_logprobs(rng, int(rng.integers(0, 25)), num_tokens) for _ in range(4)
        ]
        boosts = [random_boosts(rng, graph) for _ in utterances]
        offline = decoder.decode(utterances, boosts=boosts)
        found, partials = play(rng, decoder, utterances, boosts)
        assert list(map(fields, found)) == list(map(fields, offline)), seed
        for i, seen in partials.items():
            check_partials(seen, offline[i])


def check_partials(partials, hypothesis):
    """What is said to be settled is: in all later partials, and in the end."""
    last = None
    for partial in [*partials, None]:
        words = hypothesis.words if partial is None else partial.words
        if last is not None:
            settled = last.words[: last.num_settled]
            texts = [word.text for word in words]
            assert texts[: len(settled)] == [word.text for word in settled]
            assert words[: last.num_timed] == last.words[: last.num_timed]
            if partial is not None:
                assert partial.num_settled >= last.num_settled
                assert partial.num_timed >= last.num_timed
        last = partial


@pytest.mark.parametrize("name", [name for name in CASES if name != "reference"])
def test_partials_are_those_of_the_specification(name):
    for seed in range(60):
        rng = np.random.default_rng([8, seed])
        graph, options = random_graph(rng), random_options(rng)
        x = [random_logprobs(rng, 20, len(graph.tokens)) for _ in range(2)]
        boosts = [random_boosts(rng, graph) for _ in x]
        runs = []
        for backend in ("reference", name):
            again = np.random.default_rng([9, seed])
            decoder = WfstDecoder(graph, options, backend)
            runs.append(play(again, decoder, x, boosts, look=0.8))
        assert runs[0][1] == runs[1][1], seed


def test_one_bad_chunk_touches_no_session():
    rng = np.random.default_rng(3)
    graph = random_graph(rng)
    decoder = WfstDecoder(graph)
    x = random_logprobs(rng, 12, len(graph.tokens))
    sessions = decoder.sessions()
    a, b = sessions.open(), sessions.open(session="b")
    sessions.advance({a: x[:5], b: x[:5]})
    bad = x[5:].copy()
    bad[1, 0] = np.nan
    for chunk, kind in ((bad, LogprobError), (x[5:, 1:], ShapeError)):
        with pytest.raises(kind, match=r"^utterance 'b'") as caught:
            sessions.advance({a: x[5:], b: chunk})
        assert caught.value.utterance == "b"
    sessions.advance({b: x[5:]})
    sessions.advance({a: x[5:]})
    offline = decoder.decode([x])[0]
    assert fields(sessions.close(a)) == fields(sessions.close("b")) == fields(offline)


def test_unknown_and_closed_sessions_are_named():
    graph = random_graph(np.random.default_rng(4))
    sessions = WfstDecoder(graph).sessions()
    a = sessions.open()
    sessions.close(a)
    for call in (sessions.partial, sessions.close, lambda s: sessions.advance({s: 0})):
        for session in (a, "x"):
            with pytest.raises(InputError, match="no such session") as caught:
                call(session)
            assert caught.value.utterance == session
    sessions.open(session="twice")
    with pytest.raises(InputError, match="is open already"):
        sessions.open(session="twice")


def test_the_table_of_backends_is_covered():
    assert {*CASES, "cuda"} == {*BACKENDS}
