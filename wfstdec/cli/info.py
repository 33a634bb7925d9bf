"""Say what a graph or a saved language model holds: sizes, degrees, tables."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import wfstdec
from wfstdec.cli.flags import add_flags
from wfstdec.errors import OptionError
from wfstdec.io.lattices import graph_dot
from wfstdec.io.outputs import open_output
from wfstdec.text.tokens import TokenTable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the command its flags."""
    parser.add_argument("graph", help="what `wfstdec build` or `build-lm` wrote")
    add_flags(parser, "--draw")


def run(args: argparse.Namespace) -> None:
    """Print a table, or write a drawing."""
    if Path(args.graph).is_dir():
        if args.draw is not None:
            raise OptionError("--draw with a language model, expected a graph")
        _print(describe_lm(wfstdec.load_lm(args.graph)))
        return
    graph = wfstdec.load_graph(args.graph)
    if args.draw is not None:
        drawing = graph_dot(graph)
        with open_output(args.draw) as file:
            file.write(drawing)
        return
    _print(graph.describe())


def _print(facts: dict[str, str]) -> None:
    width = max(map(len, facts))
    for name, value in facts.items():
        print(f"{name:{width}}  {value}")


def describe_lm(lm: wfstdec.NgramLM) -> dict[str, str]:
    """Names and values of what there is to know of a language model, in order."""
    automaton, unit = lm.automaton, lm.unit
    degrees = np.diff(automaton.state_arc_splits)
    # The label behind the last stands for all that the model does not know.
    unknown = np.count_nonzero(automaton.label_alias == lm.num_labels)
    num_labels = lm.num_labels - (unit == "word")  # the table begins with <eps>
    facts = {
        "states": f"{lm.num_states:,}",
        "arcs": f"{lm.num_arcs:,}",
        "arcs of a state": f"{degrees.mean():.2f} on average, {degrees.max()} at most",
        "size": f"{lm.num_bytes / 2**20:.1f} MiB",
        f"{unit}s": f"{num_labels:,}",
        "unknown to it": f"{unknown:,} {unit}s",
        "cost of </s>": f"{lm.final(lm.start):.2f} nats after <s>",
    }
    if isinstance(lm.labels, TokenTable):
        tokens = lm.labels
        facts["tokens"] += f", fingerprint {tokens.fingerprint}"
        facts["blank"] = f"{tokens.names[tokens.blank]!r}, token {tokens.blank}"
    elif lm.labels is None:
        facts[f"{unit}s"] += ", names not kept"
    return facts
