"""Boosts for kernels: phrases uploaded once per list, words once per batch."""

from typing import Any

import numpy as np

from wfstdec.boost.compiled import WordBoosts
from wfstdec.boost.phrases import PhraseBoosts
from wfstdec.gpu.device import Device, DeviceArrays, Share, upload
from wfstdec.gpu.records import KERNELS, read_structs
from wfstdec.lm.automaton import Automaton

STRUCTS = read_structs(
    KERNELS / "boosts.cuh", **read_structs(KERNELS / "automaton.cuh")
)


def automaton_arrays(automaton: Automaton) -> dict[str, np.ndarray]:
    """Return the arrays of an `Automaton`, of an automaton of one model."""
    names = ("arc_cost", "backoff_cost", "final_cost")
    arrays = {name: getattr(automaton, name) for name in names}
    for name in ("state_arc_splits", "arc_label", "arc_next", "backoff_state"):
        arrays[name] = getattr(automaton, name).astype(np.int64).astype(np.uint32)
    return arrays | {"label_alias": automaton.label_alias.astype(np.uint32)}


class DevicePhrases:
    """Compiled phrases on a device."""

    def __init__(self, device: Device, phrases: PhraseBoosts) -> None:
        automaton = phrases.automaton
        self._arrays = DeviceArrays(
            device,
            automaton_arrays(automaton),
            f"a list of phrases of {phrases.num_arcs} arcs",
            "boost fewer phrases",
        )
        self.num_bytes = self._arrays.num_bytes
        record = np.zeros(1, STRUCTS["Phrases"])
        record["start"], record["of_tokens"] = phrases.start, phrases.unit == "token"
        self._arrays.fill_in(record["automaton"])
        record["automaton"]["num_labels"] = automaton.model_label_splits[1]
        record["automaton"]["default_cost"] = automaton.model_default_cost[0]
        self._record = upload(device, record)
        self.address = device.address(self._record)
        device.wait()  # the next user may be on another stream


def upload_words(
    device: Device, share: Share, words: WordBoosts
) -> tuple[np.ndarray, list[Any]]:
    """Return WORD_BONUSES [1] of a map, and the buffers with its addresses."""
    share.take(words.keys.nbytes + words.bonuses.nbytes)
    buffers = [upload(device, words.keys), upload(device, words.bonuses)]
    record = np.zeros(1, STRUCTS["WordBonuses"])
    record["keys"], record["bonuses"] = map(device.address, buffers)
    record["mask"] = len(words.keys) - 1
    return record, buffers
