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
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import wfstdec
from wfstdec.errors import WfstdecError

COMMANDS = {
    "doctor": "what is wrong with tokens, lexicon, language model and log-probs",
    "build": "tokens, a lexicon and a language model to a search graph",
    "build-lm": "an ARPA file to a language model that is mapped into memory",
    "info": "what a graph or a saved language model holds",
    "decode": "log-probs to words with times",
    "transcribe": "audio to words with times, by a model and a decoder",
    "serve": "the same for streams and files that come by the network; a page",
    "align": "a known text and log-probs to times of words",
    "rescore": "another language model, or other scales, on lattices",
    "score": "word error rate of hypotheses",
    "compare": "searches side by side: WER, speed, search errors, memory",
    "tune": "LM scale and word insertion for a dev set",
    "convert": "graphs from and to OpenFst files",
    "demo": "all of it on the shipped recipe: real speech to words",
    "warm-up": "compile kernels beforehand, side by side",
}
"""What each command is for; its module is imported when it is run."""
OK, FAILED, INTERRUPTED = 0, 1, 130
STOPPED = 128  # and the number of the signal


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns the exit code. `SystemExit(2)` is raised where argparse finds a fault.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    # Flags of this command alone: those of others would import half of the library.
    parser = make_parser(argv[0] if argv else "")
    if argv and argv[0] in COMMANDS:
        command_parser(parser, argv[0])
    args = parser.parse_args(argv)
    quiet = args.quiet
    with _stopping(), _log_to_stderr(quiet=quiet), warnings.catch_warnings():
        # In one line, without the place in our sources.
        warnings.showwarning = lambda message, *_, **__: _say(f"warning: {message}")
        warnings.simplefilter("ignore" if quiet else "once", UserWarning)
        try:
            return command_named(args.command).run(args) or OK
        except BrokenPipeError:  # the reader of our output went away: `| head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return FAILED
        except (WfstdecError, OSError) as error:
            return _failed(args.command, error)
        except _Stopped as error:
            return _failed(args.command, error, STOPPED + error.args[1])
        except KeyboardInterrupt as error:
            return _failed(args.command, error, INTERRUPTED)


def command_parser(
    parser: argparse.ArgumentParser, name: str
) -> argparse.ArgumentParser:
    """The parser of one command."""
    [commands] = parser._subparsers._group_actions  # type: ignore[union-attr]
    return commands.choices[name]  # type: ignore[index]


class _Stopped(KeyboardInterrupt):
    """Another signal than Ctrl-C's asks the program to end: its name and number."""

    def __str__(self) -> str:
        return f"stopped by {self.args[0]}"


@contextlib.contextmanager
def _stopping() -> Iterator[None]:
    """Let signals that ask us to end do it as Ctrl-C does: with work in order."""

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


def _failed(command: str, error: BaseException, code: int = FAILED) -> int:
    """Say what is wrong in a line, and what else those know whom it came through."""
    text = "interrupted" if type(error) is KeyboardInterrupt else str(error)
    lines = [text, *getattr(error, "__notes__", ())]
    sys.stderr.write("".join(f"wfstdec {command}: {line}\n" for line in lines))
    return code


def command_named(name: str) -> ModuleType:
    """The module of a command, imported now."""
    return importlib.import_module(f"wfstdec.cli.{name.replace('-', '_')}")


def make_parser(only: str | None = None) -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="wfstdec", description="Decode CTC speech models with search graphs."
    )
    version = f"wfstdec {wfstdec.__version__}"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, purpose in COMMANDS.items():
        command = command_named(name) if only in (None, name) else None
        is_short = hasattr(command, "COMMON_FLAGS")
        own = commands.add_parser(
            name, help=purpose, allow_abbrev=False, add_help=not is_short
        )
        own.formatter_class = argparse.RawDescriptionHelpFormatter
        if command is not None:
            own.description = command.__doc__
            if is_short:
                own.add_argument("-h", "--help", action=_ShortHelp, nargs=0)
                own.add_argument("--help-all", action="help", help="show all flags")
            command.add_arguments(own)
            command_named("flags").add_flags(own, "--quiet")
    return parser


class _ShortHelp(argparse.Action):
    """Shows the flags that most users need, examples, and how to see the rest."""

    def __init__(self, option_strings: Sequence[str], dest: str, **_: Any) -> None:
        text = "show the flags that most users need"
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help=text)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        """Show it, of `COMMON_FLAGS` and `EXAMPLES`, and end the program."""
        command = command_named(parser.prog.split()[-1])
        summary = (command.__doc__ or "").partition("\n")[0]
        places = [f"{action.metavar}" for action in parser._get_positional_actions()]
        common = command.COMMON_FLAGS
        width = max(map(len, common))
        lines = [
            *(" ".join(["usage:", parser.prog, *places, "[flags]"]), "", summary, ""),
            *(f"  {flag:{width}}  {text}" for flag, text in common.items()),
            *(command.EXAMPLES.rstrip("\n"), ""),
            f"all flags: {parser.prog} --help-all\n",
        ]
        sys.stdout.write("\n".join(lines))
        parser.exit()


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


def _say(text: str) -> None:
    """Write a line on standard error, above a progress bar."""
    from tqdm import tqdm  # `--version` has nothing to say

    tqdm.write(text, file=sys.stderr)
