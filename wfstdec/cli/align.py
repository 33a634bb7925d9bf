r"""Align known texts with log-probs: when words and tokens were said.

    wfstdec align --tokens tokens.txt --lexicon lexicon.txt --separator '<wb>' \
        --logprobs x.npz --ref ref.txt --output x.ctm

Without --lexicon words are spelt with the tokens. With --ignore-case or --normalize
words are looked up as these say where the lexicon lacks them as they are written. The
format follows from the name of the output: .ctm, .jsonl (tokens too, and where text and
audio do not fit), .srt, .vtt, .TextGrid; the last three are for one utterance, or take
a folder and --format. An utterance with a fault, such as an unknown word, is named and
left out, and the exit code is 1. What is done when a run is stopped stays, and --resume
goes on from there.
"""

from __future__ import annotations

import argparse
import sys

import wfstdec
from wfstdec.align.options import AlignOptions
from wfstdec.batch.aligning import align_file
from wfstdec.cli.flags import add_flags
from wfstdec.cli.kinds import made_of, values_of
from wfstdec.cli.result_flags import (
    RUN_FLAGS,
    SUBTITLE_FLAGS,
    g2p_of,
    run_options,
    tell,
)
from wfstdec.cli.text_flags import normalizer_of

_SHOWN_AT_MOST = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the command its flags."""
    add_flags(parser, "--tokens", "--logprobs", "--ref", required=True)
    add_flags(parser, "--lexicon", "--g2p", "--g2p-phones", "--sentencepiece-model")
    add_flags(parser, "--ignore-case", "--normalize")
    add_flags(parser, "--output", "--format", *SUBTITLE_FLAGS, *RUN_FLAGS)
    add_flags(parser, "--separator", "--separator-optional")
    add_flags(parser, "--silence", "--silence-prob", "--topology", "--blank")
    add_flags(
        *(parser, "--beam"),
        default=AlignOptions.beam,
        help="keep what is this close to the best; wider where the text does not fit "
        f"(default: {AlignOptions.beam:g})",
    )
    add_flags(parser, "--exact", "--skip-cost", "--insert-cost")
    add_flags(parser, "--insert-frame-cost")
    add_flags(parser, "--frame-shift")


def run(args: argparse.Namespace) -> None:
    """Align all utterances, write the results, and say what does not fit."""
    how, options = run_options(args), made_of(AlignOptions, args)
    aligner = wfstdec.ForcedAligner(
        **values_of(args, "tokens lexicon separator separator_optional silence"),
        **values_of(args, "silence_prob sentencepiece_model topology blank"),
        g2p=g2p_of(args.g2p, args.g2p_phones),
        normalizer=normalizer_of(args),
        options=options,
        frame_shift_s=args.frame_shift,
    )
    summary = align_file(aligner, args.logprobs, args.ref, args.output, **how)
    shown = [] if args.quiet else list(summary.misfits.items())[:_SHOWN_AT_MOST]
    for utterance, misfits in shown:
        for misfit in misfits:
            print(f"{utterance}: {misfit}", file=sys.stderr)
    if shown and (more := len(summary.misfits) - len(shown)):
        print(f"... and {more} more", file=sys.stderr)
    tell(summary, args)
