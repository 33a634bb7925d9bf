"""Memory and counts of the CPU's search; for all decoders see `tests/conformance`."""

import numpy as np
from random_graphs import dense_graph
from wfst_searches import NO_BOOSTS, UNBOUNDED, bits, search

from wfstdec import WfstOptions
from wfstdec.wfst.cpu.backend import CpuBackend


def test_the_trace_stays_small_over_hours():
    """A path of a node or two per frame is all that has to be kept."""
    rng = np.random.default_rng(6)
    graph = dense_graph(rng)
    num_frames = 20_000
    x = np.log(rng.dirichlet([0.3] * 3, num_frames)).astype(np.float32)
    options = WfstOptions(beam=8.0)
    tight, roomy = CpuBackend(graph, first_capacity=1), CpuBackend(graph, 1 << 17)
    under_way = tight.start(options, NO_BOOSTS)
    for chunk in np.split(x, 400):
        under_way.advance(chunk)
    nodes_made = under_way.counts["active"]
    room = len(under_way._state.value.nodes)
    path = under_way.finish()
    assert nodes_made > 8 * num_frames
    assert room < 5 * num_frames
    assert bits(path) == bits(search(roomy, options, x))


def test_frames_and_work_are_counted_once_although_frames_are_done_again():
    rng = np.random.default_rng(7)
    graph = dense_graph(rng)
    x = np.log(rng.dirichlet([0.3] * 3, 50)).astype(np.float32)
    counts = []
    for capacity in (1, 4096):
        under_way = CpuBackend(graph, capacity).start(UNBOUNDED, NO_BOOSTS)
        under_way.advance(x)
        counts.append(under_way.counts)
    assert counts[0] == counts[1]
    assert counts[0]["frames"] == 50
    assert counts[0]["active"] <= 50 * graph.num_states
