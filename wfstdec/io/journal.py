"""Journal of interruptible runs, which later runs resume.

While results are written to `hyp.txt` there are

    hyp.txt.partial   the results so far, as `hyp.txt` will have them
    hyp.txt.journal   JSON lines: settings of the results; then each finished utterance,
                      is done, with the sizes and checksums that the files had with it

and `x.lat.partial`, if lattices are kept, until the run is finished. After an error, a
run with `Restart(resume=True)` truncates the files to the last utterance that is
complete in all of them, and continues after it. Results in a folder are separate files;
its journal is `wfstdec.journal` in it. A run with `resume` keeps its journal when it is
finished: the next one with the same settings and inputs has nothing to do.
"""

import contextlib
import dataclasses
import fcntl
import itertools
import json
import os
import time
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from wfstdec.errors import FormatError, InputError, OptionError
from wfstdec.text.files import reading, writing

_FORMAT = "wfstdec.journal"
_VERSION = 2
FOLDER_JOURNAL = "wfstdec.journal"
_SYNC_S = 5.0  # Seconds between two syncs of files: work that a power cut may cost


@dataclasses.dataclass(frozen=True)
class Restart:
    """Treatment of the results of an interrupted run.

    With neither `resume` nor `overwrite`, a run does not start if there are any.

    Raises:
        OptionError: Both are given.
    """

    resume: bool = False  # Continue after them; from the beginning without any
    overwrite: bool = False  # Drop them
    # Other dependencies of the results by name, such as the model's files (see
    # `wfstdec.text.files.digest`); a run is resumed only if they are equal
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    called: Callable[[str], str] = str  # Returns the user's name of a setting
    # Digest of settings and inputs that identifies a finished run; None: never
    inputs: str | None = None

    def __post_init__(self) -> None:
        if self.resume and self.overwrite:
            names = f"{self.called('resume')} and {self.called('overwrite')}"
            raise OptionError(f"{names}, expected one of them")


