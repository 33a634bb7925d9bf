"""The flags of results and of alignment; `flags.FLAGS` takes them in."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

import wfstdec
from wfstdec.align.options import AlignOptions
from wfstdec.batch.decoding import Tally
from wfstdec.boost.g2p import G2p
from wfstdec.cli.kinds import Flag, one_of, switch, takes
from wfstdec.errors import OptionError
from wfstdec.io.journal import Restart
from wfstdec.io.results import FORMATS, format_named
from wfstdec.io.subtitles import SUBTITLES, SubtitleOptions
from wfstdec.text.files import digest

_SUBTITLES: dict[str, tuple[str, type, str]] = {
    "--subtitle-chars": ("max_chars", int, "characters of a line of subtitles"),
    "--subtitle-lines": ("max_lines", int, "lines of a subtitle"),
    "--subtitle-seconds": ("max_s", float, "seconds of a subtitle"),
    "--subtitle-pause": ("pause_s", float, "seconds of a pause that ends a subtitle"),
}
"""Flag to option of `SubtitleOptions`, its type, and what it says."""
SUBTITLE_FLAGS = tuple(_SUBTITLES)

_RUN: dict[str, Flag] = {
    "--strict": switch(
        "stop at the first utterance with a fault (default: leave it out)"
    ),
    "--resume": switch("go on with the results of a run that was stopped"),
    "--overwrite": switch("drop the results of a run that was stopped"),
}
RUN_FLAGS = tuple(_RUN)

RESULT_FLAGS: dict[str, Flag] = {
    **_RUN,
    "--format": one_of(
        tuple(FORMATS), "of the results (default: by the ending of --output, or text)"
    ),
    **{
        flag: takes(
            "N" if kind is int else "SECONDS",
            f"{text} (default: {getattr(SubtitleOptions, name)})",
            kind,
        )
        for flag, (name, kind, text) in _SUBTITLES.items()
    },
}

_NO_SETTINGS = frozenset(
    "command output quiet threads workers strict resume overwrite "
    "ray actors gpus_per_actor batch_rows file_rows".split()
)
"""Flags that change nothing in the results."""

ALIGN_FLAGS: dict[str, Flag] = {
    "--g2p": takes(
        "SOURCE",
        "how words are said that the lexicon or graph lacks: a lexicon that "
        "has them, such as cmudict; a SentencePiece model; a program, words in, "
        "'word<TAB>phones' out; 'hama', a model (pip install hama==1.7.0); or "
        "'spelling', the default where words are said as they are spelt",
    ),
    "--g2p-phones": takes(
        "FILE",
        "what phones of --g2p are among the tokens, 'phone tokens...' lines; "
        "others go by name, and ARPAbet's by IPA",
    ),
    "--exact": switch("search until it is proved that no alignment is cheaper"),
    "--skip-cost": takes(
        "NATS",
        "words may be left out, at this much each (default: they may not)",
        float,
    ),
    "--insert-cost": takes(
        "NATS",
        "speech may stand between words, at this much a passage (default: it may not)",
        float,
    ),
    "--insert-frame-cost": takes(
        "NATS", "and this much a frame", float, default=AlignOptions.insert_frame_cost
    ),
}


def restart_of(args: argparse.Namespace, makes: str | None = None) -> Restart:
    """Make of a command line what a run is to do with an earlier one's work."""
    settings: dict[str, Any] = {"version of wfstdec": wfstdec.__version__}
    for name, value in vars(args).items():
        if name not in _NO_SETTINGS:
            is_read = isinstance(value, str) and name != makes
            is_file = is_read and os.path.exists(value)
            settings[name] = digest(value) if is_file else value
    return Restart(
        *(args.resume, args.overwrite, settings),
        called=lambda name: name if " " in name else "--" + name.replace("_", "-"),
    )


def run_options(args: argparse.Namespace, makes: str | None = None) -> dict[str, Any]:
    """Arguments of runs that write results, as a command line has them."""
    return {
        "format": format_named(args.format, args.output),
        "subtitles": _subtitle_options(args),
        "strict": args.strict,
        "restart": restart_of(args, makes),
        "progress": not args.quiet,
    }


def tell(summary: Tally, args: argparse.Namespace) -> None:
    """Say what a run did, unless quiet; raise where utterances were left out."""
    if not args.quiet:
        print(summary, file=sys.stderr)
    summary.check_all_done()


def g2p_of(source: str | None, phones: str | None = None) -> G2p | None:
    """Make what `--g2p` and `--g2p-phones` ask for."""
    if source is None and phones is not None:
        raise OptionError(f"--g2p-phones {phones} without --g2p, expected both")
    return None if source is None else G2p(source, phones)


def _subtitle_options(args: argparse.Namespace) -> SubtitleOptions | None:
    format, given = format_named(args.format, args.output), {}
    for flag, (name, _, _) in _SUBTITLES.items():
        value = getattr(args, flag.removeprefix("--").replace("-", "_"))
        if value is not None:
            given[name] = value
            if format not in SUBTITLES:
                known = " or ".join(SUBTITLES)
                raise OptionError(f"{flag} with format {format}, expected {known}")
    return SubtitleOptions(**given) if given else None
