"""`wfstdec COMMAND`: finds the command, runs it, turns errors into one line.

Exit codes: 0 it did what was asked; 1 it could not, standard error says why; 2 the
command line itself is wrong (as argparse has it).
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import signal
import sys
import threading
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
    doctor,
    info,
    rescore,
    score,
    tune,
)
from wfstdec.cli.flags import add_flags
from wfstdec.errors import WfstdecError

COMMANDS = {
    "doctor": doctor,
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
}
OK, FAILED, INTERRUPTED = 0, 1, 130
STOPPED = 128  # and the number of the signal


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: The command line without the program's name; default: `sys.argv`.

    Returns:
        The exit code. `SystemExit(2)` is raised where argparse finds a fault.
    """
    args = make_parser().parse_args(argv)
    quiet = args.quiet
    with _stopping(), _log_to_stderr(quiet=quiet), warnings.catch_warnings():
        warnings.showwarning = _show_warning
        warnings.simplefilter("ignore" if quiet else "once", UserWarning)
        try:
            return COMMANDS[args.command].run(args) or OK
        except BrokenPipeError:  # the reader of our output went away: `| head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return FAILED
        except (WfstdecError, OSError) as error:
            _show_error(args.command, str(error), error)
            return FAILED
        except _Stopped as error:
            _show_error(args.command, str(error), error)
            return STOPPED + error.args[1]
        except KeyboardInterrupt as error:
            _show_error(args.command, "interrupted", error)
            return INTERRUPTED


class _Stopped(KeyboardInterrupt):
    """Another signal than Ctrl-C's asks the program to end: its name and number."""

    def __str__(self) -> str:
        return f"stopped by {self.args[0]}"


@contextlib.contextmanager
def _stopping() -> Iterator[None]:
    """What asks us to end ends us as Ctrl-C does: with files and work in order."""

    def stop(number: int, _: object) -> None:
        raise _Stopped(signal.Signals(number).name, number)

    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():  # no other may
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) == signal.SIG_DFL:  # SIGHUP is not, by nohup
                before[number] = signal.signal(number, stop)
    try:
        yield
    finally:
        for changed, handler in before.items():
            signal.signal(changed, handler)


def _show_error(command: str, text: str, error: BaseException) -> None:
    """Say what is wrong in a line, and what else those know whom it came through."""
    lines = [text, *getattr(error, "__notes__", ())]
    sys.stderr.write("".join(f"wfstdec {command}: {line}\n" for line in lines))


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