class Journal:
    """Journal of a run, and the partial files that it describes."""

    def __init__(
        self,
        path: Path,
        files: Sequence[Path],
        settings: Mapping[str, Any],
        restart: Restart,
    ) -> None:
        self.path, self._finals = path, list(files)
        self.done: list[str] = []  # finished utterances, in order
        self.notes: list[Any] = []  # one note for each
        self.failures: list[InputError] = []  # of utterances without results
        self.files: list[IO[bytes]] = []  # partial, open at the end of the results
        self._sums = [0] * len(files)
        self._ends = [0] * len(files)
        self._synced = time.monotonic()
        self._restart = restart
        header = {"format": _FORMAT, "version": _VERSION}
        header["files"] = [str(file) for file in files]
        self._header = settings_as_json(header | {"settings": dict(settings)})
        with writing(files[0] if files else path):
            self._file = _opened(path)
        try:
            # Before anything is read: two runs must not write to one file.
            lock(self._file, self.path)
            with reading(self.path, "journal of a run", "one, or none"):
                ends = self._take_up()
            for final, end in zip(files, ends, strict=True):
                with writing(final):
                    self.files.append(_opened(partial(final)))
                    _cut(self.files[-1], end)
        except BaseException:
            self._close()
            raise

    def add(self, utterance: str, note: Any) -> None:
        """Note an utterance whose results are in all files."""
        for final, file in zip(self._finals, self.files, strict=True):
            with writing(partial(final)):
                file.flush()
        self._ends = [self._count(i, file) for i, file in enumerate(self.files)]
        if late := time.monotonic() - self._synced >= _SYNC_S:
            self._sync(*self.files)
        line = {"done": utterance, "ends": self._ends, "sums": self._sums, "note": note}
        self._write(line)
        if late:
            self._sync(self._file)
            self._synced = time.monotonic()
        self.done.append(utterance)

    def _count(self, i: int, file: IO[bytes]) -> int:
        """Add new bytes of a file to its checksum; return its end."""
        end, at = file.tell(), self._ends[i]
        while at < end:
            data = os.pread(file.fileno(), min(end - at, 1 << 20), at)
            self._sums[i] = zlib.crc32(data, self._sums[i])
            at += len(data)
        return end

    def _sync(self, *files: IO[bytes]) -> None:
        for file in files:
            with writing(self.path):
                os.fsync(file.fileno())

    def add_failure(self, error: InputError) -> None:
        """Note an utterance without results."""
        self._write({"failed": error.utterance, "why": error.message})

    def finish(self) -> None:
        """Rename the files to their final names."""
        sums = []
        for i, (final, file) in enumerate(zip(self._finals, self.files, strict=True)):
            with writing(partial(final)):
                file.flush()
                self._sync(file)
                self._count(i, file)
                file.close()
            sums.append(self._sums[i])
        sizes = _sizes(self.path, self.done) if self._restart.inputs else {}
        end = {"finished": True, "sums": sums, "sizes": sizes}
        self._write(end | {"inputs": self._restart.inputs})
        for final in self._finals:
            with writing(final):
                os.replace(partial(final), final)
                _sync_folder(final.parent)
        if self._restart.inputs is None:
            self.path.unlink()
        self._close()

    def stop(self) -> int:
        """Keep the results for a later run, if there are any."""
        self._close()
        if not self.done:
            for path in (self.path, *map(partial, self._finals)):
                path.unlink(missing_ok=True)
        return len(self.done)

    def _take_up(self) -> list[int]:
        """Read the journal of an earlier run; return the size to cut each file to."""
        lines = _lines(self._file)
        (header, at), *done = lines or [({}, 0)]
        ends = [0] * len(self._finals)
        if not done or self._restart.overwrite:
            _cut(self._file, 0)
            self._write(self._header)
            return ends
        # A resumable run keeps its journal, for later ones with `resume`.
        known, finals = [line for line, _ in lines], self._finals
        inputs = self._restart.inputs
        is_same = inputs is not None and inputs == known[-1].get("inputs")
        is_same = is_same and _is_over(known, self.path, finals)
        # It was stopped while files were renamed.
        is_between = any(partial(one).exists() for one in finals)
        is_between &= all(one.exists() or partial(one).exists() for one in finals)
        if known[-1].get("finished") and not (is_same or is_between):
            _cut(self._file, 0)
            self._write(self._header)
            return ends
        if not self._restart.resume:
            count = sum("done" in line for line, _ in done)
            called = self._restart.called
            raise OptionError(
                f"{self.path} is of a run that was stopped after {count} utterances, "
                f"expected {called('resume')} to continue, or {called('overwrite')} to "
                "restart"
            )
        check_same(self._header, header, self.path, self._restart)
        for final in self._finals:
            if known[-1].get("finished") and not partial(final).exists():
                os.replace(final, partial(final))
        paths = map(partial, self._finals)
        sizes = [path.stat().st_size if path.exists() else 0 for path in paths]
        for line, behind in done:
            if "failed" in line:
                self.failures.append(InputError(line["why"], line["failed"]))
            elif "done" in line and self._are_whole(line, sizes):
                ends = line["ends"]
                self.done.append(line["done"])
                self.notes.append(line["note"])
            else:  # finished, or results that the machine lost: they are repeated
                break
            at = behind
        _cut(self._file, at)
        return ends

    def _are_whole(self, line: Mapping[str, Any], sizes: Sequence[int]) -> bool:
        """Return whether all files have the checksums of a line, and adopt them."""
        if any(end > size for end, size in zip(line["ends"], sizes, strict=True)):
            return False
        before = list(self._sums)
        for i, final in enumerate(self._finals):
            with open(partial(final), "rb") as file:
                file.seek(line["ends"][i])
                self._count(i, file)
        if self._sums != line["sums"]:
            self._sums = before
            return False
        self._ends = line["ends"]
        return True

    def _write(self, line: Mapping[str, Any]) -> None:
        with writing(self.path):
            self._file.write((_json({**line, "sum": _sum_of(line)}) + "\n").encode())
            self._file.flush()

    def _close(self) -> None:
        for file in (*self.files, self._file):
            with contextlib.suppress(OSError, ValueError):
                file.close()


def is_finished(path: Path, restart: Restart) -> bool:
    """Return whether a run with these settings and inputs finished without failures."""
    if restart.inputs is None or not path.is_file():
        return False
    with path.open("rb") as file:
        lines = [line for line, _ in _lines(file)]
    if not lines or any("failed" in line for line in lines):
        return False
    files = list(map(Path, lines[0].get("files", ())))
    return (
        _is_over(lines, path, files)
        and lines[-1].get("inputs") == restart.inputs
        and list(map(_checksum, files)) == lines[-1]["sums"]
    )


