"""The trie search's kernels on this machine's CPU: the bits of the specification."""

import logging
import shutil

import naive_search_cases
import numpy as np
import pytest
from trie_devices import (
    always,
    emulated,
    in_blocks_of,
    large_decoder,
    small_options,
    spoken,
)
from trie_searches import bits, draw, search

from wfstdec.search.backends import make_backend
from wfstdec.trie.gpu import layout as d
from wfstdec.trie.gpu.batch import DeviceBatch
from wfstdec.trie.options import BACKENDS

pytestmark = [
    pytest.mark.skipif(not shutil.which("g++"), reason="needs g++"),
    pytest.mark.filterwarnings("ignore::wfstdec.errors.BoostWarning"),
]
BLOCKS = [32, 64, 128]
MERGES = ["max", "sum"]


@pytest.fixture(autouse=True)
def quiet(caplog):
    """The library says how many words are dropped; here they are dropped on purpose."""
    caplog.set_level(logging.ERROR, logger="wfstdec")


def compiled(decoder, boosts, num):
    """Compile the lists of utterances."""
    return decoder._boosts.compile(boosts, num)


def expected(decoder, batch, boosts=None, backend="cpu"):
    """Search each utterance with another backend; all of what it finds."""
    made = make_backend(BACKENDS, backend, decoder._space)
    return [search(made, decoder, boosts, [x]) for x in batch]


def found(backend, decoder, batch, boosts=None):
    """Search a batch on a device; all of what it finds."""
    lists = compiled(decoder, boosts, len(batch))
    return list(map(bits, backend.decode(batch, decoder.options, lists)))


# ------------------------------------------------------------------------ bit equality
@pytest.mark.parametrize("kind", naive_search_cases.KINDS)
def test_the_bits_of_the_reference(kind):
    for seed in range(20):
        rng, case, decoder, boosts = draw(seed, kind)
        size = min(decoder.options.beam_size, int(rng.choice([64, 256])))
        decoder = decoder.with_options(beam_size=size)
        batch = [np.ascontiguousarray(case.logprobs, np.float32)]
        backend = emulated(decoder._space, preempt=[0, 5][seed % 2], seed=seed)
        want = expected(decoder, batch, boosts, "reference")
        assert found(backend, decoder, batch, boosts) == want, seed


@pytest.mark.parametrize("merge", MERGES)
@pytest.mark.parametrize("threads", BLOCKS)
@pytest.mark.parametrize("size", [1, 2, 16, 33, 64, 65, 256])
@pytest.mark.share(keep=6)
def test_sizes_of_beams_and_blocks(size, threads, merge):
    """Texts of their own, and without; a separator, an optional one, none."""
    for seed in range(4):
        rng = np.random.default_rng([size, seed])
        options = small_options(
            rng, beam_size=size, merge=merge, nbest=[1, 3][seed % 2]
        )
        words = [0, 60, 60, 60][seed]
        separator = [None, "|", None, "|"][seed]
        decoder = large_decoder(rng, 20, words, options, separator=separator)
        batch = [spoken(rng, decoder, n) for n in (12, 7, 0)]
        backend = emulated(
            decoder._space, form_for=in_blocks_of(threads), preempt=6, seed=seed
        )
        assert found(backend, decoder, batch) == expected(decoder, batch), seed


@pytest.mark.parametrize("num_words", [0, 80])
@pytest.mark.parametrize("num_tokens", [2, 41, 300, 5000])
@pytest.mark.share(keep=5)
def test_numbers_of_tokens(num_tokens, num_words):
    if num_tokens == 2 and num_words:
        pytest.skip("no word can be spelled")
    for seed, merge in enumerate(MERGES):
        rng = np.random.default_rng([num_tokens, num_words, seed])
        options = small_options(rng, beam_size=[16, 100][seed], merge=merge)
        decoder = large_decoder(rng, num_tokens, num_words, options)
        batch = [spoken(rng, decoder, n) for n in (6, 3)]
        backend = emulated(decoder._space)
        assert found(backend, decoder, batch) == expected(decoder, batch), seed


@pytest.mark.parametrize("merge", MERGES)
@pytest.mark.share(keep=1)
def test_schedules_do_not_matter(merge):
    rng = np.random.default_rng(3)
    options = small_options(rng, beam=6.0, beam_size=24, merge=merge, nbest=2)
    decoder = large_decoder(rng, 20, 60, options, separator=None)
    batch = [spoken(rng, decoder, 9)]
    want = expected(decoder, batch)
    for schedule in range(12):
        threads = BLOCKS[schedule % 3]
        backend = emulated(
            decoder._space, form_for=in_blocks_of(threads), preempt=2, seed=schedule
        )
        assert found(backend, decoder, batch) == want, schedule


# ------------------------------------------------------------------------------- room
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("merge", MERGES)
def test_arrays_too_small_lose_nothing(merge, shared):
    """Candidates, entries, frontiers and traces that outgrow their arrays."""
    launches = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        options = small_options(
            rng, beam=7.0, beam_size=[40, 100][seed % 2], merge=merge, nbest=3
        )
        decoder = large_decoder(rng, 20, [0, 60][seed % 2], options, separator=None)
        batch = [spoken(rng, decoder, n) for n in (14, 5)]
        tiny = d.Form([32, 64][seed % 2], 4, 16, 6)
        backend = emulated(
            decoder._space, shared=shared, first_entries=1, form_for=always(tiny)
        )
        want = expected(decoder, batch)
        assert found(backend, decoder, batch) == want, seed
        launches += len(backend.device.launches)
        assert found(backend, decoder, batch) == want, seed  # pooled memory
    assert launches > 6 * 4


def test_frames_that_outgrow_shared_memory():
    counted = {}
    for shared in (False, True):
        rng = np.random.default_rng(5)
        options = small_options(rng, beam=7.0, beam_size=60)
        decoder = large_decoder(rng, 20, 60, options)
        batch = [spoken(rng, decoder, 30)]
        for form in (d.Form(32, 16, 32, 20), d.form_for(60, 20)):
            backend = emulated(decoder._space, shared=shared, form_for=always(form))
            lists = compiled(decoder, None, 1)
            under_way = DeviceBatch(
                backend.device_space, backend._cpu, decoder.options, lists
            )
            under_way.advance(batch)
            counts = under_way.counts
            assert list(map(bits, under_way.finish())) == expected(decoder, batch)
            counted[shared, form.entries] = counts
    assert all(one["frames"] == 30 for one in counted.values())
    assert counted[True, 64]["shared"] == 30 and counted[True, 64]["spilled"] == 0
    assert 0 < counted[True, 16]["shared"] < 30 and counted[True, 16]["spilled"] > 0
    assert counted[False, 16]["shared"] == counted[False, 64]["shared"] == 0
