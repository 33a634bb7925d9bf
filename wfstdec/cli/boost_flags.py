"""The flags of boosts: lists, and how phrases are credited."""

from __future__ import annotations

import argparse

from wfstdec.batch.decoding import BoostLists
from wfstdec.boost.phrases import PhraseOptions
from wfstdec.cli.decoders import flag_of
from wfstdec.errors import OptionError
from wfstdec.io.boost_files import BoostFile, read_boosts, read_phrase_weights
from wfstdec.search.decoder import Decoder

BOOST_FLAGS = (
    "--boost",
    "--phrases",
    "--phrase-totals",
    "--phrase-unit",
    "--phrase-context",
    "--phrase-depth",
    "--phrase-unknown",
    "--phrase-boundary",
    "--sentencepiece-model",
)

_ARGUMENTS = {
    "phrase_unit": "unit",
    "phrase_boundary": "boundary",
    "sentencepiece_model": "sentencepiece_model",
}
"""Flags and arguments of `Decoder.phrase_compiler`, by name."""


_WORTH = {
    "phrase_context": "c0",
    "phrase_depth": "beta",
    "phrase_unknown": "outside_cost",
}
"""Flags and fields of `PhraseOptions`, by name."""


def refuse_phrase_flags(args: argparse.Namespace, *, without: str) -> None:
    """Raise `OptionError` where there are flags of phrases and no phrases."""
    for name in (*_ARGUMENTS, *_WORTH, "phrase_totals"):
        if getattr(args, name, None) not in (None, False):
            raise OptionError(f"{flag_of(name)} without {without}, expected both")


def read_lists(args: argparse.Namespace) -> tuple[BoostFile | None, BoostFile | None]:
    """Read the files of `--boost` and `--phrases`; errors as of their readers."""
    if not args.phrases:
        refuse_phrase_flags(args, without="--phrases")
    return (
        read_boosts(args.boost) if args.boost else None,
        read_phrase_weights(args.phrases) if args.phrases else None,
    )


def boosts_for(
    decoder: Decoder,
    args: argparse.Namespace,
    words: BoostFile | None,
    phrases: BoostFile | None,
) -> BoostLists:
    """The lists for a decoder."""
    if words is not None and not decoder.vocabulary.words:
        raise OptionError(
            f"--boost {args.boost} for a decoder that has no words, expected --phrases"
        )
    if phrases is None:
        return BoostLists(words)
    worth = {name: getattr(args, flag) for flag, name in _WORTH.items()}
    known = {name: value for name, value in worth.items() if value is not None}
    options = PhraseOptions(**known, weights_are_totals=args.phrase_totals)
    how = {name: getattr(args, flag) for flag, name in _ARGUMENTS.items()}
    return BoostLists(words, phrases, decoder.phrase_compiler(options, **how))
