"""`wfstdec COMMAND`: finds the command, runs it, turns errors into one line.

Exit codes: 0 it did what was asked; 1 it could not, standard error says why; 2 the
command line itself is wrong (as argparse has it).
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import logging
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import wfstdec
from wfstdec.errors import WfstdecError

COMMANDS = {
    "build": "tokens, a lexicon and a language model to a search graph",
    "build-lm": "an ARPA file to a language model that is mapped into memory",
    "info": "what a graph or a saved language model holds",
    "decode": "log-probs to words with times",
    "align": "a known text and log-probs to times of words",
    "rescore": "another language model, or other scales, on lattices",
    "score": "word error rate of hypotheses",
    "compare": "searches side by side: WER, speed, search errors, memory",
    "tune": "LM scale and word insertion for a dev set",
    "convert": "graphs from and to OpenFst files",
    "demo": "all of it on the shipped recipe: real speech to words",
}
"""What each command is for; its module is imported when it is run."""
OK, FAILED, INTERRUPTED = 0, 1, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: The command line without the program's name; default: `sys.argv`.

    Returns:
        The exit code. `SystemExit(2)` is raised where argparse finds a fault.
    """
    argv = sys.argv[1:] if argv is None else argv
    args = make_parser(argv[0] if argv else "").parse_args(argv)
    with _log_to_stderr(quiet=args.quiet), warnings.catch_warnings():
        warnings.showwarning = _show_warning
        warnings.simplefilter("ignore" if args.quiet else "once", UserWarning)
        try:
            command_named(args.command).run(args)
        except BrokenPipeError:  # the reader of our output went away: `| head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return FAILED
        except (WfstdecError, OSError) as error:
            sys.stderr.write(f"wfstdec {args.command}: {error}\n")
            return FAILED
        except KeyboardInterrupt:
            return INTERRUPTED
    return OK


def command_named(name: str) -> ModuleType:
    """The module of a command, imported now."""
    return importlib.import_module(f"wfstdec.cli.{name.replace('-', '_')}")


def make_parser(only: str | None = None) -> argparse.ArgumentParser:
    """The parser of all commands.

    Args:
        only: The first word of a command line: flags of other commands, which import
            what they are about, are left out.
    """
    parser = argparse.ArgumentParser(
        prog="wfstdec", description="Decode CTC speech models with search graphs."
    )
    version = f"wfstdec {wfstdec.__version__}"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, purpose in COMMANDS.items():
        own = commands.add_parser(name, help=purpose, allow_abbrev=False)
        own.formatter_class = argparse.RawDescriptionHelpFormatter
        if only in (None, name):
            command = command_named(name)
            own.description = command.__doc__
            command.add_arguments(own)
            command_named("flags").add_flags(own, "--quiet")
    return parser


class _StderrHandler(logging.Handler):
    """Lines on standard error, above a progress bar where there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        prefix = "warning: " if record.levelno >= logging.WARNING else ""
        _say(prefix + text)


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
    _say(f"warning: {message}")


def _say(text: str) -> None:
    """Write a line on standard error, above a progress bar."""
    from tqdm import tqdm  # `--version` has nothing to say

    tqdm.write(text, file=sys.stderr)
