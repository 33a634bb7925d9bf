"""The flags of texts that are compared; `flags.FLAGS` takes them in."""

from __future__ import annotations

import argparse
from typing import Any

from wfstdec.text.normalize import Normalizer

TEXT_FLAGS: dict[str, dict[str, Any]] = {
    "--ref": {"metavar": "FILE", "help": "what was said: 'utterance words...' lines"},
    "--hyp": {"metavar": "FILE", "help": "hypotheses: 'utterance words...' lines"},
    "--ignore-case": {
        "action": "store_true",
        "help": "words that differ in case alone are the same",
    },
    "--normalize": {
        "action": "store_true",
        "help": "words are the same whatever their case, punctuation (but for ' inside "
        "words, and . , : inside numbers), hyphens (taken as spaces) and Unicode form "
        "(NFKC)",
    },
}
"""Flags by name; the last two are read by `normalizer_of`."""


def normalizer_of(args: argparse.Namespace) -> Normalizer:
    """The rules that `--ignore-case` and `--normalize` ask for."""
    return Normalizer(ignore_case=args.ignore_case, normalize=args.normalize)
