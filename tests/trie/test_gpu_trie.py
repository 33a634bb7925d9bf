"""The trie search's kernels on this machine's CPU: the bits of the specification."""

import shutil
import time
from dataclasses import replace

import naive_search_cases
import numpy as np
import pytest
from cuda_emulation.device import in_32_bits
from own_models import Wrapped
from trie_devices import (
    always,
    emulated,
    in_blocks_of,
    large_decoder,
    small_options,
    spoken,
)
from trie_searches import bits, draw, search

from wfstdec import BoostEntry, OpenVocabulary, TrieDecoder, TrieOptions, token_table
from wfstdec.errors import BackendError, DeviceError, LogprobError, OptionError
from wfstdec.search.backend import make_backend
from wfstdec.trie.gpu import layout as d
from wfstdec.trie.gpu.batch import DeviceBatch, trace_nodes, utterance_bytes
from wfstdec.trie.options import BACKENDS

pytestmark = [
    pytest.mark.skipif(not shutil.which("g++"), reason="needs g++"),
    pytest.mark.filterwarnings("ignore::wfstdec.errors.BoostWarning"),
    pytest.mark.usefixtures("quiet"),
]
BLOCKS = [32, 64, 128]
MERGES = ["max", "sum"]


def compiled(decoder, boosts, num):
    return decoder._boosts.compile(boosts, num)


def expected(decoder, batch, boosts=None, backend="cpu"):
    """Search each utterance with another backend; all of what it finds."""
    made = make_backend(BACKENDS, backend, decoder._space)
    return [search(made, decoder, boosts, [x]) for x in batch]


def found(backend, decoder, batch, boosts=None):
    """Search a batch on a device; all of what it finds."""
    lists = compiled(decoder, boosts, len(batch))
    return list(map(bits, backend.decode(batch, decoder.options, lists)))


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


@pytest.mark.parametrize("num_words", [0, 60])
def test_wide_beams_of_few_entries(num_words):
    """Most candidates cost more than the entries that stay; many lead to the same."""
    for seed in range(12):
        rng = np.random.default_rng([7, num_words, seed])
        options = small_options(rng, beam=25.0, beam_size=[3, 8, 16][seed % 3])
        options = replace(options, merge="max", nbest=1, token_top_k=None)
        decoder = large_decoder(rng, [12, 150][seed % 2], num_words, options)
        batch = [spoken(rng, decoder, 25) for _ in range(3)]
        backend = emulated(decoder._space)
        assert found(backend, decoder, batch) == expected(decoder, batch), seed


def test_costs_that_rounding_makes_equal():
    """Entries one rounding apart before re-basing, and equal after it, are a tie."""
    options = TrieOptions(beam=40.0, beam_size=2, nbest=4)
    tokens = token_table(["<blank>", "a", "b", "c"])
    decoder = TrieDecoder(tokens=tokens, options=options)
    boosts = decoder.phrase_compiler().compile({"c": 30.0})  # it costs less than 0
    worse = np.nextafter(np.float32(-1), np.float32(-2))
    batch = [np.array([[-60, worse, -1, -0.5]], np.float32)]
    want = expected(decoder, batch, boosts, "reference")
    assert found(emulated(decoder._space), decoder, batch, boosts) == want
    decoder._backend = emulated(decoder._space)
    (hyps,) = decoder.decode_nbest(batch, boosts=boosts)
    assert [hyp.text for hyp in hyps] == ["c", "a"]


@pytest.mark.parametrize("merge", MERGES)
@pytest.mark.parametrize("threads", [32, 128])
def test_thousands_of_entries_are_put_in_order(threads, merge):
    """Comparing all entries of a frame took 11 s here; now it is 1 s."""
    rng = np.random.default_rng([33, 2])
    options = small_options(rng, beam=9.0, beam_size=33, merge=merge, nbest=3)
    decoder = large_decoder(rng, 300, 0, options, separator=None)
    batch = [spoken(rng, decoder, 20)]
    backend = emulated(decoder._space, form_for=in_blocks_of(threads))
    assert found(backend, decoder, batch) == expected(decoder, batch)
    begin = time.process_time()
    assert found(backend, decoder, batch) == expected(decoder, batch)
    assert time.process_time() - begin < 8.0


