"""Counts of a frame of the trie search, taken in its PTX: they are no GPU's figures.

Beside them is what was predicted before any kernel was written. A loop that grew, or a
load that waits for one more, is seen here before any GPU sees it.
"""

import ctypes
import shutil

import numpy as np
import pytest
from cuda_emulation.device import compile_ptx, load_library
from real_speech import utterances
from trie_devices import emulated, speech_decoder

from tools.gpu.model import (
    BARRIER_US,
    INSTRUCTION_US,
    LOAD_US,
    TRIE_COUNTS,
    Counts,
    predicted_of_trie,
    trie_counts,
)
from wfstdec import TrieOptions
from wfstdec.gpu.logprobs import FLOAT32
from wfstdec.trie.gpu.batch import DeviceBatch
from wfstdec.trie.gpu.layout import NARROW, PHASES, WIDE, Variant, form_for, program

pytestmark = [pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")]
SPREAD = 0.1
"""By which the counts of another NVRTC may differ."""
MARKS = "".join(f'case {i}: asm volatile("pmevent {i};"); ' for i in range(len(PHASES)))
"""Ends of phases, in a build that only the emulation takes."""
MOST_PHASES = 16


def batch_of(backend, decoder, x):
    """An utterance under way."""
    lists = decoder._boosts.compile(None, 1)
    space, cpu = backend.device_space, backend._cpu
    return DeviceBatch(space, cpu, decoder.options, lists, [len(x)])


def marked(source):
    """Kernels whose threads all pass a mark at the end of each phase."""
    unmarked = "void end(u32) const {}"
    assert source.count(unmarked) == 1
    end = f"void end(u32 phase) const {{ switch (phase) {{ {MARKS} }} }}"
    return source.replace(unmarked, end)


def counted(options):
    """Work of a frame of speech, its loads, and its counts by phase: means of 150."""
    decoder = speech_decoder(TrieOptions(lm_scale=0.8, **options))
    threads = form_for(options["beam_size"], len(decoder.tokens)).threads
    source = marked(program(threads).source(Variant(threads, FLOAT32).macros))
    path = compile_ptx(source, counts=True)
    backend = emulated(decoder._space, library=path, num_blocks=1)
    x = np.ascontiguousarray(utterances(8)[2][:150])
    batch, library = batch_of(backend, decoder, x), load_library(path)
    told = (ctypes.c_uint64 * 4)()
    phases = (ctypes.c_uint64 * (MOST_PHASES * len(Counts._fields)))()
    for launch in (lambda: None, lambda: batch.advance([x])):  # what others left there
        launch()
        library.emulated_counts(told), library.emulated_phases(phases)
    work = batch.counts
    assert work["shared"] == work["frames"], "all arrays in shared memory"
    each = np.array(phases).reshape(MOST_PHASES, -1)[: len(PHASES)] / work["frames"]
    whole = Counts(*(np.array(told)[[0, 2, 3]] / work["frames"]).tolist())
    # Behind the last mark of all there is no more than the end of the launch.
    np.testing.assert_allclose(each.sum(0), whole, rtol=1e-3, atol=0.05)
    by_phase = dict(zip(PHASES, map(Counts._make, each.tolist()), strict=True))
    return threads, work["active"] / work["frames"], told[1] / work["frames"], by_phase


@pytest.mark.parametrize(
    ("options", "kept", "loads"),
    [
        ({"beam": 8.0, "beam_size": 32}, (NARROW, 0), 394),
        ({"beam": 12.0, "beam_size": 64, "merge": "sum"}, (NARROW, 1), 2_220),
        ({"beam": 8.0, "beam_size": 100}, (WIDE, 0), 496),
        ({"beam": 12.0, "beam_size": 128, "merge": "sum"}, (WIDE, 1), 2_670),
    ],
)
@pytest.mark.nvrtc
@pytest.mark.share
def test_a_frame_of_speech(options, kept, loads):
    """Counts that the model makes microseconds of, by phase."""
    pytest.importorskip("cupy", reason="needs the extra `nvrtc`")
    threads, active, found_loads, found = counted(options)
    of_threads, place = kept
    expected_active, expected = TRIE_COUNTS[of_threads][place]
    assert threads == of_threads
    assert active == pytest.approx(expected_active, abs=0.1)
    assert found_loads == pytest.approx(loads, rel=SPREAD)
    for phase, counts in expected.items():
        assert found[phase] == pytest.approx(counts, rel=SPREAD, abs=0.1), phase


@pytest.mark.nvrtc
@pytest.mark.share
def test_counts_between_those_that_are_kept():
    """Predictions of the model for settings that nobody counted."""
    pytest.importorskip("cupy", reason="needs the extra `nvrtc`")
    options = {"beam": 12.0, "beam_size": 64, "merge": "max"}
    threads, active, _, found = counted(options)
    expected = trie_counts(active, threads)
    found_us = {p: us_of(c, threads) for p, c in found.items()}
    expected_us = predicted_of_trie(active, threads)
    assert sum(found_us.values()) == pytest.approx(sum(expected_us.values()), rel=0.15)
    for phase in ("stay", "expand", "settle", "other"):
        assert found[phase] == pytest.approx(expected[phase], rel=0.15, abs=0.1)
    # One that is not added up is less.
    assert found["merge"].instructions < expected["merge"].instructions


def test_predictions_are_of_kept_counts():
    for threads, points in TRIE_COUNTS.items():
        for active, counts in points:
            assert tuple(counts) == PHASES
            made = {phase: us_of(one, threads) for phase, one in counts.items()}
            assert predicted_of_trie(active, threads) == pytest.approx(made, abs=1e-3)
    # What was predicted before a kernel was written, of a batch of 512: less.
    assert 3 < sum(predicted_of_trie(4.2, NARROW).values()) < 2 * 3
    assert 5 < sum(predicted_of_trie(26.9, WIDE).values()) < 2.5 * 5


def us_of(counts, threads):
    """Microseconds by the model's constants."""
    per_thread = counts.instructions / threads
    return (
        counts.chain * LOAD_US
        + counts.barriers * BARRIER_US
        + per_thread * INSTRUCTION_US
    )


def test_barriers_of_a_block_by_phase():
    """The clock of the emulation counts barriers of a block: the same in every run."""
    decoder = speech_decoder(TrieOptions(lm_scale=0.8, beam=8.0, beam_size=100))
    x = np.ascontiguousarray(utterances(8)[2][:40])
    sums = []
    for _ in range(2):
        backend = emulated(decoder._space, num_blocks=1)
        batch = batch_of(backend, decoder, x)
        batch.takes_times = True
        batch.advance([x])
        sums.append(batch.phase_times.astype(np.int64))
        assert batch.counts["frames"] == 40
    assert (sums[0] == sums[1]).all()
    each = dict(zip(PHASES, (sums[0] / 40).tolist(), strict=True))
    assert each["merge"] == 6 and each["rank"] == 2 and each["settle"] == 2
