"""Jobs on Ray, with a folder of results and files for resuming.

    with JobFolder(Path("words"), Restart(resume=True)) as folder: ...

Results are Parquet files in the folder. The folder `words.job` next to it holds the
settings and inputs (`job.json`), the manifest if the job wrote one, and Ray's
checkpoints: the ids in each file of results. A file and its checkpoint are committed
together, so a row is decoded once, even after a crash.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from wfstdec.batch.decoding import Tally
from wfstdec.batch.ray.rows import (
    ENDINGS,
    RowWorker,
    are_rows,
    ids_of,
    need_ray,
    twice_in,
    write_rows,
)
from wfstdec.errors import BackendError, FormatError, InputError, OptionError
from wfstdec.io.journal import Restart, check_same, lock, settings_as_json
from wfstdec.text.display import named
from wfstdec.text.files import writing

if TYPE_CHECKING:
    import pyarrow
    import ray.data

    _Place: TypeAlias = str | os.PathLike[str]
    Rows: TypeAlias = (
        _Place | Sequence[_Place] | Iterable[dict[str, Any]] | ray.data.Dataset
    )


_FORMAT, _VERSION = "wfstdec.ray", 1


class JobFolder:
    """Folder of results and folder of the job, locked by one run at a time."""

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
        """Checkpoints, except one of an interrupted commit."""
        found = sorted(self.checkpoints.glob("*.parquet"))
        is_whole = not any(one.name.endswith(".pending.parquet") for one in found)
        return found if is_whole else []

    def _take_up(self) -> None:
        self._file.seek(0)
        text = self._file.read()
        restart, called = self._restart, self._restart.called
        if text and not restart.overwrite and any(self.checkpoints.glob("*")):
            if not restart.resume:
                raise OptionError(
                    f"{self.output} has results of an earlier run, expected "
                    f"{called('resume')} to continue, or {called('overwrite')} to "
                    "restart"
                )
            check_same(self._header, json.loads(text), self.output, restart)
            return
        if self.output.exists() and any(self.output.iterdir()):
            # Files of other origin are never deleted.
            if not text or not restart.overwrite:
                raise OptionError(
                    f"{self.output} holds files of no run that can be resumed, "
                    "expected a new folder"
                )
            for path in self.files():
                path.unlink()
        shutil.rmtree(self.checkpoints, ignore_errors=True)
        with writing(self.output):
            self.output.mkdir(parents=True, exist_ok=True)
            self._file.truncate(0)
            self._file.write(json.dumps(self._header, ensure_ascii=False) + "\n")
            self._file.flush()


_RAY_CPUS = 2
"""Read and write tasks take one, and so does Ray's filter of finished rows."""
_LOGGED_AT_MOST = 20
_log = logging.getLogger("wfstdec.batch")


@dataclass(frozen=True)
class RayOptions:
    """Resources of a job on a cluster.

    Raises:
        OptionError: A value is out of range.
    """

    # Processes, each with a model and a decoder; None is limited by the CPUs
    actors: int | None = None
    threads: int = 1  # CPUs of each, and threads of its decoder
    gpus: float = 0.0  # GPUs of each; fractions share a GPU
    batch_rows: int = 64  # Rows in a batch of an actor, at most `file_rows`
    # Approximate rows in a file of results: lost when an actor dies
    file_rows: int = 256

    def __post_init__(self) -> None:
        counts = (self.threads, self.batch_rows, self.file_rows, self.actors or 1)
        if min(counts) < 1 or self.actors == 0 or self.gpus < 0:
            raise OptionError(
                f"{self}, expected counts of 1 or more, gpus of 0 or more"
            )


@dataclass
class RowsSummary(Tally):
    """Counts of a job; `str()` is a line for users. Others as in `Tally`."""

    audio_s: float = 0.0  # Seconds of audio of this run, for recordings
    wall_s: float = 0.0  # Wall seconds in total

    def __str__(self) -> str:
        audio = f"{self.audio_s:.1f} s of audio, " if self.audio_s else ""
        return f"{self.num_utterances} rows, {audio}{self.wall_s:.1f} s{self.extras()}"


