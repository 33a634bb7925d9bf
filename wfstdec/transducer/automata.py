"""Automata with back-off in torch: language models and boosts, looked up in batches.

    lm = TorchNgramLM(ngram_lm)                        # what the field calls NGPU-LM
    costs, nextstates = lm(states)                     # of all labels, [N, L] each
    costs, nextstates = lm.step(states, labels)        # of one label each, [N] each
    total += lm.final(states)

The numbers are those of `lm.kernels`, bit for bit, on any device. A state's row is the
root's, overwritten by the arcs of ever longer histories:

    costs[:] = b1 + b2 + ... + root's row
    ...
    costs[labels of the link] = b1 + its arcs
    costs[labels of the state] = its arcs

On the CPU the kernels of `wfstdec.lm.kernels` do the same faster, as a custom operator;
all shapes depend on N and L alone, so that both can be traced and exported.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor, library, nn

from wfstdec.boost.phrases import PhraseBoosts
from wfstdec.errors import OptionError
from wfstdec.lm.automaton import NULL_AUTOMATON, Automaton, BackoffModel, frozen
from wfstdec.lm.ngram import NgramLM

_SPLIT_ARRAYS = {"state_arc_splits": "arc_cost", "model_label_splits": "label_alias"}
"""Arrays of splits, and those that they split."""
_HANDLES = itertools.count()
_MODULES: WeakValueDictionary[int, TorchBackoff] = WeakValueDictionary()
"""Modules by handle: operators of torch are given numbers and tensors alone."""


class TorchBackoff(nn.Module):
    """Models over the same labels together, and one that costs nothing."""

    # States are integers [N] and identify the model too; next states are int32, costs
    # float32, nats.

    # int64 [models + 1], where each begins; the last one is where all labels cost
    # nothing
    start: Tensor
    final_cost: Tensor

    def __init__(self, models: Sequence[BackoffModel]) -> None:
        super().__init__()
        sizes = {model.num_labels for model in models}
        if len(sizes) != 1:
            raise OptionError(f"models over {sorted(sizes)} labels, expected one size")
        (self.num_labels,) = sizes
        parts = [model.automaton for model in models]
        automaton, self._model_of_state = combined([*parts, NULL_AUTOMATON])
        self._models = BackoffModel(automaton, "token", self.num_labels)
        self._register()
        self._tables: BackoffTables | None = None
        self.register_buffer("start", _long(automaton.model_start))
        self.register_buffer("final_cost", torch.tensor(automaton.final_cost))

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take a copy's or a pickle's state: a handle belongs to one module alone."""
        super().__setstate__(state)
        self._register()

    def _register(self) -> None:
        self._handle = next(_HANDLES)
        _MODULES[self._handle] = self

    def forward(self, states: Any) -> tuple[Any, Any]:
        """Costs and next states of all labels, [N, L] each; of a tensor or an array."""
        # Arrays stay arrays: operators of torch take longer than kernels.
        if isinstance(states, np.ndarray):
            return self._models.row_batch(states, self._model_of_state[states])
        if states.device.type == "cpu":
            return _cpu_rows(self._handle, states, self.num_labels)
        return self.tables.rows(states)

    def step(self, states: Any, labels: Any) -> tuple[Any, Any]:
        """The cost of one label in each state, and where it leads, [N] each."""
        if isinstance(states, np.ndarray):
            given = states, labels, self._model_of_state[states]
            return self._models.step_batch(*given)
        if states.device.type == "cpu":
            return _cpu_steps(self._handle, states, labels)
        return self.tables.step(states, labels)

    def final(self, states: Tensor) -> Tensor:
        """The costs of ending, [N]: `</s>`, or the refund of an incomplete phrase."""
        return self.final_cost[states.long()]

    @property
    def tables(self) -> BackoffTables:
        """Tables that devices without kernels of ours look up, where this module is."""
        if self._tables is None:
            tables = BackoffTables(self._models, self._model_of_state)
            self._tables = tables.to(self.start.device)
        return self._tables


class TorchNgramLM(TorchBackoff):
    """An n-gram model in torch; `start[0]` is the history `<s>`."""

    def __init__(self, lm: NgramLM) -> None:
        super().__init__([lm])


