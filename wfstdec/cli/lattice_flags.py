"""The flags of lattices; `flags.FLAGS` takes them in."""

from __future__ import annotations

import argparse

from wfstdec.batch.lattices import LatticeReading
from wfstdec.cli.kinds import Flag, switch, takes
from wfstdec.errors import OptionError
from wfstdec.search.options import DEFAULT_LATTICE_BEAM

LATTICE_FLAGS: dict[str, Flag] = {
    "--lattice-beam": takes(
        "NATS",
        "in lattices and n-best lists, keep what is this close to the best "
        f"(default: {DEFAULT_LATTICE_BEAM:g}, or the beam)",
        float,
    ),
    "--lattices": takes(
        "FILE", "lattices of all utterances, for wfstdec rescore and score"
    ),
    "--oracle": takes(
        "N",
        "also the WER of the best of N texts (default: 10) and of lattices",
        int,
        nargs="?",
        const=10,
    ),
    "--nbest-lists": takes(
        "FILE", "n-best lists as `wfstdec decode --nbest N --format jsonl` writes them"
    ),
    "--confidence": switch("how sure each word is, from a lattice"),
    "--mbr": switch(
        "the text of least expected error in place of the most probable one"
    ),
    "--posterior-scale": takes(
        "X", "times all costs, for --confidence and --mbr", float, default=1.0
    ),
    "--kaldi": takes(
        "FILE",
        "compact lattices as an archive for Kaldi's tools: text if it ends in "
        ".txt, else binary",
    ),
    "--kaldi-words": takes(
        "FILE", "the words of --kaldi by number, as Kaldi's words.txt"
    ),
    "--test-lattices": takes(
        "FILE",
        "lattices to test what --posterior-scale found on; in place of every "
        "second speaker of --lattices",
    ),
    "--test-ref": takes("FILE", "their references"),
    "--confidences": takes(
        "FILE",
        "words with confidences, as `wfstdec decode --confidence` writes them "
        "(.ctm or .jsonl): tell how good these are",
    ),
    "--reliability": takes(
        "FILE",
        "draw how many words are right against how sure they are: .png or .svg "
        "(needs matplotlib)",
    ),
}
GIVEN_LATTICES = "what `wfstdec decode --lattices FILE` wrote"
"""Help of `--lattices` where they are read."""
READING_FLAGS = ("--confidence", "--mbr", "--posterior-scale")


def reading_of(args: argparse.Namespace, nbest: int) -> LatticeReading | None:
    """Make the reading of lattices that flags ask for; None for no lattices."""
    if not (args.lattices or args.confidence or args.mbr):
        return None
    if args.mbr and nbest > 1:
        raise OptionError(f"--mbr and --nbest {nbest}, expected one text")
    if args.posterior_scale < 0:
        raise OptionError(
            f"--posterior-scale {args.posterior_scale!r}, expected 0 or more"
        )
    return LatticeReading(nbest, args.confidence, args.mbr, args.posterior_scale)