def run_rows(
    rows: Rows,
    make: Callable[[], RowWorker],
    output: str | os.PathLike[str],
    *,
    address: str | None = None,
    options: RayOptions | None = None,
    restart: Restart | None = None,
    progress: bool = False,
) -> RowsSummary:
    """Process all rows of a manifest; finished rows are not repeated.

    Args:
        rows: Parquet files or shards (`.tar`), or folders of one of these; rows, which
            are then stored next to the output; or a dataset of Ray that reads files.
        make: Returns the worker of an actor, such as a `DecodeRows`; called once in
            each.
        output: A folder shared by all nodes.
        address: Address of a cluster for `ray.init`; `"local"` starts one for this run.
            None is the connected one, or `"local"`.
        options: Resources of the job.
        restart: Treatment of the results of an earlier run.
        progress: Show Ray's progress bars and messages.

    Returns:
        Counts; `failures` are the rows with an error, in all runs.

    Raises:
        BackendError: Ray is not installed, or could not continue the job.
        OptionError: The cluster is too small; or as in `Restart`.
        FormatError: The manifest or the output cannot be read or written; at the end,
            an id is duplicated or missing.
    """
    need_ray()
    import ray.exceptions

    options, restart = options or RayOptions(), restart or Restart()
    began = time.monotonic()
    with JobFolder(Path(output), restart) as folder:
        open_rows, ids = _open_manifest(rows, folder)
        before = folder.files()
        if not _all_done(ids, folder):
            with _cluster(address, options, quiet=not progress):
                options = replace(options, actors=_actors(options))
                try:
                    _execute(open_rows, make, folder, options, progress)
                except ray.exceptions.RayError as error:
                    raise BackendError(
                        f"Ray could not continue: {_cause(error)}; what is done is in "
                        f"{folder.output}, expected to continue with "
                        f"{restart.called('resume')}"
                    ) from error
        summary = _summary(folder, before, ids)
    summary.wall_s = time.monotonic() - began
    return summary


def _all_done(ids: pyarrow.Array | None, folder: JobFolder) -> bool:
    import pyarrow as pa
    import pyarrow.compute
    import pyarrow.parquet

    files = folder.committed()
    if ids is None or not files:
        return False
    tables = [pa.parquet.read_table(path, columns=["id"]) for path in files]
    done = pa.compute.is_in(ids, pa.concat_tables(tables)["id"])
    return len(ids) > 0 and pa.compute.all(done).as_py()


def _execute(
    open_rows: Callable[[], ray.data.Dataset],
    make: Callable[[], RowWorker],
    folder: JobFolder,
    options: RayOptions,
    progress: bool,
) -> None:
    """Read, process, write, as Ray's checkpoints allow."""
    import ray.data
    from ray.data.checkpoint import CheckpointConfig

    with warnings.catch_warnings():  # Ray warns of its own defaults
        warnings.simplefilter("ignore")
        context = ray.data.DataContext.get_current().copy()
    context.enable_progress_bars = progress
    context.checkpoint_config = CheckpointConfig(
        id_column="id",
        checkpoint_path=str(folder.checkpoints),
        delete_checkpoint_on_success=False,
    )
    with ray.data.DataContext.current(context), _console(quiet=not progress):
        found = open_rows()
        # Without it all rows would be written at the end, as one file.
        found = found.repartition(target_num_rows_per_block=options.file_rows)
        found = found.map_batches(
            _Actor,
            fn_constructor_args=(make,),
            batch_format="pyarrow",
            # Blocks of fewer rows would be merged, and files with them.
            batch_size=min(options.batch_rows, options.file_rows),
            compute=ray.data.ActorPoolStrategy(size=options.actors),
            num_cpus=options.threads,
            num_gpus=options.gpus or None,
        )
        found.write_parquet(str(folder.output))


@contextlib.contextmanager
def _console(*, quiet: bool) -> Iterator[None]:
    """Keep Ray Data's messages off standard error; its log files have them."""
    shown = [one for one in logging.getLogger("ray.data").handlers if one.level]
    levels = [one.level for one in shown]
    for one in shown:
        one.setLevel(logging.ERROR if quiet else one.level)
    try:
        yield
    finally:
        for one, level in zip(shown, levels, strict=True):
            one.setLevel(level)


class _Actor:
    def __init__(self, make: Callable[[], RowWorker]) -> None:
        self._work = make()

    def __call__(self, batch: pyarrow.Table) -> pyarrow.Table:
        return self._work(batch)


def _open_manifest(
    rows: Rows, folder: JobFolder
) -> tuple[Callable[[], ray.data.Dataset], pyarrow.Array | None]:
    """Return a function that opens the rows of a job, and all ids if known."""
    import ray.data

    from wfstdec.batch.ray.shards import open_rows

    if isinstance(rows, ray.data.Dataset):
        return lambda: rows, None
    places: list[Any] = [rows] if isinstance(rows, str | os.PathLike) else list(rows)
    if not places:
        raise FormatError("no rows, expected one or more")
    if isinstance(places[0], dict):
        write_rows(places, folder.manifest)
        places = [folder.manifest]
    elif not are_rows(places):
        raise FormatError(
            f"{places[0]}: expected {' or '.join(ENDINGS)}, or a folder of them"
        )
    return partial(open_rows, places), ids_of(places)


