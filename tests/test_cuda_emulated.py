"""The CUDA kernels, unchanged, on this machine's CPU: the bits of the specification."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from cuda_emulation.device import EmulatedDevice
from random_graphs import random_boosts, random_graph, random_logprobs, random_options
from test_wfst_backends import bits, search
from test_wfst_invariance import dense_graph, random_splits
from text_graphs import text_graph

from wfstdec import build_graph
from wfstdec.boost.boosts import UtteranceBoosts
from wfstdec.boost.words import compile_word_boosts
from wfstdec.errors import BackendError
from wfstdec.lexicon import read_lexicon
from wfstdec.symbols import read_tokens
from wfstdec.wfst import device_layout
from wfstdec.wfst.backends import make_backend
from wfstdec.wfst.decoder import WfstDecoder
from wfstdec.wfst.device_search import DeviceBackend
from wfstdec.wfst.options import DecodeOptions

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")
RECIPE = Path(__file__).parent.parent / "graphs" / "librispeech_demo"
BLOCK_SIZES = [32, 64, 128, 256]
NO_BOOSTS = UtteranceBoosts(compile_word_boosts(None, {})[0])


def draw(rng, num_utterances=3, **kinds):
    """A graph, and for each utterance log-probs and boosts; options for all."""
    graph = random_graph(rng, **kinds)
    batch = [
        random_logprobs(rng, int(t), len(graph.tokens))
        for t in rng.integers(0, 9, num_utterances)
    ]
    boosts = [
        UtteranceBoosts(
            compile_word_boosts(random_boosts(rng, graph), graph.word_ids)[0]
        )
        for _ in batch
    ]
    return graph, random_options(rng), batch, boosts


def expected_paths(graph, options, batch, boosts):
    backend, paths = make_backend("reference", graph), []
    for logprobs, one in zip(batch, boosts, strict=True):
        under_way = backend.start(options, one)
        under_way.advance(logprobs)
        paths.append(bits(under_way.finish()))
    return paths


def decoded(backend, options, batch, boosts):
    return list(map(bits, backend.decode_batch(batch, options, boosts)))


# --------------------------------------------------------------------- bit equality
@pytest.mark.parametrize("threads", BLOCK_SIZES)
@pytest.mark.parametrize("preempt", [0, 4])
def test_random_graphs(threads, preempt):
    for i in range(25):
        rng = np.random.default_rng([threads, preempt, i])
        drawn = draw(rng)
        device = EmulatedDevice(threads, preempt=preempt, seed=i)
        backend = DeviceBackend(drawn[0], device, first_capacity=64)
        assert decoded(backend, *drawn[1:]) == expected_paths(*drawn), i


@pytest.mark.parametrize("seed", range(6))
def test_schedules_do_not_matter(seed):
    drawn = draw(np.random.default_rng(seed), num_states=15, arcs_per_state=6)
    expected = expected_paths(*drawn)
    for schedule in range(12):
        device = EmulatedDevice(64, preempt=2, seed=schedule)
        backend = DeviceBackend(drawn[0], device, first_capacity=64)
        assert decoded(backend, *drawn[1:]) == expected, schedule


@pytest.mark.parametrize("threads", [32, 128])
def test_arrays_too_small_lose_nothing(threads):
    """Every array overflows, at every place where one can."""
    grown = 0
    for i in range(40):
        rng = np.random.default_rng(i)
        drawn = draw(rng, arcs_per_state=8)
        device = EmulatedDevice(threads, preempt=int(rng.choice([0, 5])), seed=i)
        backend = DeviceBackend(drawn[0], device, first_capacity=1)
        expected = expected_paths(*drawn)
        assert decoded(backend, *drawn[1:]) == expected, i
        grown += device.launches.count("search_chunk") > 4
        assert decoded(backend, *drawn[1:]) == expected, i  # pooled memory
    assert grown > 20


@pytest.mark.parametrize("threads", [32, 64])
def test_any_split_into_chunks(threads):
    for i in range(25):
        rng = np.random.default_rng(i)
        graph, options, batch, boosts = draw(rng)
        backend = DeviceBackend(graph, EmulatedDevice(threads), first_capacity=4)
        under_way = backend.start_batch(options, boosts)
        for chunks in zip(*(random_splits(rng, x) for x in batch), strict=True):
            under_way.advance(chunks)
        found = list(map(bits, under_way.finish()))
        assert found == expected_paths(graph, options, batch, boosts), i


def test_more_utterances_than_blocks_on_two_threads():
    drawn = draw(np.random.default_rng(8), num_utterances=40, num_states=12)
    device = EmulatedDevice(32, num_blocks=4, os_threads=2)
    backend = DeviceBackend(drawn[0], device, first_capacity=8)
    assert decoded(backend, *drawn[1:]) == expected_paths(*drawn)


def test_a_single_search_is_a_batch_of_one():
    graph, options, batch, boosts = draw(np.random.default_rng(9))
    backend = DeviceBackend(graph, EmulatedDevice())
    for logprobs, one in zip(batch, boosts, strict=True):
        under_way = backend.start(options, one)
        under_way.advance(logprobs)
        expected = expected_paths(graph, options, [logprobs], [one])
        assert [bits(under_way.finish())] == expected
    assert bits(backend.start(options, NO_BOOSTS).finish()) == bits(
        search(make_backend("reference", graph), options, batch[0][:0])
    )
    assert backend.decode_batch([], options, []) == []


def test_exact_selection_among_equal_costs():
    """A radix select has to go on through all digits of the states."""
    fan = [f"0 {s} a - 0\n{s} {s + 600} b W{s} {600 - s}" for s in range(1, 601)]
    finals = [f"{s + 600} 0" for s in range(1, 601)]
    graph = text_graph("\n".join(fan + finals))
    backend = DeviceBackend(graph, EmulatedDevice(64), first_capacity=1024)
    logprobs = np.zeros((2, 3), np.float32)
    for limit in (1, 2, 255, 256, 257, 511, 513, 599, 600, 601):
        options = DecodeOptions(beam=np.inf, max_active=limit)
        (path,) = backend.decode_batch([logprobs], options, [NO_BOOSTS])
        words = graph.arcs["olabel"][path.arcs]
        assert graph.words[words[words > 0][0]] == f"W{min(limit, 600)}"


# ---------------------------------------------------------------- memory, long audio
def test_the_trace_stays_small_over_minutes():
    rng = np.random.default_rng(6)
    graph = dense_graph(rng, 12)
    x = np.log(rng.dirichlet([0.3] * 3, 1500)).astype(np.float32)
    options = DecodeOptions(beam=8.0)
    backend = DeviceBackend(graph, EmulatedDevice(32), first_capacity=32)
    batch = backend.start_batch(options, [NO_BOOSTS])
    for chunk in np.split(x, 10):
        batch.advance([chunk])
    assert batch.utterances["active"][0] > 2 * batch.utterances["trace_capacity"][0]
    expected = bits(search(make_backend("cpu", graph), options, x))
    assert [bits(path) for path in batch.finish()] == [expected]


def test_a_batch_is_decoded_in_parts_where_memory_is_short():
    drawn = draw(np.random.default_rng(10), num_utterances=9)
    roomy = DeviceBackend(drawn[0], EmulatedDevice(), first_capacity=64)
    roomy.decode_batch(drawn[2], drawn[1], drawn[3])
    tight = DeviceBackend(
        drawn[0], EmulatedDevice(memory_limit=300_000), first_capacity=64
    )
    assert decoded(tight, *drawn[1:]) == expected_paths(*drawn)
    assert tight.device.launches.count("best_paths") >= 2 * 3


def test_the_memory_plan_is_what_is_taken():
    graph = random_graph(np.random.default_rng(0))
    device = EmulatedDevice(num_blocks=3)
    backend = DeviceBackend(graph, device, first_capacity=64)
    plan = backend.memory_plan(5)
    assert plan["graph"] == sum(array.nbytes for array in backend.arrays.values())
    work = backend.take_work(3)
    assert plan["scratch"] == sum(array.nbytes for array in work.arrays.values())
    batch = backend.start_batch(DecodeOptions(), [NO_BOOSTS] * 5)
    buffers = [*batch._frontiers, *batch._traces]
    assert plan["utterances"] == sum(buffer.nbytes for buffer in buffers)


def test_what_cannot_fit_is_refused_with_the_numbers():
    graph = text_graph("0 1 a A 0\n1 0")
    device = EmulatedDevice(memory_limit=50_000)
    backend = DeviceBackend(graph, device, first_capacity=64)
    message = (
        r"a batch of 1 utterances takes 0\.1 MiB on the device, expected at most "
        r"0\.0 MiB; lower max_active"
    )
    logprobs = np.zeros((1, 3), np.float32)
    with pytest.raises(BackendError, match=message):
        backend.decode_batch([logprobs], DecodeOptions(), [NO_BOOSTS])
    with pytest.raises(BackendError, match="a graph of 1 arcs takes"):
        DeviceBackend(graph, EmulatedDevice(memory_limit=10))


# ------------------------------------------------------------------ the user's object
def test_the_users_decoder_on_a_device():
    for i in range(6):
        rng = np.random.default_rng(i)
        graph, options = random_graph(rng), random_options(rng)
        batch = [random_logprobs(rng, t, len(graph.tokens)) for t in (0, 3, 7)]
        boosts = [random_boosts(rng, graph) for _ in batch]
        decoder = WfstDecoder(graph, options, "reference")
        expected = decoder.decode(batch, boosts=boosts)
        decoder._backend = DeviceBackend(graph, EmulatedDevice())
        assert decoder.decode(batch, boosts=boosts) == expected
        under_way = decoder.start(3, boosts)
        for chunks in zip(*(random_splits(rng, x) for x in batch), strict=True):
            under_way.advance(chunks)
        assert under_way.finish() == expected


# ------------------------------------------------------------------------ real speech
@pytest.fixture(scope="module")
def real_graph():
    """A tenth of the demo's lexicon, with its language model."""
    tokens = read_tokens(RECIPE / "tokens.txt")
    lexicon = read_lexicon(RECIPE / "lexicon.txt.gz", tokens)
    few, _ = lexicon.restrict(set(lexicon.words[::10]))
    return build_graph(
        tokens=tokens,
        lexicon=few,
        arpa=RECIPE / "lm.arpa.gz",
        separator="<wb>",
        minimize=False,
    )


