"""Result files: one of all utterances, or one of each where a format wants it so.

    with open_results(path, "ctm", write) as results:
        results.put(utterance, [hypothesis])

    with open_output(path) as file: ...             # None or "-": standard output

Subtitles and TextGrids hold one utterance: they go to a file if there is one, else to a
folder, which is made, under the names of the utterances.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from wfstdec.errors import FormatError, OptionError
from wfstdec.io.results import ENDINGS
from wfstdec.text.files import atomic_write

STDOUT = "-"
ONE_EACH = frozenset(("srt", "vtt", "textgrid"))
"""Formats whose files hold one utterance."""

PathLike = str | os.PathLike[str]


@contextlib.contextmanager
def open_output(path: PathLike | None) -> Iterator[IO[str]]:
    """Open a text file that appears whole or not at all, or standard output.

    Raises:
        FormatError: The file cannot be written.
    """
    if path is None or os.fspath(path) == STDOUT:
        yield sys.stdout
        sys.stdout.flush()
        return
    with atomic_write(path, "w") as file:
        yield file


@dataclass
class Results:
    """An open result file, or folder.

    Attributes:
        put: Write what was found of an utterance.
        on_terminal: Whether people see it come.
    """

    put: Callable[[str, Any], None]
    on_terminal: bool = False


@contextlib.contextmanager
def open_results(
    path: PathLike | None,
    format: str,
    write: Callable[[str, Any], str],
    num_utterances: int | None = None,
) -> Iterator[Results]:
    """Open what results are written to.

    Args:
        path: A file; where a format holds one utterance and the name has not its
            ending, a folder; None or "-": standard output.
        format: One of `FORMATS`.
        write: Makes the text of an utterance.
        num_utterances: How many there will be, where that is known.

    Raises:
        OptionError: A file for one utterance, and there are more.
        FormatError: It cannot be written; an utterance's name can be no file's.
    """
    if format in ONE_EACH and _is_folder(path, ENDINGS[format]):
        assert path is not None
        yield _folder(Path(path), ENDINGS[format], write)
        return
    if format in ONE_EACH and (num_utterances or 0) > 1:
        raise _too_many(format, path)
    with open_output(path) as file:
        seen: list[str] = []

        def put(utterance: str, found: Any) -> None:
            if seen and format in ONE_EACH:
                raise _too_many(format, path)
            seen[:] = [utterance]
            file.write(write(utterance, found))

        yield Results(put, file.isatty())


def _is_folder(path: PathLike | None, ending: str) -> bool:
    if path is None or os.fspath(path) == STDOUT:
        return False
    return Path(path).is_dir() or Path(path).suffix.lower() != ending.lower()


def _folder(path: Path, ending: str, write: Callable[[str, Any], str]) -> Results:
    try:
        path.mkdir(exist_ok=True)
    except OSError as error:
        raise FormatError(
            f"{path}: cannot be made a folder: {error.strerror}"
        ) from error

    def put(utterance: str, found: Any) -> None:
        if Path(utterance).name != utterance:
            raise FormatError(
                f"utterance {utterance!r} for a file in {path}, expected a name that a "
                "file can have"
            )
        with atomic_write(path / f"{utterance}{ending}", "w") as file:
            file.write(write(utterance, found))

    return Results(put)


def _too_many(format: str, path: PathLike | None) -> OptionError:
    place = "standard output" if path is None or path == STDOUT else repr(str(path))
    return OptionError(
        f"several utterances for one {format} file, {place}, expected a folder as "
        f"output: a name without {ENDINGS[format]!r}"
    )
