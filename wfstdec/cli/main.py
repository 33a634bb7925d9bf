"""`wfstdec COMMAND`: finds the command, runs it, turns errors into one line.

Exit codes: 0 it did what was asked; 1 it could not, standard error says why; 2 the
command line itself is wrong (as argparse has it).
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from tqdm import tqdm

import wfstdec
from wfstdec.cli import (
    align,
    build,
    build_lm,
    compare,
    convert,
    decode,
    demo,
    info,
    rescore,
    score,
    tune,
    warm_up,
)
from wfstdec.cli.flags import add_flags
from wfstdec.errors import WfstdecError

COMMANDS = {
    "build": build,
    "build-lm": build_lm,
    "info": info,
    "decode": decode,
    "align": align,
    "rescore": rescore,
    "score": score,
    "compare": compare,
    "tune": tune,
    "convert": convert,
    "demo": demo,
    "warm-up": warm_up,
}
OK, FAILED, INTERRUPTED = 0, 1, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: The command line without the program's name; default: `sys.argv`.

    Returns:
        The exit code. `SystemExit(2)` is raised where argparse finds a fault.
    """
    args = make_parser().parse_args(argv)
    with _log_to_stderr(quiet=args.quiet), warnings.catch_warnings():
        warnings.showwarning = _show_warning
        warnings.simplefilter("ignore" if args.quiet else "once", UserWarning)
        try:
            COMMANDS[args.command].run(args)
        except BrokenPipeError:  # the reader of our output went away: `| head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return FAILED
        except (WfstdecError, OSError) as error:
            sys.stderr.write(f"wfstdec {args.command}: {error}\n")
            return FAILED
        except KeyboardInterrupt:
            return INTERRUPTED
    return OK


def make_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="wfstdec", description="Decode CTC speech models with search graphs."
    )
    version = f"wfstdec {wfstdec.__version__}"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        own = commands.add_parser(
            name, help=command.HELP, description=command.__doc__, allow_abbrev=False
        )
        own.formatter_class = argparse.RawDescriptionHelpFormatter
        command.add_arguments(own)
        add_flags(own, "--quiet")
    return parser


class _StderrHandler(logging.Handler):
    """Lines on standard error, above a progress bar where there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        prefix = "warning: " if record.levelno >= logging.WARNING else ""
        tqdm.write(prefix + text, file=sys.stderr)


@contextlib.contextmanager
def _log_to_stderr(*, quiet: bool) -> Iterator[None]:
    """The library's log goes to standard error; as it was before, afterwards."""
    logger = logging.getLogger("wfstdec")
    before = logger.level, logger.handlers, logger.propagate
    logger.setLevel(logging.ERROR if quiet else logging.INFO)
    logger.handlers, logger.propagate = [_StderrHandler()], False
    try:
        yield
    finally:
        logger.setLevel(before[0])
        logger.handlers, logger.propagate = before[1:]


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """Show a warning in one line, without the place in our sources."""
    tqdm.write(f"warning: {message}", file=sys.stderr)
