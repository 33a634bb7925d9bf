"""Tests of the trie search that need a GPU: `pytest -m gpu`."""

import numpy as np
import pytest
from real_speech import utterances
from searches import Lockstep
from trie_devices import in_blocks_of, large_decoder, small_options, spoken
from trie_searches import bits, search

from wfstdec import TrieDecoder, TrieOptions
from wfstdec.errors import LogprobError
from wfstdec.search.backend import make_backend
from wfstdec.trie.gpu.backend import DeviceBackend, device_of
from wfstdec.trie.options import BACKENDS

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("quiet")]


@pytest.mark.parametrize("threads", [32, 64, 128])
@pytest.mark.parametrize("size", [1, 16, 33, 64, 65, 256])
@pytest.mark.parametrize("merge", ["max", "sum"])
def test_random_searches_over_sizes_and_blocks(size, threads, merge):
    for seed in range(8):
        rng = np.random.default_rng([size, seed])
        options = small_options(rng, beam_size=size, merge=merge, nbest=1 + seed % 3)
        words, separator = [0, 60][seed % 2], [None, "|"][seed // 2 % 2]
        decoder = large_decoder(
            rng, [20, 41, 300][seed % 3], words, options, separator=separator
        )
        batch = [spoken(rng, decoder, n) for n in (30, 7, 0, 12)]
        backend = DeviceBackend(
            decoder._space, device_of, [1, 256][seed % 2], in_blocks_of(threads)
        )
        lists = decoder._boosts.compile(None, len(batch))
        found = list(map(bits, backend.decode(batch, decoder.options, lists)))
        cpu = make_backend(BACKENDS, "cpu", decoder._space)
        assert found == [search(cpu, decoder, None, [x]) for x in batch], seed


def speech(backend, **options):
    """A decoder of the demo's recipe."""
    from real_speech import RECIPE

    return TrieDecoder(
        tokens=RECIPE / "tokens.txt",
        lexicon=RECIPE / "lexicon.txt.gz",
        lm=RECIPE / "lm.arpa.gz",
        separator="<wb>",
        options=TrieOptions(**options),
        backend=backend,
    )


BOOSTS = {"of the": 2.0, "in the": 1.0, "old man": 3.0, "mister": 1.5}


@pytest.mark.parametrize(
    "options",
    [
        {"beam": 8.0, "beam_size": 32},
        {"beam": 12.0, "beam_size": 128, "merge": "sum", "nbest": 4},
    ],
)
def test_real_speech_whole_and_in_chunks(options):
    batch = utterances(1) * 4
    expected = speech("cpu", **options).decode_nbest(batch, boosts=BOOSTS)
    decoder = speech("cuda", **options)
    for _ in range(2):
        assert decoder.decode_nbest(batch, boosts=BOOSTS) == expected
    under_way = Lockstep(decoder, len(batch), BOOSTS)
    for cut in range(0, max(map(len, batch)), 100):
        under_way.advance([x[cut : cut + 100] for x in batch])
    assert under_way.finish() == [best for best, *_ in expected]


def test_torch_tensors_on_the_gpu():
    torch = pytest.importorskip("torch")
    batch, decoder = utterances(5), speech("cuda", beam=8.0, beam_size=32)
    cpu = speech("cpu", beam=8.0, beam_size=32)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        given = [torch.from_numpy(x).to("cuda", dtype) for x in batch]
        assert decoder.decode(given) == cpu.decode([x.cpu() for x in given])
        given[1][5, 2] = float("nan")
        with pytest.raises(LogprobError, match=r"utterance 1: .* has nan in frame 5"):
            decoder.decode(given)
