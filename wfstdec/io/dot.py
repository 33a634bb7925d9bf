"""Draw small graphs: text for Graphviz's dot."""

from __future__ import annotations

import json

import numpy as np

from wfstdec.errors import OptionError
from wfstdec.graph.arcs import LABEL_MASK, REPEAT
from wfstdec.graph.packed import PackedGraph
from wfstdec.text.symbols import EPSILON, token_of

MOST_ARCS = 500


def graph_dot(graph: PackedGraph) -> str:
    """A graph as text for dot: arcs say `token:word/cost`, `+token` is a repeat.

    Raises:
        OptionError: The graph is too large to look at.
    """
    if graph.num_arcs > MOST_ARCS:
        raise OptionError(
            f"the graph has {graph.num_arcs} arcs, expected at most {MOST_ARCS} to draw"
        )
    lines = ["digraph wfstdec {", "  rankdir=LR; node [shape=circle];"]
    for state, cost in enumerate(graph.final_cost.tolist()):
        if np.isfinite(cost):
            name = quoted(f"{state}/{cost:.3g}" if cost else str(state))
            lines.append(f"  {state} [shape=doublecircle label={name}];")
    lines.append("  0 [style=bold];")
    for state in range(graph.num_states):
        row = slice(*graph.state_arc_splits[state : state + 2])
        for arc in graph.arcs[row]:
            target, label = int(arc["nextstate"]), quoted(_arc_label(graph, arc))
            lines.append(f"  {state} -> {target} [label={label}];")
    return "\n".join([*lines, "}"]) + "\n"


def _arc_label(graph: PackedGraph, arc: np.void) -> str:
    ilabel, olabel = int(arc["ilabel"]) & LABEL_MASK, int(arc["olabel"])
    token = "-" if ilabel == EPSILON else graph.tokens.names[token_of(ilabel)]
    repeat = "+" if int(arc["ilabel"]) & REPEAT else ""
    word = "" if olabel == EPSILON else f":{graph.words[olabel]}"
    cost = f"/{arc['cost']:.3g}" if arc["cost"] else ""
    return f"{repeat}{token}{word}{cost}"


def quoted(text: str) -> str:
    """A text as dot reads it."""
    return json.dumps(text, ensure_ascii=False)
