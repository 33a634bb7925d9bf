"""The CUDA kernels, unchanged, on this machine's CPU: the bits of the specification."""

import contextlib
import ctypes
import dataclasses
import gc
import re
import shutil

import numpy as np
import pytest
from added_cases import frames, random_added_boosts, random_calls_graph, small_graph
from cuda_emulation.device import EmulatedDevice, in_32_bits, of_bits
from device_cases import draw, random_device
from lattice_searches import bits as bits_of_lattice
from random_graphs import (
    dense_graph,
    random_graph,
    random_logprobs,
    random_options,
    random_phrases,
)
from text_graphs import text_graph
from wfst_reference_backend import ReferenceBackend
from wfst_searches import NO_BOOSTS, bits, decoded, random_splits, search

from wfstdec import (
    BoostEntry,
    CompiledBoosts,
    PhraseCompiler,
    PhraseOptions,
    WfstDecoder,
    WfstOptions,
)
from wfstdec.errors import BackendError, LogprobError
from wfstdec.gpu.device import Budget, DeviceMemoryError
from wfstdec.gpu.logprobs import BFLOAT16, FLOAT16
from wfstdec.search.backend import make_backend
from wfstdec.wfst.gpu.backend import DeviceBackend
from wfstdec.wfst.gpu.batch import DeviceBatch
from wfstdec.wfst.gpu.layout import PHASES, PLAIN
from wfstdec.wfst.lattice_pack import lattice_of
from wfstdec.wfst.options import BACKENDS

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")
TOTALS = PhraseOptions(weights_are_totals=True)


def expected_paths(graph, *given):
    return decoded(ReferenceBackend(graph), *given)


@pytest.mark.parametrize("threads", [32, 64, 128, 256])
@pytest.mark.parametrize("preempt", [0, 4])
@pytest.mark.share(keep=2)
def test_random_graphs(threads, preempt):
    for i in range(30):
        rng = np.random.default_rng([threads, preempt, i])
        drawn = draw(rng)
        device = random_device(rng, threads, preempt)
        backend = DeviceBackend(drawn[0], device, first_capacity=64)
        assert decoded(backend, *drawn[1:]) == expected_paths(*drawn), i


def test_a_thousand_tokens():
    """Rows with all of them, as word pieces make at the beginning of words."""
    for i in range(3):
        rng = np.random.default_rng(i)
        drawn = draw(rng, num_tokens=1025, num_states=20, arcs_per_state=60)
        backend = DeviceBackend(drawn[0], random_device(rng, 128), first_capacity=64)
        assert decoded(backend, *drawn[1:]) == expected_paths(*drawn), i


def draw_added(rng):
    """A case with words to add: two lists, one of them twice, and none."""
    graph, options = random_calls_graph(rng), random_options(rng)
    first, second = (random_added_boosts(rng, graph) for _ in range(2))
    boosts = [first, NO_BOOSTS, second, first]
    sizes = rng.integers(0, 9, len(boosts))
    batch = [random_logprobs(rng, int(t), len(graph.tokens)) for t in sizes]
    order = rng.permutation(len(boosts))
    return graph, options, batch, [boosts[i] for i in order]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("adds_words", [False, True])
@pytest.mark.share(keep=6)
def test_schedules_do_not_matter(seed, adds_words):
    if adds_words:
        drawn = draw_added(np.random.default_rng([3, seed]))
    else:
        drawn = draw(np.random.default_rng(seed), num_states=15, arcs_per_state=6)
    expected = expected_paths(*drawn)
    for schedule in range(12):
        device = EmulatedDevice(
            64, preempt=2, seed=schedule, shared_slots=[0, 16, 64][schedule % 3]
        )
        backend = DeviceBackend(drawn[0], device, first_capacity=64)
        assert decoded(backend, *drawn[1:]) == expected, schedule


@pytest.mark.parametrize("threads", [32, 128])
def test_arrays_too_small_lose_nothing(threads):
    """Every array overflows, at every place where one can."""
    grown = 0
    for i in range(40):
        rng = np.random.default_rng(i)
        drawn = draw(rng, arcs_per_state=8)
        device = random_device(rng, threads, int(rng.choice([0, 5])))
        backend = DeviceBackend(drawn[0], device, first_capacity=1)
        expected = expected_paths(*drawn)
        assert decoded(backend, *drawn[1:]) == expected, i
        grown += device.launches.count("search_chunk") > 4
        assert decoded(backend, *drawn[1:]) == expected, i  # pooled memory
    assert grown > 20


