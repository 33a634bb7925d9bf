"""The search on rows finds what the specification finds on the packed graph."""

import dataclasses
import itertools

import numpy as np
import pytest
from added_cases import frames, small_graph
from random_graphs import (
    KINDS,
    dense_graph,
    random_compiled,
    random_graph,
    random_logprobs,
    random_of_kind,
    random_options,
    random_phrases,
    random_product,
    random_words,
)
from text_graphs import text_graph
from wfst_reference_backend import ReferenceBackend
from wfst_searches import NO_BOOSTS, UNBOUNDED, bits, decoded, random_splits, search

from wfstdec import BoostEntry, PhraseCompiler, PhraseOptions, WfstDecoder, WfstOptions
from wfstdec.errors import GraphError
from wfstdec.jit.handles import Handle
from wfstdec.search.threads import CallBudget
from wfstdec.wfst.cpu import arrays
from wfstdec.wfst.cpu import search as cpu_search
from wfstdec.wfst.cpu.backend import CpuBackend
from wfstdec.wfst.cpu.rows import row_graph_of
from wfstdec.wfst.cpu.search import CANDIDATES_PER_ENTRY


def few_kinds(rng, batch):
    """Log-probs of few values: nearly every frame has ties."""
    return [(np.round(x) - 2 * (x < -3)).astype(np.float32) for x in batch]


def look_bits(look):
    """All of a `PartialPath`, with times as they are settled and costs of the best."""
    values = [*look.tokens, *look[1:]]
    return [np.asarray(x, np.float64).tobytes() for x in values]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.share(keep=2)
def test_chunks_are_the_specification(seed):
    """Two sessions by turns in the same scratch, looked at now and then."""
    looks = 0
    for i in range(40):
        rng = np.random.default_rng([seed, i, 1])
        graph = random_of_kind(rng, KINDS[i % len(KINDS)])
        options = random_options(rng)
        boosts = random_compiled(rng, graph, options)
        backends = ReferenceBackend(graph), CpuBackend(graph, int(rng.choice([1, 64])))
        batch = [random_logprobs(rng, n, len(graph.tokens)) for n in (9, 14)]
        batch = few_kinds(rng, batch) if rng.random() < 0.5 else batch
        both = [[b.start(options, boosts) for _ in batch] for b in backends]
        assert isinstance(both[1][0], cpu_search.CpuSearch)
        for parts in zip(*[random_splits(rng, x, 5) for x in batch], strict=True):
            looked = rng.random(2) < 0.5
            for expected, found, part, look in zip(*both, parts, looked, strict=True):
                expected.advance(part)
                found.advance(part)
                if look:
                    assert look_bits(found.look()) == look_bits(expected.look())
                    looks += 1
        for expected, found in zip(*both, strict=True):
            assert bits(found.finish()) == bits(expected.finish()), (seed, i)
    assert looks > 40


def test_an_oov_word_says_a_token_twice_with_a_blank_between(tmp_path):
    decoder = WfstDecoder(small_graph(tmp_path), backend="cpu", threads=1)
    boosts = [BoostEntry("nna", ["n n a"], 1.0)]
    found = decoder.decode([frames("n_na"), frames("nna")], boosts=boosts)
    assert [hyp.reached_final for hyp in found] == [True, False]
    assert found[0].text == "nna"


def test_a_long_session_keeps_few_nodes_and_frames(monkeypatch):
    """The trace is folded without a look, before the log-probs are many."""
    rng = np.random.default_rng(9)
    graph, options = random_product(rng, 6), WfstOptions(beam=8.0)
    monkeypatch.setattr(cpu_search, "KEPT", 200 * 6 * 4)
    x = np.log(rng.dirichlet([0.3] * 6, 3000)).astype(np.float32)
    search_in_chunks = CpuBackend(graph, first_capacity=64).start(options, NO_BOOSTS)
    for part in np.split(x, [5, 700, 701]):
        search_in_chunks.advance(part)
    assert len(search_in_chunks._kept) == 200
    assert len(search_in_chunks.state.value.nodes) < 3000
    expected = search(ReferenceBackend(graph), options, x)
    assert bits(search_in_chunks.finish()) == bits(expected)


PRODUCT = """
    0 3 _  -   0
    0 1 a  A   0.5
    1 1 a' -   0
    1 3 _  -   0
    1 2 -  B   0.25
    2 2 a' -   0
    2 4 _  -   0
    2 5 b  -   1
    3 3 _  -   0
    3 1 a  A   0.5
    4 4 _  -   0
    4 5 b  -   1
    5 5 b' -   0
    5 6 _  -   0
    6 6 _  -   0
    5 0
    6 0
"""


