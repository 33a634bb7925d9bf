"""Entry point `wfstdec COMMAND`: runs a command, and reports errors in one line.

Exit codes: 0 success; 1 failure, with a message on standard error; 2 wrong command line
(as in argparse).
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import importlib
import itertools
import logging
import os
import signal
import sys
import textwrap
import threading
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import wfstdec
from wfstdec.errors import OptionError, WfstdecError

if TYPE_CHECKING:
    from wfstdec.cli.flags import Command

COMMANDS = {
    "doctor": ("checks", "faults of tokens, lexicon, language model and log-probs"),
    "build": ("graphs", "tokens, a lexicon and a language model to a search graph"),
    "build-lm": ("graphs", "an ARPA file to a language model mapped into memory"),
    "build-punctuation": ("graphs", "printed text to a model of punctuation"),
    "info": ("graphs", "contents of a graph or a saved language model"),
    "decode": ("decode", "log-probs to words with times"),
    "transcribe": ("decode", "audio to words with times, by a model and a decoder"),
    "serve": ("serve", "HTTP and WebSocket server for audio streams and files"),
    "align": ("decode", "a known text and log-probs to times of words"),
    "format": ("decode", "words to readable text: numbers, punctuation, capitals"),
    "rescore": ("decode", "another language model, or other scales, on lattices"),
    "score": ("evaluate", "word error rate of hypotheses"),
    "compare": (
        "evaluate",
        "comparison of searches: WER, speed, search errors, memory",
    ),
    "tune": ("evaluate", "LM scale and word insertion for a dev set"),
    "convert": ("graphs", "graphs from and to OpenFst files"),
    "demo": ("checks", "build and decode the shipped recipe: real speech to words"),
    "warm-up": ("graphs", "compilation of kernels ahead of time, in parallel"),
    "completion": ("graphs", "shell script that completes commands and flags"),
}
"""Module of each command, imported when it runs, and its purpose."""
TEXTS = "blank", "join", "separator", "silence"
"""Flags whose value may be `-` and is not a file."""
OK, FAILED, INTERRUPTED = 0, 1, 130
_DEFAULT_AT_MOST = 40
STOPPED = 128  # plus the number of the signal


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns the exit code. Raises `SystemExit(2)` for errors of argparse.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    # Flags of this command only: those of others would import half of the library.
    parser = make_parser(argv[0] if argv else "")
    _check_names(parser, argv)
    args = parser.parse_args(argv)
    with _stopping(), _log_to_stderr(quiet=args.quiet), warnings.catch_warnings():
        # On one line, without the place in our sources.
        warnings.showwarning = lambda message, *_, **__: _print(f"warning: {message}")
        warnings.simplefilter("ignore" if args.quiet else "once", UserWarning)
        try:
            if len(piped := piped_of(args)) > 1:
                raise OptionError(
                    f"standard input for {' and '.join(piped)}, expected it for one"
                )
            return command_named(args.command).run(args) or OK
        except BrokenPipeError:  # the reader of our output has closed it: `| head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return FAILED
        except (WfstdecError, OSError) as error:
            return _failed(args.command, error, FAILED)
        except _Stopped as error:
            return _failed(args.command, error, STOPPED + error.args[1])
        except KeyboardInterrupt as error:
            return _failed(args.command, error, INTERRUPTED)


def _check_names(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Name the nearest command or flag for an unknown one."""
    if not argv or argv[0].startswith("-"):
        return
    if argv[0] not in COMMANDS:
        parser.error(f"no command {argv[0]!r}{nearest(argv[0], COMMANDS)}")
    own = parser._subparsers._group_actions[0].choices[argv[0]]  # type: ignore
    flags = own._option_string_actions
    for word in itertools.takewhile(lambda one: one != "--", argv):
        flag = word.partition("=")[0]
        if flag.startswith("--") and flag not in flags:
            own.error(f"no flag {flag}{nearest(flag, flags)}")


def nearest(name: str, names: Iterable[str]) -> str:
    """Return `; nearest: ...` for an error, or an empty text."""
    found = difflib.get_close_matches(name, names, n=1)
    return f"; nearest: {found[0]}" if found else ""


def piped_of(args: argparse.Namespace) -> list[str]:
    """Return the flags that read standard input."""
    from wfstdec.text.files import STDIN  # with NumPy, which `--version` avoids

    others = "output", "draw", "json", "plot", *TEXTS
    values = {n: str(x) for n, x in vars(args).items() if n not in others}
    return [n for n, x in values.items() if x == STDIN or x.endswith(f":{STDIN}")]


