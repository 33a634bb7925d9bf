"""Tests that need a GPU: `pytest -m gpu`, with all tests over backends."""

import functools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from device_cases import draw
from real_speech import RECIPE, utterances
from searches import Lockstep
from text_graphs import text_graph
from trie_devices import in_blocks_of, large_decoder, small_options, spoken
from trie_searches import bits, search
from wfst_searches import NO_BOOSTS, decoded, random_splits

from wfstdec import TrieDecoder, TrieOptions, WfstDecoder, WfstOptions, build_graph
from wfstdec.errors import LogprobError
from wfstdec.gpu import cupy_device as cuda
from wfstdec.search.backend import make_backend
from wfstdec.trie.gpu.backend import DeviceBackend as TrieBackend
from wfstdec.trie.gpu.backend import device_of
from wfstdec.trie.options import BACKENDS as TRIE_BACKENDS
from wfstdec.wfst.gpu.backend import DeviceBackend
from wfstdec.wfst.gpu.layout import PROGRAM, SLOT_BYTES
from wfstdec.wfst.options import BACKENDS

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("quiet")]


@pytest.mark.parametrize("threads", [32, 64, 256, 512])
@pytest.mark.parametrize("shared_slots", [0, 32, 1024])
def test_random_graphs_over_block_sizes_and_capacities(threads, shared_slots):
    for i in range(50):
        rng = np.random.default_rng([threads, i])
        graph, *given = draw(rng, num_utterances=4)
        device = cuda.CupyDevice(PROGRAM, threads, shared_slots * SLOT_BYTES)
        backend = DeviceBackend(graph, device, int(rng.choice([1, 8, 1024])))
        expected = decoded(make_backend(BACKENDS, "cpu", graph), *given)
        assert decoded(backend, *given) == expected, i


@pytest.mark.parametrize("threads", [32, 64, 128])
@pytest.mark.parametrize("size", [1, 16, 33, 64, 65, 256])
@pytest.mark.parametrize("merge", ["max", "sum"])
def test_random_tries_over_sizes_and_blocks(size, threads, merge):
    for seed in range(8):
        rng = np.random.default_rng([size, seed])
        options = small_options(rng, beam_size=size, merge=merge, nbest=1 + seed % 3)
        words, separator = [0, 60][seed % 2], [None, "|"][seed // 2 % 2]
        num_tokens = [20, 41, 300][seed % 3]
        decoder = large_decoder(rng, num_tokens, words, options, separator=separator)
        batch = [spoken(rng, decoder, n) for n in (30, 7, 0, 12)]
        space, blocks = decoder._space, in_blocks_of(threads)
        backend = TrieBackend(space, device_of, [1, 256][seed % 2], blocks)
        lists = decoder._boosts.compile(None, len(batch))
        found = list(map(bits, backend.decode(batch, decoder.options, lists)))
        cpu = make_backend(TRIE_BACKENDS, "cpu", space)
        assert found == [search(cpu, decoder, None, [x]) for x in batch], seed


FILES = {
    "tokens": RECIPE / "tokens.txt",
    "lexicon": RECIPE / "lexicon.txt.gz",
    "lm": RECIPE / "lm.arpa.gz",
    "separator": "<wb>",
}
BOOSTS = {"of the": 2.0, "in the": 1.0, "old man": 3.0}
OPTIONS = {
    "wfst": WfstOptions(lm_scale=0.8),
    "trie": TrieOptions(beam=8.0, beam_size=32),
    "wide trie": TrieOptions(beam=12.0, beam_size=128, merge="sum", nbest=4),
}


@functools.cache
def graph():
    return build_graph(**FILES)


def speech(kind, backend, **options):
    """A decoder of the demo's recipe."""
    if kind == "wfst":
        decoder = WfstDecoder(graph(), OPTIONS[kind], backend)
    else:
        decoder = TrieDecoder(**FILES, options=OPTIONS[kind], backend=backend)
    return decoder.with_options(**options)


@pytest.mark.parametrize("kind", OPTIONS)
@pytest.mark.parametrize("repeat", [1, 8])
def test_real_speech_whole_and_in_chunks(kind, repeat):
    batch, decoder = utterances(1) * repeat, speech(kind, "cuda")
    words = decoder.vocabulary.words[1:2000:2]
    boosts = dict.fromkeys(words, 1.5) | BOOSTS
    expected = speech(kind, "cpu").decode_nbest(batch, boosts=boosts)
    for _ in range(2):
        assert decoder.decode_nbest(batch, boosts=boosts) == expected
    best = [best for best, *_ in expected]
    assert decoder.decode(batch, boosts=boosts) == best
    rng = np.random.default_rng(0)
    under_way = Lockstep(decoder, len(batch), boosts)
    for chunks in zip(*(random_splits(rng, x) for x in batch), strict=True):
        under_way.advance(chunks)
    assert under_way.finish() == best


@pytest.mark.parametrize("kind", ["wfst", "trie"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_torch_tensors_on_the_gpu(kind, dtype):
    torch = pytest.importorskip("torch")
    batch = utterances(5)
    lengths = list(map(len, batch))
    padded = np.zeros((len(batch), max(lengths), batch[0].shape[1]), np.float32)
    for row, x in zip(padded, batch, strict=True):
        row[: len(x)] = x
    tensor = torch.from_numpy(padded).to(getattr(torch, dtype))
    expected = speech(kind, "cpu").decode(tensor, lengths)
    decoder = speech(kind, "cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):  # made on a stream, decoded without waiting for it
        on_gpu = (tensor.to("cuda", non_blocking=True) * 2) / 2
        assert decoder.decode(on_gpu, torch.tensor(lengths).cuda()) == expected
        assert decoder.decode(list(on_gpu), lengths) == expected
        on_gpu[1, 5, 2] = float("nan")
        with pytest.raises(LogprobError, match="utterance 1: .* has nan in frame 5"):
            decoder.decode(on_gpu, lengths)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_number_of_16_bits(dtype):
    """Numbers that are not normal are read as well: none is taken for 0."""
    torch = pytest.importorskip("torch")
    numbers = np.arange(1 << 16, dtype=np.uint16).astype(np.int16)
    values = torch.from_numpy(numbers).view(getattr(torch, dtype))
    column = values[values.float().abs() <= 1e20][:, None].repeat(1, 2)
    loop = text_graph("0 0 a A 0\n0 0", tokens="_ a")
    backend = make_backend(BACKENDS, "cuda", loop)
    for given in (column.cuda(), column.float().cuda()):
        frames = backend.inputs(list(given[:, None]), None)  # an utterance each
        paths = backend.decode(frames, WfstOptions(), [NO_BOOSTS] * len(frames))
        costs = [path.acoustic_cost for path in paths]
        assert costs == (-column[:, 0].float()).tolist()


def test_two_decoders_in_two_threads_on_streams_of_their_own():
    torch = pytest.importorskip("torch")
    batch, beams = utterances(5), (13.0, 9.0)
    decoders = [speech("wfst", "cuda", beam=beam) for beam in beams]
    expected = [speech("wfst", "cpu", beam=beam).decode(batch) for beam in beams]

    def run(i):
        with torch.cuda.stream(torch.cuda.Stream()):
            tensors = [torch.from_numpy(x).cuda() for x in batch]
            return [decoders[i].decode(tensors) == expected[i] for _ in range(5)]

    with ThreadPoolExecutor(2) as pool:
        assert all(map(all, pool.map(run, (0, 1))))