def words_of_a_token(states):
    """Words of one token each, which lead to these states and are free to follow."""
    pairs, blank = list(zip("abc", states, strict=True)), len(states) + 1
    arcs = [(0, blank, "_")]
    for source in (0, *states, blank):
        arcs += [(source, to, token) for token, to in pairs if to != source]
        arcs += [(source, blank, "_")] * (source > 0)
    arcs += [(state, state, f"{token}'") for token, state in pairs]
    word = {token: token.upper() for token in "abc"}
    lines = [f"{s} {to} {token} {word.get(token, '-')} 0" for s, to, token in arcs]
    return "\n".join([*lines, *(f"{state} 0" for state in (*states, blank))])


@pytest.mark.parametrize("states", list(itertools.permutations([1, 2, 3])))
def test_a_look_leaves_ties_as_they_are(states):
    """`a` dies, `b` and `c` tie before a look and lead to one state behind it."""
    graph = text_graph(words_of_a_token(states), tokens="_ a b c")
    sessions = [
        backend(graph).start(WfstOptions(beam=5.0), NO_BOOSTS)
        for backend in (ReferenceBackend, CpuBackend)
    ]
    x = np.full((3, 4), -20, np.float32)
    x[[0, 1, 1, 2], [1, 2, 3, 0]] = 0
    for session in sessions:
        session.advance(x[:2])
        session.look()
        session.advance(x[2:])
    expected, found = (session.look() for session in sessions)
    assert look_bits(found) == look_bits(expected)
    assert found.tokens.label.tolist() == [1, 2 if states[1] < states[2] else 3]


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("1 1 a' -   0\n", "1 1 a' -   0.5\n"),  # repeating costs something
        ("2 2 a' -   0\n", "2 2 a' A   0\n"),  # or has a word
        ("2 2 a' -   0\n", ""),  # or is not allowed
        ("1 3 _  -   0\n", "1 3 _  -   0\n 1 4 _ - 0\n"),  # two arcs of a blank
        ("0 3 _  -   0\n", "0 3 _  -   0\n 0 0 a' - 0\n"),  # `a` before, and after
        ("2 5 b  -   1\n", "2 5 b  -   2\n"),  # after a token it costs more
        ("2 5 b  -   1\n", ""),  # or is not there
        ("2 5 b  -   1\n", "2 5 b  -   1\n 2 1 a - 0\n"),  # or there is more
        ("4 4 _  -   0\n", "4 4 _  -   0\n 4 3 - - 0\n"),  # an epsilon after a blank
        ("1 2 -  B   0.25\n", "1 5 -  B   0.25\n"),  # one to another token
        ("5 6 _  -   0\n", "5 5 _  -   0\n"),  # a blank that leads nowhere else
    ],
)
def test_a_graph_that_is_no_product_is_searched_as_it_is(line, instead):
    assert line in PRODUCT
    graph = text_graph(PRODUCT.replace(line, instead))
    backend, options = CpuBackend(graph), WfstOptions(beam=20.0)
    assert row_graph_of(graph).plain
    x = np.log(np.random.default_rng(5).dirichlet([1, 1, 1], 9)).astype(np.float32)
    (found,) = backend.decode_group([x], options, NO_BOOSTS, CallBudget())
    expected = search(ReferenceBackend(graph), options, x)
    assert bits(found) == bits(expected)


def test_rows_of_more_arcs_than_sixteen_bits_count():
    """70,000 arcs of a token, and as many epsilon arcs, leave one state."""
    many = range(2, 70_002)
    lines = [f"0 {to} a A {to % 7}\n1 {to} - B {to % 5}" for to in many]
    lines += [f"0 1 b - 0\n{many[-1]} {many[-1]} a - 0\n{many[-1]} 0"]
    graph = text_graph("\n".join(lines))
    x = np.ascontiguousarray(frames("aab")[:, :3])
    options = WfstOptions(beam=20.0)
    for utterance in (x[:2], x[2:], x):
        found = search(CpuBackend(graph), options, utterance)
        assert bits(found) == bits(search(ReferenceBackend(graph), options, utterance))


@pytest.mark.parametrize("graph", ["tokens", "chain"])
def test_a_graph_that_no_record_holds_is_an_error(graph):
    rng = np.random.default_rng(0)
    if graph == "tokens":
        graph = random_graph(rng, 70_000, num_states=2, arcs_per_state=1.0)
    else:
        lines = [f"{s} {s + 1} - - 0" for s in range(66_000)]
        graph = text_graph("\n".join([*lines, "66000 66000 a - 0", "66000 0"]))
    with pytest.raises(GraphError, match="expected at most 65535 for a search on"):
        CpuBackend(graph).prepare(WfstOptions(), NO_BOOSTS)