def command_named(name: str) -> Command:
    """Return a command, importing its module."""
    module = importlib.import_module(f"wfstdec.cli.{COMMANDS[name][0]}")
    return getattr(module, name.replace("-", "_"))


def make_parser(only: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of all commands, with flags of all or of one."""
    parser = argparse.ArgumentParser(
        prog="wfstdec", description="Decode CTC speech models with search graphs."
    )
    version = f"wfstdec {wfstdec.__version__}"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (_, purpose) in COMMANDS.items():
        command = command_named(name) if only in (None, name) else None
        how: Any = {"add_help": command is None, "allow_abbrev": False}
        own = commands.add_parser(name, help=purpose, **how)
        own.formatter_class = argparse.RawDescriptionHelpFormatter
        if command is not None:
            own.description = command.description
            own.add_argument("-h", "--help", action=_ShortHelp, command=command)
            own.add_argument("--help-all", action="help", help="all flags")
            command.add_arguments(own)
    return parser


class _ShortHelp(argparse.Action):
    """Action that shows the usual flags, examples, and how to see the rest."""

    def __init__(
        self, option_strings: Sequence[str], command: Command, **_: Any
    ) -> None:
        text = "the flags that most users need"
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help=text)
        self._command = command

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        places = parser._get_positional_actions()
        known, common = parser._option_string_actions, self._command.shown.split()
        rows = []
        for one in [*places, *map(known.__getitem__, common)]:
            names = one.metavar if isinstance(one.metavar, tuple) else [one.metavar]
            value = "" if one.nargs == 0 else " ".join(x or "NAME" for x in names)
            if not one.option_strings:
                value = str(one.metavar or one.dest)
            # Without text after a semicolon, and without a long default.
            text, *default = (one.help or "").split(" (default: ", 1)
            text = text.partition("; ")[0]
            if default and len(default[0]) < _DEFAULT_AT_MOST:
                text += f" (default: {default[0]}"
            rows.append((" ".join([*one.option_strings, value]).rstrip(), text))
        width = max(len(flag) for flag, _ in rows)
        usage = " ".join([parser.prog, *(f"{p.metavar or p.dest}" for p in places)])
        print(f"usage: {usage} [flags]\n")
        print(self._command.description.partition("\n")[0], end="\n\n")
        for flag, text in rows:
            first, behind = f"  {flag:{width}}  ", " " * (width + 4)
            how: Any = {"initial_indent": first, "subsequent_indent": behind}
            print(textwrap.fill(text, 88, **how))
        print(f"{self._command.examples}\nall flags: {parser.prog} --help-all")
        parser.exit()


class _Stopped(KeyboardInterrupt):
    """A signal other than Ctrl-C's to end the program."""

    def __str__(self) -> str:
        return f"stopped by {self.args[0]}"


@contextlib.contextmanager
def _stopping() -> Iterator[None]:
    def stop(number: int, _: object) -> None:
        raise _Stopped(signal.Signals(number).name, number)

    before: dict[int, Any] = {}
    # only the main thread may
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) == signal.SIG_DFL:  # SIGHUP is not, by nohup
                before[number] = signal.signal(number, stop)
    try:
        yield
    finally:
        for changed, handler in before.items():
            signal.signal(changed, handler)


def _failed(command: str, error: BaseException, code: int) -> int:
    text = "interrupted" if type(error) is KeyboardInterrupt else str(error)
    lines = [text, *getattr(error, "__notes__", ())]
    sys.stderr.write("".join(f"wfstdec {command}: {line}\n" for line in lines))
    return code


class _StderrHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        prefix = "warning: " if record.levelno >= logging.WARNING else ""
        _print(prefix + self.format(record))


@contextlib.contextmanager
def _log_to_stderr(*, quiet: bool) -> Iterator[None]:
    logger = logging.getLogger("wfstdec")
    before = logger.level, logger.handlers, logger.propagate
    logger.setLevel(logging.ERROR if quiet else logging.INFO)
    logger.handlers, logger.propagate = [_StderrHandler()], False
    try:
        yield
    finally:
        logger.setLevel(before[0])
        logger.handlers, logger.propagate = before[1:]


def _print(text: str) -> None:
    from tqdm import tqdm  # `--version` does not need it

    tqdm.write(text, file=sys.stderr)
