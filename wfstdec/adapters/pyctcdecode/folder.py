"""Folders of decoders, in pyctcdecode's format: what one writes the other reads.

alphabet.json                      {"labels": [...], "is_bpe": ...}
language_model/attrs.json          alpha, beta, unk_score_offset, score_boundary
language_model/unigrams.txt        a word a line
language_model/*.arpa, *.bin       the model's own file
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from wfstdec.adapters.pyctcdecode.alphabet import Alphabet
from wfstdec.errors import FormatError, InputError, needs
from wfstdec.text.files import atomic_write

if TYPE_CHECKING:
    from wfstdec.adapters.pyctcdecode.language_model import LanguageModel

ALPHABET, LANGUAGE_MODEL = "alphabet.json", "language_model"
ATTRS, UNIGRAMS = "attrs.json", "unigrams.txt"
_SUFFIXES = (".arpa", ".bin", ".binary", ".gz")
_Model = TypeVar("_Model", bound="LanguageModel")


def save_decoder(alphabet: Alphabet, language_model: Any, filepath: str) -> None:
    """Write both into a folder that is there.

    Raises:
        FormatError: A file cannot be written.
    """
    folder = Path(filepath)
    _write(folder / ALPHABET, alphabet.dumps())
    if language_model is not None:
        inside = folder / LANGUAGE_MODEL
        try:
            inside.mkdir()
        except OSError as error:
            raise FormatError(
                f"{inside}: cannot make the folder: {error.strerror}"
            ) from error
        language_model.save_to_dir(str(inside))


def load_decoder(
    kind: type[_Model], filepath: str, unigram_encoding: str | None = None
) -> tuple[Alphabet, _Model | None]:
    """Read an alphabet and a language model of a kind from a folder.

    Raises:
        FormatError: The alphabet is missing, or the folder has other things.
    """
    files = decoder_files(filepath)
    path, inside = files["alphabet"], files["language_model"]
    assert path is not None
    try:
        alphabet = Alphabet.loads(_read(Path(path)))
    except InputError as error:
        if error.path is None and not isinstance(error, FormatError):
            error.path = path
        raise
    if inside is None:
        return alphabet, None
    return alphabet, kind.load_from_dir(inside, unigram_encoding)


def decoder_files(filepath: str) -> dict[str, str | None]:
    """Find the alphabet of a decoder's folder, and the folder of its language model.

    Raises:
        FormatError: The alphabet is missing, or the folder has other things.
    """
    folder = Path(filepath)
    names = _names(folder)
    if ALPHABET not in names:
        raise FormatError(f"{folder}: found {names}, expected {ALPHABET!r} among them")
    names.remove(ALPHABET)
    if names and LANGUAGE_MODEL not in names:
        raise FormatError(
            f"{folder}: found {names} beside {ALPHABET!r}, expected nothing or "
            f"{LANGUAGE_MODEL!r}"
        )
    inside = str(folder / LANGUAGE_MODEL) if names else None
    return {"alphabet": str(folder / ALPHABET), "language_model": inside}


def save_language_model(
    language_model: LanguageModel, filepath: str, unigram_encoding: str | None
) -> None:
    """Write a model into a folder that is there.

    Raises:
        FormatError: A file cannot be written, or the model was not read from one.
    """
    folder, source = Path(filepath), language_model.scorer.path
    if source is None:
        raise FormatError(
            f"{folder}: the language model has no file, expected one that was read "
            "from a path"
        )
    _write(folder / ATTRS, json.dumps(language_model.serializable_attrs))
    lines = "".join(f"{word}\n" for word in sorted(language_model.unigrams))
    _write(folder / UNIGRAMS, lines, unigram_encoding)
    try:
        shutil.copy2(source, folder / Path(source).name)
    except OSError as error:
        raise FormatError(
            f"{folder}: cannot copy {source}: {error.strerror}"
        ) from error


def load_language_model(
    kind: type[_Model], filepath: str, unigram_encoding: str | None
) -> _Model:
    """Read a model from a folder.

    Raises:
        FormatError: It has other files than three, or attributes are missing.
        InputError: A file is damaged.
    """
    files = {name: Path(path) for name, path in language_model_files(filepath).items()}
    attrs = _attrs(files["json_attrs"], set(kind.JSON_ATTRS))
    lines = _read(files["unigrams"], unigram_encoding).splitlines()
    return kind(str(files["kenlm"]), lines, **attrs)


def language_model_files(filepath: str) -> dict[str, str]:
    """Find the files of a language model's folder.

    Raises:
        FormatError: It has other files than three.
    """
    folder = Path(filepath)
    names = _names(folder)
    models = [name for name in names if name.endswith(_SUFFIXES)]
    if len(names) != 3 or len(models) != 1 or not {ATTRS, UNIGRAMS} < set(names):
        raise FormatError(
            f"{folder}: found {names}, expected {ATTRS!r}, {UNIGRAMS!r} and a model "
            f"({', '.join(_SUFFIXES)})"
        )
    found = {"json_attrs": ATTRS, "unigrams": UNIGRAMS, "kenlm": models[0]}
    return {name: str(folder / file) for name, file in found.items()}


def _attrs(path: Path, wanted: set[str]) -> dict[str, Any]:
    try:
        attrs = json.loads(_read(path))
    except ValueError as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"{path}: no JSON ({error})") from error
    if not isinstance(attrs, dict) or set(attrs) != wanted:
        found = sorted(attrs) if isinstance(attrs, dict) else attrs
        raise FormatError(f"{path}: found {found!r}, expected {sorted(wanted)}")
    return attrs


def _names(folder: Path) -> list[str]:
    """List what is in a folder and not hidden."""
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError as error:
        raise FormatError(f"{folder}: cannot read: {error.strerror}") from error
    return [name for name in names if not name.startswith((".", "__"))]


def _read(path: Path, encoding: str | None = None) -> str:
    try:
        return path.read_text(encoding or "utf-8")
    except OSError as error:
        raise FormatError(f"{path}: cannot read: {error.strerror}") from error
    except (UnicodeDecodeError, LookupError) as error:
        raise FormatError(f"{path}: {error}, expected text") from error


def _write(path: Path, text: str, encoding: str | None = None) -> None:
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