class BackoffTables(nn.Module):
    """Arrays of a model laid out for torch's own operations."""

    alias: Tensor
    begin: Tensor
    count: Tensor
    arc_key: Tensor
    arc_label: Tensor
    arc_next: Tensor
    arc_cost: Tensor
    link: Tensor
    link_cost: Tensor
    root_row: Tensor
    root_cost: Tensor
    root_next: Tensor

    def __init__(self, models: BackoffModel, model_of_state: np.ndarray) -> None:
        super().__init__()
        automaton = models.automaton
        is_root = automaton.backoff_state < 0
        counts = np.where(is_root, 0, np.diff(automaton.state_arc_splits))
        # How many links lead from any state to its root at most.
        depth, at = 0, automaton.backoff_state
        while (at >= 0).any():
            at = np.where(at < 0, -1, automaton.backoff_state[at])
            depth += 1
        self.depth = depth
        self.width = int(counts.max())
        roots = np.flatnonzero(is_root)
        # Labels on arcs, and the one that each label counts as, the last for `<unk>`.
        count = len(automaton.label_alias)
        size, alias = models.num_labels, np.arange(models.num_labels)
        if count:
            known = automaton.label_alias[:size]
            alias = np.pad(known, (0, size - len(known)), constant_values=count)
            size = count + 1
        whole = replace(models, num_labels=size)
        root_cost, root_next = whole.row_batch(roots, model_of_state[roots])
        root_row = np.zeros(len(is_root), np.int64)
        root_row[roots] = np.arange(len(roots))
        source = np.repeat(np.arange(len(counts)), np.diff(automaton.state_arc_splits))
        keys = source * np.int64(size) + automaton.arc_label
        self.size = size
        states = np.arange(len(is_root))
        link = np.where(is_root, states, automaton.backoff_state)
        arrays = {
            "alias": alias,
            "begin": automaton.state_arc_splits[:-1],
            "count": counts,
            "arc_key": np.append(keys, np.iinfo(np.int64).max),
            "arc_label": np.append(automaton.arc_label, size),
            "arc_next": np.append(automaton.arc_next, 0).astype(np.int32),
            "arc_cost": np.append(automaton.arc_cost, np.float32(0)),
            "link": link,
            "link_cost": automaton.backoff_cost,
            "root_row": root_row,
            "root_cost": root_cost,
            "root_next": root_next,
        }
        for name, array in arrays.items():
            keep = array.dtype == np.float32 or name in ("arc_next", "root_next")
            tensor = torch.from_numpy(np.array(array)) if keep else _long(array)
            self.register_buffer(name, tensor)

    def _chain(
        self, states: Tensor
    ) -> tuple[list[tuple[Tensor, Tensor]], Tensor, Tensor]:
        """The way to the root: its states, the root's row, costs of getting there."""
        total, chain = torch.zeros_like(self.link_cost[states]), []
        for _ in range(self.depth):
            chain.append((states, total))
            total = total + self.link_cost[states]
            states = self.link[states]
        return chain, self.root_row[states], total

    def rows(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Implement `TorchBackoff.forward`."""
        states = states.long()
        chain, root, total = self._chain(states)
        spare = self.root_cost.new_zeros(len(states), 1)
        costs = torch.cat([total[:, None] + self.root_cost[root], spare], 1)
        nextstates = torch.cat([self.root_next[root], spare.int()], 1)
        arange = torch.arange(self.width, device=states.device)
        # The root's row first, longer histories over it.
        for at, paid in reversed(chain):
            inside = arange < self.count[at][:, None]
            arcs = torch.where(inside, self.begin[at][:, None] + arange, -1)
            labels = self.arc_label[arcs]  # the last arc is the spare one
            costs.scatter_(1, labels, paid[:, None] + self.arc_cost[arcs])
            nextstates.scatter_(1, labels, self.arc_next[arcs])
        return costs[:, self.alias], nextstates[:, self.alias]

    def step(self, states: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Implement `TorchBackoff.step`."""
        states, labels = states.long(), self.alias[labels.long()]
        chain, root, total = self._chain(states)
        costs = total + self.root_cost[root, labels]
        nextstates = self.root_next[root, labels]
        # From the root up: the longest history that has the label wins.
        for at, paid in reversed(chain):
            keys = at * self.size + labels
            arcs = torch.searchsorted(self.arc_key, keys)
            found = (self.arc_key[arcs] == keys) & (self.count[at] > 0)
            costs = torch.where(found, paid + self.arc_cost[arcs], costs)
            nextstates = torch.where(found, self.arc_next[arcs], nextstates)
        return costs, nextstates


def combined(automata: Sequence[Automaton]) -> tuple[Automaton, np.ndarray]:
    """All models in one set of arrays, and the model of each state, int32 [S]."""
    parts = {name: [getattr(a, name) for a in automata] for name in Automaton._fields}
    first = {name: np.cumsum([0, *map(len, given)]) for name, given in parts.items()}
    for name in ("arc_next", "backoff_state", "model_start"):
        # A root backs off to -1, which no offset may move.
        pairs = zip(parts[name], first["final_cost"], strict=False)
        parts[name] = [np.where(part < 0, -1, part + at) for part, at in pairs]
    for name, inner in _SPLIT_ARRAYS.items():
        pairs = zip(parts[name], first[inner], strict=False)
        parts[name] = [*(part[:-1] + at for part, at in pairs), first[inner][-1:]]
    arrays = {name: np.concatenate(given) for name, given in parts.items()}
    models = np.arange(len(automata), dtype=np.int32)
    return frozen(Automaton(**arrays)), np.repeat(models, np.diff(first["final_cost"]))


def _long(array: np.ndarray) -> Tensor:
    return torch.from_numpy(np.array(array, np.int64))


@library.custom_op("wfstdec::backoff_rows", mutates_args=(), device_types="cpu")
def _cpu_rows(handle: int, states: Tensor, num_labels: int) -> tuple[Tensor, Tensor]:
    """Call the module of a handle."""
    costs, nextstates = _MODULES[handle](states.numpy())
    return torch.from_numpy(costs), torch.from_numpy(nextstates)


@_cpu_rows.register_fake
def _(handle: int, states: Tensor, num_labels: int) -> tuple[Tensor, Tensor]:
    costs = states.new_empty(len(states), num_labels, dtype=torch.float32)
    return costs, torch.empty_like(costs, dtype=torch.int32)


@library.custom_op("wfstdec::backoff_steps", mutates_args=(), device_types="cpu")
def _cpu_steps(handle: int, states: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Call `step` of the module of a handle."""
    costs, nextstates = _MODULES[handle].step(states.numpy(), labels.numpy())
    return torch.from_numpy(costs), torch.from_numpy(nextstates)


@_cpu_steps.register_fake
def _(handle: int, states: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    costs = states.new_empty(len(states), dtype=torch.float32)
    return costs, torch.empty_like(costs, dtype=torch.int32)


MAX_FLAT_ARCS = 20_000_000
"""Lists that would have more arcs keep their links."""


class TorchPhrases(TorchBackoff):
    """The lists of a batch; equal objects are laid out once.

    Args:
        lists: Phrases of tokens, or None, for each utterance; at least one is a list.
        flat: Leave one link to each state. None does where the device is no CPU.

    Attributes:
        model_of_list: int64 [B], which of `start` is an utterance's.
    """

    model_of_list: Tensor

    def __init__(
        self, lists: Sequence[PhraseBoosts | None], flat: bool = False
    ) -> None:
        different = {id(one): one for one in lists if one is not None}
        models = [flattened(one) if flat else one for one in different.values()]
        super().__init__(models)
        number = {key: i for i, key in enumerate(different)}
        of_list = [number.get(id(one), len(number)) for one in lists]
        self.register_buffer("model_of_list", torch.tensor(of_list))


def flattened(phrases: PhraseBoosts) -> PhraseBoosts:
    """Flatten links, at most one from any state to the root; costs bit for bit."""
    a = phrases.automaton
    splits, link = a.state_arc_splits, a.backoff_state
    source = at = np.arange(phrases.num_states)
    total, link_cost = np.zeros((2, len(at)), np.float32)
    found, num_arcs = [], 0  # longer histories first: keys, arcs, costs
    while len(at):
        counts = splits[at + 1] - splits[at]
        num_arcs += int(counts.sum())
        # Links then stay as they are: slower, but in memory.
        if num_arcs > MAX_FLAT_ARCS:
            return phrases
        before = np.repeat(splits[at] - np.cumsum(counts) + counts, counts)
        arcs = before + np.arange(len(before))
        keys = np.repeat(source, counts) * np.int64(phrases.num_labels)
        # In the order in which a walk over the links would add.
        costs = np.repeat(total, counts) + a.arc_cost[arcs]
        found.append((keys + a.arc_label[arcs], arcs, costs))
        inner = link[at] >= 0
        source, at, total = source[inner], at[inner], total[inner]
        total, at = total + a.backoff_cost[at], link[at]
        link_cost[source] = total
        inner = link[at] >= 0
        source, at, total = source[inner], at[inner], total[inner]
    keys, arcs, costs = map(np.concatenate, zip(*found, strict=True))
    # The longest history that has a label counts, which comes first.
    keys, which = np.unique(keys, return_index=True)
    ends = np.arange(phrases.num_states + 1) * np.int64(phrases.num_labels)
    flat = a._replace(
        state_arc_splits=np.searchsorted(keys, ends),
        arc_label=keys % phrases.num_labels,
        arc_next=a.arc_next[arcs[which]],
        arc_cost=costs[which],
        backoff_state=np.where(link < 0, -1, 0),
        backoff_cost=link_cost,
    )
    return replace(phrases, automaton=frozen(flat))
