"""A graph on a device, with what all its batches share."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from wfstdec.boost.phrases import PhraseBoosts
from wfstdec.gpu.boosts import DevicePhrases
from wfstdec.gpu.device import Device
from wfstdec.gpu.launch import upload
from wfstdec.gpu.scratch import ScratchPool
from wfstdec.graph.packed import PackedGraph
from wfstdec.jit.pool import Once
from wfstdec.text.vocabulary import OovWords
from wfstdec.wfst.boost_support import overlay_of
from wfstdec.wfst.gpu import layout as d
from wfstdec.wfst.gpu.added import DeviceOverlay
from wfstdec.wfst.gpu.memory import NARROWER, SCRATCH


class DeviceGraph:
    """A graph on a device; what batches share: scratch memory, phrases, added words.

    Args:
        graph: The graph.
        device: Where it goes.
        first_capacity: Entries that frontiers hold at first; they grow.

    Attributes:
        graph: The same.
        device: The same.
        scratch: Scratch that no launch is using.
        phrases: Phrases that are on the device.
        overlays: Added words that are on the device.
        num_bytes: What the graph takes.

    Raises:
        DeviceMemoryError: The graph does not fit.
    """

    def __init__(self, graph: PackedGraph, device: Device, first_capacity: int) -> None:
        self.graph, self.device = graph, device
        self.scratch = ScratchPool(device, SCRATCH, first_capacity, NARROWER)
        self.phrases: Once[PhraseBoosts, DevicePhrases]
        self.phrases = Once(partial(DevicePhrases, device))
        self.overlays: Once[OovWords, DeviceOverlay] = Once(
            lambda added: DeviceOverlay(device, overlay_of(graph, added))
        )
        arrays = {
            "arcs": graph.arcs,
            "states": d.state_arcs_of(graph),
            "final_cost": graph.final_cost,
        }
        self.num_bytes = sum(array.nbytes for array in arrays.values())
        self._share = device.budget.share(
            f"a graph of {graph.num_arcs} arcs", "prune its language model"
        )
        self._share.take(self.num_bytes)
        with device.on_stream(None):
            self.arrays: dict[str, Any] = {
                name: upload(device, array) for name, array in arrays.items()
            }
            device.wait()

    def fill_in(self, task: np.ndarray) -> None:
        """Set the fields of a TASK that say where the graph is."""
        for name, array in self.arrays.items():
            task[name] = self.device.address(array)
