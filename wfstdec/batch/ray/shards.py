"""Ray datasets from manifests, including WebDataset shards.

    rows = open_rows(["calls.parquet"])            # or .tar; after ray.init

A shard is a tar of samples: members of one name with different endings, next to each
other: audio (`call-1.flac`) or log-probs (`call-1.npy`) and, optionally, `call-1.json`
with `boosts`; the name is the id, unless the JSON has one.
"""

import json
import os
import tarfile
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import IO, Any

import pyarrow as pa
import ray.data
from ray.data.datasource import FileBasedDatasource

from wfstdec.audio.sources import AUDIO_ENDINGS
from wfstdec.batch.ray.rows import kind_of

_SHARD_BYTES = 2**26
_COLUMNS = pa.schema(
    [
        ("id", pa.string()),
        ("audio", pa.binary()),
        ("logprobs", pa.binary()),
        ("boosts", pa.string()),
        ("error", pa.string()),
    ]
)


def open_rows(places: Sequence[str | os.PathLike[str]]) -> ray.data.Dataset:
    """Open Parquet files, or shards, as a dataset of rows; needs a started Ray."""
    paths = [os.path.abspath(one) for one in places]
    if kind_of(places[0]) == ".parquet":
        return ray.data.read_parquet(paths)
    return ray.data.read_datasource(_Shards(paths, file_extensions=["tar"]))


class _Shards(FileBasedDatasource):
    """Tar files of samples; Ray's own reader is incompatible with its checkpoints."""

    # A damaged shard has the rows before the fault, and one with an error.

    def _read_stream(self, f: IO[bytes], path: str) -> Iterator[pa.Table]:
        rows, size = [], 0
        for row in _samples(f, path):
            rows.append(row)
            size += len(row.get("audio") or row.get("logprobs") or b"")
            if size > _SHARD_BYTES:
                yield pa.Table.from_pylist(rows, _COLUMNS)
                rows, size = [], 0
        if rows:
            yield pa.Table.from_pylist(rows, _COLUMNS)


def _samples(file: IO[bytes], path: str) -> Iterator[dict[str, Any]]:
    try:
        with tarfile.open(fileobj=file, mode="r|*") as tar:
            files = (one for one in tar if one.isreg())
            # Members are read in sequence: a stream cannot seek back.
            members = ((*_split(one.name), _bytes(tar, one)) for one in files)
            for name, found in groupby(members, lambda member: member[0]):
                yield _sample(name, [(ending, data) for _, ending, data in found])
    except (tarfile.TarError, OSError, EOFError) as error:
        yield {"id": path, "error": f"{path}: damaged or cut short: {error}"}


def _split(name: str) -> tuple[str, str]:
    """Return a sample's name, and its member's ending, after the first dot."""
    folder, _, base = name.rpartition("/")
    stem, _, ending = base.partition(".")
    return f"{folder}/{stem}" if folder else stem, f".{ending.lower()}"


def _bytes(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    assert file is not None  # it is a regular one
    return file.read()


def _sample(name: str, members: Sequence[tuple[str, bytes]]) -> dict[str, Any]:
    row: dict[str, Any] = {"id": name}
    for ending, data in members:
        if ending in AUDIO_ENDINGS:
            row["audio"] = data
        elif ending == ".npy":
            row["logprobs"] = data
        elif ending == ".json":
            try:
                fields = json.loads(data)
                row["id"] = str(fields.get("id", row["id"]))
                if fields.get("boosts") is not None:
                    row["boosts"] = json.dumps(fields["boosts"])
            except (ValueError, AttributeError) as error:
                row["error"] = f"{name}.json: not an object of JSON ({error})"
    return row
