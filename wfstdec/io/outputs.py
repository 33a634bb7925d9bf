"""Result files, for all utterances or for each.

    with open_results(path, "ctm", write) as results:
        results.put(utterance, [hypothesis])

    with open_output(path) as file: ...             # None or "-": standard output

Subtitles and TextGrids hold one utterance: several are written to a folder, under the
names of the utterances. Results before an error are kept, see `wfstdec.io.journal`.
"""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from wfstdec.errors import FormatError, InputError, OptionError
from wfstdec.io.journal import FOLDER_JOURNAL, Journal, Restart, partial
from wfstdec.io.results import ENDINGS
from wfstdec.lattice.file import GrowingFile
from wfstdec.text.files import PathLike, atomic_write, replaceable, writing

STDOUT = "-"
ONE_EACH = frozenset(("srt", "vtt", "textgrid"))
"""Formats whose files hold one utterance."""


@contextlib.contextmanager
def open_output(path: PathLike | None) -> Iterator[IO[str]]:
    """Open a text file that is written atomically, or standard output."""
    if path is None or os.fspath(path) == STDOUT:
        yield sys.stdout
        sys.stdout.flush()
        return
    with atomic_write(path, "w") as file:
        yield file


@dataclass
class Results:
    """Open result file or folder."""

    _write: Callable[[str, Any], None]
    on_terminal: bool = False  # Whether results appear on a terminal
    done: tuple[str, ...] = ()  # Finished utterances of an earlier run
    # Errors of utterances without results, those of an earlier run first; callers
    # append more
    failures: list[InputError] = field(default_factory=list)
    _keep: Callable[[str], None] | None = None

    def __post_init__(self) -> None:
        self.num_done = len(self.done)  # number of written utterances

    def put(self, utterance: str, found: Any) -> None:
        """Write the hypotheses of an utterance, which are kept from now on."""
        self._write(utterance, found)
        if self._keep is not None:
            self._keep(utterance)
        self.num_done += 1


