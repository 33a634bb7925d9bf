"""Folders of decoders, in pyctcdecode's format: what one writes the other reads.

alphabet.json                      {"labels": [...], "is_bpe": ...}
language_model/attrs.json          alpha, beta, unk_score_offset, score_boundary
language_model/unigrams.txt        a word a line
language_model/*.arpa, *.bin       the model's own file
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from wfstdec.errors import FormatError, needs
from wfstdec.text.files import atomic_write

ALPHABET, LANGUAGE_MODEL = "alphabet.json", "language_model"
ATTRS, UNIGRAMS = "attrs.json", "unigrams.txt"
MODEL_SUFFIXES = (".arpa", ".bin", ".binary", ".gz")


def names_in(folder: Path) -> list[str]:
    """List what is in a folder and not hidden."""
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError as error:
        raise FormatError(f"{folder}: cannot read: {error.strerror}") from error
    return [name for name in names if not name.startswith((".", "__"))]


def read_text(path: Path, encoding: str | None = None) -> str:
    """The text of a file."""
    try:
        return path.read_text(encoding or "utf-8")
    except OSError as error:
        raise FormatError(f"{path}: cannot read: {error.strerror}") from error
    except (UnicodeDecodeError, LookupError) as error:
        raise FormatError(f"{path}: {error}, expected text") from error


def write_text(path: Path, text: str, encoding: str | None = None) -> None:
    """Write a file, whole or not at all."""
    try:
        with atomic_write(path, "wb") as file:
            file.write(text.encode(encoding or "utf-8"))
    except (UnicodeEncodeError, LookupError) as error:
        raise FormatError(f"{path}: cannot write: {error}") from error


def download(model_id: str, cache_dir: str | None, **options: Any) -> str:
    """The folder of a model of the Hugging Face hub, downloaded if it is not there.

    Raises:
        BackendError: huggingface_hub is not installed.
    """
    with needs("huggingface_hub cannot be imported", "; pip install huggingface_hub"):
        from huggingface_hub import snapshot_download
    cache = cache_dir or str(Path.home() / ".cache" / "pyctcdecode")
    return snapshot_download(model_id, cache_dir=cache, **options)
