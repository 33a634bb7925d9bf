"""Rescore lattices with another language model, or under other scales.

    wfstdec decode --graph small.npz --logprobs x.npz --lattices x.lat
    wfstdec rescore --lattices x.lat --arpa large.arpa --lm-scale 0.8 --output hyp.txt

The words of a lattice are priced anew: the costs of its graph are dropped. Without a
language model the graph's costs stay, and --lm-scale and --word-insertion change what
they weigh; no new search is needed for that. What comes out can be written as compact
lattices for Kaldi's tools, too.
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import ExitStack
from dataclasses import replace

from wfstdec.batch.lattices import rescore_file
from wfstdec.cli.flags import add_flags
from wfstdec.cli.lattice_flags import READING_FLAGS, reading_of
from wfstdec.errors import OptionError
from wfstdec.io.kaldi_lattices import KaldiLatticeWriter


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the command its flags."""
    add_flags(parser, "--lattices", required=True)
    add_flags(parser, "--arpa", "--lm", "--unk-cost")
    add_flags(parser, "--lm-scale", "--word-insertion", default=None)
    add_flags(parser, "--nbest", default=1)
    add_flags(parser, *READING_FLAGS, "--output", "--format")
    add_flags(parser, "--kaldi", "--kaldi-words")


def run(args: argparse.Namespace) -> None:
    """Rescore all lattices and write the best texts."""
    if args.arpa and args.lm:
        raise OptionError("--arpa and --lm, expected one language model")
    if args.kaldi_words and not args.kaldi:
        raise OptionError("--kaldi-words without --kaldi, expected both")
    began, reading = time.perf_counter(), reading_of(args, args.nbest)
    with ExitStack() as stack:
        if args.kaldi:
            is_text = args.kaldi.endswith(".txt")
            archive = KaldiLatticeWriter(
                args.kaldi, text=is_text, words=args.kaldi_words
            )
            reading = replace(reading, write=stack.enter_context(archive))
        count = rescore_file(
            args.lattices,
            args.output,
            lm=args.arpa or args.lm,
            unk_cost=args.unk_cost,
            lm_scale=args.lm_scale,
            word_insertion=args.word_insertion,
            reading=reading,
            format=args.format,
            progress=not args.quiet,
        )
    if not args.quiet:
        seconds = time.perf_counter() - began
        print(f"{count} lattices in {seconds:.1f} s", file=sys.stderr)
