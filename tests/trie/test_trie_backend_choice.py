"""`backend="auto"` of the trie, and `"cuda"` on a stand-in for CuPy."""

import pickle
import shutil
import sys

import numpy as np
import pytest
from cupy_stand_in import Kernel, stand_in
from trie_devices import large_decoder, small_options, spoken

from wfstdec import BoostEntry, TrieDecoder, TrieOptions, token_table
from wfstdec.errors import BackendError
from wfstdec.gpu import cupy_device as cuda
from wfstdec.gpu.verified import record_pass
from wfstdec.search import backend_choice as choice
from wfstdec.search.backend_choice import Batch, Machine, choose
from wfstdec.trie.backend_choice import pace_of
from wfstdec.trie.gpu.layout import PROGRAM
from wfstdec.wfst.gpu.layout import PROGRAM as WFST_PROGRAM

needs_compiler = pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")


@pytest.fixture(autouse=True)
def gpu(monkeypatch, tmp_path):
    """A stand-in for CuPy and a GPU, which has passed no test."""
    monkeypatch.setenv("WFSTDEC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path / "kernels"))
    monkeypatch.setitem(sys.modules, "cupy", stand_in())
    cuda.load_cupy.cache_clear()
    Kernel.launched.clear()
    yield
    monkeypatch.undo()
    cuda.load_cupy.cache_clear()


def remade(decoder, **more):
    """The decoder with other arguments."""
    arguments = {
        "tokens": decoder.tokens,
        "lexicon": decoder.lexicon,
        "lm": decoder.lm,
        "separator": "|",
        "options": decoder.options,
        "threads": 2,
    }
    return TrieDecoder(**arguments | more)


def drawn(seed=3, **options):
    rng = np.random.default_rng(seed)
    options = small_options(rng, **{"beam": 9.0, "beam_size": 32} | options)
    decoder = large_decoder(rng, 20, 40, options)
    return remade(decoder), [spoken(rng, decoder, 6) for _ in range(2)]


def test_the_pace_of_a_search_by_hand():
    narrow = pace_of(TrieOptions(beam=8.0, beam_size=32))
    assert narrow[:2] == pytest.approx((2.2, 2.5))
    wide = pace_of(TrieOptions(beam=12.0, beam_size=128))
    assert wide[:2] == pytest.approx((8.2, 4.5), rel=0.01)
    assert pace_of(TrieOptions(beam=np.inf, beam_size=16)).cpu_us == 4.4
    assert wide.setting == "beam 12 and size 128"
    many = Batch(400, 400 * 500, 500)
    found = choose(many, wide, Machine(16, None, 264))
    assert found.backend == "cuda" and "at beam 12 and size 128 with" in found.why


def test_the_cpu_until_a_gpu_has_passed_the_tests():
    decoder, few = drawn()
    record_pass(WFST_PROGRAM)  # of other kernels
    choice = decoder.choose_backend(400, 400_000)
    assert choice.backend == "cpu" and "kernels have not passed" in choice.why
    decoder.decode(few)
    assert decoder.last_choice == choice and not Kernel.launched
    with pytest.raises(BackendError, match="expected backend='auto'"):
        remade(decoder, backend="cpu").choose_backend(1, 1)


@needs_compiler
def test_both_backends_of_one_decoder():
    record_pass(PROGRAM)
    decoder, few = drawn()
    many = [np.concatenate(few * 12) for _ in range(3)]
    boosts = {"W2": 1.0, "W2 W4": 2.0}
    named = remade(decoder, backend="cpu")
    assert decoder.decode(few, boosts=boosts) == named.decode(few, boosts=boosts)
    assert decoder.last_choice.backend == "cpu" and not Kernel.launched
    found = decoder.decode(many, boosts=boosts)
    assert decoder.last_choice.backend == "cuda" and Kernel.launched
    assert found == named.decode(many, boosts=boosts)
    sessions = decoder.sessions()
    one = sessions.open(boosts)
    sessions.advance({one: few[0]})
    assert sessions.close(one) == named.decode(few[:1], boosts=boosts)[0]


@needs_compiler
def test_the_cpu_for_what_no_gpu_searches():
    record_pass(PROGRAM)
    decoder, few = drawn()
    big = decoder.with_options(beam_size=257).choose_backend(800, 8_000_000)
    assert big == ("cpu", "backend 'cuda': beam_size=257, expected at most 256")
    a, b = decoder.tokens.names[2:4]
    decoder = remade(decoder, lm=None)
    assert decoder.choose_backend(800, 8_000_000).backend == "cuda"
    added = [BoostEntry("added", [f"{a} {b}"], 1.0)]
    assert len(decoder.decode(few * 4, boosts=added)) == 8
    assert decoder.last_choice[1] == "backend 'cuda': OOV word 'added', expected none"


@needs_compiler
def test_the_prediction_is_of_the_blocks_that_a_beam_gets(monkeypatch):
    record_pass(PROGRAM)
    decoder, _ = drawn()
    seen = []
    monkeypatch.setattr(choice, "choose", lambda *asked: seen.append(asked))
    for size in (32, 100):
        decoder.with_options(beam_size=size).choose_backend(400, 400_000)
    narrow, wide = (machine.gpu_blocks for _, _, machine in seen)
    works = decoder._auto.cuda.device_space.work
    assert narrow == works(32).device.shapes[0].num_blocks
    assert wide == works(100).device.shapes[0].num_blocks < narrow
    assert [pace.gpu_us for _, pace, _ in seen] == [2.5, 4.5]


@needs_compiler
@pytest.mark.parametrize("size", [16, 100])
def test_cuda_by_name(size):
    """All of `cuda.py`, with kernels in emulation in the place of a GPU."""
    rng = np.random.default_rng(1)
    decoder = large_decoder(rng, 20, 40, small_options(rng, beam_size=size, nbest=3))
    batch = [spoken(rng, decoder, n) for n in (5, 0, 3)]
    named = remade(decoder, backend="cpu")
    other = remade(decoder, backend="cuda")
    for one in (other, pickle.loads(pickle.dumps(other))):
        assert one.decode_nbest(batch) == named.decode_nbest(batch)
    assert Kernel.launched


def test_without_cupy_the_error_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    cuda.load_cupy.cache_clear()
    with pytest.raises(BackendError, match="backend 'cuda' needs CuPy"):
        TrieDecoder(tokens=token_table(["<blank>", "a"]), backend="cuda")
