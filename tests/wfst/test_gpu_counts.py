"""Counts of a frame of the WFST search, taken in its PTX: they are no GPU's figures.

Beside them is what `tools/gpu/model.py` predicts. The kernels run in emulation, in PTX
that counts its instructions, its loads from global memory, how many of these wait for
each other, and barriers: a loop that grew is seen here before any GPU sees it.
"""

import ctypes
import shutil
from typing import NamedTuple

import numpy as np
import pytest
from cuda_emulation.device import EmulatedDevice, compile_ptx, load_library
from real_speech import speech_graph, utterances
from text_graphs import text_graph
from wfst_searches import NO_BOOSTS

from tools.gpu import model
from wfstdec import WfstOptions
from wfstdec.wfst.gpu.backend import DeviceBackend
from wfstdec.wfst.gpu.batch import DeviceBatch
from wfstdec.wfst.gpu.layout import PLAIN, PROGRAM

pytestmark = [
    pytest.mark.skipif(not shutil.which("g++"), reason="needs g++"),
    pytest.mark.nvrtc,
    pytest.mark.share,
]
SPREAD = 0.1
"""By which the counts of another NVRTC may differ."""


class Counts(NamedTuple):
    """Counts of a launch, or of a frame: `ptx::Told`."""

    instructions: float  # of all threads
    loads: float  # likewise, from global memory
    chain: float  # of these, each of which waits for the one before
    barriers: float


@pytest.fixture(scope="module")
def library():
    pytest.importorskip("cupy", reason="needs the extra `nvrtc`")
    return compile_ptx(PROGRAM.source(PLAIN.macros), counts=True)


def counts_of(library, graph, threads, options, x):
    """Counts of a launch over an utterance, and the work that it did."""
    device = EmulatedDevice(threads, 1, library=library, shared_slots=4096)
    backend = DeviceBackend(graph, device)
    batch = DeviceBatch(backend.device_graph, options, [NO_BOOSTS], [len(x)])
    told = (ctypes.c_uint64 * len(Counts._fields))()
    read = load_library(library).emulated_counts
    read(told)  # what others have left there
    batch.advance([x])
    assert device.launches == ["search_chunk"]
    read(told)
    return np.array(told, np.int64), batch.counts


@pytest.mark.parametrize(
    ("rank", "arcs", "chain"),
    [(0, "0 0 a A 1\n0 0", 18), (1, "0 1 a A 1\n1 0 - - 0\n0 0", 26)],
)
def test_a_frame_with_one_arc(library, rank, arcs, chain):
    graph = text_graph(arcs)
    several = [
        counts_of(library, graph, 64, WfstOptions(), np.zeros((frames, 3), np.float32))
        for frames in (10, 20)
    ]
    each = Counts(*((several[1][0] - several[0][0]) / 10).tolist())
    assert each.barriers == model.barriers(rank)
    assert each.chain == pytest.approx(chain, abs=1)


@pytest.mark.parametrize(
    ("threads", "chain", "loads", "instructions"),
    [(128, 30.4, 1_950, 110_000), (512, 27.0, 3_100, 356_000)],
)
def test_a_frame_of_speech(library, threads, chain, loads, instructions):
    """At beam 13 and 7000: means of 150 frames, in which 313 arcs are looked at."""
    x = np.ascontiguousarray(utterances(8)[2][:150])
    options = WfstOptions(beam=13.0, max_active=7000, lm_scale=0.8)
    graph = speech_graph("normal")
    sums, work = counts_of(library, graph, threads, options, x)
    each = Counts(*(sums / work["frames"]).tolist())
    assert work["looked"] / work["frames"] == pytest.approx(313, abs=1)
    ranks = 1.01
    assert each.barriers == pytest.approx(model.barriers(ranks), abs=0.05)
    assert each.chain == pytest.approx(chain, rel=SPREAD)
    assert each.loads == pytest.approx(loads, rel=SPREAD)
    assert each.instructions == pytest.approx(instructions, rel=SPREAD)
    # The prediction is of 1.3 ranks, by reading.
    assert each.chain < model.CHAIN < 1.3 * each.chain
