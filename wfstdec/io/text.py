"""Transcripts, one `utterance words...` a line as in Kaldi, and words with confidences.

references = read_text("dev.txt")
read_confidences("hyp.ctm")["utt1"]          # [("hello", 0.93), ("world", 0.71)]
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

from wfstdec.errors import FormatError
from wfstdec.text.files import PathLike, atomic_write, read_lines, reading

_SPACES = re.compile("[ \t]+")  # as in lexicons: other white space may be in words


def read_text(path: PathLike) -> dict[str, tuple[str, ...]]:
    """Read the words of each utterance, in file order; an id alone has no words."""
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
    """Write what `read_text` reads, whole or not at all."""
    with atomic_write(path, "w") as file:
        for utterance, words in transcripts.items():
            file.write(" ".join((utterance, *words)) + "\n")


_CTM_FIELDS = 6

Confidences = dict[str, list[tuple[str, float]]]


def read_confidences(path: PathLike) -> Confidences:
    """Read words with confidences by utterance, from CTM or JSON lines."""
    found: Confidences = {}
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        with reading(
            *(f"{path}:{number}", f"line {line[:60]!r}"),
            "words with confidences, as `wfstdec decode --confidence` writes them to "
            ".ctm or .jsonl",
        ):
            utterance, pairs = _json(line) if line.startswith("{") else _ctm(line)
        found.setdefault(utterance, []).extend(pairs)
    return found


def _ctm(line: str) -> tuple[str, list[tuple[str, float]]]:
    fields = line.split(" ")  # words may have other white space in them
    if len(fields) != _CTM_FIELDS:
        raise ValueError(line)
    return fields[0], [(fields[4], _share(fields[5]))]


def _json(line: str) -> tuple[str, list[tuple[str, float]]]:
    found = json.loads(line)
    words = [(str(w["word"]), _share(w["confidence"])) for w in found["words"]]
    return str(found["id"]), words


def _share(text: str | float) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise ValueError(text)
    return value