def test_frames_that_outgrow_the_table_in_shared_memory():
    spilled, shared, counted = 0, 0, {}
    for i in range(16):
        rng = np.random.default_rng(i)
        graph, options, batch, boosts = draw(rng, num_states=30, arcs_per_state=4)
        expected = expected_paths(graph, options, batch, boosts)
        for slots in (0, 32, 4096):
            device = EmulatedDevice(64, preempt=9, seed=i, shared_slots=slots)
            backend = DeviceBackend(graph, device, first_capacity=256)
            under_way = DeviceBatch(backend.device_graph, options, boosts)
            under_way.advance(batch)
            assert list(map(bits, under_way.finish())) == expected, (i, slots)
            counts = under_way.counts
            del counts["arcs"]  # how many may survive is a matter of the schedule
            in_shared, left_it = counts.pop("shared"), counts.pop("spilled")
            assert counted.setdefault(i, counts) == counts
            if slots == 32:
                spilled += left_it
                shared += 0 < in_shared < counts["frames"]
            else:
                assert left_it == 0
                assert in_shared == (counts["frames"] if slots else 0)
    assert spilled > 6 and shared > 2


def test_a_table_that_is_full_is_not_looked_through_again_and_again():
    """Overflow is lost: the rest of its frame must not probe every slot."""
    count, room = 3000, 128
    fan = [f"0 {1 + s} a W{s} 0" for s in range(count)]
    graph = text_graph("\n".join([*fan, *(f"{1 + s} 0" for s in range(count))]))
    device = EmulatedDevice(128, num_blocks=1, shared_slots=0)
    backend = DeviceBackend(graph, device, first_capacity=room)
    peeks = device.load(PLAIN.macros).emulated_peeks
    peeks.restype = ctypes.c_ulonglong
    options, x = WfstOptions(beam=np.inf), np.zeros((1, 2), np.float32)
    # All candidates fit, so that only the table is too small.
    (first,) = backend.decode([x[:0]], options, [NO_BOOSTS])
    scratch = backend.device_graph.scratch
    before = peeks()
    found = decoded(backend, options, [x], [NO_BOOSTS])
    probes = peeks() - before
    assert found == expected_paths(graph, options, [x], [NO_BOOSTS])
    launches = device.launches.count("search_chunk") - 1
    assert launches >= 5 and scratch.entries >= count
    # Per launch: two or three words for each candidate and the bound before it.
    assert probes < launches * 12 * count, "each of them probed all of a full table"


@pytest.mark.parametrize("rank", [0, 1])
def test_phases_take_the_barriers_that_the_model_counts(rank):
    """The clock of the emulation counts barriers: the same in every run."""
    arcs = "0 0 a A 1\n0 0" if rank == 0 else "0 1 a A 1\n1 0 - - 0\n0 0"
    graph = text_graph(arcs)
    sums = []
    for num_frames in (10, 20):
        device = EmulatedDevice(64, num_blocks=1)
        backend = DeviceBackend(graph, device)
        x = np.zeros((num_frames, len(graph.tokens)), np.float32)
        batch = DeviceBatch(backend.device_graph, WfstOptions(), [NO_BOOSTS])
        batch.takes_times = True
        batch.advance([x])
        assert dict(device.grids[-1].macros)["TIMES"] == 1
        sums.append(batch.phase_times.astype(np.int64))
        cycles, nanoseconds = batch.clocks
        assert cycles - 2 <= batch.phase_times.sum() <= cycles and nanoseconds > 0
        expected = expected_paths(graph, WfstOptions(), [x], [NO_BOOSTS])
        assert list(map(bits, batch.finish())) == expected
    each = dict(zip(PHASES, ((sums[1] - sums[0]) / 10).tolist(), strict=True))
    assert each["emit"] == 3 and each["recombine"] == 2 and each["bound"] == 0
    assert each["close"] == 7 * rank
    assert each["settle"] == 4
    assert sum(each.values()) == 10 + 7 * rank


