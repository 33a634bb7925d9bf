"""Several back-off models in one set of arrays."""

import numpy as np

from wfstdec.lm.automaton import Automaton, BackoffModel, frozen


def pack_models(models):
    """Put models of one unit and table size into one set of arrays; ids are places."""
    ((unit, num_labels),) = {(model.unit, model.num_labels) for model in models}
    parts = [model.automaton for model in models]
    states = _offsets([len(part.final_cost) for part in parts])
    arcs = _offsets([len(part.arc_cost) for part in parts])
    labels = _offsets([len(part.label_alias) for part in parts])

    def shifted(name, offsets):
        """The array of all parts; roots' -1 stays, of splits the first 0 goes."""
        arrays = [getattr(part, name) for part in parts]
        moved = [
            np.where(array < 0, array, array + offset)
            for array, offset in zip(arrays, offsets[:-1], strict=True)
        ]
        if name.endswith("_splits"):
            moved = [moved[0], *(array[1:] for array in moved[1:])]
        return np.concatenate(moved)

    def joined(name):
        return np.concatenate([getattr(part, name) for part in parts])

    packed = Automaton(
        state_arc_splits=shifted("state_arc_splits", arcs),
        arc_label=joined("arc_label"),
        arc_next=shifted("arc_next", states),
        arc_cost=joined("arc_cost"),
        backoff_state=shifted("backoff_state", states),
        backoff_cost=joined("backoff_cost"),
        final_cost=joined("final_cost"),
        model_start=shifted("model_start", states),
        model_label_splits=shifted("model_label_splits", labels),
        model_default_cost=joined("model_default_cost"),
        label_alias=joined("label_alias"),
    )
    return BackoffModel(frozen(packed), unit, num_labels)


def _offsets(sizes):
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