def test_an_epsilon_arc_from_two_boost_states_is_that_from_the_lower_one():
    """`A` is paid for `A A` and charged again with `B`: it then ties with `C`."""
    more = "    0 1 a C 0.5\n    3 1 a C 0.5\n    1 3 _ "
    graph = text_graph(PRODUCT.replace("    1 3 _ ", more, 1))
    options = PhraseOptions(uniform=True)
    compiler = PhraseCompiler(lambda _: [[(1, 1)]], graph.words, options)
    boosts = dataclasses.replace(NO_BOOSTS, phrases=compiler.compile({"A A": 2.0}))
    x = np.array([[-2, -0.25, -4], [-4, -4, -0.25]], np.float32)
    options = WfstOptions(beam=20.0)
    expected = ReferenceBackend(graph).decode([x], options, [boosts])
    assert not row_graph_of(graph).plain
    found = CpuBackend(graph).decode_group([x], options, boosts, CallBudget())
    assert list(map(bits, found)) == list(map(bits, expected))
    assert [graph.words[i] for i in found[0].tokens.label] == ["C", "B"]


@pytest.mark.parametrize("found_wrong", [(2, 435), None])
def test_ties_of_phrases_behind_shared_hubs(found_wrong):
    """Of an arc from two boost states the lower one wins, from any token of a hub."""
    for one in [found_wrong] if found_wrong else [(3, i) for i in range(40)]:
        rng = np.random.default_rng([*one, 4])
        graph = random_product(rng, int(rng.choice([3, 4])), "compact")
        few = int(rng.integers(1, 5))
        options = random_options(rng)
        rng.integers(2)  # the seeds of `found_wrong` need this draw
        options = dataclasses.replace(
            options,
            max_active=few,
            lm_scale=float(rng.choice([0, 1])),
            beam=float(rng.choice([1, 8])),
        )
        boosts = dataclasses.replace(
            random_words(rng, graph, options),
            phrases=random_phrases(rng, graph, "word"),
        )
        batch = [random_logprobs(rng, n, len(graph.tokens)) for n in (6, 9)]
        batch = few_kinds(rng, batch)
        expected = decoded(ReferenceBackend(graph), options, batch, [boosts] * 2)
        backend = CpuBackend(graph, first_capacity=int(rng.choice([1, 64])))
        found = backend.decode_group(batch, options, boosts, CallBudget())
        assert list(map(bits, found)) == expected, one


def test_frames_and_work_are_counted_once_although_frames_are_done_again():
    rng = np.random.default_rng(7)
    graph = dense_graph(rng)
    x = np.log(rng.dirichlet([0.3] * 3, 50)).astype(np.float32)
    counts = []
    for capacity in (1, 4096):
        under_way = CpuBackend(graph, capacity).start(UNBOUNDED, NO_BOOSTS)
        under_way.advance(x)
        counts.append(under_way.counts)
    assert counts[0] == counts[1]
    assert counts[0]["frames"] == 50
    assert counts[0]["active"] <= 50 * graph.num_states


def test_chunks_leave_memory_that_is_large_enough_as_it_is():
    rng = np.random.default_rng(3)
    graph = random_product(rng, 6)
    x = np.log(rng.dirichlet([0.3] * 6, 90)).astype(np.float32)
    backend = CpuBackend(graph, first_capacity=4096)
    search_in_chunks = backend.start(WfstOptions(beam=8.0), NO_BOOSTS)
    for part in np.split(x, 30):
        search_in_chunks.advance(part)
    memory = backend.on_rows.memory
    memory.states.take()
    memory.states.give(Handle(arrays.new_state(1, 16)))  # grows alone
    backend.decode_group([x], WfstOptions(beam=8.0), NO_BOOSTS, CallBudget())
    scratch = memory.scratches.take(0).value
    assert len(scratch.waiting) < 2 * 4096
    assert len(scratch.candidates) < 2 * CANDIDATES_PER_ENTRY * 4096


def test_a_state_that_grew_gets_scratch_that_is_as_large():
    """Threads give both back one by one: they may meet others than they left with."""
    rng = np.random.default_rng(8)
    graph = random_product(rng, 6)
    x = np.log(rng.dirichlet([1] * 6, 20)).astype(np.float32)
    backend, options = CpuBackend(graph, first_capacity=1), WfstOptions(beam=20.0)
    memory = backend.on_rows.memory
    memory.states.give(Handle(arrays.new_state(4096, 64)))
    memory.scratches.give(memory.scratches._make(1))
    (found,) = backend.decode_group([x], options, NO_BOOSTS, CallBudget())
    assert bits(found) == bits(search(ReferenceBackend(graph), options, x))
    assert len(memory.scratches.take(0).value.waiting) >= 4096
