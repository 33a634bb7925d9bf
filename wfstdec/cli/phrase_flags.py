"""The flags on how phrases are credited, as `Decoder.phrase_compiler` takes them."""

from __future__ import annotations

import argparse
from typing import Any

from wfstdec.boost.phrases import PhraseOptions
from wfstdec.cli.decoders import flag_of
from wfstdec.errors import OptionError

_ARGUMENTS = {
    "phrase_unit": "unit",
    "phrase_boundary": "boundary",
    "sentencepiece": "sentencepiece_model",
}
"""Flags and arguments of `Decoder.phrase_compiler`, by name."""


_WORTH = {
    "phrase_context": "c0",
    "phrase_depth": "beta",
    "phrase_unknown": "outside_cost",
}
"""Flags and fields of `PhraseOptions`, by name."""


def phrase_options(args: argparse.Namespace) -> PhraseOptions:
    """Options of phrases: what they are worth.

    Raises:
        OptionError: A number is out of range.
    """
    given = {name: getattr(args, flag) for flag, name in _WORTH.items()}
    known = {name: value for name, value in given.items() if value is not None}
    return PhraseOptions(**known, weights_are_totals=args.phrase_totals)


def phrase_arguments(args: argparse.Namespace) -> dict[str, Any]:
    """The keyword arguments of `Decoder.phrase_compiler`."""
    return {name: getattr(args, flag) for flag, name in _ARGUMENTS.items()}


def refuse_phrase_flags(args: argparse.Namespace, *, without: str) -> None:
    """Raise `OptionError` where there are flags of phrases and no phrases."""
    for name in (*_ARGUMENTS, *_WORTH, "phrase_totals"):
        if getattr(args, name, None) not in (None, False):
            raise OptionError(f"{flag_of(name)} without {without}, expected both")
