"""Write a file whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from wfstdec.errors import FormatError


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str], mode: str = "wb") -> Iterator[IO]:
    """Open a temporary file beside `path`; rename it to `path` when all went well.

    On any error the temporary file is removed and an older `path` is untouched.

    Args:
        path: The file to write.
        mode: `"wb"`, or `"w"` for UTF-8 text.

    Raises:
        FormatError: The folder does not exist or cannot be written.
    """
    path = Path(path)
    encoding = None if "b" in mode else "utf-8"
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise FormatError(f"{path}: cannot write: {error.strerror}") from error
    try:
        with open(handle, mode, encoding=encoding) as file:
            yield file
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
