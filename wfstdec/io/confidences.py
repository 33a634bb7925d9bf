"""Words with confidences, from CTM or JSON lines as `wfstdec decode` writes them.

said = read_confidences("hyp.ctm")["utt1"]          # [("hello", 0.93), ("world", 0.71)]
"""

from __future__ import annotations

import json

from wfstdec.errors import FormatError
from wfstdec.text.files import PathLike, read_lines

_CTM_FIELDS = 6

Said = dict[str, list[tuple[str, float]]]


def read_confidences(path: PathLike) -> Said:
    """Read words and how sure they are, by utterance; a file of lines with `{` is JSON.

    Raises:
        FormatError: Unreadable, a line of another kind, or without confidences.
    """
    found: Said = {}
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        try:
            utterance, said = _json(line) if line.startswith("{") else _ctm(line)
        except (KeyError, TypeError, ValueError):
            raise FormatError(
                f"{path}:{number}: found {line[:60]!r}, expected words with "
                "confidences, as `wfstdec decode --confidence` writes them to .ctm or "
                ".jsonl"
            ) from None
        found.setdefault(utterance, []).extend(said)
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
