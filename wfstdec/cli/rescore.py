"""Rescore lattices with another language model, or under other scales.

    wfstdec decode --graph small.npz --logprobs x.npz --lattices x.lat
    wfstdec rescore --lattices x.lat --lm large.arpa --lm-scale 0.8 --output hyp.txt

The words of a lattice are priced anew: the costs of its graph are dropped. Without a
language model the graph's costs stay, and --lm-scale and --word-insertion change what
they weigh; no new search is needed for that. What comes out can be written as compact
lattices for Kaldi's tools, too. A lattice with a fault is named and left out, and the
exit code is 1. What is done when a run is stopped stays beside --output, and --resume
goes on from there.
"""

from __future__ import annotations

import argparse

from wfstdec.batch.lattices import rescore_file
from wfstdec.cli.flags import add_flags
from wfstdec.cli.kinds import values_of
from wfstdec.cli.lattice_flags import GIVEN_LATTICES, READING_FLAGS, reading_of
from wfstdec.cli.result_flags import RUN_FLAGS, restart_of, tell
from wfstdec.errors import OptionError
from wfstdec.io.lattices import KaldiLatticeWriter

_WEIGHTS = {
    "--lm-scale": "times the costs of --lm, or of the graph (default: that of the "
    "search)",
    "--word-insertion": "for each word; above 0 penalises (default: that of the "
    "search)",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the command its flags."""
    add_flags(parser, "--lattices", required=True, help=GIVEN_LATTICES)
    add_flags(parser, "--lm", "--unk-cost")
    for name, text in _WEIGHTS.items():
        add_flags(parser, name, default=None, help=text)
    add_flags(parser, "--nbest", default=1, help="different texts of each utterance")
    add_flags(parser, *READING_FLAGS, "--output", "--format", *RUN_FLAGS)
    add_flags(parser, "--kaldi", "--kaldi-words")


def run(args: argparse.Namespace) -> None:
    """Rescore all lattices and write the best texts."""
    if args.kaldi_words and not args.kaldi:
        raise OptionError("--kaldi-words without --kaldi, expected both")
    kaldi = None
    if args.kaldi:
        is_text = args.kaldi.endswith(".txt")
        kaldi = KaldiLatticeWriter(args.kaldi, text=is_text, words=args.kaldi_words)
    summary = rescore_file(
        args.lattices,
        args.output,
        **values_of(args, "lm unk_cost lm_scale word_insertion format strict"),
        reading=reading_of(args, args.nbest),
        kaldi=kaldi,
        restart=restart_of(args, makes="kaldi"),
        progress=not args.quiet,
    )
    tell(summary, args)
