"""A graph and OOV words on a device, shared by all batches.

graph = DeviceGraph(graph, device, first_capacity)
of_batch = BatchOverlays(graph, boosts)         # a CompiledBoosts per utterance
of_batch.records, of_batch.read(...)            # what kernels read; paths back
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.boost.phrases import PhraseBoosts
from wfstdec.gpu.boosts import DevicePhrases
from wfstdec.gpu.device import Device, DeviceArrays, ScratchPool
from wfstdec.gpu.records import NONE
from wfstdec.graph.overlay import Overlay
from wfstdec.graph.packed import PackedGraph
from wfstdec.jit.records import WeakCache
from wfstdec.search.paths.tokens import PathTokens
from wfstdec.search.paths.traceback import Rule, read_paths, rule_of
from wfstdec.text.vocabulary import OovWords
from wfstdec.wfst.boost_support import overlay_of
from wfstdec.wfst.gpu import layout as d
from wfstdec.wfst.gpu.layout import NARROWER, SCRATCH


class DeviceOverlay:
    """An overlay on a device; `record`: an OVERLAY."""

    def __init__(self, device: Device, overlay: Overlay) -> None:
        arrays = {
            "arcs": overlay.arcs,
            "bonus": overlay.bonus,
            "states": _state_arcs_of(overlay),
            "call_state": overlay.exit_state.astype(np.uint32),
        }
        self.overlay = overlay
        self._arrays = DeviceArrays(
            device,
            arrays,
            f"added words of {len(overlay.arcs)} arcs",
            "add fewer words",
        )
        self.num_bytes = self._arrays.num_bytes
        self.record = np.zeros((), d.OVERLAY)
        self._arrays.fill_in(self.record)
        self.record["num_calls"] = len(overlay.exit_state)
        for name in ("first_state", "first_arc"):
            self.record[name] = getattr(overlay, name)
        self.record["num_entering"] = overlay.num_entry_arcs


class BatchOverlays:
    """Overlays of the utterances of a batch, kept on the device.

    Attributes:
        overlays: Of each utterance, or None.
        records: OVERLAY [B].
    """

    def __init__(
        self, device_graph: DeviceGraph, boosts: Sequence[CompiledBoosts]
    ) -> None:
        self._rule, stored = rule_of(device_graph.graph), device_graph.overlays
        with device_graph.device.on_stream(None):
            self._kept = [
                None if one.oov is None else stored.of(one.oov) for one in boosts
            ]
        self.overlays = [None if one is None else one.overlay for one in self._kept]
        self.records = np.zeros(len(boosts), d.OVERLAY)
        self.records["first_state"] = self.records["first_arc"] = NONE
        for i, one in enumerate(self._kept):
            if one is not None:
                self.records[i] = one.record

    @property
    def any(self) -> bool:
        """Tell whether any utterance has OOV words."""
        return any(one is not None for one in self.overlays)

    def rule(self, i: int) -> Rule:
        """How the arcs of utterance `i` are read."""
        overlay = self.overlays[i]
        return self._rule if overlay is None else self._rule._replace(oov=overlay.arcs)

    def read(
        self, which: np.ndarray, steps: np.ndarray, first: np.ndarray, count: np.ndarray
    ) -> list[tuple[PathTokens, float, float]]:
        """`read_paths` of the utterances `which`, each by its own rule."""
        groups: dict[int, list[int]] = {}  # utterances with the same words together
        for at, i in enumerate(which.tolist()):
            groups.setdefault(id(self.overlays[i]), []).append(at)
        tokens: dict[int, tuple[PathTokens, float, float]] = {}
        for group in groups.values():
            rule = self.rule(int(which[group[0]]))
            read = read_paths(rule, steps, first[group], count[group])
            tokens.update(zip(group, read, strict=True))
        return [tokens[at] for at in range(len(which))]


def _state_arcs_of(overlay: Overlay) -> np.ndarray:
    """STATE_ARCS [S']; its epsilon arcs come from states of rank 0 alone."""
    splits = overlay.first_arc + overlay.state_arc_splits.astype(np.int64)
    states = np.zeros(overlay.num_states, d.STATE_ARCS)
    states["begin"], states["end"] = splits[:-1], splits[1:]
    states["emit"] = splits[:-1] + overlay.state_num_epsilons
    return states


class DeviceGraph:
    """A graph on a device, and what batches share.

    Attributes:
        scratch: Scratch memory that no launch uses.
        phrases: Phrases on the device.
        overlays: OOV words on the device.
        num_bytes: Size of the graph.
        fill_in: Sets the fields of a TASK that locate the graph.
    """

    def __init__(self, graph: PackedGraph, device: Device, first_capacity: int) -> None:
        self.graph, self.device = graph, device
        self.scratch = ScratchPool(device, SCRATCH, first_capacity, NARROWER)
        self.phrases: WeakCache[PhraseBoosts, DevicePhrases]
        self.phrases = WeakCache(partial(DevicePhrases, device))
        self.overlays: WeakCache[OovWords, DeviceOverlay] = WeakCache(
            lambda oov: DeviceOverlay(device, overlay_of(graph, oov))
        )
        arrays = {
            "arcs": graph.arcs,
            "states": d.state_arcs_of(graph),
            "final_cost": graph.final_cost,
        }
        self._arrays = DeviceArrays(
            device,
            arrays,
            f"a graph of {graph.num_arcs} arcs",
            "prune its language model",
        )
        self.num_bytes, self.fill_in = self._arrays.num_bytes, self._arrays.fill_in
