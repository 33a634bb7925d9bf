"""Convert graphs: those of Kaldi, k2 or NeMo scripts to ours, ours to OpenFst files.

An input that ends in .npz is ours and becomes an OpenFst file; any other is an OpenFst
file (const, vector) or AT&T text and becomes ours. Foreign graphs need token and word
tables where their files have none.
"""

from __future__ import annotations

import argparse

import wfstdec
from wfstdec.cli.flags import add_flags
from wfstdec.cli.kinds import values_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the command its flags."""
    parser.add_argument("input", help="the graph to read")
    parser.add_argument("output", help="the graph to write")
    add_flags(parser, "--tokens", "--words", "--blank", "--to")


def run(args: argparse.Namespace) -> None:
    """Read one form, write the other."""
    if args.input.endswith(".npz"):
        wfstdec.to_openfst(wfstdec.load_graph(args.input), args.output, args.to)
        return
    graph = wfstdec.from_openfst(args.input, **values_of(args, "tokens words blank"))
    graph.save(args.output)
