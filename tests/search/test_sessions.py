"""Sessions: any schedule of openings, chunks and closings gives what `decode` gives."""

import logging
import math

import naive_search_cases
import numpy as np
import pytest
from cuda_emulation.device import EmulatedDevice
from random_graphs import random_boosts, random_graph, random_logprobs, random_options
from text_graphs import text_graph

from wfstdec.errors import InputError, LogprobError, OptionError, ShapeError
from wfstdec.greedy.decoder import GreedyDecoder
from wfstdec.greedy.options import BACKENDS as GREEDY_BACKENDS
from wfstdec.greedy.options import GreedyOptions
from wfstdec.trie.cpu import arrays as trie_records
from wfstdec.trie.decoder import TrieDecoder
from wfstdec.trie.options import BACKENDS as TRIE_BACKENDS
from wfstdec.trie.options import TrieOptions
from wfstdec.wfst.backend_choice import BACKENDS
from wfstdec.wfst.cpu import arrays as records
from wfstdec.wfst.decoder import WfstDecoder
from wfstdec.wfst.gpu.backend import DeviceBackend

pytestmark = pytest.mark.filterwarnings("ignore::wfstdec.errors.BoostWarning")

CASES = {
    ("wfst", "reference"): 25,
    ("wfst", "cpu"): 100,
    ("wfst", "emulated"): 12,
    ("trie", "reference"): 25,
    ("trie", "cpu"): 100,
    ("greedy", "reference"): 25,
    ("greedy", "cpu"): 60,
}


@pytest.fixture(autouse=True)
def quiet(caplog):
    """The library says how many words are dropped; here they are dropped on purpose."""
    caplog.set_level(logging.ERROR, logger="wfstdec")


def draw(kind, backend, rng):
    """A decoder, utterances and their boosts."""
    if kind == "wfst":
        return draw_wfst(backend, rng)
    case = naive_search_cases.random_case(rng)
    arguments = naive_search_cases.decoder_arguments(case)
    made = TrieDecoder if kind == "trie" else GreedyDecoder
    if kind == "greedy":
        for name in ("lexicon", "separator_optional", "lm", "unk_cost"):
            arguments.pop(name, None)
        options = GreedyOptions(blank_penalty=float(rng.choice([0.0, 0.5])))
    else:
        options = TrieOptions(
            **case.options
            | {
                "beam": float(rng.choice([0.5, 2, 6, math.inf])),
                "beam_size": int(rng.choice([2, 5, 1000])),
                "merge": str(rng.choice(["max", "sum"])),
                "nbest": int(rng.choice([1, 3])),
                "blank_skip_threshold": [None, 0.5][int(rng.integers(2))],
            }
        )
    decoder = made(**arguments, options=options, backend=backend, threads=1)
    x = [
        random_logprobs(rng, int(rng.integers(0, 12)), decoder.num_tokens) for _ in "ab"
    ]
    boosts = [None, None]
    if kind == "trie":
        boosts[0] = naive_search_cases.decoder_boosts(case, decoder.words)
    return decoder, [case.logprobs, *x], [boosts[0], *boosts]


def draw_wfst(backend, rng):
    graph, options = random_graph(rng), random_options(rng)
    threads, num_tokens = int(rng.integers(1, 3)), len(graph.tokens)
    utterances = [
        random_logprobs(rng, int(rng.integers(0, 25)), num_tokens) for _ in range(4)
    ]
    boosts = [random_boosts(rng, graph) for _ in utterances]
    name = "reference" if backend == "emulated" else backend
    decoder = WfstDecoder(graph, options, name, threads=threads)
    if backend == "emulated":
        device = EmulatedDevice(64, seed=int(rng.integers(1 << 30)))
        capacity = int(rng.choice([2, 8, 64]))
        decoder._backend = DeviceBackend(graph, device, first_capacity=capacity)
    return decoder, utterances, boosts


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


