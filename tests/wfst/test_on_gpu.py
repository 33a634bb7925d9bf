"""Tests that need a GPU: `pytest -m gpu`, with all tests over backends."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from random_graphs import (
    random_boosts,
    random_graph,
    random_logprobs,
    random_options,
    random_phrases,
)
from searches import Lockstep
from text_graphs import text_graph
from wfst_searches import bits, random_splits

from wfstdec import CompiledBoosts, WfstDecoder, WfstOptions, build_graph
from wfstdec.boost.words import compile_word_boosts
from wfstdec.errors import LogprobError
from wfstdec.gpu import cupy_device as cuda
from wfstdec.search.backend import make_backend
from wfstdec.wfst.gpu.backend import DeviceBackend
from wfstdec.wfst.gpu.batch import DeviceBatch
from wfstdec.wfst.gpu.layout import PROGRAM, SLOT_BYTES
from wfstdec.wfst.options import BACKENDS

pytestmark = pytest.mark.gpu
RECIPE = Path(__file__).parents[2] / "graphs" / "librispeech_demo"


@pytest.mark.parametrize("threads", [32, 64, 256, 512])
@pytest.mark.parametrize("shared_slots", [0, 32, 1024])
def test_random_graphs_over_block_sizes_and_capacities(threads, shared_slots):
    for i in range(50):
        rng = np.random.default_rng([threads, i])
        graph, options = random_graph(rng), random_options(rng)
        batch = [random_logprobs(rng, t, len(graph.tokens)) for t in (0, 1, 4, 9)]
        boosts = []
        for _ in batch:
            words = compile_word_boosts(random_boosts(rng, graph), graph.word_ids)[0]
            phrases = random_phrases(rng, graph) if rng.random() < 0.5 else None
            boosts.append(CompiledBoosts(words, phrases))
        capacity = int(rng.choice([1, 8, 1024]))
        device = cuda.CupyDevice(PROGRAM, threads, shared_slots * SLOT_BYTES)
        backend = DeviceBackend(graph, device, first_capacity=capacity)
        cpu, expected = make_backend(BACKENDS, "cpu", graph), []
        for logprobs, one in zip(batch, boosts, strict=True):
            search = cpu.start(options, one)
            search.advance(logprobs)
            expected.append(bits(search.finish()))
        found = backend.decode(batch, options, boosts)
        assert list(map(bits, found)) == expected, i


@pytest.fixture(scope="module")
def demo():
    """The demo's graph and log-probs."""
    graph = build_graph(
        tokens=RECIPE / "tokens.txt",
        lexicon=RECIPE / "lexicon.txt.gz",
        lm=RECIPE / "lm.arpa.gz",
        separator="<wb>",
    )
    with np.load(RECIPE / "logprobs.npz") as file:
        return graph, [file[name].astype(np.float32) for name in file.files]


@pytest.mark.parametrize("repeat", [1, 8])
def test_real_speech_whole_and_in_chunks(demo, repeat):
    graph, batch = demo
    batch = batch * repeat
    options = WfstOptions(lm_scale=0.8)
    boosts = {word: 1.5 for word in graph.words[1:2000:2]}
    boosts |= {"of the": 2.0, "in the": 1.0, "old man": 3.0}
    expected = WfstDecoder(graph, options, "cpu").decode(batch, boosts=boosts)
    decoder = WfstDecoder(graph, options, "cuda")
    for _ in range(3):
        assert decoder.decode(batch, boosts=boosts) == expected
    rng = np.random.default_rng(0)
    under_way = Lockstep(decoder, len(batch), boosts)
    for chunks in zip(*(random_splits(rng, x) for x in batch), strict=True):
        under_way.advance(chunks)
    assert under_way.finish() == expected


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_torch_tensors_on_the_gpu(demo, dtype):
    torch = pytest.importorskip("torch")
    graph, batch = demo
    options = WfstOptions(lm_scale=0.8)
    lengths = [len(x) for x in batch[:6]]
    padded = np.zeros((6, max(lengths), len(graph.tokens)), np.float32)
    for row, x in zip(padded, batch, strict=False):
        row[: len(x)] = x
    tensor = torch.from_numpy(padded).to(getattr(torch, dtype))
    expected = WfstDecoder(graph, options, "cpu").decode(tensor, lengths)
    decoder = WfstDecoder(graph, options, "cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):  # made on a stream, decoded without waiting for it
        on_gpu = (tensor.to("cuda", non_blocking=True) * 2) / 2
        assert decoder.decode(on_gpu, torch.tensor(lengths).cuda()) == expected
        assert decoder.decode(list(on_gpu), lengths) == expected


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_number_of_16_bits(dtype):
    """Numbers that are not normal are read as well: none is taken for 0."""
    torch = pytest.importorskip("torch")
    graph = text_graph("0 0 a A 0\n0 0", tokens="_ a")
    numbers = np.arange(1 << 16, dtype=np.uint16).astype(np.int16)
    values = torch.from_numpy(numbers).view(getattr(torch, dtype))
    column = values[values.float().abs() <= 1e20][:, None].repeat(1, 2)
    backend = make_backend(BACKENDS, "cuda", graph)
    none = CompiledBoosts(compile_word_boosts(None, {})[0], None)
    for given in (column.cuda(), column.float().cuda()):
        chunks = backend.inputs([given], None)
        batch = DeviceBatch(backend.device_graph, WfstOptions(), [none])
        batch.advance(chunks)
        steps, _ = batch._find_paths(np.array([0]), np.array([len(column)]))
        assert steps["acoustic"][::-1].tolist() == (-column[:, 0].float()).tolist()


def test_numbers_that_are_no_logprobs_are_refused_on_the_gpu(demo):
    torch = pytest.importorskip("torch")
    graph, batch = demo
    decoder = WfstDecoder(graph, backend="cuda")
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        wrong = torch.from_numpy(batch[0]).to("cuda", dtype)
        wrong[5, 2] = float("nan")
        with pytest.raises(LogprobError, match="utterance 1: .* has nan in frame 5"):
            decoder.decode([torch.from_numpy(batch[0]).to("cuda", dtype), wrong])


def test_two_decoders_in_two_threads_on_streams_of_their_own(demo):
    torch = pytest.importorskip("torch")
    graph, batch = demo
    options = [WfstOptions(lm_scale=0.8), WfstOptions(beam=9.0, lm_scale=0.8)]
    decoders = [WfstDecoder(graph, one, "cuda") for one in options]
    expected = [WfstDecoder(graph, one, "cpu").decode(batch[:8]) for one in options]

    def run(i):
        with torch.cuda.stream(torch.cuda.Stream()):
            tensors = [torch.from_numpy(x).cuda() for x in batch[:8]]
            return [decoders[i].decode(tensors) == expected[i] for _ in range(5)]

    with ThreadPoolExecutor(2) as pool:
        assert all(map(all, pool.map(run, (0, 1))))
