"""What must hold for an automaton that comes from a file: no kernel sees a bad one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from wfstdec.errors import FormatError
from wfstdec.lm.automaton import DTYPES, Automaton


def check_automaton(automaton: Automaton, num_labels: int, place: str) -> None:
    """Raise unless the arrays fit each other and every index exists.

    Raises:
        FormatError: The first thing that does not hold.
    """
    for name, dtype in DTYPES.items():
        array = getattr(automaton, name)
        if array.ndim != 1 or array.dtype != dtype:
            raise FormatError(
                f"{place}: {name} is {array.dtype} {array.shape}, expected "
                f"{np.dtype(dtype)}, one axis"
            )
    for holds, fault in _conditions(automaton, num_labels):
        if not holds:
            raise FormatError(f"{place}: {fault}; the model is damaged, save it again")


def _conditions(a: Automaton, num_labels: int) -> Iterator[tuple[bool, str]]:
    """Invariants and what to say of each; later ones may rely on earlier ones."""
    num_states, num_arcs = len(a.final_cost), len(a.arc_cost)
    num_models = len(a.model_start)
    splits, tables = a.state_arc_splits, a.model_label_splits
    yield num_models > 0 and num_states > 0, "no model or no state, expected one"
    yield _are_splits(splits, num_states, num_arcs), "the rows of arcs do not add up"
    yield (
        _are_splits(tables, num_models, len(a.label_alias)),
        "the label tables do not add up",
    )
    sizes = {len(a.arc_label), len(a.arc_next)}
    sizes_of_states = {len(a.backoff_state), len(a.backoff_cost)}
    yield (
        sizes == {num_arcs}
        and sizes_of_states == {num_states}
        and len(a.model_default_cost) == num_models,
        "arrays differ in length, expected one length for arcs, states and models",
    )
    yield _within(a.arc_next, 0, num_states), "an arc leads to no state"
    yield _within(a.arc_label, 0, num_labels + 1), "an arc has a label of no table"
    inner = np.ones(num_arcs, bool)
    inner[splits[:-1][splits[:-1] < num_arcs]] = False
    yield (
        bool((a.arc_label[1:] > a.arc_label[:-1])[inner[1:]].all()),
        "a row is not sorted by label",
    )
    yield (
        bool((a.backoff_state < np.arange(num_states)).all())
        and _within(a.backoff_state, -1, num_states),
        "a back-off link leads forwards",
    )
    yield _within(a.model_start, 0, num_states), "a model starts in no state"
    yield (
        bool(np.isin(np.diff(tables), (0, num_labels)).all())
        and _within(a.label_alias, 0, num_labels + 1),
        "a label table has another size",
    )
    yield _has_full_roots(a, num_labels), "a root lacks labels"
    costs = (a.arc_cost, a.backoff_cost, a.final_cost, a.model_default_cost)
    yield not any(np.isnan(cost).any() for cost in costs), "a cost is NaN"


def _has_full_roots(a: Automaton, num_labels: int) -> bool:
    """Whether roots are dense where label tables are; one model or all have one."""
    roots = np.flatnonzero(a.backoff_state < 0)
    sizes = np.diff(a.state_arc_splits)[roots]
    return not len(a.label_alias) or bool((sizes == num_labels + 1).all())


def _are_splits(splits: np.ndarray, count: int, total: int) -> bool:
    return bool(
        len(splits) == count + 1
        and splits[0] == 0
        and splits[-1] == total
        and (np.diff(splits) >= 0).all()
    )


def _within(values: np.ndarray, least: int, end: int) -> bool:
    return bool(((values >= least) & (values < end)).all())
