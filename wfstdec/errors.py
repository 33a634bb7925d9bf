"""The errors of wfstdec: one tree, so that a caller can catch as finely as needed.

Every message reads `[place: ]what was found, what was expected[; what to do]`.
Input errors are also `ValueError`, a missing backend is also `RuntimeError`.
"""

import contextlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any


class WfstdecError(Exception):
    """Root of all errors that wfstdec raises on purpose."""


class InputError(WfstdecError, ValueError):
    """An input is wrong; each subclass names a kind of input.

    Attributes:
        message: What was wrong and what was expected, without utterance and file.
        utterance: The utterance: a position in the batch or the caller's id; None where
            the input belongs to none. Callers that know the id may set it.
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
    """Name the utterance in errors raised within; in other people's by a note."""
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
    """A user's own language model gives what it must not."""


class GrammarError(InputError):
    """A grammar FST cannot serve as G."""


class GraphError(InputError):
    """A graph is malformed, truncated, or from another version or table."""


class LatticeError(InputError):
    """A lattice is damaged, or cannot do what is asked of it."""


class FormatError(InputError):
    """A data file is unreadable or not of the format it is said to be."""


class ShapeError(InputError):
    """An array has the wrong number of axes, or an axis the wrong size."""


class LogprobError(InputError):
    """Log-probabilities hold NaN or +inf."""


class OptionError(InputError):
    """An option is out of its range, or does not go with another."""


class SessionError(InputError):
    """A session is closed, unknown, or open already; `utterance` has its name."""

    whose = "session"


class BoostError(InputError):
    """A boost list is malformed."""


class AudioError(InputError):
    """Audio is damaged, empty, or not of the form that a model hears."""


class AudioFormError(AudioError):
    """Bytes are of no form of audio that can be read."""


class AudioLengthError(AudioError):
    """Audio lasts longer than is allowed."""


class ModelError(InputError):
    """A model's files tell too little, or it gives what no CTC model gives."""


class LogprobWarning(UserWarning):
    """Numbers look as if they were no log-probabilities."""


class BoostWarning(UserWarning):
    """Words or phrases were to be boosted that nothing can hear."""


class BackendError(WfstdecError, RuntimeError):
    """A backend is unknown, or what it needs is not installed."""


class LimitError(WfstdecError, RuntimeError):
    """A server has as much to do as it may, or is about to stop."""


class DeviceError(BackendError):
    """A device failed while it decoded a batch.

    Attributes:
        missing: The same, in order.
        done: The hypotheses of those that were done, by position.
    """

    def __init__(
        self, message: str, missing: Iterable[int], done: Mapping[int, Any]
    ) -> None:
        super().__init__(message)
        self.missing = tuple(sorted(missing))
        self.done: dict[int, Any] = dict(done)


def levels_inside() -> int:
    """The `stacklevel` of the package's caller, for the caller of this."""
    package, level, frame = str(Path(__file__).parent), 1, sys._getframe(1)
    made = "<string>", "__init__"  # of a dataclass
    while frame and (
        frame.f_code.co_filename.startswith(package)
        or (frame.f_code.co_filename, frame.f_code.co_name) == made
    ):
        frame, level = frame.f_back, level + 1  # type: ignore[assignment]
    return level


def check_listed(name: str, given: Any) -> None:
    """Refuse a text where words or names are expected: each letter would be one."""
    if isinstance(given, str):
        raise OptionError(f"{name}={given!r}, expected a list or tuple of names")


@contextlib.contextmanager
def needs(what: str, install: str) -> Iterator[None]:
    """Make `BackendError` of a package that cannot be imported.

    with needs("another sample rate needs soxr", ": pip install soxr"):
        import soxr
    """
    try:
        yield
    except ImportError as error:
        raise BackendError(f"{what} ({error}){install}") from error
