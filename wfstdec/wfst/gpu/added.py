"""Words that utterances add, where kernels can read them: once per list.

DeviceOverlay(device, overlay).record           # an OVERLAY, as `UTTERANCE` has it
of_batch = BatchOverlays(device_graph, boosts)  # a CompiledBoosts per utterance
of_batch.records, of_batch.read(...)            # up to the device, and paths back
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.gpu.device import Device
from wfstdec.gpu.launch import upload
from wfstdec.gpu.records import NONE
from wfstdec.graph.overlay import Overlay
from wfstdec.search.paths.label_path import PathTokens
from wfstdec.search.paths.traceback import read_paths, rule_of
from wfstdec.search.paths.traceback_kernels import Rule
from wfstdec.wfst.gpu import layout as d

if TYPE_CHECKING:
    from wfstdec.wfst.gpu.device_graph import DeviceGraph


class DeviceOverlay:
    """An overlay on a device.

    Args:
        device: Where.
        overlay: The overlay.

    Attributes:
        overlay: The same.
        record: An OVERLAY.

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
        # Before the copy: the error then names what is too large.
        self._share.take(sum(array.nbytes for array in arrays.values()))
        self._buffers = {name: upload(device, x) for name, x in arrays.items()}
        self.record = np.zeros((), d.OVERLAY)
        for name, buffer in self._buffers.items():
            self.record[name] = device.address(buffer)
        self.record["num_calls"] = len(overlay.call_state)
        for name in ("first_state", "first_arc", "num_entering"):
            self.record[name] = getattr(overlay, name)
        device.wait()  # the next to use it may be on another stream


class BatchOverlays:
    """The words that the utterances of a batch add; keeps them on the device.

    Args:
        device_graph: The graph on a device.
        boosts: Of each utterance.

    Attributes:
        overlays: Of each utterance; None where it adds no words.
        records: OVERLAY [B].

    Raises:
        DeviceMemoryError: They do not fit.
    """

    def __init__(
        self, device_graph: DeviceGraph, boosts: Sequence[CompiledBoosts]
    ) -> None:
        self._rule, stored = rule_of(device_graph.graph), device_graph.overlays
        with device_graph.device.on_stream(None):
            self._kept = [
                None if one.added is None else stored.of(one.added) for one in boosts
            ]
        self.overlays = [None if one is None else one.overlay for one in self._kept]
        self.records = np.zeros(len(boosts), d.OVERLAY)
        self.records["first_state"] = self.records["first_arc"] = NONE
        for i, one in enumerate(self._kept):
            if one is not None:
                self.records[i] = one.record

    @property
    def any(self) -> bool:
        """Tell whether any utterance adds words."""
        return any(one is not None for one in self.overlays)

    def rule(self, i: int) -> Rule:
        """How the arcs of utterance `i` are read."""
        overlay = self.overlays[i]
        return (
            self._rule if overlay is None else self._rule._replace(added=overlay.arcs)
        )

    def read(
        self, which: np.ndarray, steps: np.ndarray, first: np.ndarray, count: np.ndarray
    ) -> list[PathTokens]:
        """`read_paths` of the utterances `which`, each by its own rule."""
        groups: dict[int, list[int]] = {}  # those with the same words together
        for at, i in enumerate(which.tolist()):
            groups.setdefault(id(self.overlays[i]), []).append(at)
        said: dict[int, PathTokens] = {}
        for group in groups.values():
            rule = self.rule(int(which[group[0]]))
            read = read_paths(rule, steps, first[group], count[group])
            said.update(zip(group, read, strict=True))
        return [said[at] for at in range(len(which))]


def _state_arcs_of(overlay: Overlay) -> np.ndarray:
    """STATE_ARCS [S']; its epsilon arcs come from states of rank 0 alone."""
    splits = overlay.first_arc + overlay.state_arc_splits.astype(np.int64)
    states = np.zeros(overlay.num_states, d.STATE_ARCS)
    states["begin"], states["end"] = splits[:-1], splits[1:]
    states["emit"] = splits[:-1] + overlay.state_num_epsilons
    return states
