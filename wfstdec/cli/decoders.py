"""Parts of `decode`, `transcribe` and `serve`: decoder, boost lists, results, Ray."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

import wfstdec
from wfstdec.attention import need_torch
from wfstdec.batch.decoding import BoostLists, Tally
from wfstdec.batch.lattices import LatticeReading
from wfstdec.batch.ray import RayOptions, RowWorker, run_rows
from wfstdec.boost.g2p import G2p
from wfstdec.boost.phrases import PhraseOptions
from wfstdec.cli.flags import (
    INPUTS,
    PHRASES,
    SUBTITLES,
    flag_of,
    given_of,
    made_of,
    name_of,
    need,
    values_of,
)
from wfstdec.errors import OptionError
from wfstdec.io.boost_files import BoostFile, read_boosts, read_phrase_weights
from wfstdec.io.journal import Restart
from wfstdec.io.results import format_named
from wfstdec.io.subtitles import SUBTITLES as SUBTITLE_FORMATS
from wfstdec.io.subtitles import SubtitleOptions
from wfstdec.search.decoder import Decoder
from wfstdec.text.files import digest

_NEED_TORCH = {"transducer": "transducers", "attention": "attention decoders"}
"""Decoders that run a model themselves."""
_PHRASE_OPTIONS = {
    "phrase_context": "c0",
    "phrase_depth": "beta",
    "phrase_unknown": "outside_cost",
}
"""Flags and fields of `PhraseOptions`, by name."""
_SUBTITLE_OPTIONS = ("max_chars", "max_lines", "max_s", "pause_s")
"""Fields of `SubtitleOptions`, in the order of their flags."""
_NO_SETTINGS = frozenset(
    "command output quiet threads workers strict resume overwrite "
    "ray actors gpus_per_actor batch_rows file_rows".split()
)
"""Flags that change nothing in the results."""
_FILES = (
    "acoustic_model graph tokens lexicon lm model boost phrases sentencepiece_model "
    "g2p g2p_phones lattices"
).split()
"""Flags that may name a file: on other nodes the current folder is another."""


def make_decoder(args: argparse.Namespace, options: Any) -> Decoder:
    """The decoder that the flags ask for, with these options."""
    kind = args.decoder
    given = given_of(args, INPUTS[kind].split())
    if "g2p" in INPUTS[kind]:
        given |= {"g2p": g2p_of(args)}
        given.pop("g2p_phones", None)
    if given.get("open_vocabulary"):
        given["open_vocabulary"] = wfstdec.OpenVocabulary(*given["open_vocabulary"])
    given |= {"options": options, "frame_shift_s": args.frame_shift}
    given |= values_of(args, "backend threads")
    if kind in _NEED_TORCH:
        need_torch(_NEED_TORCH[kind])
        return importlib.import_module(f"wfstdec.{kind}.decoder").open_decoder(**given)
    decoders: dict[str, Callable[..., Decoder]] = {
        "wfst": wfstdec.WfstDecoder,
        "trie": wfstdec.TrieDecoder,
        "greedy": wfstdec.GreedyDecoder,
    }
    return decoders[kind](**given)


def g2p_of(args: argparse.Namespace) -> G2p | None:
    """The object that `--g2p` and `--g2p-phones` ask for."""
    need(args, "--g2p-phones", "--g2p")
    given = given_of(args, ("g2p", "g2p_phones"))
    source = given.get("g2p")
    return None if source is None else G2p(source, given.get("g2p_phones"))


def read_lists(args: argparse.Namespace) -> tuple[BoostFile | None, BoostFile | None]:
    """Read the files of `--boost` and `--phrases`."""
    need(args, PHRASES, "--phrases")
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
    values = {name: getattr(args, flag) for flag, name in _PHRASE_OPTIONS.items()}
    given = {name: value for name, value in values.items() if value is not None}
    options = PhraseOptions(**given, weights_are_totals=args.phrase_totals)
    compiler = decoder.phrase_compiler(
        options,
        unit=args.phrase_unit,
        boundary=args.phrase_boundary,
        sentencepiece_model=args.sentencepiece_model,
    )
    return BoostLists(words, phrases, compiler)


def reading_of(args: argparse.Namespace, nbest: int) -> LatticeReading | None:
    """The reading of lattices that flags ask for; None for no lattices."""
    if not (args.lattices or args.confidence or args.mbr):
        return None
    if args.mbr and nbest > 1:
        raise OptionError(f"--mbr and --nbest {nbest}, expected one text")
    if args.posterior_scale < 0:
        raise OptionError(
            f"--posterior-scale {args.posterior_scale!r}, expected 0 or more"
        )
    return LatticeReading(nbest, args.confidence, args.mbr, args.posterior_scale)


def restart_of(args: argparse.Namespace, output: str | None = None) -> Restart:
    """Treatment of the work of an earlier run, and the settings of this one."""
    settings: dict[str, Any] = {"version of wfstdec": wfstdec.__version__}
    for name, value in vars(args).items():
        if name not in _NO_SETTINGS:
            is_read = isinstance(value, str) and name != output
            is_file = is_read and os.path.exists(value)
            settings[name] = digest(value) if is_file else value
    return Restart(
        *(args.resume, args.overwrite, settings),
        called=lambda name: name if " " in name else flag_of(name),
    )


def run_options(args: argparse.Namespace, output: str | None = None) -> dict[str, Any]:
    """Arguments of runs that write results; `output` is a flag of another output."""
    format, subtitles = format_named(args.format, args.output), {}
    for flag, option in zip(SUBTITLES.split(), _SUBTITLE_OPTIONS, strict=True):
        value = getattr(args, name_of(flag))
        if value is not None:
            subtitles[option] = value
            if format not in SUBTITLE_FORMATS:
                known = " or ".join(SUBTITLE_FORMATS)
                raise OptionError(f"{flag} with format {format}, expected {known}")
    return {
        "format": format,
        "subtitles": SubtitleOptions(**subtitles) if subtitles else None,
        "strict": args.strict,
        "restart": restart_of(args, output),
        "progress": not args.quiet,
    }


def finish(summary: Tally, args: argparse.Namespace) -> None:
    """Print the summary of a run, unless quiet; raise if utterances were left out."""
    if not args.quiet:
        print(summary, file=sys.stderr)
    summary.check_all_done()


def ready_for_ray(args: argparse.Namespace) -> argparse.Namespace:
    """Check the flags; return those for an actor."""
    if args.output is None:
        raise OptionError("--ray without --output, expected a folder for Parquet files")
    for flag in f"--format --strict {SUBTITLES}".split():
        if getattr(args, name_of(flag)):
            raise OptionError(
                f"{flag} with --ray, expected neither: results are Parquet, and what "
                "is wrong with a row stands in its column error"
            )
    ready = argparse.Namespace(**vars(args))
    # Actors share a node: a thread for each processor in each of them would be too
    # many.
    ready.threads = args.threads or 1
    for name in _FILES:
        value = getattr(args, name, None)
        if isinstance(value, str) and (name == "lattices" or os.path.exists(value)):
            setattr(ready, name, os.path.abspath(value))
    return ready


def run_on_ray(
    args: argparse.Namespace, rows: Any, make: Callable[[], RowWorker]
) -> None:
    """Run a job on a cluster."""
    summary = run_rows(
        rows,
        make,
        args.output,
        address=args.ray,
        options=made_of(RayOptions, args, gpus=args.gpus_per_actor),
        restart=restart_of(args, "lattices"),
        progress=not args.quiet,
    )
    finish(summary, args)
