"""Draw small graphs and short lattices: text for Graphviz's dot."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from wfstdec.errors import OptionError
from wfstdec.graph.arcs import LABEL_MASK, REPEAT
from wfstdec.graph.packed import PackedGraph
from wfstdec.lattice.arrays import Lattice
from wfstdec.text.symbols import EPSILON, TokenTable, token_of

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
            cost = f"/{arc['cost']:.3g}" if arc["cost"] else ""
            label = quoted(_said(arc, graph.tokens, graph.words) + cost)
            target = int(arc["nextstate"])
            lines.append(f"  {state} -> {target} [label={label}];")
    return "\n".join([*lines, "}"]) + "\n"


def lattice_dot(lattice: Lattice) -> str:
    """A short lattice as text for Graphviz's dot: arcs say `token:word/excess`.

    Raises:
        OptionError: The lattice is too large to look at.
    """
    if lattice.num_arcs > MOST_ARCS:
        raise OptionError(
            f"the lattice has {lattice.num_arcs} arcs, expected at most {MOST_ARCS} to "
            "draw: a narrower lattice beam has fewer"
        )
    lines = ["digraph lattice {", "  rankdir=LR; node [shape=circle];"]
    for state, one in enumerate(lattice.states):
        name = quoted(f"{one['graph_state']}@{one['frame']}")
        shape = "doublecircle" if one["final_excess"] < np.inf else "circle"
        lines.append(f"  {state} [shape={shape} label={name}];")
    for arc in lattice.arcs:
        said = _said(arc, lattice.tokens, lattice.words)
        text = quoted(f"{said}/{arc['excess']:.3g}")
        lines.append(f"  {arc['state']} -> {arc['nextstate']} [label={text}];")
    return "\n".join([*lines, "}"]) + "\n"


def _said(arc: np.void, tokens: TokenTable, words: Sequence[str]) -> str:
    """Token and word of an arc: `token:word`, `+token` of a repeat."""
    ilabel, olabel = int(arc["ilabel"]) & LABEL_MASK, int(arc["olabel"])
    token = "-" if ilabel == EPSILON else tokens.names[token_of(ilabel)]
    repeat = "+" if int(arc["ilabel"]) & REPEAT else ""
    word = "" if olabel == EPSILON else f":{words[olabel]}"
    return f"{repeat}{token}{word}"


def quoted(text: str) -> str:
    """A text as dot reads it."""
    return json.dumps(text, ensure_ascii=False)
