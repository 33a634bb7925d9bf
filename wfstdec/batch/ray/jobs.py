"""Run rows on a cluster: actors, checkpoints, a folder of Parquet.

summary = run_rows("calls.parquet", make, "words", address="auto",
options=RayOptions(actors=8, threads=2))
summary = run_rows(..., restart=Restart(resume=True))     # after whatever ended it
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from wfstdec.batch.ray.folder import JobFolder
from wfstdec.batch.ray.manifests import (
    ENDINGS,
    are_rows,
    ids_of,
    twice_in,
    write_rows,
)
from wfstdec.batch.ray.rows import need_ray
from wfstdec.batch.ray.workers import RowWorker
from wfstdec.batch.summary import Tally, named
from wfstdec.errors import BackendError, FormatError, InputError, OptionError
from wfstdec.io.journal import Restart

if TYPE_CHECKING:
    import pyarrow
    import ray.data

    _Place: TypeAlias = str | os.PathLike[str]
    Rows: TypeAlias = (
        _Place | Sequence[_Place] | Iterable[dict[str, Any]] | ray.data.Dataset
    )

_BESIDE_CPUS = 2
"""Read and write tasks take one, and so does Ray's filter of rows that are done."""
_LOGGED_AT_MOST = 20
_log = logging.getLogger("wfstdec.batch")


@dataclass(frozen=True)
class RayOptions:
    """How a job is spread over a cluster.

    Attributes:
        actors: Processes that work side by side, each with a model and a decoder; None
            is as many as the cluster's CPUs allow.
        threads: CPUs of each; what it makes should use as many threads.
        gpus: GPUs of each; a part of one may be shared.
        batch_rows: Rows that an actor is given at once, no more than `file_rows`.
        file_rows: Rows of a file of results, about: what is lost when an actor dies.

    Raises:
        OptionError: One is out of range.
    """

    actors: int | None = None
    threads: int = 1
    gpus: float = 0.0
    batch_rows: int = 64
    file_rows: int = 256

    def __post_init__(self) -> None:
        """Check the options."""
        counts = (self.threads, self.batch_rows, self.file_rows, self.actors or 1)
        if min(counts) < 1 or self.actors == 0 or self.gpus < 0:
            raise OptionError(
                f"{self}, expected counts of 1 or more, gpus of 0 or more"
            )


@dataclass
class RowsSummary(Tally):
    """Counts of a job; `str()` is a line for a person. Others as of `Tally`.

    Attributes:
        audio_s: Seconds of audio of this run, where audio was given.
        wall_s: Seconds on the wall, all in all.
    """

    audio_s: float = 0.0
    wall_s: float = 0.0

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
    """Work on all rows of a manifest; a row that is done is not done again.

    Args:
        rows: Parquet files or shards (`.tar`), or folders of one of these; rows, which
            are then kept beside the output; or a dataset of Ray that reads files.
        make: Makes what an actor does, such as a `DecodeRows`; called once in each.
        output: A folder that all nodes see.
        address: Of a cluster, as `ray.init` takes it; `"local"` starts one for this
            run. None is one that is connected already, or `"local"`.
        options: How the job is spread.
        restart: What becomes of the work of an earlier run.
        progress: Show Ray's progress bars, and what else it says.

    Returns:
        Counts; `failures` are the rows with an error, of all runs.

    Raises:
        BackendError: Ray is not installed, or could not go on with the job.
        OptionError: The cluster is too small; or as `Restart`.
        FormatError: The manifest or the output cannot be read or written; at the end,
            an id stands there twice, or is missing.
    """
    need_ray()
    import ray.exceptions

    options, restart = options or RayOptions(), restart or Restart()
    began = time.monotonic()
    with JobFolder(Path(output), restart) as folder:
        manifest = _Manifest(rows, folder)
        before = folder.files()
        if not _all_done(manifest.ids, folder):
            with _cluster(address, options, quiet=not progress):
                options = replace(options, actors=_actors(options))
                try:
                    _execute(manifest, make, folder, options, progress)
                except ray.exceptions.RayError as error:
                    raise BackendError(
                        f"Ray could not go on: {_cause(error)}; what is done is in "
                        f"{folder.output}, expected to go on with "
                        f"{restart.called('resume')}"
                    ) from error
        summary = _summary(folder, before, manifest.ids)
    summary.wall_s = time.monotonic() - began
    return summary