@pytest.mark.parametrize(
    "options",
    [
        DecodeOptions(lm_scale=0.8),
        DecodeOptions(beam=16.0, max_active=300, min_active=50, beam_delta=0.5),
        DecodeOptions(beam=9.0, blank_skip_threshold=0.99, word_insertion=0.5),
    ],
)
@pytest.mark.parametrize("threads", [32, 256])
def test_real_speech(real_graph, options, threads):
    with np.load(RECIPE / "logprobs.npz") as file:
        batch = [file[name].astype(np.float32) for name in file.files[:5]]
    batch[0] = batch[0][:0]
    bonuses = {word: 1.5 for word in real_graph.words[1:400:2]}
    boosted = UtteranceBoosts(compile_word_boosts(bonuses, real_graph.word_ids)[0])
    boosts = [NO_BOOSTS, boosted, NO_BOOSTS, boosted, NO_BOOSTS]
    device = EmulatedDevice(threads, preempt=200, os_threads=2)
    backend = DeviceBackend(real_graph, device, first_capacity=32)
    cpu = make_backend("cpu", real_graph)
    expected = [
        bits(search(cpu, options, x, bonuses if one is boosted else None))
        for x, one in zip(batch, boosts, strict=True)
    ]
    assert decoded(backend, options, batch, boosts) == expected
    assert device.launches.count("search_chunk") > 1  # arrays grew


# ------------------------------------------------------------------------- the layout
def test_records_are_laid_out_as_the_kernels_have_them():
    text = device_layout.kernel_source("layout.cuh")
    for name in ("UTTERANCE", "TASK"):
        size = getattr(device_layout, name).itemsize
        assert f"sizeof({name.capitalize()}) == {size}" in text


def test_the_kernels_hold_to_the_line_width():
    for path in device_layout.KERNELS.iterdir():
        for line in path.read_text().splitlines():
            assert len(line) <= 88, (path.name, line)
