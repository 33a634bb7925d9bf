"""The recordings that a user names: files, folders, lists, manifests.

    find_recordings(["talk.mp3", "calls/", "more.txt", "manifest.jsonl", "wav.scp"])

A folder is all audio below it, by the ending of its names. A list has a path on
each line; an `.scp` file of Kaldi's `name path`; a manifest is JSON lines as NeMo has
them, with `audio_filepath` and, where they are, `id`, `offset`, `duration`, `boosts`,
these as in the JSON lines of a boost file. Paths in a file are relative to its folder.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from wfstdec.errors import FormatError
from wfstdec.io.boost_files import boosts_of
from wfstdec.text.files import read_lines, reading
from wfstdec.transcription.encoding import Recording

AUDIO_ENDINGS = frozenset(
    ".wav .flac .ogg .oga .opus .mp3 .aif .aiff .au .w64 .caf .webm .m4a .mp4 .mkv "
    ".mov .aac .wma".split()
)
"""What counts as audio in folders."""


def find_recordings(places: Sequence[str | os.PathLike[str]]) -> list[Recording]:
    """Find the recordings of paths, in their order; folders sorted.

    Where names would be the same, those of folders are put before them.

    Raises:
        FormatError: A list or a manifest is not as expected, a folder has no audio, or
            two recordings have one name.
    """
    found = [source for place in places for source in _of(Path(place))]
    taken = Counter(source.name for source in found)
    found = [
        source._replace(name=_longer(source)) if taken[source.name] > 1 else source
        for source in found
    ]
    seen: dict[str, Recording] = {}
    for source in found:
        other = seen.setdefault(source.name, source)
        if other is not source:
            raise FormatError(
                f"{_path(other)} and {_path(source)} would both be {source.name!r}, "
                "expected different names; a manifest may give an id to each"
            )
    return found


def _of(place: Path) -> Iterator[Recording]:
    read = _LINES.get(place.suffix.lower())
    if place.is_dir():
        files = sorted(place.rglob("*"))
        audio = [file for file in files if file.suffix.lower() in AUDIO_ENDINGS]
        if not audio:
            raise FormatError(
                f"{place}: no audio in it, expected files that end in "
                f"{' '.join(sorted(AUDIO_ENDINGS))}"
            )
        yield from map(_file, audio)
    elif read is None:
        yield _file(place)
    else:
        for number, line in enumerate(read_lines(place), 1):
            if line.strip():
                yield read(line, place.parent, f"{place}:{number}")


def _file(path: Path) -> Recording:
    return Recording(path.stem, path)


def _longer(source: Recording) -> str:
    folders = _path(source).parent.parts[-2:]
    return "-".join((*folders, source.name)).lstrip("/-")


def _path(source: Recording) -> Path:
    assert isinstance(source.audio, Path)
    return source.audio


def _in_list(line: str, folder: Path, where: str) -> Recording:
    return _file(folder / line.strip())


def _in_scp(line: str, folder: Path, where: str) -> Recording:
    name, *rest = line.split(maxsplit=1)
    if not rest or rest[0].rstrip().endswith("|"):
        raise FormatError(
            f"{where}: found {line!r}, expected a name and a file; commands are not run"
        )
    return Recording(name, folder / rest[0].strip())


def _in_manifest(line: str, folder: Path, where: str) -> Recording:
    expected = "a JSON object a line, with audio_filepath"
    with reading(where, f"line {line[:80]!r}", expected):
        return _entry(json.loads(line), folder)


def _entry(entry: dict[str, Any], folder: Path) -> Recording:
    file = Path(entry["audio_filepath"])
    start_s = float(entry.get("offset") or 0.0)
    # Without an offset, `duration` is that of the file: what is there counts.
    duration = entry.get("duration") if "offset" in entry else None
    name = entry.get("id")
    if name is None:
        name = file.stem
        if start_s:
            name += f"-{round(100 * start_s):07d}"
    boosts = entry.get("boosts")
    return Recording(
        str(name),
        folder / file,
        None if boosts is None else boosts_of(boosts),
        start_s,
        duration and float(duration),
    )


_LINES = {
    **dict.fromkeys((".txt", ".lst", ".list"), _in_list),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), _in_manifest),
    ".scp": _in_scp,
}
"""Makes a recording of a line, its file's folder, and its place; by endings."""
