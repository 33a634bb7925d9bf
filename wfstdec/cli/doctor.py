r"""Examine tokens, lexicon, language model and log-probs before anything is built.

    wfstdec doctor --tokens tokens.txt --lexicon lexicon.txt --lm lm.arpa.gz \
        --logprobs dev.npz --ref dev.txt

Prints a page: each finding is ok, one to look at, or wrong, with what would mend it;
then the command lines to take, with the flags that were found. Exits with 1 where
anything is wrong. The first 200 utterances are looked at.
"""

from __future__ import annotations

import argparse

from wfstdec.cli.flags import add_flags
from wfstdec.cli.kinds import values_of
from wfstdec.doctor import examine


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the command its flags."""
    add_flags(parser, "--tokens", "--logprobs", required=True)
    add_flags(parser, "--lexicon", "--lm", "--ref", "--blank")
    add_flags(
        *(parser, "--separator"),
        default=None,
        help="the token between words (default: what is found)",
    )
    add_flags(
        *(parser, "--frame-shift"),
        default=None,
        help="from one frame to the next (default: 0.02, or what fits)",
    )


def run(args: argparse.Namespace) -> int:
    """Print the page."""
    report = examine(
        **values_of(args, "tokens logprobs lexicon lm ref blank separator"),
        frame_shift_s=args.frame_shift,
    )
    print(report)
    return int(report.is_wrong)
