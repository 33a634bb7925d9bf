"""The flags of texts that are compared; `flags.FLAGS` takes them in."""

from __future__ import annotations

import argparse

from wfstdec.cli.kinds import Flag, switch, takes
from wfstdec.text.normalize import Normalizer

TEXT_FLAGS: dict[str, Flag] = {
    "--ref": takes("FILE", "what was said: 'utterance words...' lines"),
    "--hyp": takes("FILE", "hypotheses: 'utterance words...' lines"),
    "--ignore-case": switch("words that differ in case alone are the same"),
    "--normalize": switch(
        "words are the same whatever their case, punctuation (but for ' inside "
        "words, and . , : inside numbers), hyphens (taken as spaces) and Unicode form "
        "(NFKC)"
    ),
}
"""Flags by name; the last two are read by `normalizer_of`."""


def normalizer_of(args: argparse.Namespace) -> Normalizer:
    """The rules that `--ignore-case` and `--normalize` ask for."""
    return Normalizer(ignore_case=args.ignore_case, normalize=args.normalize)
