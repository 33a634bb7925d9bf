"""Words that utterances add, where kernels can read them: once per list.

store = OverlayStore(graph, device)
store.get(added).record                # OVERLAY [1], as `UTTERANCE` has it
"""

from __future__ import annotations

import threading
from weakref import WeakKeyDictionary

import numpy as np

from wfstdec.boost.added import AddedWords
from wfstdec.gpu.device import Device
from wfstdec.gpu.launch import upload
from wfstdec.gpu.records import NONE
from wfstdec.graph.overlay import Overlay
from wfstdec.graph.packed import PackedGraph
from wfstdec.wfst.added import Overlays
from wfstdec.wfst.gpu import layout as d


class DeviceOverlay:
    """An overlay on a device.

    Args:
        device: Where.
        overlay: The overlay.

    Attributes:
        overlay: The same.
        record: OVERLAY [1].

    Raises:
        DeviceMemoryError: It does not fit.
    """

    def __init__(self, device: Device, overlay: Overlay) -> None:
        arrays = {
            "arcs": overlay.arcs,
            "bonus": overlay.bonus,
            "states": _state_arcs_of(overlay),
            "call_state": overlay.call_state.astype(np.uint32),
        }
        self.overlay = overlay
        self._share = device.budget.share(
            f"added words of {len(overlay.arcs)} arcs", "add fewer words"
        )
        self._share.take(sum(array.nbytes for array in arrays.values()))
        self._buffers = {name: upload(device, x) for name, x in arrays.items()}
        self.record = np.zeros(1, d.OVERLAY)
        for name, buffer in self._buffers.items():
            self.record[name] = device.address(buffer)
        self.record["num_calls"] = len(overlay.call_state)
        for name in ("first_state", "first_arc", "num_entering"):
            self.record[name] = getattr(overlay, name)
        device.wait()  # the next to use it may be on another stream


class OverlayStore:
    """The overlays of a graph on a device; each list once for all batches that have it.

    Args:
        graph: The graph.
        device: The device.
    """

    def __init__(self, graph: PackedGraph, device: Device) -> None:
        self._overlays, self._device = Overlays(graph), device
        self._lock = threading.Lock()
        self._stored: WeakKeyDictionary[AddedWords, DeviceOverlay]
        self._stored = WeakKeyDictionary()

    def get(self, added: AddedWords) -> DeviceOverlay:
        """The overlay of some words.

        Raises:
            DeviceMemoryError: It does not fit.
        """
        with self._lock:
            if added not in self._stored:
                overlay = self._overlays.of(added)
                self._stored[added] = DeviceOverlay(self._device, overlay)
            return self._stored[added]


def no_overlay() -> np.ndarray:
    """OVERLAY [1] of an utterance that adds no words."""
    record = np.zeros(1, d.OVERLAY)
    record["first_state"] = record["first_arc"] = NONE
    return record


def _state_arcs_of(overlay: Overlay) -> np.ndarray:
    """STATE_ARCS [S']; its epsilon arcs come from states of rank 0 alone."""
    splits = overlay.first_arc + overlay.state_arc_splits.astype(np.int64)
    states = np.zeros(overlay.num_states, d.STATE_ARCS)
    states["begin"], states["end"] = splits[:-1], splits[1:]
    states["emit"] = splits[:-1] + overlay.state_num_epsilons
    return states
