"""The folder of a job's results, and what stands beside it.

    with JobFolder(Path("words"), Restart(resume=True)) as folder: ...

Results are Parquet files in the folder. Beside it there is `words.job` with what they
depend on (`job.json`), the manifest where we made it, and Ray's checkpoints: for each
file of results, its ids. A file and its checkpoint are committed together, so that a
row is done once, whatever ends a run.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from wfstdec.errors import OptionError
from wfstdec.io.journal import Restart, check_same, lock, settings_as_json
from wfstdec.text.files import writing

_FORMAT, _VERSION = "wfstdec.ray", 1


class JobFolder:
    """The output, and what stands beside it; one run at a time has them.

    Attributes:
        output: Files of results.
        manifest: The manifest, where we make it.
        checkpoints: Ray's.
    """

    def __init__(self, output: Path, restart: Restart) -> None:
        self.output = output.absolute()
        self._beside = self.output.with_name(self.output.name + ".job")
        self.manifest = self._beside / "manifest.parquet"
        self.checkpoints = self._beside / "checkpoint"
        self._restart = restart
        self._header = settings_as_json(
            {"format": _FORMAT, "version": _VERSION, "settings": dict(restart.settings)}
        )

    def __enter__(self) -> JobFolder:
        with writing(self._beside):
            self._beside.mkdir(parents=True, exist_ok=True)
            self._file = (self._beside / "job.json").open("a+")
        try:
            lock(self._file, self.output)
            self._take_up()
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def files(self) -> list[Path]:
        """Files of results."""
        return sorted(self.output.glob("*.parquet"))

    def committed(self) -> list[Path]:
        """Checkpoints; none where a run ended while it committed one."""
        found = sorted(self.checkpoints.glob("*.parquet"))
        is_whole = not any(one.name.endswith(".pending.parquet") for one in found)
        return found if is_whole else []

    def _take_up(self) -> None:
        """Decide on what an earlier run left."""
        self._file.seek(0)
        text = self._file.read()
        if text and not self._restart.overwrite and self._has_work():
            self._compare(text)
            return
        if self.output.exists() and any(self.output.iterdir()):
            # Files that are not ours are never deleted.
            if not text or not self._restart.overwrite:
                raise OptionError(
                    f"{self.output} holds files that are not of a run that can be "
                    "gone on with, expected a new folder"
                )
            for path in self.files():
                path.unlink()
        shutil.rmtree(self.checkpoints, ignore_errors=True)
        with writing(self.output):
            self.output.mkdir(parents=True, exist_ok=True)
            self._file.truncate(0)
            self._file.write(json.dumps(self._header, ensure_ascii=False) + "\n")
            self._file.flush()

    def _has_work(self) -> bool:
        return self.checkpoints.exists() and any(self.checkpoints.iterdir())

    def _compare(self, text: str) -> None:
        called = self._restart.called
        if not self._restart.resume:
            raise OptionError(
                f"{self.output} has results of an earlier run, expected "
                f"{called('resume')} to go on, or {called('overwrite')} to begin anew"
            )
        check_same(self._header, json.loads(text), self.output, self._restart)
