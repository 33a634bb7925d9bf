"""`backend="auto"` of the trie, and `"cuda"` on a stand-in for CuPy."""

import pickle
import shutil
import sys

import numpy as np
import pytest
from cupy_stand_in import Kernel, stand_in
from trie_devices import large_decoder, small_options, spoken

from wfstdec import BoostEntry, TrieDecoder, token_table
from wfstdec.errors import BackendError
from wfstdec.gpu import cupy_device as cuda
from wfstdec.search import backend_choice

needs_compiler = pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")


@pytest.fixture(autouse=True)
def gpu(monkeypatch, tmp_path):
    """A stand-in for CuPy and a GPU."""
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


def test_small_vocabularies_are_for_the_cpu():
    decoder, _ = drawn()
    choice = decoder.choose_backend(4000)
    assert choice.backend == "cpu" and "faster for no batch" in choice.why


@needs_compiler
def test_both_backends_of_one_decoder(monkeypatch):
    monkeypatch.setitem(backend_choice.MIN_BATCH, ("trie", True), 3)
    decoder, few = drawn()
    many = [np.concatenate(few * 12) for _ in range(3)]
    boosts = {"W2": 1.0, "W2 W4": 2.0}
    named = remade(decoder, backend="cpu")
    assert decoder.decode(few, boosts=boosts) == named.decode(few, boosts=boosts)
    assert decoder.last_choice.backend == "cpu" and not Kernel.launched
    found = decoder.decode(many, boosts=boosts)
    assert decoder.last_choice.backend == "cuda" and Kernel.launched
    assert found == named.decode(many, boosts=boosts)


@needs_compiler
def test_the_cpu_for_what_no_gpu_searches(monkeypatch):
    monkeypatch.setitem(backend_choice.MIN_BATCH, ("trie", True), 3)
    decoder, few = drawn()
    big = decoder.with_options(beam_size=257).choose_backend(800)
    assert big == ("cpu", "backend 'cuda': beam_size=257, expected at most 256")
    a, b = decoder.tokens.names[2:4]
    decoder = remade(decoder, lm=None)
    assert decoder.choose_backend(800).backend == "cuda"
    oov = [BoostEntry("added", [f"{a} {b}"], 1.0)]
    assert len(decoder.decode(few * 4, boosts=oov)) == 8
    assert decoder.last_choice[1] == "backend 'cuda': OOV word 'added', expected none"


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
