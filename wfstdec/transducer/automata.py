"""Back-off automata in torch: batched look-up of language models and boosts.

    lm = TorchNgramLM(ngram_lm)                        # also called NGPU-LM
    costs, nextstates = lm(states)                     # of all labels, [N, L] each
    costs, nextstates = lm.step(states, labels)        # of one label each, [N] each
    total += lm.final(states)

The numbers are bit-identical to those of `lm.kernels` on any device. A state's row is
the root's, overwritten by the arcs of ever longer histories:

    costs[:] = b1 + b2 + ... + root's row
    ...
    costs[labels of the link] = b1 + its arcs
    costs[labels of the state] = its arcs

On the CPU the kernels of `wfstdec.lm.kernels` do the same faster. Shapes depend only on
N and L, so that torch's operations can be traced and exported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from wfstdec.boost.phrases import PhraseBoosts
from wfstdec.errors import OptionError
from wfstdec.lm import kernels
from wfstdec.lm.automaton import NULL_AUTOMATON, Automaton, BackoffModel, frozen
from wfstdec.lm.ngram import NgramLM

_SPLIT_ARRAYS = {"state_arc_splits": "arc_cost", "model_label_splits": "label_alias"}
"""Arrays of splits, and the arrays that they split."""


class TorchBackoff(nn.Module):
    """Several models over the same labels, and one without costs."""

    # States are integers [N] that also identify the model; next states are int32, costs
    # float32, nats.

    # int64 [models + 1], the first state of each; the last model costs nothing
    start: Tensor
    final_cost: Tensor

    def __init__(self, models: Sequence[BackoffModel]) -> None:
        super().__init__()
        sizes = {model.num_labels for model in models}
        if len(sizes) != 1:
            raise OptionError(f"models over {sorted(sizes)} labels, expected one size")
        (self.num_labels,) = sizes
        parts = [model.automaton for model in models]
        self._automaton, self._model_of_state = combined([*parts, NULL_AUTOMATON])
        self._tables: BackoffTables | None = None
        self.register_buffer("start", _long(self._automaton.model_start))
        self.register_buffer("final_cost", torch.tensor(self._automaton.final_cost))

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make the arrays of a pickle read-only again, as the kernels require."""
        super().__setstate__(state)
        self._automaton = frozen(self._automaton)

    def forward(self, states: Any) -> tuple[Any, Any]:
        """Return costs and next states of all labels, [N, L] each."""
        if _is_symbolic(states):
            return self.tables.rows(states)
        return self._queried(kernels.rows, states)

    def step(self, states: Any, labels: Any) -> tuple[Any, Any]:
        """Return the cost of one label in each state, and its next state, [N] each."""
        if _is_symbolic(states):
            return self.tables.step(states, labels)
        return self._queried(kernels.steps, states, labels)

    def _queried(self, kernel: Any, *given: Any) -> tuple[Any, Any]:
        states, *labels = (np.asarray(part).astype(np.int32) for part in given)
        size = (len(states), self.num_labels)[: 2 - len(labels)]
        found = np.empty(size, np.float32), np.empty(size, np.int32)
        kernel(self._automaton, self._model_of_state[states], states, *labels, *found)
        if isinstance(given[0], Tensor):
            return torch.from_numpy(found[0]), torch.from_numpy(found[1])
        return found

    def final(self, states: Tensor) -> Tensor:
        """Return the costs of ending, [N]: `</s>`, or refunds of incomplete phrases."""
        return self.final_cost[states.long()]

    @property
    def tables(self) -> BackoffTables:
        """Tables for torch's operations on this device; read before tracing."""
        device = self.start.device
        if self._tables is None or self._tables.alias.device != device:
            given = self._automaton, self._model_of_state, self.num_labels
            self._tables = BackoffTables(*given, device)
        return self._tables


def _is_symbolic(states: Any) -> bool:
    if isinstance(states, np.ndarray):
        return False
    is_plain = type(states) is Tensor and states.device.type == "cpu"
    return not is_plain or torch.compiler.is_compiling()


class TorchNgramLM(TorchBackoff):
    """An n-gram model in torch; `start[0]` is the history `<s>`."""

    def __init__(self, lm: NgramLM) -> None:
        super().__init__([lm])