def test_frames_that_outgrow_shared_memory():
    counted = {}
    for shared in (False, True):
        rng = np.random.default_rng(5)
        options = small_options(rng, beam=7.0, beam_size=60)
        decoder = large_decoder(rng, 20, 60, options)
        batch = [spoken(rng, decoder, 30)]
        for form in (d.TrieBlockShape(32, 16, 32, 20), d.form_for(60, 20)):
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


def test_a_bad_chunk_moves_no_session():
    """Whatever grew or was about to: all continue from where they were."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        options = small_options(
            rng, beam=7.0, beam_size=24, merge=MERGES[seed % 2], nbest=2
        )
        decoder = large_decoder(rng, 20, 40, options, separator=None)
        batch = [spoken(rng, decoder, int(n)) for n in rng.integers(1, 20, 3)]
        form = always(d.TrieBlockShape(32, 8, 32, 20)) if seed % 3 else d.form_for
        backend = emulated(
            decoder._space, first_entries=2, form_for=form, preempt=5, seed=seed
        )
        lists = compiled(decoder, None, 3)
        sessions = [backend.start(decoder.options, one) for one in lists]
        cuts = sorted(rng.integers(0, 20, 2).tolist())
        for chunks in zip(*(np.split(x, cuts) for x in batch), strict=True):
            wrong = [x.copy() for x in chunks]
            long = [x for x in wrong if len(x)]
            if long:
                long[int(rng.integers(len(long)))][-1, -1] = np.nan
                with pytest.raises(LogprobError):
                    backend.advance(sessions, list(map(in_32_bits, wrong)))
            if rng.random() < 0.5:
                sessions[0].look()
            backend.advance(sessions, list(map(in_32_bits, chunks)))
        ended = [bits(session.finish()) for session in sessions]
        assert ended == expected(decoder, batch), seed


def test_the_first_utterance_that_has_no_logprob_is_named():
    rng = np.random.default_rng(2)
    decoder = large_decoder(rng, 20, 0, small_options(rng, beam_size=8))
    batch = [spoken(rng, decoder, 6) for _ in range(4)]
    for i in (3, 1):
        batch[i][4, 7] = np.inf
    backend = emulated(decoder._space, num_blocks=1)
    with pytest.raises(LogprobError, match=r"inf in frame 4") as raised:
        found(backend, decoder, list(map(in_32_bits, batch)))
    assert raised.value.utterance == 1


@pytest.mark.parametrize("merge", MERGES)
def test_a_session_takes_no_more_memory_the_longer_it_lasts(merge):
    rng = np.random.default_rng(6)
    options = small_options(rng, beam=4.0, beam_size=8, merge=merge)
    decoder = large_decoder(rng, 20, 40, options)
    x = np.concatenate([spoken(rng, decoder, 60) for _ in range(40)])
    backend = emulated(decoder._space)
    (one,) = compiled(decoder, None, 1)
    session = backend.start(decoder.options, one)
    for chunk in np.split(x, 40):
        backend.advance([session], [chunk])
    assert session.counts["entries"] > 3 * trace_nodes(None)
    assert session.utterances["trace_capacity"][0] == trace_nodes(None)
    ended = session.finish()
    assert len(ended[0].tokens.token) > 500
    assert [bits(ended)] == expected(decoder, [x])


def test_a_batch_goes_in_parts_where_memory_is_short():
    rng = np.random.default_rng(10)
    decoder = large_decoder(rng, 20, 40, small_options(rng, beam_size=16))
    batch = [spoken(rng, decoder, 8) for _ in range(9)]
    want, launches = expected(decoder, batch), []
    whole = emulated(decoder._space, first_entries=32)
    fixed = whole.device_space.num_bytes
    scratch = whole.device_space.work(16).scratch
    block = scratch.layout.num_bytes(1, 32)
    for room in (12, 3, 1.5):
        one = utterance_bytes(d.form_for(16, 20), 8) + 8 * 20 * 4
        limit = int(fixed + 2 * block + room * one)
        backend = emulated(decoder._space, first_entries=32, memory_limit=limit)
        assert found(backend, decoder, batch) == want
        launches.append(backend.device.launches.count("advance_chunk"))
    assert launches[0] == 1 < launches[1] < launches[2], launches


@pytest.mark.parametrize("size", [4, 100])
def test_the_memory_plan_is_what_is_taken(size):
    rng = np.random.default_rng(2)
    decoder = large_decoder(rng, 20, 40, small_options(rng, beam_size=size))
    limit = 100_000_000
    given = {"num_blocks": 3, "memory_limit": limit, "first_entries": 64}
    backend = emulated(decoder._space, **given)
    decoder._backend = backend
    space, work = backend.device_space, backend.device_space.work(size)
    plan = decoder.memory_plan(5)
    assert plan["limit"] == limit
    arrays = space._arrays._buffers.values()
    assert plan["graph"] == sum(array.nbytes for array in arrays)
    assert plan["graph"] == limit - backend.device.budget.left
    before = work.device.budget.left  # in emulation each form has memory of its own
    scratch = work.scratch.take(3)
    assert plan["scratch"] == sum(array.nbytes for array in scratch.arrays.values())
    one = compiled(decoder, None, 5)
    batch = DeviceBatch(space, backend._cpu, decoder.options, one)
    assert plan["utterances"] == sum(buffer.nbytes for buffer in batch._buffers)
    assert before - work.device.budget.left == plan["scratch"] + plan["utterances"]
    whole = decoder.memory_plan(5, 10)
    assert whole["logprobs"] == 5 * 10 * 20 * 4 and plan["logprobs"] == 0
    parts = ("graph", "scratch", "utterances", "logprobs")
    assert whole["total"] == sum(whole[name] for name in parts)
    assert decoder.memory_plan(2)["scratch"] < plan["scratch"]
    named = decoder.with_options()
    named._backend = backend._cpu
    with pytest.raises(BackendError, match="works in the host's memory"):
        named.memory_plan(1)


def test_what_it_leaves_to_the_cpu_is_an_error_that_names_it():
    rng = np.random.default_rng(1)
    decoder = large_decoder(rng, 20, 40, small_options(rng, beam_size=256))
    x, space = [spoken(rng, decoder, 4)], decoder._space
    decoder._backend = emulated(space)
    cpu = r"; use backend='cpu'$"
    with pytest.raises(OptionError, match="beam_size=257, expected at most 256" + cpu):
        decoder.with_options(beam_size=257).decode(x)
    with pytest.raises(OptionError, match="beam_size=257, .*" + cpu):
        decoder.with_options(beam_size=257).sessions().open()
    most = "nbest=128 with beam_size=256, expected nbest of at most 127" + cpu
    with pytest.raises(OptionError, match=most):
        decoder.with_options(nbest=128).decode_nbest(x)
    assert decoder.with_options(nbest=127).decode(x) is not None
    with pytest.raises(OptionError, match=r"a lattice or confidences, .*" + cpu):
        decoder.decode_lattice(x)
    with pytest.raises(OptionError, match=r"a lattice or confidences, .*" + cpu):
        decoder.decode(x, confidence=True)
    a, b = decoder.tokens.names[2:4]
    oov = [BoostEntry("added", [f"{a} {b}"], 1.0)]
    with pytest.raises(OptionError, match="OOV word 'added', expected none" + cpu):
        decoder.with_options(beam_size=8).decode(x, boosts=oov)
    arguments = {"tokens": decoder.tokens, "lexicon": decoder.lexicon, "separator": "|"}
    asked = TrieDecoder(
        **arguments,
        lm=Wrapped(decoder.lm),
        words=decoder.words,
        options=TrieOptions(lookahead="none"),
    )
    with pytest.raises(OptionError, match="a language model that is queried .*" + cpu):
        emulated(asked._space)
    opened = TrieDecoder(**arguments, open_vocabulary=OpenVocabulary(1.0, 1.0))
    with pytest.raises(OptionError, match="an open vocabulary, expected none" + cpu):
        emulated(opened._space)


def test_a_device_that_fails_says_what_was_done():
    rng = np.random.default_rng(1)
    decoder = large_decoder(rng, 20, 0, small_options(rng, beam_size=8))
    decoder._backend = emulated(decoder._space)
    decoder._backend.device_space.work(8).device.fail_after = 0
    with pytest.raises(DeviceError) as raised:
        decoder.decode([spoken(rng, decoder, 3)] * 2)
    assert set(raised.value.missing) == {0, 1} and raised.value.done == {}
