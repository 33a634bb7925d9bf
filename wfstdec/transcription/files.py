"""Recordings from paths, lists and manifests, transcribed to result files.

    find_recordings(["talk.mp3", "calls/", "more.txt", "manifest.jsonl", "wav.scp"])

A folder contributes all audio below it, by ending. A list has a path on each line;
Kaldi's `.scp` has `name path`; a manifest has NeMo's JSON lines, with `audio_filepath`
and optional `id`, `offset`, `duration`, `boosts` (as in a boost file). Paths in a file
are relative to its folder.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from wfstdec.audio.sources import AUDIO_ENDINGS
from wfstdec.batch.decoding import BoostLists, Summary, fields_of, named, progress_bar
from wfstdec.boost.lists import Numbers
from wfstdec.errors import FormatError
from wfstdec.io.boost_files import boosts_of
from wfstdec.io.journal import Restart
from wfstdec.io.outputs import open_results
from wfstdec.io.results import format_named, result_writer
from wfstdec.io.subtitles import SubtitleOptions
from wfstdec.lattice.arrays import Lattice
from wfstdec.lattice.file import GrowingFile, LatticeWriter
from wfstdec.text.files import read_lines, reading
from wfstdec.transcription.encoding import Recording
from wfstdec.transcription.transcriber import Transcriber

if TYPE_CHECKING:
    from wfstdec.readable import Formatter

_log = logging.getLogger("wfstdec.transcription")


def find_recordings(places: Sequence[str | os.PathLike[str]]) -> list[Recording]:
    """Return the recordings of paths, in order; folders are sorted.

    Equal names are prefixed by their folders.

    Raises:
        FormatError: A list or a manifest is malformed, a folder has no audio, or two
            recordings have one name.
    """
    found = [source for place in places for source in _of(Path(place))]
    taken = Counter(source.name for source in found)
    seen: dict[str, Recording] = {}
    for source in found:
        if taken[source.name] > 1:
            folders = cast(Path, source.audio).parent.parts[-2:]
            name = "-".join((*folders, source.name)).lstrip("/-")
            source = source._replace(name=name)
        other = seen.setdefault(source.name, source)
        if other is not source:
            both = " and ".join(str(one.audio) for one in (other, source))
            what = f"{both} would both be {source.name!r}, expected different names"
            raise FormatError(f"{what}; a manifest may give an id to each")
    return [*seen.values()]


def _of(place: Path) -> Iterator[Recording]:
    read = _LINES.get(place.suffix.lower())
    if place.is_dir():
        files = sorted(place.rglob("*"))
        audio = [file for file in files if file.suffix.lower() in AUDIO_ENDINGS]
        if not audio:
            endings = " ".join(sorted(AUDIO_ENDINGS))
            raise FormatError(f"{place}: no audio in it, expected files of {endings}")
        yield from map(_file, audio)
    elif read is None:
        yield _file(place)
    else:
        for number, line in enumerate(read_lines(place), 1):
            if line.strip():
                yield read(line, place.parent, f"{place}:{number}")


def _file(path: Path) -> Recording:
    return Recording(path.stem, path)


def _in_list(line: str, folder: Path, where: str) -> Recording:
    return _file(folder / line.strip())


def _in_scp(line: str, folder: Path, where: str) -> Recording:
    name, *rest = line.split(maxsplit=1)
    if not rest or rest[0].rstrip().endswith("|"):
        expected = "expected a name and a file; commands are not run"
        raise FormatError(f"{where}: found {line!r}, {expected}")
    return Recording(name, folder / rest[0].strip())


def _in_manifest(line: str, folder: Path, where: str) -> Recording:
    expected = "a JSON object a line, with audio_filepath"
    with reading(where, f"line {line[:80]!r}", expected):
        entry = json.loads(line)
        file, boosts = folder / entry["audio_filepath"], entry.get("boosts")
        start_s = float(entry.get("offset") or 0.0)
        # Without an offset, `duration` is that of the whole file.
        duration = entry.get("duration") if "offset" in entry else None
        name = entry.get("id")
        if name is None:
            name = file.stem + (f"-{round(100 * start_s):07d}" if start_s else "")
        lists = None if boosts is None else boosts_of(boosts)
        return Recording(str(name), file, lists, start_s, duration and float(duration))


_LINES = {
    **dict.fromkeys((".txt", ".lst", ".list"), _in_list),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), _in_manifest),
    ".scp": _in_scp,
}
"""Parsers of a line, with its file's folder and its place, by ending."""


@dataclass
class TranscriptionSummary(Summary):
    """Counts of a run over recordings. Others as in `Summary`."""

    recorded_s: float = 0.0  # Seconds of audio
    encode_s: float = 0.0  # Seconds summed over encoder workers
    wall_s: float = 0.0  # Wall seconds in total

    def __str__(self) -> str:
        speed = self.recorded_s / self.wall_s if self.wall_s else 0.0
        text = (
            f"transcribed {self.num_utterances} recordings, {self.recorded_s:.1f} s of "
            f"audio in {self.wall_s:.1f} s of the clock (speed {speed:.0f}; encoder "
            f"{self.encode_s:.1f} s in all workers, decoder {self.decode_s:.1f} s)"
        )
        if unfinished := self.unfinished:
            num = len(unfinished)
            text += f"; {num} did not reach a final state: {named(unfinished)}"
        return text + self.extras()


