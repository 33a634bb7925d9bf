"""Manifests: what a job is to work on, as Parquet that Ray reads.

    rows = recording_rows(find_recordings(["calls/"]))    # or logprob_rows("x.npz")
    write_rows(rows, "manifest.parquet")
    ids = ids_of(["manifest.parquet"])                    # each once, or an error

Parquet of other people is read as it is: its columns are those of `rows`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wfstdec.errors import FormatError
from wfstdec.io.boost_files import dump_boosts
from wfstdec.io.kaldi import scp_entries
from wfstdec.io.logprobs import open_logprobs
from wfstdec.text.files import writing
from wfstdec.transcription.recordings import Source

if TYPE_CHECKING:
    import pyarrow

ENDINGS = (".parquet", ".tar")
_AT_ONCE = 4096


def are_rows(places: Sequence[str | os.PathLike[str]]) -> bool:
    """Tell whether these are Parquet or shards, and not files that a list is made of.

    Raises:
        FormatError: Some are, and some are not, or both kinds.
    """
    kinds = {kind_of(place) for place in places}
    if not kinds & set(ENDINGS):
        return False
    if len(kinds) > 1:
        raise FormatError(
            f"found {' and '.join(sorted(kinds))} together, expected .parquet alone, "
            ".tar alone, or neither"
        )
    return True


def kind_of(place: str | os.PathLike[str]) -> str:
    """The ending of Parquet or shards, also of those in a folder; else what it is."""
    path = Path(place)
    if path.is_dir():
        found = {one.suffix for one in path.iterdir()} & set(ENDINGS)
        return found.pop() if len(found) == 1 else "a folder"
    return path.suffix if path.suffix in ENDINGS else "other files"


def recording_rows(sources: Iterable[Source]) -> Iterator[dict[str, Any]]:
    """Rows of recordings, as `wfstdec.transcription.find_recordings` finds them."""
    for one in sources:
        row: dict[str, Any] = {"id": one.name, "audio": str(one.path.absolute())}
        if one.start_s or one.duration_s is not None:
            row |= {"offset": one.start_s, "duration": one.duration_s}
        if one.boosts is not None:
            row["boosts"] = dump_boosts(one.boosts)
        yield row


def logprob_rows(path: str | os.PathLike[str]) -> list[dict[str, str]]:
    """Rows that name the log-probs of an `.npz`, a folder of `.npy`, or an `.scp`.

    Raises:
        FormatError: It cannot be read; an `.ark` has to be read from its beginning.
    """
    path = Path(path)
    if path.suffix == ".ark":
        raise FormatError(
            f"{path}: an .ark is read from its beginning, expected its .scp, .npz, a "
            "folder of .npy, or rows (.parquet, .tar)"
        )
    if path.suffix == ".scp":
        return [
            {"id": name, "logprobs": f"{ark.absolute()}:{offset}"}
            for name, ark, offset in scp_entries(path)
        ]
    place = path.absolute()
    names = [name for name, _ in open_logprobs(path).entries()]
    if path.is_dir():
        return [{"id": one, "logprobs": str(place / f"{one}.npy")} for one in names]
    return [{"id": name, "logprobs": str(place)} for name in names]


def write_rows(rows: Iterable[dict[str, Any]], path: Path) -> None:
    """Write a manifest as Parquet; it appears whole or not at all.

    Raises:
        FormatError: It cannot be written.
    """
    import pyarrow as pa
    import pyarrow.parquet

    texts = [(name, pa.string()) for name in ("id", "audio", "logprobs", "boosts")]
    seconds = [(name, pa.float64()) for name in ("offset", "duration")]
    schema = pa.schema([*texts, *seconds])
    left, made = iter(rows), path.with_name(path.name + ".partial")
    with writing(path):
        with pa.parquet.ParquetWriter(made, schema) as writer:
            while some := list(islice(left, _AT_ONCE)):
                writer.write_table(pa.Table.from_pylist(some, schema))
        os.replace(made, path)


def ids_of(places: Sequence[str | os.PathLike[str]]) -> pyarrow.Array | None:
    """The ids of Parquet files, each once; None for shards: only reading would tell.

    Raises:
        FormatError: They cannot be read, have no ids, or one of them twice.
    """
    import pyarrow as pa
    import pyarrow.dataset

    if kind_of(places[0]) != ".parquet":
        return None
    shown = ", ".join(map(str, places[:3]))
    try:
        sets = [pa.dataset.dataset(str(one), format="parquet") for one in places]
        for one in sets:
            if "id" not in one.schema.names:
                columns = ", ".join(one.schema.names)
                raise FormatError(f"{shown}: columns {columns}, expected one named id")
        tables = [one.to_table(columns=["id"]) for one in sets]
        ids = pa.concat_tables(tables)["id"].combine_chunks()
    except (OSError, pa.ArrowException) as error:
        raise FormatError(f"{shown}: not readable as Parquet ({error})") from error
    twice = twice_in(ids)
    if twice:
        raise FormatError(
            f"{shown}: {len(twice)} ids stand there twice, such as {twice[0]!r}, "
            "expected each once"
        )
    return ids


def twice_in(ids: pyarrow.Array) -> list[Any]:
    """The ids that stand there more than once."""
    import pyarrow as pa
    import pyarrow.compute

    counts = pa.table({"id": ids}).group_by("id").aggregate([("id", "count")])
    return counts.filter(pa.compute.field("id_count") > 1)["id"].to_pylist()