class BackoffTables:
    """Arrays of a model laid out for torch's operations, on a device."""

    def __init__(
        self,
        automaton: Automaton,
        model_of_state: np.ndarray,
        num_labels: int,
        device: torch.device,
    ) -> None:
        def put(array: np.ndarray, kind: Any = np.int64) -> Tensor:
            return torch.from_numpy(np.array(array, kind)).to(device)

        is_root = automaton.backoff_state < 0
        counts = np.where(is_root, 0, np.diff(automaton.state_arc_splits))
        # Maximum number of links from any state to its root.
        depth, at = 0, automaton.backoff_state
        while (at >= 0).any():
            at = np.where(at < 0, -1, automaton.backoff_state[at])
            depth += 1
        self.depth = depth
        self.width = int(counts.max())
        roots = np.flatnonzero(is_root)
        # Labels on arcs, and the alias of each label, the last for `<unk>`.
        count = len(automaton.label_alias)
        size, alias = num_labels, np.arange(num_labels)
        if count:
            known = automaton.label_alias[:size]
            alias = np.pad(known, (0, size - len(known)), constant_values=count)
            size = count + 1
        root_cost = np.empty((len(roots), size), np.float32)
        root_next = np.empty(root_cost.shape, np.int32)
        given = model_of_state[roots], roots.astype(np.int32)
        kernels.rows(automaton, *given, root_cost, root_next)
        source = np.repeat(np.arange(len(counts)), np.diff(automaton.state_arc_splits))
        keys = source * np.int64(size) + automaton.arc_label
        states, last = np.arange(len(is_root)), np.iinfo(np.int64).max
        self.size, self.alias = size, put(alias)
        self.begin, self.count = put(automaton.state_arc_splits[:-1]), put(counts)
        # The last arc is a dummy.
        self.arc_key = put(np.append(keys, last))
        self.arc_label = put(np.append(automaton.arc_label, size))
        self.arc_next = put(np.append(automaton.arc_next, 0), np.int32)
        self.arc_cost = put(np.append(automaton.arc_cost, 0), np.float32)
        self.link = put(np.where(is_root, states, automaton.backoff_state))
        self.link_cost = put(automaton.backoff_cost, np.float32)
        self.root_row = put(np.cumsum(is_root) - 1)  # of roots; others have none
        self.root_next = put(root_next, np.int32)
        self.root_cost = put(root_cost, np.float32)

    def _chain(
        self, states: Tensor
    ) -> tuple[list[tuple[Tensor, Tensor]], Tensor, Tensor]:
        """Return the links to the root: states, the root's row, costs up to each."""
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
        # The root's row first, overwritten by longer histories.
        for at, paid in reversed(chain):
            inside = arange < self.count[at][:, None]
            arcs = torch.where(inside, self.begin[at][:, None] + arange, -1)
            labels = self.arc_label[arcs]  # the last arc is the dummy
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
    """Concatenate models; return arrays and the model of each state, int32 [S]."""
    parts = {name: [getattr(a, name) for a in automata] for name in Automaton._fields}
    first = {name: np.cumsum([0, *map(len, given)]) for name, given in parts.items()}
    for name in ("arc_next", "backoff_state", "model_start"):
        # A root backs off to -1, which must not be shifted.
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


MAX_FLAT_ARCS = 20_000_000
"""Lists that would have more arcs keep their links."""


class TorchPhrases(TorchBackoff):
    """Boost lists of a batch; equal objects are laid out once.

    Args:
        lists: Phrases of tokens, or None, for each utterance; at least one is a list.
        flat: Keep one link per state. None does so on devices other than the CPU.

    Attributes:
        model_of_list: int64 [B], index into `start` of each utterance.
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
        # Links are then kept: slower, but in memory.
        if num_arcs > MAX_FLAT_ARCS:
            return phrases
        before = np.repeat(splits[at] - np.cumsum(counts) + counts, counts)
        arcs = before + np.arange(len(before))
        keys = np.repeat(source, counts) * np.int64(phrases.num_labels)
        # In the order of addition along the links.
        costs = np.repeat(total, counts) + a.arc_cost[arcs]
        found.append((keys + a.arc_label[arcs], arcs, costs))
        inner = link[at] >= 0
        source, at, total = source[inner], at[inner], total[inner]
        total, at = total + a.backoff_cost[at], link[at]
        link_cost[source] = total
        inner = link[at] >= 0
        source, at, total = source[inner], at[inner], total[inner]
    keys, arcs, costs = map(np.concatenate, zip(*found, strict=True))
    # The longest history that has a label counts; it comes first.
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
