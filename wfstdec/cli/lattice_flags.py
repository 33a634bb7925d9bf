"""The flags of lattices; `flags.FLAGS` takes them in."""

from __future__ import annotations

import argparse
from typing import Any

from wfstdec.batch.lattices import LatticeReading
from wfstdec.errors import OptionError
from wfstdec.search.options import DEFAULT_LATTICE_BEAM

LATTICE_FLAGS: dict[str, dict[str, Any]] = {
    "--lattice-beam": {
        "type": float,
        "metavar": "NATS",
        "help": "in lattices and n-best lists, keep what is this close to the best "
        f"(default: {DEFAULT_LATTICE_BEAM:g}, or the beam)",
    },
    "--lattices": {
        "metavar": "FILE",
        "help": "lattices of all utterances, for wfstdec rescore and score",
    },
    "--oracle": {
        "type": int,
        "nargs": "?",
        "const": 10,
        "metavar": "N",
        "help": "also the WER of the best of N texts (default: 10) and of lattices",
    },
    "--nbest-lists": {
        "metavar": "FILE",
        "help": "n-best lists as `wfstdec decode --nbest N --format jsonl` writes them",
    },
    "--confidence": {
        "action": "store_true",
        "help": "how sure each word is, from a lattice",
    },
    "--mbr": {
        "action": "store_true",
        "help": "the text of least expected error in place of the most probable one",
    },
    "--posterior-scale": {
        "type": float,
        "default": 1.0,
        "metavar": "X",
        "help": "times all costs, for --confidence and --mbr (default: 1)",
    },
    "--kaldi": {
        "metavar": "FILE",
        "help": "compact lattices as an archive for Kaldi's tools: text if it ends in "
        ".txt, else binary",
    },
    "--kaldi-words": {
        "metavar": "FILE",
        "help": "the words of --kaldi by number, as Kaldi's words.txt",
    },
    "--test-lattices": {
        "metavar": "FILE",
        "help": "lattices to test what --posterior-scale found on; in place of every "
        "second speaker of --lattices",
    },
    "--test-ref": {"metavar": "FILE", "help": "their references"},
    "--confidences": {
        "metavar": "FILE",
        "help": "words with confidences, as `wfstdec decode --confidence` writes them "
        "(.ctm or .jsonl): tell how good these are",
    },
    "--reliability": {
        "metavar": "FILE",
        "help": "draw how many words are right against how sure they are: .png or .svg "
        "(needs matplotlib)",
    },
}
GIVEN_LATTICES = "what `wfstdec decode --lattices FILE` wrote"
"""Help of `--lattices` where they are read."""
READING_FLAGS = ("--confidence", "--mbr", "--posterior-scale")


def reading_of(args: argparse.Namespace, nbest: int) -> LatticeReading:
    """Make the reading of lattices that a command line asks for.

    Raises:
        OptionError: They do not go together, or one is out of range.
    """
    if args.mbr and nbest > 1:
        raise OptionError(f"--mbr and --nbest {nbest}, expected one text")
    if args.posterior_scale < 0:
        raise OptionError(
            f"--posterior-scale {args.posterior_scale!r}, expected 0 or more"
        )
    return LatticeReading(nbest, args.confidence, args.mbr, args.posterior_scale)