def test_a_tie_goes_to_the_lower_boost_state_of_a_source():
    """Two boost states of a source, by one arc at one cost to one state."""
    graph = text_graph("""
        0 1 a A 0
        0 1 b B 0
        1 2 a C 0
        2 0
    """)
    spell = {"A C": [(1, 3)], "B C": [(2, 3)]}
    compiler = PhraseCompiler(lambda ps: [spell[p] for p in ps], graph.words, TOTALS)
    boosts = [CompiledBoosts(NO_BOOSTS.words, compiler.compile(["A C", "B C"]))]
    batch = [np.zeros((2, 3), np.float32)]
    drawn = (graph, WfstOptions(), batch, boosts)
    for schedule in range(20):
        device = EmulatedDevice(32, preempt=1, seed=schedule)
        backend = DeviceBackend(graph, device)
        assert decoded(backend, *drawn[1:]) == expected_paths(*drawn), schedule
    (path,) = backend.decode(batch, WfstOptions(), boosts)
    assert path.tokens.label.tolist() == [1, 3]


def test_phrases_at_the_end_of_a_search_that_died():
    """Entries that max_active dropped in the frame that nothing survived are no end."""
    for i in range(60):
        rng = np.random.default_rng(i)
        graph, options, batch, boosts = draw(rng, num_states=12)
        options = dataclasses.replace(options, max_active=3)
        for x in batch:
            x[len(x) // 2 :] = -np.inf
        boosts = [
            CompiledBoosts(one.words, random_phrases(rng, graph)) for one in boosts
        ]
        backend = DeviceBackend(graph, EmulatedDevice(), first_capacity=64)
        drawn = (graph, options, batch, boosts)
        assert decoded(backend, *drawn[1:]) == expected_paths(*drawn), i


def test_max_active_among_boost_states_of_one_cost():
    """A radix select needs all digits of the boost states."""
    words = [f"W{i}" for i in range(600)]
    fan = [f"0 1 a {word} 0" for word in words]
    graph = text_graph("\n".join([*fan, "1 2 a - 0", "2 0"]))
    spell = [[(graph.word_ids[word], graph.word_ids["W0"])] for word in words]
    compiler = PhraseCompiler(lambda _: spell, graph.words, TOTALS)
    phrases = compiler.compile({f"{word} W0": 0.0 for word in words})
    boosts = [CompiledBoosts(NO_BOOSTS.words, phrases)]
    batch = [np.zeros((2, 2), np.float32)]
    backend = DeviceBackend(graph, EmulatedDevice(64), first_capacity=1024)
    for limit in (1, 2, 255, 256, 257, 511, 513, 599, 600, None):
        options = WfstOptions(beam=np.inf, max_active=limit)
        under_way = DeviceBatch(backend.device_graph, options, boosts)
        under_way.advance(batch)
        assert under_way.counts["active"] == 1 + min(limit or 600, 600)
        assert list(map(bits, under_way.finish())) == expected_paths(
            graph, options, batch, boosts
        )


def test_exact_selection_among_equal_costs():
    """A radix select needs all digits of the states."""
    fan = [f"0 {s} a - 0\n{s} {s + 600} b W{s} {600 - s}" for s in range(1, 601)]
    finals = [f"{s + 600} 0" for s in range(1, 601)]
    graph = text_graph("\n".join(fan + finals))
    backend = DeviceBackend(graph, EmulatedDevice(64), first_capacity=1024)
    logprobs = np.zeros((2, 3), np.float32)
    for limit in (1, 2, 255, 256, 257, 511, 513, 599, 600, 601):
        options = WfstOptions(beam=np.inf, max_active=limit)
        (path,) = backend.decode([logprobs], options, [NO_BOOSTS])
        assert graph.words[path.tokens.label[0]] == f"W{min(limit, 600)}"


def refused(backend, chunks):
    """The utterance and the frame of the first number that is no log-prob."""
    try:
        backend.decode(chunks, WfstOptions(), [NO_BOOSTS] * len(chunks))
    except LogprobError as error:
        return error.utterance, int(re.search(r"in frame (\d+),", str(error))[1])


def acoustic_costs(backend, chunk):
    """Acoustic costs of each frame of an utterance with one path."""
    batch = DeviceBatch(backend.device_graph, WfstOptions(), [NO_BOOSTS])
    batch.advance([chunk])
    steps, _ = batch._find_paths(np.array([len(chunk)]))
    return steps["acoustic"][::-1].tolist()


def test_every_number_of_16_bits():
    """All halves and all of bfloat16, as a frame each."""
    graph = text_graph("0 0 a A 0\n0 0", tokens="_ a")
    device = EmulatedDevice(32)
    backend = DeviceBackend(graph, device, first_capacity=16)
    bits = np.arange(1 << 16, dtype=np.uint16)
    halves = bits.view(np.float16).astype(np.float32)
    brains = (bits.astype(np.uint32) << 16).view(np.float32)
    for kind, values in ((FLOAT16, halves), (BFLOAT16, brains)):
        fine = (values >= -1e20) & (values <= 1e20)
        fine &= (bits % 0x8000 < 0x800) | (bits % 7 == 0)  # all that are subnormal
        chunk = of_bits(np.stack([bits[fine]] * 2, axis=1), kind)
        assert acoustic_costs(backend, chunk) == (-values[fine]).tolist()
        assert refused(backend, [chunk]) is None
        for impossible in bits[values < -1e20][:: 1 + (kind == BFLOAT16) * 997]:
            chunk = of_bits(np.full((1, 2), impossible), kind)
            (path,) = backend.decode([chunk], WfstOptions(), [NO_BOOSTS])
            assert path.died_at_frame == 0
        for bad in bits[~(values <= 1e20)][::401]:
            chunk = of_bits(np.array([[0, 0], [0, bad]], np.uint16), kind)
            assert refused(backend, [chunk]) == (0, 1)


def test_what_is_no_logprob_is_found_at_its_first_frame():
    for i in range(60):
        rng = np.random.default_rng(i)
        graph = random_graph(rng)
        num_tokens = len(graph.tokens)
        sizes = rng.integers(0, 40 if i % 4 == 0 else 6, 4)
        batch = [random_logprobs(rng, int(t), num_tokens) for t in sizes]
        for x in batch:
            x[int(rng.integers(1 + len(x))) :] = rng.choice([-np.inf, -1.0])  # may die
        bad = [x for x in batch if len(x) and rng.random() < 0.4]
        for x in bad:
            for frame in rng.integers(0, len(x), 2):
                x[frame, rng.integers(num_tokens)] = rng.choice([np.nan, np.inf, 2e20])
        wrong = [(u, np.flatnonzero(~(x <= 1e20).all(1))) for u, x in enumerate(batch)]
        expected = [(u, int(frames[0])) for u, frames in wrong if len(frames)]
        chunks = [in_32_bits(x, int(rng.integers(0, 3))) for x in batch]
        device = EmulatedDevice(int(rng.choice([32, 64])), preempt=3 * (i % 2), seed=i)
        in_parts = i % 3 == 0
        capacity = 128 if in_parts else int(rng.choice([1, 64]))
        backend = DeviceBackend(graph, device, first_capacity=capacity)
        if in_parts:
            plan = backend.memory_plan(1, 40)
            room = 2 * plan["scratch"] + 3 * plan["utterances"] + 3 * plan["logprobs"]
            device.budget.limit = plan["graph"] + room
        assert refused(backend, chunks) == (expected[0] if expected else None), i


@pytest.mark.parametrize("capacity", [2, 64])
def test_a_bad_chunk_moves_no_session(capacity):
    """Whatever grew or was about to: all continue from where they were."""
    full = 0
    for i in range(30):
        rng = np.random.default_rng([capacity, i])
        graph, options, batch, boosts = draw(rng, num_states=15, arcs_per_state=5)
        batch = [
            random_logprobs(rng, int(t), len(graph.tokens))
            for t in rng.integers(1, 30, len(batch))
        ]
        device = EmulatedDevice(32, preempt=5 * (i % 2), seed=i)
        backend = DeviceBackend(graph, device, first_capacity=capacity)
        sessions = [backend.start(options, one) for one in boosts]
        for chunks in zip(*(random_splits(rng, x) for x in batch), strict=True):
            wrong = [x.copy() for x in chunks]
            long = [x for x in wrong if len(x)]
            if long:
                long[int(rng.integers(len(long)))][-1, -1] = np.nan
                with pytest.raises(LogprobError):
                    backend.advance(sessions, list(map(in_32_bits, wrong)))
            launched = len(device.launches)
            backend.advance(sessions, list(map(in_32_bits, chunks)))
            full += len(device.launches) > launched + 1
        found = [bits(session.finish()) for session in sessions]
        assert found == expected_paths(graph, options, batch, boosts), i
    assert full > 3 or capacity == 64


def test_traces_that_fill_up_before_all_chunks_are_known_to_be_good():
    rng = np.random.default_rng(6)
    graph = dense_graph(rng, 12)
    x = np.log(rng.dirichlet([0.3] * 3, 600)).astype(np.float32)
    options = WfstOptions(beam=8.0)
    backend = DeviceBackend(graph, EmulatedDevice(32), first_capacity=32)
    batch = DeviceBatch(backend.device_graph, options, [NO_BOOSTS])
    wrong = x[:300].copy()
    wrong[290, 1] = np.inf
    for _ in range(2):
        with pytest.raises(LogprobError, match="utterance 0: .* has inf in frame 290"):
            batch.advance([in_32_bits(wrong)])
        assert batch.utterances["frontier_count"][0] == 0
    for chunk in (x[:300], x[300:]):
        batch.advance([in_32_bits(chunk)])
    assert backend.device.launches.count("search_chunk") >= 5
    assert batch.counts["entries"] > batch.utterances["trace_capacity"][0]
    expected = bits(search(make_backend(BACKENDS, "cpu", graph), options, x))
    assert [bits(path) for path in batch.finish()] == [expected]


def recorded_lattices(backend, options, batch, boosts):
    found = backend.decode(batch, options, boosts, record=True)
    given = backend.graph, options, backend.graph.vocabulary, 0.02
    made = [lattice_of(*given, one) for one in found]
    return list(map(bits_of_lattice, made))


@pytest.mark.parametrize("seed", range(4))
def test_lattices_in_arrays_too_small(seed, monkeypatch):
    monkeypatch.setattr("wfstdec.wfst.gpu.layout.LINKS_PER_NODE", 0)
    monkeypatch.setattr("wfstdec.wfst.gpu.layout.TRACE_BYTES", 1024)
    rng = np.random.default_rng(seed)
    graph, options, *given = draw(rng, num_states=25, arcs_per_state=6)
    beam = float(rng.choice([0, 0.5, 1])) * min(options.beam, 20.0)
    options = dataclasses.replace(options, lattice_beam=beam)
    device = EmulatedDevice(64, seed=seed, shared_slots=[0, 16][seed % 2])
    backends = DeviceBackend(graph, device, 4), ReferenceBackend(graph)
    found, expected = (recorded_lattices(b, options, *given) for b in backends)
    assert found == expected


def test_the_trace_stays_small_over_minutes():
    rng = np.random.default_rng(6)
    graph = dense_graph(rng, 12)
    x = np.log(rng.dirichlet([0.3] * 3, 1500)).astype(np.float32)
    options = WfstOptions(beam=8.0)
    backend = DeviceBackend(graph, EmulatedDevice(32), first_capacity=32)
    batch = DeviceBatch(backend.device_graph, options, [NO_BOOSTS])
    for chunk in np.split(x, 10):
        batch.advance([chunk])
    assert batch.counts["entries"] > 2 * batch.utterances["trace_capacity"][0]
    expected = bits(search(make_backend(BACKENDS, "cpu", graph), options, x))
    assert [bits(path) for path in batch.finish()] == [expected]


def test_a_batch_is_decoded_in_parts_where_memory_is_short():
    drawn = draw(np.random.default_rng(16), num_utterances=9)
    expected, parts = expected_paths(*drawn), []
    plan = DeviceBackend(drawn[0], EmulatedDevice(), 64).memory_plan(1, 8)
    for room in (10, 4, 1.5):
        limit = int(plan["graph"] + 2 * plan["scratch"] + room * plan["utterances"])
        device = EmulatedDevice(memory_limit=limit)
        backend = DeviceBackend(drawn[0], device, first_capacity=64)
        for _ in range(2):
            device.launches.clear()
            assert decoded(backend, *drawn[1:]) == expected
        parts.append(device.launches.count("best_paths"))
    assert parts[0] == 1 < parts[1] < parts[2] >= 5, parts


def test_two_parts_side_by_side_that_do_not_fit_after_all():
    drawn = draw(np.random.default_rng(10), num_utterances=9)
    expected, lengths = expected_paths(*drawn), [8] * 9
    roomy = DeviceBackend(drawn[0], EmulatedDevice(), 1)
    plan, both = roomy.memory_plan(9, 8), []
    for room in np.linspace(1.0, 6.0, 40):
        limit = int(plan["graph"] + room * (plan["total"] - plan["graph"]))
        device = EmulatedDevice(memory_limit=limit)
        backend = DeviceBackend(drawn[0], device, first_capacity=1)
        _, at_once = backend._parts(lengths, drawn[1], record=False)
        both.append(at_once)
        with contextlib.suppress(DeviceMemoryError):  # one alone does not fit
            assert decoded(backend, *drawn[1:]) == expected
    assert {True, False} == set(both)


def test_the_memory_plan_is_what_is_taken():
    graph = random_graph(np.random.default_rng(0))
    device = EmulatedDevice(num_blocks=3, memory_limit=10_000_000)
    backend = DeviceBackend(graph, device, first_capacity=64)
    plan = backend.memory_plan(5)
    assert plan["limit"] == 10_000_000
    arrays = backend.device_graph._arrays._buffers
    assert plan["graph"] == sum(array.nbytes for array in arrays.values())
    assert plan["graph"] == 10_000_000 - device.budget.left
    scratch = backend.device_graph.scratch.take(3)
    assert plan["scratch"] == sum(array.nbytes for array in scratch.arrays.values())
    batch = DeviceBatch(backend.device_graph, WfstOptions(), [NO_BOOSTS] * 5)
    assert plan["utterances"] == sum(buffer.nbytes for buffer in batch._buffers)
    assert plan["total"] == plan["graph"] + plan["scratch"] + plan["utterances"]
    assert device.budget.left == 10_000_000 - plan["total"]
    logprobs = backend.memory_plan(5, 10)["logprobs"]
    assert logprobs == 5 * 10 * len(graph.tokens) * 4


def test_a_list_is_uploaded_once(tmp_path):
    graph, device = small_graph(tmp_path), EmulatedDevice()
    decoder = WfstDecoder(graph, backend="cpu")
    decoder._backend = DeviceBackend(graph, device, first_capacity=64)
    decoder.decode([frames("nab")] * 3)
    compiled = decoder._compiled([BoostEntry("nab", ["n a b"], 1.0)], 1) * 3
    before = device.budget.left
    decoder._search([frames("nab")] * 3, compiled)
    taken = before - device.budget.left
    overlay = decoder._backend.device_graph.overlays.of(compiled[0].oov).overlay
    assert taken >= overlay.arcs.nbytes + overlay.bonus.nbytes
    decoder._search([frames("nab")] * 3, compiled)
    assert before - device.budget.left == taken


@pytest.mark.parametrize("end", ["finish", "forget", "fail"])
def test_memory_comes_back(end):
    drawn = draw(np.random.default_rng(5))
    backend = DeviceBackend(drawn[0], EmulatedDevice(), first_capacity=64)
    before = backend.device.budget.left
    batch = DeviceBatch(backend.device_graph, drawn[1], drawn[3])
    if end == "fail":
        with pytest.raises(AssertionError, match="1, 3"):
            batch.advance(drawn[2][:1])
    else:
        batch.advance(drawn[2])
    if end == "finish":
        batch.finish()
    kept = backend.device_graph.scratch.num_bytes
    stored = backend.device_graph.phrases._made.values()
    kept += sum(one.num_bytes for one in stored)
    del batch
    gc.collect()
    assert backend.device.budget.left == before - kept


def test_words_that_do_not_fit_say_what_to_do(tmp_path):
    graph, device = small_graph(tmp_path), EmulatedDevice(memory_limit=1 << 20)
    decoder = WfstDecoder(graph, backend="cpu")
    decoder._backend = DeviceBackend(graph, device, first_capacity=64)
    word = " ".join("ab" * 20_000)
    with pytest.raises(DeviceMemoryError, match="added words of .* add fewer words"):
        decoder.decode([frames("nab")], boosts=[BoostEntry("nab", [word], 1.0)])
    assert decoder.decode([frames("an")])[0].text == "an"


def test_what_cannot_fit_is_refused_with_the_numbers():
    graph = text_graph("0 1 a A 0\n1 0")
    device = EmulatedDevice(memory_limit=20_000)
    backend = DeviceBackend(graph, device, first_capacity=512)
    message = (
        r"a batch of 1 utterances takes 0\.0 MiB on the device, with 0\.0 MiB in "
        r"use, expected at most 0\.0 MiB together; lower max_active"
    )
    logprobs = np.zeros((1, 3), np.float32)
    with pytest.raises(BackendError, match=message):
        backend.decode([logprobs], WfstOptions(), [NO_BOOSTS])
    with pytest.raises(BackendError, match="a graph of 1 arcs takes"):
        DeviceBackend(graph, EmulatedDevice(memory_limit=10))
    share = Budget(3 << 20).share("a batch", "decode fewer")
    share.take(1 << 20)
    with pytest.raises(
        BackendError,
        match=r"4\.0 MiB .* with 0\.0 MiB .* 3\.0 MiB together; decode fewer, or use",
    ):
        share.take(3 << 20)
