"""The flags that `compare` and `tune` have in common: utterances, models, grids."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from wfstdec.cli.flags import DECODERS, add_flags
from wfstdec.cli.kinds import made_of
from wfstdec.cli.text_flags import normalizer_of
from wfstdec.compare.models import DecoderSearch, Models
from wfstdec.compare.speech import Speech, read_speech
from wfstdec.compare.tuning import Grid, parse_grid
from wfstdec.search.options import OpenVocabulary


def add_speech_flags(
    parser: argparse.ArgumentParser, *, needs_logprobs: bool = True
) -> None:
    """The utterances."""
    add_flags(parser, "--logprobs", required=needs_logprobs)
    add_flags(parser, "--ref", required=True)
    add_flags(parser, "--utterances", "--frame-shift", "--ignore-case", "--normalize")


def add_model_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of models that searches search."""
    add_flags(parser, "--graph", "--tokens", "--blank", "--lexicon", "--lm")
    add_flags(parser, "--separator", "--separator-optional", "--unk-cost")
    add_flags(parser, "--open-vocabulary")
    add_flags(parser, "--model", "--head", "--transducer-lm")
    add_flags(parser, "--attention-model", "--attention-lm")


def speech_of(args: argparse.Namespace) -> Speech:
    """The utterances that the flags name."""
    return read_speech(
        args.logprobs,
        args.ref,
        limit=args.utterances,
        frame_shift_s=args.frame_shift,
        normalizer=normalizer_of(args),
    )


def models_of(args: argparse.Namespace) -> Models:
    """Name the models that flags name, and how phrases are credited."""
    costs = args.open_vocabulary
    return made_of(
        *(Models, args),
        open_vocabulary=costs and OpenVocabulary(*costs),
        frame_shift_s=args.frame_shift,
        # `--transducer` and `--attention` are grids of options.
        transducer=args.model,
        attention=args.attention_model,
    )


def searches_of(
    models: Models, name: str, grid: Iterable[str], **changed: Any
) -> list[DecoderSearch]:
    """Searches of a decoder, by its name, for each setting of a grid."""
    options = DECODERS[name](**changed)
    return getattr(models, f"{name}_searches")(options, grid_of(grid, options))


def grid_of(texts: Iterable[str], options: Any) -> Grid:
    """A grid of these options, a dataclass; errors as of `parse_grid`.

    Where an option is a word, `none` is one too: `end_rule=closed,none`.
    """
    grid = parse_grid(texts, [field.name for field in fields(options)])
    words = {f.name for f in fields(options) if isinstance(f.default, str)}

    def meant(name: str, value: Any) -> Any:
        return "none" if value is None and name in words else value

    return {
        names: [meant(names, value) for value in values]
        if isinstance(names, str)
        else [tuple(map(meant, names, value)) for value in values]
        for names, values in grid.items()
    }
