"""Counts of a frame of the trie search, taken in its PTX: they are no GPU's figures.

Beside them is what was predicted before any kernel was written. A loop that grew, or a
load that waits for one more, is seen here before any GPU sees it.
"""

import ctypes
import shutil
from typing import NamedTuple

import numpy as np
import pytest
from cuda_emulation.device import compile_ptx, load_library
from real_speech import utterances
from trie_devices import emulated, speech_decoder

from wfstdec import TrieOptions
from wfstdec.gpu.logprobs import FLOAT32
from wfstdec.trie.gpu.batch import DeviceBatch
from wfstdec.trie.gpu.layout import PHASES, Variant, form_for, program

pytestmark = [pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")]
SPREAD = 0.1
"""By which the counts of another NVRTC may differ."""
LOAD_US, BARRIER_US = 0.14, 0.025
"""Predicted, of a dependent load and of a block's barrier; see `tools/gpu/model.py`."""


class Counts(NamedTuple):
    """Counts of a launch, or of a frame: `ptx::Told`."""

    instructions: float  # of all threads
    loads: float  # likewise, from global memory
    chain: float  # of these, each of which waits for the one before
    barriers: float  # of a block; those of a warp are none


def batch_of(backend, decoder, x):
    """An utterance under way."""
    lists = decoder._boosts.compile(None, 1)
    space, cpu = backend.device_space, backend._cpu
    return DeviceBatch(space, cpu, decoder.options, lists, [len(x)])


@pytest.mark.parametrize(
    ("options", "active", "expected", "predicted_us"),
    [
        ({"beam": 8.0, "beam_size": 32}, 4.2, (24_700, 394, 20.1, 0), (1.5, 3)),
        (
            {"beam": 12.0, "beam_size": 128, "merge": "sum"},
            26.9,
            (176_000, 2_670, 41.1, 28.6),
            (3, 5),
        ),
    ],
)
@pytest.mark.nvrtc
@pytest.mark.share
def test_a_frame_of_speech(options, active, expected, predicted_us):
    """Means of 150 frames, of which a model made microseconds: loads and barriers."""
    pytest.importorskip("cupy", reason="needs the extra `nvrtc`")
    decoder = speech_decoder(TrieOptions(lm_scale=0.8, **options))
    threads = form_for(options["beam_size"], len(decoder.tokens)).threads
    source = program(threads).source(Variant(threads, FLOAT32).macros)
    library = compile_ptx(source, counts=True)
    backend = emulated(decoder._space, library=library, num_blocks=1)
    x = np.ascontiguousarray(utterances(8)[2][:150])
    batch = batch_of(backend, decoder, x)
    told = (ctypes.c_uint64 * len(Counts._fields))()
    read = load_library(library).emulated_counts
    read(told)  # what others have left there
    batch.advance([x])
    read(told)
    work = batch.counts
    each = Counts(*(np.array(told, np.int64) / work["frames"]).tolist())
    assert work["active"] / work["frames"] == pytest.approx(active, abs=0.1)
    assert work["shared"] == work["frames"], "all arrays in shared memory"
    for found, wanted in zip(each, expected, strict=True):
        assert found == pytest.approx(wanted, rel=SPREAD)
    # By this model, with all loads from L2; more than was predicted for a batch of 512.
    us = each.chain * LOAD_US + each.barriers * BARRIER_US
    assert predicted_us[0] < us < 1.5 * predicted_us[1]


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