def _is_over(lines: Sequence[dict[str, Any]], path: Path, files: list[Path]) -> bool:
    if not lines[-1].get("finished") or not all(one.exists() for one in files):
        return False
    if path.name == FOLDER_JOURNAL:
        done = {line["done"] for line in lines if "done" in line}
        return lines[-1].get("sizes") == _sizes(path, done)
    return not any(partial(one).exists() for one in files)


def _sizes(journal: Path, done: Collection[str]) -> dict[str, int]:
    if journal.name != FOLDER_JOURNAL:
        return {}
    files = (one for one in sorted(journal.parent.iterdir()) if one.stem in done)
    return {one.name: one.stat().st_size for one in files if one.is_file()}


def _checksum(path: Path) -> int:
    found = 0
    with path.open("rb") as file:
        while data := file.read(1 << 20):
            found = zlib.crc32(data, found)
    return found


def lock(file: IO[Any], place: Path) -> None:
    """Keep other runs away; the system releases the lock after a crash."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise FormatError(
            f"{place}: belongs to a run that has not ended, expected another output, "
            "or to wait for its end"
        ) from None
    except OSError:  # a file system without locks
        pass


def check_same(
    now: Mapping[str, Any], before: Mapping[str, Any], place: Path, restart: Restart
) -> None:
    """Raise unless an earlier run had these settings."""
    called, found = restart.called, []
    # First: another version may give other results with equal settings.
    if before.get("version") != now["version"]:
        found.append(f"version {now['version']}, was {before.get('version')}")
    # Results of one run in two places cannot be merged.
    if before.get("files") != now.get("files"):
        was, files = (", ".join(h["files"]) for h in (before, now))
        found.append(f"files {files}, was {was}")
    settings = now["settings"], before.get("settings", {})
    for name in dict.fromkeys(itertools.chain(*settings)):
        (new, value), (old, other) = (_shown(one.get(name)) for one in settings)
        # For files the content matters, not the path.
        if value != other and new == old:
            found.append(f"{new} has other contents")
        elif value != other:
            found.append(f"{called(name)} {new}, was {old}")
    if found:
        raise OptionError(
            f"{place} is of a run that differs: {'; '.join(found)}; expected the same "
            f"to {called('resume')}, or {called('overwrite')} to restart"
        )


def settings_as_json(settings: Mapping[str, Any]) -> Any:
    """Return settings after a round trip through JSON, for comparison."""
    return json.loads(_json(settings))


def partial(path: Path) -> Path:
    """Return the name of a file while it is incomplete."""
    return path.with_name(path.name + ".partial")


def _opened(path: Path) -> IO[bytes]:
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+b")


def _cut(file: IO[bytes], size: int) -> None:
    file.seek(size)
    file.truncate()


def _lines(file: IO[bytes]) -> list[tuple[dict[str, Any], int]]:
    """Return complete lines, and the end of each."""
    lines: list[tuple[dict[str, Any], int]] = []
    at = 0
    for data in file:
        line, at = _line(data), at + len(data)
        if line is None:
            break
        lines.append((line, at))
        if line.get("format") == _FORMAT and line.get("version") != _VERSION:
            return lines[-1:]
    if lines and lines[0][0].get("format") != _FORMAT:
        raise FormatError(f"{file.name}: is no journal of a run, expected one, or none")
    return lines


def _line(data: bytes) -> dict[str, Any] | None:
    """Return a line without its checksum; None if it is damaged."""
    try:
        line = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not (data.endswith(b"\n") and isinstance(line, dict)):
        return None
    is_whole = line.pop("sum", None) == _sum_of(line)
    is_other = line.get("format") == _FORMAT and line.get("version") != _VERSION
    return line if is_whole or is_other else None


def _sum_of(line: Mapping[str, Any]) -> int:
    return zlib.crc32(_json(line).encode())


def _sync_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def _shown(setting: Any) -> tuple[str, Any]:
    """Return a setting as text (a file by its path), and the part to compare."""
    if isinstance(setting, dict) and "digest" in setting:
        return setting["path"], setting["digest"]
    return "none" if setting is None else str(setting), setting


def _json(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value.item() if hasattr(value, "item") else type(value).__qualname__