def _all_done(ids: pyarrow.Array | None, folder: JobFolder) -> bool:
    """Tell whether nothing is left to do: no cluster is then asked for."""
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
    manifest: _Manifest,
    make: Callable[[], RowWorker],
    folder: JobFolder,
    options: RayOptions,
    progress: bool,
) -> None:
    """Read, work, write: all that Ray's checkpoints allow, and all that there is."""
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
        found = manifest.open()
        # Without it all rows would come out at the end, as one file.
        found = found.repartition(target_num_rows_per_block=options.file_rows)
        found = found.map_batches(
            _Actor,
            fn_constructor_args=(make,),
            batch_format="pyarrow",
            # Blocks of fewer rows would be put together, files with them.
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
    """The class that Ray makes once in each actor."""

    def __init__(self, make: Callable[[], RowWorker]) -> None:
        self._work = make()

    def __call__(self, batch: pyarrow.Table) -> pyarrow.Table:
        return self._work(batch)


class _Manifest:
    """The rows of a job.

    Attributes:
        ids: All of them, where they can be known before; else None.
    """

    def __init__(self, rows: Rows, folder: JobFolder) -> None:
        import ray.data

        self._dataset: ray.data.Dataset | None = None
        self.ids: pyarrow.Array | None = None
        if isinstance(rows, ray.data.Dataset):
            self._dataset = rows
            return
        places: list[Any] = (
            [rows] if isinstance(rows, str | os.PathLike) else list(rows)
        )
        if not places:
            raise FormatError("no rows, expected one or more")
        if isinstance(places[0], dict):
            write_rows(places, folder.manifest)
            places = [folder.manifest]
        elif not are_rows(places):
            raise FormatError(
                f"{places[0]}: expected {' or '.join(ENDINGS)}, or a folder of them"
            )
        self._places = places
        self.ids = ids_of(places)

    def open(self) -> ray.data.Dataset:
        """The rows as a dataset."""
        from wfstdec.batch.ray.shards import open_rows

        return self._dataset if self._dataset is not None else open_rows(self._places)


@contextlib.contextmanager
def _cluster(
    address: str | None, options: RayOptions, *, quiet: bool
) -> Iterator[None]:
    """Connect to a cluster, or start one; it is left as it was found."""
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
        given["num_cpus"] = actors * options.threads + _BESIDE_CPUS
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
    """How many actors there will be; what does not fit would wait for ever.

    Raises:
        OptionError: They do not fit.
    """
    import ray

    resources = ray.cluster_resources()
    cpus, gpus = resources.get("CPU", 0.0), resources.get("GPU", 0.0)
    # Reading and writing need CPUs of their own: with none left, Ray would wait for
    # ever and say nothing.
    fits = int((cpus - _BESIDE_CPUS) // options.threads)
    if options.gpus:
        fits = min(fits, int(gpus / options.gpus))
    if fits < (actors := options.actors or 1):
        needed = actors * options.threads + _BESIDE_CPUS
        raise OptionError(
            f"{actors} actors of {options.threads} CPUs and "
            f"{options.gpus:g} GPUs on a cluster of {cpus:g} CPUs and {gpus:g} GPUs, "
            f"expected at least {needed} CPUs, {_BESIDE_CPUS} of them for "
            "reading and writing: ray start --num-cpus may say more than there are"
        )
    return options.actors or fits


def _summary(
    folder: JobFolder, before: Sequence[Path], ids: pyarrow.Array | None
) -> RowsSummary:
    """Count what is in the folder, and look whether it is what was asked for.

    Raises:
        FormatError: An id stands there twice, or is missing; a file is damaged.
        InputError: Of the first row, where all failed.
    """
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
    # A block may have been written, and its worker died before it was noted: ids would
    # be there twice.
    done = pa.concat_tables(tables)["id"] if tables else pa.array([], pa.string())
    twice = twice_in(done)
    if twice:
        raise FormatError(
            f"{folder.output}: {len(twice)} ids stand there twice, such as "
            f"{named(list(map(str, twice)))}, expected each once in the manifest"
        )
    if ids is not None:
        left = pa.compute.filter(ids, pa.compute.invert(pa.compute.is_in(ids, done)))
        if len(left):
            raise FormatError(
                f"{folder.output}: {len(left)} rows of the manifest are missing, such "
                f"as {named(left[:9].to_pylist())}"
            )
    # Where no row went well it is no fault of a row.
    if summary.failures and not summary.num_utterances + summary.num_kept:
        raise summary.failures[0]
    for fault in summary.failures[:_LOGGED_AT_MOST]:
        _log.error("an error in place of words: %s", fault)
    more = len(summary.failures) - _LOGGED_AT_MOST
    if more > 0:
        _log.error("and %d more, in the column error", more)
    return summary


def _cause(error: BaseException | None) -> str:
    """Put other people's errors into a line: the innermost that says anything."""
    said = "no reason given"
    while error is not None:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        said = lines[-1] if lines else said
        error = error.__cause__
    return said
