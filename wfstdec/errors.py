"""Errors and warnings of wfstdec, in one class hierarchy.

Every message reads `[place: ]what is wrong, what was expected[; what to do]`. Input
errors are also `ValueError`, a missing backend is also `RuntimeError`.
"""

import contextlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any


class WfstdecError(Exception):
    """Base class of all errors that wfstdec raises on purpose."""


class InputError(WfstdecError, ValueError):
    """An input is wrong; each subclass names a kind of input.

    Attributes:
        message: What was wrong and what was expected, without utterance and file.
        utterance: Position in the batch or the caller's id; None if the input belongs
            to no utterance. Callers that know the id may set it.
        path: The file of the input, as a string; None until its reader sets it.
    """

    whose = "utterance"
    """Noun before the name of `utterance` in the text."""

    def __init__(self, message: str, utterance: int | str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.utterance = utterance
        self.path: str | None = None

    def __str__(self) -> str:
        place = "" if self.path is None else f"{self.path}: "
        if self.utterance is not None:
            place += f"{self.whose} {self.utterance!r}: "
        return place + self.message


@contextlib.contextmanager
def naming(utterance: int | str) -> Iterator[None]:
    """Name the utterance in errors raised within; in foreign ones by a note."""
    try:
        yield
    except InputError as error:
        if error.utterance is None:
            error.utterance = utterance
        raise
    except Exception as error:
        error.add_note(f"wfstdec: utterance {utterance!r}")
        raise


class TokenTableError(InputError):
    """A token table is malformed, or a token is not in it."""


class LexiconError(InputError):
    """A lexicon is malformed, ambiguous, or does not fit the tokens."""


class ArpaError(InputError):
    """An ARPA language model is malformed."""


class LanguageModelError(InputError):
    """A user's language model returned an invalid value."""


class GrammarError(InputError):
    """A grammar FST cannot be used as G."""


class GraphError(InputError):
    """A graph is malformed, truncated, or of another version or table."""


class LatticeError(InputError):
    """A lattice is damaged, or does not support an operation."""


class FormatError(InputError):
    """A data file is unreadable or not of the expected format."""


class ShapeError(InputError):
    """An array has the wrong number of axes, or an axis the wrong size."""


class LogprobError(InputError):
    """Log-probabilities hold NaN or +inf."""


class OptionError(InputError):
    """An option is out of its range, or conflicts with another."""


class SessionError(InputError):
    """A session is closed, unknown, or open already; `utterance` has its name."""

    whose = "session"


class BoostError(InputError):
    """A boost list is malformed."""


class AudioError(InputError):
    """Audio is damaged, empty, or not valid as model input."""


class AudioFormError(AudioError):
    """Bytes are not in a known audio format."""


class AudioLengthError(AudioError):
    """Audio is longer than allowed."""


class ModelError(InputError):
    """A model's files lack information, or its outputs are invalid."""


class LogprobWarning(UserWarning):
    """Numbers do not look like log-probabilities."""


class BoostWarning(UserWarning):
    """Words or phrases of a boost list have no effect."""


class BackendError(WfstdecError, RuntimeError):
    """A backend is unknown, or a required package is not installed."""


class LimitError(WfstdecError, RuntimeError):
    """A server is at its limit, or about to stop."""


class DeviceError(BackendError):
    """A device failed while it decoded a batch.

    Attributes:
        missing: Positions that failed, in order.
        done: Hypotheses of the finished ones, by position.
    """

    def __init__(
        self, message: str, missing: Iterable[int], done: Mapping[int, Any]
    ) -> None:
        super().__init__(message)
        self.missing = tuple(sorted(missing))
        self.done: dict[int, Any] = dict(done)


def levels_inside() -> int:
    """Return the `stacklevel` of the caller outside the package."""
    package, level, frame = str(Path(__file__).parent), 1, sys._getframe(1)
    made = "<string>", "__init__"  # of a dataclass
    while frame and (
        frame.f_code.co_filename.startswith(package)
        or (frame.f_code.co_filename, frame.f_code.co_name) == made
    ):
        frame, level = frame.f_back, level + 1  # type: ignore[assignment]
    return level


def check_listed(name: str, given: Any) -> None:
    """Raise for a text instead of a list of names: each letter would be one."""
    if isinstance(given, str):
        raise OptionError(f"{name}={given!r}, expected a list or tuple of names")


@contextlib.contextmanager
def needs(what: str, install: str) -> Iterator[None]:
    """Raise `BackendError` for a package that cannot be imported.

    with needs("another sample rate needs soxr", ": pip install soxr"):
        import soxr
    """
    try:
        yield
    except ImportError as error:
        raise BackendError(f"{what} ({error}){install}") from error