def transcribe_files(
    transcriber: Transcriber,
    sources: Sequence[Recording],
    output: str | os.PathLike[str] | None = None,
    *,
    boosts: BoostLists | None = None,
    format: str | None = None,
    nbest: int = 1,
    subtitles: SubtitleOptions | None = None,
    formatter: Formatter | None = None,
    keep: LatticeWriter | None = None,
    strict: bool = False,
    restart: Restart | None = None,
    progress: bool = False,
) -> TranscriptionSummary:
    """Transcribe recordings, and write their words in order.

    Each result is written when it is finished. Faults and interruptions are handled as
    in `wfstdec.batch.decode_file`.

    Args:
        transcriber: Transcriber whose `nbest` and `lattices` apply here.
        sources: Arguments of `find_recordings`.
        output: The file or folder to write; None is standard output.
        boosts: Boosts by the names of recordings.
        format: One of `wfstdec.io.FORMATS`; None uses the ending of `output`.
        nbest: Number of hypotheses in the decoder's options.
        subtitles: Options of subtitles.
        formatter: Formatter of texts and subtitles; JSON lines have both forms.
        keep: Writer of lattices, by the names of pieces; needs a transcriber with
            `lattices`.
        strict: Raise at the first recording with a fault.
        restart: Treatment of the results of an interrupted run.
        progress: Show progress in seconds of audio.

    Raises:
        OptionError, FormatError: As in `wfstdec.batch.decode_file`.
        AudioError, ModelError, BoostError: A fault in a recording, with `strict` or in
            all.
    """
    format = format_named(format, output)
    how: Any = {"subtitles": subtitles, "formatter": formatter}
    write = result_writer(format, nbest=nbest, **how)
    summary = TranscriptionSummary(transcriber.decoder.input_frame_shift_s)
    settings: dict[str, Any] = {"decoder": type(transcriber.decoder).__name__}
    options = transcriber.decoder.options, transcriber.cuts, transcriber.audio
    for one in (*options, subtitles):
        settings |= fields_of(one)
    settings |= {"format": format, "nbest": nbest}
    settings["readable"] = formatter is not None
    began = time.monotonic()
    lattices = None if keep is None else _PieceLattices(keep)
    transcriber.keep = lattices
    with (
        open_results(
            *(output, format, write, len(sources)),
            beside=lattices,
            restart=restart,
            settings=settings,
        ) as results,
        progress_bar(
            progress and not results.on_terminal,
            bar_format="{desc}: {n:.0f} s of audio, {elapsed}, {rate_noinv_fmt}",
            unit=" s/s",
            desc=f"0 of {len(sources)} recordings",
        ) as bar,
    ):
        known = summary.resume(results)
        todo = (one for one in sources if one.name not in known)
        if boosts is not None:
            # A recording's own list replaces the common one.
            todo = (
                one._replace(boosts=boosts.of(one.name, cast(Numbers, one.boosts)))
                for one in todo
            )
        logged: set[str] = set()
        for transcript in transcriber.run(todo, on_audio=bar.update):
            if transcript.error is not None:
                transcript.error.utterance = transcript.name
                summary.fail(transcript.error, strict=strict)
            else:
                # The first note of each kind; silence always.
                for kind, text in transcript.notes:
                    if kind not in logged or kind == "silence":
                        logged.add(kind)
                        more = "" if kind == "silence" else " (reported once)"
                        _log.info("%s: %s%s", transcript.name, text, more)
                hypotheses = transcript.hypotheses(nbest)
                frames = hypotheses[0].num_frames
                summary.add(transcript.name, frames, hypotheses)
                summary.recorded_s += transcript.audio_s
                results.put(transcript.name, hypotheses)
                if lattices is not None:
                    lattices.note = []
            summary.check()
            bar.set_description(f"{results.num_done} of {len(sources)} recordings")
        summary.check(at_end=True)
    summary.wall_s = time.monotonic() - began
    summary.encode_s, summary.decode_s = transcriber.encode_s, transcriber.decode_s
    return summary


class _PieceLattices(GrowingFile):
    """File of lattices with several of each recording, one of each piece."""

    def __init__(self, writer: LatticeWriter) -> None:
        super().__init__(writer.path)
        self._writer = writer
        # Names of the lattices since the last result. Lattices of recordings that then
        # failed are kept in the file, and a resumed run must know them.
        self.note: list[Any] = []

    def begin(self, file: IO[bytes], notes: Sequence[Any] = ()) -> None:
        self._writer.begin(file, [one for note in notes for one in note])

    def finish(self) -> None:
        self._writer.finish()

    def give_up(self) -> None:
        self._writer.give_up()

    def __call__(self, piece: str, lattice: Lattice) -> None:
        self._writer(piece, lattice)
        self.note.append(self._writer.note)