@contextlib.contextmanager
def open_results(
    path: PathLike | None,
    format: str,
    write: Callable[[str, Any], str],
    num_utterances: int | None = None,
    *,
    beside: GrowingFile | None = None,
    restart: Restart | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Iterator[Results]:
    """Open a result file, a folder of them, or standard output.

    A file appears when the run is finished; results before an error are kept, see
    `wfstdec.io.journal`. Standard output and special files receive results immediately,
    and cannot be resumed.

    Args:
        path: A file, or a folder if the format holds one utterance and the name lacks
            its ending; None or "-": standard output.
        format: One of `FORMATS`.
        write: Returns the text of an utterance.
        num_utterances: Their number, if known.
        beside: A file that receives data of each utterance before `put` is called.
        restart: Treatment of the results of an earlier run.
        settings: Further settings that results depend on.

    Raises:
        OptionError: A file for one utterance, and there are more; or results of an
            earlier run exist, see `Restart`.
        FormatError: It cannot be written; an utterance's name is not a valid file name.
    """
    restart = restart or Restart()
    target = _Target(path, format, write, num_utterances, restart)
    files = target.files(beside)
    if files is None:
        opened = _streamed(target, beside)
    else:
        wanted = {**(settings or {}), **restart.settings}
        if target.folder is not None:
            place = target.folder / FOLDER_JOURNAL
        else:
            place = files[0].with_name(f"{files[0].name}.journal")
        journal = Journal(place, files, wanted, restart)
        opened = _journaled(target, journal, beside)
    with opened as results:
        try:
            yield results
        except BaseException as error:
            # An interrupted user should know which results are kept.
            if results.num_done:
                error.add_note(target.describe(results.num_done, files))
            raise


@dataclass
class _Target:
    path: PathLike | None
    format: str
    text_of: Callable[[str, Any], str]
    num_utterances: int | None
    restart: Restart

    def __post_init__(self) -> None:
        self.is_stdout = self.path is None or os.fspath(self.path) == STDOUT
        self.place = "standard output" if self.is_stdout else str(self.path)
        self.folder = self._folder()
        self.is_one = self.folder is None and self.format in ONE_EACH
        if self.is_one and (self.num_utterances or 0) > 1:
            raise self._too_many()

    def files(self, beside: GrowingFile | None) -> list[Path] | None:
        """Return the files to write; None if one of them is a special file."""
        files: list[Path | None] = []
        if self.folder is None:
            files.append(None if self.is_stdout else replaceable(self.path or ""))
        if beside is not None:
            files.append(replaceable(beside.path))
        found = [file for file in files if file is not None]
        if len(found) == len(files):
            return found
        if self.restart.resume:
            raise OptionError(
                f"{self.restart.called('resume')} with results on {self.place}, "
                "expected files: special files keep nothing"
            )
        return None

    def writer(self, file: IO[Any] | None, encode: bool) -> Callable[[str, Any], None]:
        if file is None:
            return self._write_alone
        seen: list[str] = []  # at most one

        def write(utterance: str, found: Any) -> None:
            if seen and self.is_one:
                raise self._too_many()
            seen[:] = [utterance]
            text = self.text_of(utterance, found)
            with writing(self.place):
                file.write(text.encode() if encode else text)
                file.flush()

        return write

    def describe(self, count: int, files: Sequence[Path] | None) -> str:
        total = self.num_utterances or "an unknown number of"
        if files is None:
            return f"{count} of {total} utterances are written to {self.place}"
        place = self.folder or partial(files[0])
        called = self.restart.called("resume")
        return f"kept {count} of {total} utterances in {place}; continue with {called}"

    def _folder(self) -> Path | None:
        if self.is_stdout or self.format not in ONE_EACH:
            return None
        path, ending = Path(self.path or ""), ENDINGS[self.format]
        if not path.is_dir() and path.suffix.lower() == ending.lower():
            return None
        if path.exists() and not path.is_dir() and not path.is_file():
            return None  # a device, or a FIFO
        with writing(path):
            path.mkdir(exist_ok=True)
        return path

    def _write_alone(self, utterance: str, found: Any) -> None:
        assert self.folder is not None
        if Path(utterance).name != utterance:
            place = f"utterance {utterance!r} for a file in {self.folder}"
            raise FormatError(f"{place}, expected a name that a file can have")
        name = f"{utterance}{ENDINGS[self.format]}"
        with atomic_write(self.folder / name, "w") as file:
            file.write(self.text_of(utterance, found))

    def _too_many(self) -> OptionError:
        place = self.place if self.is_stdout else repr(self.place)
        return OptionError(
            f"several utterances for one {self.format} file, {place}, expected a "
            f"folder as output: a name without {ENDINGS[self.format]!r}"
        )


@contextlib.contextmanager
def _streamed(target: _Target, beside: GrowingFile | None) -> Iterator[Results]:
    with ExitStack() as stack:
        if beside is not None:
            beside.begin(stack.enter_context(atomic_write(beside.path)))
            stack.callback(beside.give_up)
        if target.folder is not None:
            yield Results(target.writer(None, encode=False))
        else:
            file = stack.enter_context(open_output(target.path))
            yield Results(target.writer(file, encode=False), file.isatty())
        if beside is not None:
            beside.finish()


@contextlib.contextmanager
def _journaled(
    target: _Target, journal: Journal, beside: GrowingFile | None
) -> Iterator[Results]:
    """Rename files on success; otherwise keep the results."""
    failures, noted = journal.failures, len(journal.failures)

    def keep(utterance: str) -> None:
        nonlocal noted
        for error in failures[noted:]:
            journal.add_failure(error)
        noted = len(failures)
        journal.add(utterance, None if beside is None else beside.note)

    file = journal.files[0] if target.folder is None else None
    write = target.writer(file, encode=True)
    with ExitStack() as stack:
        stack.callback(journal.stop)
        if beside is not None:
            beside.begin(journal.files[-1], journal.notes)
            stack.callback(beside.give_up)
        yield Results(write, False, tuple(journal.done), failures, keep)
        for error in failures[noted:]:
            journal.add_failure(error)
        if beside is not None:
            with writing(beside.path):
                beside.finish()
        journal.finish()
        # Success: the journal is gone, and nothing is to be kept.
        stack.pop_all()
