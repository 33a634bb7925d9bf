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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wfstdec.batch.decoding import BoostLists
from wfstdec.boost.lists import BoostsLike, Numbers
from wfstdec.errors import FormatError
from wfstdec.io.boost_files import boosts_of
from wfstdec.text.files import read_lines, reading
from wfstdec.transcription.encoding import Recording

AUDIO_ENDINGS = frozenset(
    ".wav .flac .ogg .oga .opus .mp3 .aif .aiff .au .w64 .caf .webm .m4a .mp4 .mkv "
    ".mov .aac .wma".split()
)
"""What counts as audio in folders."""


@dataclass(frozen=True)
class Source:
    """A file to transcribe, or a part of one."""

    name: str  # of its results: the file's without ending, unless a list gives one
    path: Path
    start_s: float = 0.0
    duration_s: float | None = None  # to the end
    boosts: Numbers | None = None  # a list in place of the common one

    def recording(self, lists: BoostLists | None = None) -> Recording:
        """Make what a `Transcriber` takes, with its own boosts or those of lists."""
        own = self.boosts
        boosts: BoostsLike = own if lists is None else lists.of(self.name, own)
        return Recording(self.name, self.path, boosts, self.start_s, self.duration_s)


def find_recordings(places: Sequence[str | os.PathLike[str]]) -> list[Source]:
    """Find the recordings of paths, in their order; folders sorted.

    Where names would be the same, those of folders are put before them.

    Raises:
        FormatError: A list or a manifest is not as expected, a folder has no audio, or
            two recordings have one name.
    """
    found = [source for place in places for source in _of(Path(place))]
    taken = Counter(source.name for source in found)
    found = [
        replace(source, name=_longer(source)) if taken[source.name] > 1 else source
        for source in found
    ]
    seen: dict[str, Source] = {}
    for source in found:
        other = seen.setdefault(source.name, source)
        if other is not source:
            raise FormatError(
                f"{other.path} and {source.path} would both be {source.name!r}, "
                "expected different names; a manifest may give an id to each"
            )
    return found


def _of(place: Path) -> Iterator[Source]:
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


def _file(path: Path) -> Source:
    return Source(path.stem, path)


def _longer(source: Source) -> str:
    return "-".join((*source.path.parent.parts[-2:], source.name)).lstrip("/-")


def _in_list(line: str, folder: Path, where: str) -> Source:
    return _file(folder / line.strip())


def _in_scp(line: str, folder: Path, where: str) -> Source:
    name, *rest = line.split(maxsplit=1)
    if not rest or rest[0].rstrip().endswith("|"):
        raise FormatError(
            f"{where}: found {line!r}, expected a name and a file; commands are not run"
        )
    return Source(name, folder / rest[0].strip())


def _in_manifest(line: str, folder: Path, where: str) -> Source:
    expected = "a JSON object a line, with audio_filepath"
    with reading(where, f"line {line[:80]!r}", expected):
        return _entry(json.loads(line), folder)


def _entry(entry: dict[str, Any], folder: Path) -> Source:
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
    return Source(
        str(name),
        folder / file,
        start_s,
        duration and float(duration),
        None if boosts is None else boosts_of(boosts),
    )


_LINES = {
    **dict.fromkeys((".txt", ".lst", ".list"), _in_list),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), _in_manifest),
    ".scp": _in_scp,
}
"""Makes a recording of a line, its file's folder, and its place; by endings."""