@contextlib.contextmanager
def _cluster(
    address: str | None, options: RayOptions, *, quiet: bool
) -> Iterator[None]:
    """Connect to a cluster, or start one; a running one keeps running."""
    import ray

    if ray.is_initialized() and address is None:
        yield
        return
    given: dict[str, Any] = {"log_to_driver": False}
    if quiet:
        given["logging_level"] = logging.ERROR
    if address in (None, "local"):
        cores = max(1, len(os.sched_getaffinity(0)) // options.threads)
        actors = options.actors or cores
        given["include_dashboard"] = False
        given["num_cpus"] = actors * options.threads + _RAY_CPUS
    try:
        ray.init(address or "local", **given)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise BackendError(
            f"no Ray cluster at {address!r} ({error}), expected the address of one "
            "that runs (ray start --head --num-cpus=4), or 'local'; one that wants a "
            "token needs RAY_AUTH_MODE=token here too"
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def _actors(options: RayOptions) -> int:
    """Return the number of actors; excess ones would wait forever."""
    import ray

    resources = ray.cluster_resources()
    cpus, gpus = resources.get("CPU", 0.0), resources.get("GPU", 0.0)
    # Reading and writing need their own CPUs: without them Ray would wait forever,
    # silently.
    fits = int((cpus - _RAY_CPUS) // options.threads)
    if options.gpus:
        fits = min(fits, int(gpus / options.gpus))
    if fits < (actors := options.actors or 1):
        needed = actors * options.threads + _RAY_CPUS
        raise OptionError(
            f"{actors} actors of {options.threads} CPUs and "
            f"{options.gpus:g} GPUs on a cluster of {cpus:g} CPUs and {gpus:g} GPUs, "
            f"expected at least {needed} CPUs, {_RAY_CPUS} of them for "
            "reading and writing: ray start --num-cpus may say more than there are"
        )
    return options.actors or fits


def _summary(
    folder: JobFolder, before: Sequence[Path], ids: pyarrow.Array | None
) -> RowsSummary:
    import pyarrow as pa
    import pyarrow.compute
    import pyarrow.parquet

    old, summary, tables = set(before), RowsSummary(), []
    for path in folder.files():
        try:
            table = pa.parquet.read_table(path, columns=["id", "error", "audio_s"])
        except (OSError, pa.ArrowException) as error:
            raise FormatError(f"{path}: damaged ({error})") from error
        tables.append(table.select(["id"]))
        failed = table.filter(pa.compute.is_valid(table["error"])).to_pylist()
        summary.failures += [InputError(row["error"], row["id"]) for row in failed]
        num = table.num_rows - len(failed)
        if path in old:
            summary.num_kept += num
        else:
            summary.num_utterances += num
            summary.audio_s += pa.compute.sum(table["audio_s"]).as_py() or 0.0
    # A worker may have died after writing a block, before it was recorded: ids would be
    # duplicated.
    done = pa.concat_tables(tables)["id"] if tables else pa.array([], pa.string())
    twice = twice_in(done)
    if twice:
        raise FormatError(
            f"{folder.output}: {len(twice)} ids occur twice, such as "
            f"{named(list(map(str, twice)))}, expected each once in the manifest"
        )
    if ids is not None:
        left = pa.compute.filter(ids, pa.compute.invert(pa.compute.is_in(ids, done)))
        if len(left):
            raise FormatError(
                f"{folder.output}: {len(left)} rows of the manifest are missing, such "
                f"as {named(left[:9].to_pylist())}"
            )
    # If every row failed, no single row is the cause.
    if summary.failures and not summary.num_utterances + summary.num_kept:
        raise summary.failures[0]
    for fault in summary.failures[:_LOGGED_AT_MOST]:
        _log.error("an error instead of words: %s", fault)
    more = len(summary.failures) - _LOGGED_AT_MOST
    if more > 0:
        _log.error("and %d more, in the column error", more)
    return summary


def _cause(error: BaseException | None) -> str:
    """Return the last line of the innermost error that has a text."""
    reason = "no reason given"
    while error is not None:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = lines[-1] if lines else reason
        error = error.__cause__
    return reason
