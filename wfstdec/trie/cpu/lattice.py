"""The CPU search that records a lattice: `CpuSearch`, with arcs noted as it goes.

What it notes is pruned whenever arrays are full, and they grow only where that frees
less than half: they stay a small multiple of the lattice itself.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from wfstdec.boost.compile import CompiledBoosts
from wfstdec.trie.cpu import arrays as k
from wfstdec.trie.cpu import lattice_kernels as recording
from wfstdec.trie.cpu.backend import CpuBackend, CpuSearch
from wfstdec.trie.cpu.final import accepted_endings, unfinished_endings
from wfstdec.trie.lattice_pack import Recorded, RecordedArcs, RecordedEntries
from wfstdec.trie.options import TrieOptions

FIRST_ARCS = 1 << 15
"""Room for so many arcs at first, and for a quarter as many places."""


class RecordingSearch(CpuSearch):
    """The search of one utterance: `advance` any number of times, then `record`."""

    _record: k.Record

    def __init__(
        self,
        backend: CpuBackend,
        options: TrieOptions,
        boosts: CompiledBoosts,
        capacity: int,
        first_arcs: int = FIRST_ARCS,
    ) -> None:
        super().__init__(backend, replace(options, nbest=1), boosts, capacity)
        limit = np.float32(options.beam_of_lattice)
        self._record = _new_record(first_arcs, max(1, first_arcs // 4), limit)
        first, place = self._utterance.frontier[0], self._record.places[:1]
        for name in ("cost", "lookahead_cost", "state", "node", "boost", "spelling"):
            place[name] = first[name]
        place["frame"] = place["nonblank_first"] = 0
        self._record.counts[:] = 0, 1, 0

    def record(self) -> Recorded:
        """End the utterance; the search cannot be used afterwards."""
        record, ends = self._record, self._ends()
        by_state = np.full(2 * self._utterance.counts[k.FRONTIER], np.inf, np.float32)
        np.minimum.at(by_state, 2 * ends["entry"] + ends["phase"], ends["cost"])
        recording.spread(record, by_state)
        first = record.counts[k.FIRST]
        recording.keep(record)
        ends["entry"] = record.number[first + ends["entry"]]
        arcs = self._answered(lambda search: recording.gather(search, record, ends))
        places = record.places[: record.counts[k.NUM_PLACES]]
        names = ("frame", "cost", "node", "boost", "spelling")
        columns = {name: places[name].copy() for name in names}
        return Recorded(
            self.finish()[0],
            RecordedEntries(
                nonblank_first=places["nonblank_first"] != 0,
                state=self._lm.orders(places["state"].copy()),
                **columns,
            ),
            RecordedArcs(*arcs),
        )

    def _ends(self) -> np.ndarray:
        """The ends within the limit, ENDING [N]; their costs are excess."""
        utterance, ends = self._utterance, np.zeros(0, k.ENDING)
        if utterance.counts[k.DIED] < 0:
            ends = self._answered(lambda search: accepted_endings(search, utterance))
        if not (ends["cost"] < np.inf).any():
            ends = unfinished_endings(self._search, utterance)
        ends = ends[ends["cost"] < np.inf]
        ends["cost"] -= ends["cost"].min()
        return ends[ends["cost"] <= self._record.limit]

    def _grow(self, status: int, scratch: k.Scratch) -> k.Scratch:
        """Enlarge what a kernel found too small; returns the scratch to go on with."""
        if status == k.GROW_NOTED:
            self._make_room(2 * len(scratch.candidates), len(self._utterance.frontier))
            return scratch
        return super()._grow(status, scratch)

    def _make_room(self, arcs: int, places: int) -> None:
        """Prune; lengthen what that leaves more than half full."""
        record, counts = self._record, self._record.counts
        recording.prune(record, self._utterance.counts[k.FRONTIER])
        needed = 2 * (int(counts[k.NUM_ARCS]) + arcs)
        if needed > len(record.arcs):
            record = record._replace(arcs=_longer(record.arcs, needed))
        needed = 2 * (int(counts[k.NUM_PLACES]) + places)
        if needed > len(record.places):
            record = record._replace(
                places=_longer(record.places, needed),
                extra=np.empty(2 * needed, np.float32),
                number=np.empty(needed, np.int32),
            )
        self._record = record


def _new_record(arcs: int, places: int, limit: np.float32) -> k.Record:
    return k.Record(
        arcs=np.empty(arcs, k.NOTED),
        places=np.zeros(places, k.PLACE),
        counts=np.zeros(3, np.int64),
        limit=limit,
        extra=np.empty(2 * places, np.float32),
        number=np.empty(places, np.int32),
    )


def _longer(array: np.ndarray, size: int) -> np.ndarray:
    longer = np.zeros(size, array.dtype)
    longer[: len(array)] = array
    return longer
