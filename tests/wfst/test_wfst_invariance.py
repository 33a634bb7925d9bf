"""A result depends on graph, log-probs, options and boosts, and on nothing else."""

import threading

import numpy as np
import pytest
from random_graphs import (
    dense_graph,
    random_boosts,
    random_graph,
    random_logprobs,
    random_options,
)
from searches import Lockstep
from text_graphs import text_graph
from wfst_searches import NO_BOOSTS, UNBOUNDED, bits, decoder_of, random_splits, search

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.boost.words import compile_word_boosts
from wfstdec.errors import InputError
from wfstdec.search.backends import make_backend
from wfstdec.wfst.backend_choice import BACKENDS
from wfstdec.wfst.cpu.backend import CpuBackend
from wfstdec.wfst.decoder import WfstDecoder
from wfstdec.wfst.options import WfstOptions


def draw(rng, num_frames=9):
    """A graph and all that one search on it takes."""
    graph = random_graph(rng)
    x = random_logprobs(rng, int(rng.integers(0, num_frames)), len(graph.tokens))
    return graph, random_options(rng), x, random_boosts(rng, graph)


# -------------------------------------------------------------------------- chunks
@pytest.mark.parametrize("name", BACKENDS)
def test_any_split_into_chunks(name):
    for i in range(150):
        rng = np.random.default_rng(i)
        graph, options, x, boosts = draw(rng)
        backend = make_backend(BACKENDS, name, graph)
        whole = bits(search(backend, options, x, boosts))
        words = compile_word_boosts(boosts, graph.word_ids)[0]
        under_way = backend.start(options, CompiledBoosts(words))
        for chunk in random_splits(rng, x):
            under_way.advance(chunk)
        assert bits(under_way.finish()) == whole


@pytest.mark.parametrize("name", BACKENDS)
def test_no_chunk_at_all_is_an_empty_utterance(name):
    for i in range(20):
        graph, options, x, _ = draw(np.random.default_rng(i))
        backend = make_backend(BACKENDS, name, graph)
        without = backend.start(options, NO_BOOSTS).finish()
        assert bits(without) == bits(search(backend, options, x[:0]))


@pytest.mark.parametrize("name", BACKENDS)
def test_a_chunk_may_be_reused_by_the_caller(name):
    graph = text_graph("0 1 a A 0\n1 2 b B 0\n0 2 b C 0\n2 1 a D 0\n2 0")
    decoder = decoder_of(name, graph)
    x = np.log([[0.1, 0.8, 0.1], [0.1, 0.1, 0.8]]).astype(np.float32)
    under_way, buffer = Lockstep(decoder, 1), np.empty((1, 1, 3), np.float32)
    for row in x:
        buffer[:] = row
        under_way.advance(buffer)
        buffer[:] = np.nan
    assert under_way.finish() == decoder.decode([x])


# ------------------------------------------------------------------------- batches
@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("threads", [1, 3])
def test_batch_padding_order_and_threads(name, threads):
    for i in range(15):
        rng = np.random.default_rng(i)
        graph, options, _, _ = draw(rng)
        lengths = rng.integers(0, 9, 6)
        utterances = [random_logprobs(rng, t, len(graph.tokens)) for t in lengths]
        boosts = [random_boosts(rng, graph) for _ in utterances]
        alone = [
            WfstDecoder(graph, options, name, threads=1).decode([x], boosts=[b])[0]
            for x, b in zip(utterances, boosts, strict=True)
        ]
        decoder = WfstDecoder(graph, options, name, threads=threads)
        for _ in range(2):
            order = rng.permutation(len(utterances))
            padded = np.full((6, 11, len(graph.tokens)), np.nan, np.float32)
            for row, j in enumerate(order):
                padded[row, : lengths[j]] = utterances[j]
            hyps = decoder.decode(padded, lengths[order], [boosts[j] for j in order])
            assert hyps == [alone[j] for j in order]


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("threads", [1, 2])
def test_streams_of_different_lengths_side_by_side(name, threads):
    for i in range(15):
        rng = np.random.default_rng(i)
        graph, options, _, _ = draw(rng)
        utterances = [random_logprobs(rng, t, len(graph.tokens)) for t in (7, 0, 3)]
        boosts = [random_boosts(rng, graph) for _ in utterances]
        decoder = WfstDecoder(graph, options, name, threads=threads)
        under_way = Lockstep(decoder, 3, boosts)
        for chunks in zip(*(random_splits(rng, x) for x in utterances), strict=True):
            lengths = [len(chunk) for chunk in chunks]
            padded = np.full((3, 8, len(graph.tokens)), np.nan)
            for row, chunk in enumerate(chunks):
                padded[row, : len(chunk)] = chunk
            under_way.advance(padded, lengths)
        assert under_way.finish() == decoder.decode(utterances, boosts=boosts)


