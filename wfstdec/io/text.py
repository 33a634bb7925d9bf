"""Read and write transcripts: one `utterance words...` a line, as Kaldi does."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from wfstdec.errors import FormatError
from wfstdec.text.files import PathLike, atomic_write, read_lines

_SPACES = re.compile("[ \t]+")  # as in lexicons: other white space may be in words


def read_text(path: PathLike) -> dict[str, tuple[str, ...]]:
    """Read the words of each utterance, in file order; an id alone has no words.

    Raises:
        FormatError: Unreadable, no utterances at all, or one of them twice.
    """
    transcripts: dict[str, tuple[str, ...]] = {}
    for number, line in enumerate(read_lines(path), 1):
        utterance, *words = _SPACES.split(line.strip(" \t"))
        if not utterance:
            continue
        if utterance in transcripts:
            raise FormatError(
                f"{path}:{number}: utterance {utterance!r} a second time, expected once"
            )
        transcripts[utterance] = tuple(words)
    if not transcripts:
        raise FormatError(f"{path}: no lines, expected 'utterance words...'")
    return transcripts


def write_text(path: PathLike, transcripts: Mapping[str, Iterable[str]]) -> None:
    """Write what `read_text` reads, whole or not at all.

    Raises:
        FormatError: The file cannot be written.
    """
    with atomic_write(path, "w") as file:
        for utterance, words in transcripts.items():
            file.write(" ".join((utterance, *words)) + "\n")
