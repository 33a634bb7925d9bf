"""A search space on a device, with what all its batches share."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from wfstdec.boost.phrases import PhraseBoosts
from wfstdec.gpu.boosts import DevicePhrases, automaton_arrays
from wfstdec.gpu.device import Device
from wfstdec.gpu.launch import upload
from wfstdec.gpu.records import NONE
from wfstdec.gpu.scratch import ScratchLayout, ScratchPool
from wfstdec.jit.pool import Once
from wfstdec.trie.gpu import layout as d
from wfstdec.trie.search_space import SearchSpace

NARROWER = "lower beam_size or the beam"
"""The advice where scratch and traces take too much."""

FIRST_ENTRIES = 256
"""Entries of a frontier that scratch has room for at first."""
FormFor = Callable[[int, int], d.Form]


class Work:
    """Blocks of one form on a device: what runs them, and scratch of those not running.

    Args:
        device: Where.
        form: The form.
        num_tokens: V.
        first_entries: Entries of a frontier that scratch has room for at first.

    Attributes:
        device: The same.
        form: The same.
        scratch: Scratch that no launch is using.
    """

    def __init__(
        self, device: Device, form: d.Form, num_tokens: int, first_entries: int
    ) -> None:
        self.device, self.form = device, form
        layout = ScratchLayout(
            lambda entries: d.arrays_of(*_counts(entries, num_tokens).values()),
            partial(_counts, num_tokens=num_tokens),
        )
        self.scratch = ScratchPool(device, layout, first_entries, NARROWER)


class DeviceSpace:
    """A search space on a device; what batches share: scratch memory, phrases.

    Args:
        space: The space.
        make_device: Makes the device for blocks of a form.
        first_entries: Entries of frontiers that scratch has room for at first.
        form_for: Chooses the form for a beam size and a number of tokens.

    Attributes:
        space: The same.
        device: That of the smallest beam.
        phrases: Phrases that are on the device.
        num_bytes: What the space takes.

    Raises:
        DeviceMemoryError: The space does not fit.
    """

    def __init__(
        self,
        space: SearchSpace,
        make_device: Callable[[d.Form], Device],
        first_entries: int = FIRST_ENTRIES,
        form_for: FormFor = d.form_for,
    ) -> None:
        self.space, self._make, self._first = space, make_device, first_entries
        self._form_for = form_for
        self._works: dict[d.Form, Work] = {}
        self.device = device = self.work(1).device
        self.phrases: Once[PhraseBoosts, DevicePhrases]
        self.phrases = Once(partial(DevicePhrases, device))
        lexicon, automaton = _lexicon_arrays(space), automaton_arrays(space.automaton)
        arrays = [*lexicon.values(), *automaton.values()]
        self.num_bytes = sum(array.nbytes for array in arrays)
        self._share = device.budget.share(
            f"a trie of {space.trie.num_nodes} nodes and a language model of "
            f"{len(space.automaton.arc_cost)} n-grams",
            "prune the language model",
        )
        self._share.take(self.num_bytes)
        with device.on_stream(None):
            self._lexicon = {name: upload(device, x) for name, x in lexicon.items()}
            self._automaton = {name: upload(device, x) for name, x in automaton.items()}
            device.wait()

    def work(self, beam_size: int) -> Work:
        """Blocks of the form for a beam size; made once."""
        form = self._form_for(beam_size, self.space.num_tokens)
        if form not in self._works:
            made = self._make(form), form, self.space.num_tokens, self._first
            self._works[form] = Work(*made)
        return self._works[form]

    def fill_in(self, task: np.ndarray) -> None:
        """Set the fields of a TASK that say where the space is, and what it is."""
        space, automaton = self.space, self.space.automaton
        for name, array in self._lexicon.items():
            task["lexicon"][name] = self.device.address(array)
        for name, array in self._automaton.items():
            task["automaton"][name] = self.device.address(array)
        task["lexicon"]["uses_history"] = space.lookahead.uses_history
        task["automaton"]["num_labels"] = automaton.model_label_splits[1]
        task["automaton"]["default_cost"] = automaton.model_default_cost[0]
        task["start_state"] = automaton.model_start[0]
        for name in ("num_tokens", "blank", "start_node", "has_lexicon"):
            task[name] = getattr(space, name)
        task["separator"] = space.separator & NONE
        task["separator_optional"] = space.separator_optional
        task["word_floor"] = space.word_floor


def _counts(entries: int, num_tokens: int) -> dict[str, int]:
    """Entries, candidates and tokens of a block in global memory."""
    return {
        "entry_capacity": entries,
        "candidate_capacity": d.CANDIDATES_PER_ENTRY
        * (1 << (entries - 1).bit_length()),
        "token_capacity": num_tokens,
    }


def _lexicon_arrays(space: SearchSpace) -> dict[str, np.ndarray]:
    """The arrays of LEXICON."""
    trie, lookahead = space.trie, space.lookahead
    integers = {
        name: getattr(trie, name)
        for name in (
            *("node_child_splits", "child_token", "child_node"),
            *("node_pron_splits", "pron_word"),
        )
    }
    integers |= {"node_token": space.node_token, "root_child": space.root_child}
    integers |= {"row_splits": lookahead.row_splits, "row_node": lookahead.rows["node"]}
    arrays: dict[str, Any] = {"pron_cost": trie.pron_cost}
    arrays["row_cost"] = np.ascontiguousarray(lookahead.rows["cost"])
    for name in ("unigram_cost", "state_cost"):
        arrays[name] = getattr(lookahead, name)
    # -1 becomes `NONE`.
    unsigned = {
        name: x.astype(np.int64).astype(np.uint32) for name, x in integers.items()
    }
    return unsigned | arrays