@pytest.mark.parametrize("name", BACKENDS)
def test_searches_that_take_turns_do_not_touch_each_other(name):
    rng = np.random.default_rng(3)
    graph = random_graph(rng, 4, num_states=30)
    backend = make_backend(BACKENDS, name, graph)
    options = [random_options(rng) for _ in range(5)]
    utterances = [random_logprobs(rng, 12, 4) for _ in options]
    pairs = list(zip(options, utterances, strict=True))
    alone = [bits(search(backend, o, x)) for o, x in pairs]
    for _ in range(3):  # later rounds use pooled memory
        searches = [backend.start(o, NO_BOOSTS) for o in options]
        for frame in range(12):
            for under_way, x in zip(searches, utterances, strict=True):
                under_way.advance(x[frame : frame + 1])
        assert [bits(under_way.finish()) for under_way in searches] == alone


def test_many_threads_on_one_decoder_of_a_user():
    """A decoder may be shared by threads that know nothing of each other."""
    rng = np.random.default_rng(4)
    graph = random_graph(rng, 4, num_states=40)
    decoder = WfstDecoder(graph, WfstOptions(beam=4.0), threads=1)
    utterances = [random_logprobs(rng, int(t), 4) for t in rng.integers(0, 60, 40)]
    expected = decoder.decode(utterances)
    wrong = []

    def work(start):
        for i in range(40):
            at = (start + i) % 40
            if decoder.decode([utterances[at]]) != expected[at : at + 1]:
                wrong.append(at)

    threads = [threading.Thread(target=work, args=(i * 7,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("name", BACKENDS)
def test_a_search_that_was_finished_takes_no_more(name):
    decoder = decoder_of(name, text_graph("0 1 a A 0\n1 0"))
    x = np.zeros((1, 1, 3), np.float32)
    under_way = Lockstep(decoder, 1)
    under_way.advance(x)
    under_way.finish()
    message = "is not open"
    with pytest.raises(InputError, match=message):
        under_way.finish()
    with pytest.raises(InputError, match=message):
        under_way.advance(x)


@pytest.mark.parametrize("name", BACKENDS)
def test_a_chunk_with_an_error_changes_nothing(name):
    graph = text_graph("0 1 a A 0\n1 2 b B 0\n0 2 b C 0\n2 1 a D 0\n2 0")
    decoder = decoder_of(name, graph)
    good = np.log([[[0.1, 0.8, 0.1]], [[0.1, 0.1, 0.8]]]).astype(np.float32)
    bad = good.copy()
    bad[1, 0, 0] = np.nan
    under_way = Lockstep(decoder, 2)
    for chunk in (bad, good[:, :, :2]):
        with pytest.raises(InputError):
            under_way.advance(chunk)
    under_way.advance(good)
    assert under_way.finish() == decoder.decode(good)


# -------------------------------------------------------------------------- memory
def test_arrays_that_grow_change_nothing():
    for i in range(150):
        rng = np.random.default_rng(i)
        graph, options, x, boosts = draw(rng, num_frames=20)
        roomy, tight = CpuBackend(graph), CpuBackend(graph, first_capacity=1)
        expected = bits(search(roomy, options, x, boosts))
        assert bits(search(tight, options, x, boosts)) == expected
        assert bits(search(tight, options, x, boosts)) == expected  # pooled memory


@pytest.mark.parametrize("name", BACKENDS)
def test_long_utterances_from_tight_arrays(name):
    rng = np.random.default_rng(5)
    graph = dense_graph(rng, 6)
    x = np.log(rng.dirichlet([0.3] * 3, 400)).astype(np.float32)
    options = WfstOptions(beam=3.0)
    tight = CpuBackend(graph, first_capacity=1)
    assert bits(search(tight, options, x)) == bits(
        search(make_backend(BACKENDS, name, graph), options, x)
    )


def test_the_trace_stays_small_over_hours():
    """A path of a node or two per frame is all that has to be kept."""
    rng = np.random.default_rng(6)
    graph = dense_graph(rng)
    num_frames = 20_000
    x = np.log(rng.dirichlet([0.3] * 3, num_frames)).astype(np.float32)
    options = WfstOptions(beam=8.0)
    tight, roomy = CpuBackend(graph, first_capacity=1), CpuBackend(graph, 1 << 17)
    under_way = tight.start(options, NO_BOOSTS)
    for chunk in np.split(x, 400):
        under_way.advance(chunk)
    nodes_made = under_way.counts["active"]
    room = len(under_way._utterance.trace)
    path = under_way.finish()
    assert nodes_made > 8 * num_frames
    assert room < 5 * num_frames
    assert bits(path) == bits(search(roomy, options, x))


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