@pytest.mark.parametrize("kind, backend", CASES)
def test_any_schedule_gives_the_offline_result(kind, backend):
    settled = 0
    for seed in range(CASES[kind, backend]):
        rng = np.random.default_rng([7, seed])
        decoder, utterances, boosts = draw(kind, backend, rng)
        offline = decoder.decode(utterances, boosts=boosts)
        found, partials = play(rng, decoder, utterances, boosts)
        assert list(map(fields, found)) == list(map(fields, offline)), seed
        for i, seen in partials.items():
            check_partials(seen, offline[i])
            settled += sum(partial.num_settled for partial in seen)
    assert settled


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


@pytest.mark.parametrize("kind, backend", [x for x in CASES if x[1] != "reference"])
def test_partials_are_those_of_the_specification(kind, backend):
    for seed in range(12 if backend == "emulated" else 30):
        runs = []
        for name in ("reference", backend):
            rng = np.random.default_rng([8, seed])
            decoder, utterances, boosts = draw(kind, name, rng)
            again = np.random.default_rng([9, seed])
            runs.append(play(again, decoder, utterances, boosts, look=0.8))
        assert runs[0][1] == runs[1][1], seed


def test_hypotheses_of_a_session():
    for seed in range(40):
        rng = np.random.default_rng([10, seed])
        decoder, utterances, boosts = draw("trie", "cpu", rng)
        sessions = decoder.sessions()
        for x, one in zip(utterances, boosts, strict=True):
            session = sessions.open(one)
            sessions.advance({session: x})
            (expected,) = decoder.decode_nbest([x], boosts=[one])
            assert sessions.close_nbest(session) == expected
    sessions = WfstDecoder(random_graph(rng)).sessions()
    session = sessions.open()
    with pytest.raises(OptionError, match="record no lattices"):
        sessions.close_nbest(session)
    assert session in sessions


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
            with pytest.raises(InputError, match="session .* is not open") as caught:
                call(session)
            assert caught.value.utterance == session
    sessions.open(session="twice")
    with pytest.raises(InputError, match="is open already"):
        sessions.open(session="twice")


@pytest.mark.parametrize("backend", ["cpu", "emulated"])
def test_silence_adds_nothing_to_a_session(backend):
    """Two histories stay side by side through it: both are kept, and no more."""
    graph = text_graph("0 1 a A 0\n0 2 b B 0.1\n1 1 _ - 0\n2 2 _ - 0\n1 0\n2 0")
    decoder = WfstDecoder(graph, backend="cpu")
    if backend == "emulated":
        decoder._backend = DeviceBackend(graph, EmulatedDevice(32), first_capacity=32)
    sessions = decoder.sessions()
    session, kept = sessions.open(), set()
    search = sessions._sessions[session].search
    sessions.advance({session: np.log(np.array([[0.2, 0.4, 0.4]], np.float32))})
    silence = np.log(np.array([[0.9, 0.05, 0.05]] * 50, np.float32))
    for _ in range(40):
        sessions.advance({session: silence})
        partial = sessions.partial(session)
        assert (partial.text, partial.num_settled) == ("A", 0)
        if backend == "cpu":
            nodes = int(search._utterance.counts[records.TRACE])
        else:
            nodes = int(search.utterances[0]["trace_count"])
        kept.add((nodes, search._history.num_events))
    assert partial.silent_frames == 2000
    assert kept == {(2, 2)}
    assert sessions.close(session).text == "A"


def test_silence_adds_nothing_to_a_session_of_the_trie():
    rng = np.random.default_rng(0)
    decoder, (x, *_), _ = draw("trie", "cpu", rng)
    sessions = decoder.sessions()
    session = sessions.open()
    search = sessions._sessions[session].search
    sessions.advance({session: x})
    silence = np.full((50, decoder.num_tokens), -9.0, np.float32)
    silence[:, decoder.tokens.blank] = -0.01
    kept = []
    for _ in range(40):
        sessions.advance({session: silence})
        sessions.partial(session)
        kept.append(int(search._utterance.counts[trie_records.TRACE]))
    assert kept[-1] <= kept[0]


def test_the_tables_of_backends_are_covered():
    tables = {"wfst": BACKENDS, "trie": TRIE_BACKENDS, "greedy": GREEDY_BACKENDS}
    known = {(kind, name) for kind, table in tables.items() for name in table}
    assert {*CASES} - {("wfst", "emulated")} == known - {("wfst", "cuda")}
