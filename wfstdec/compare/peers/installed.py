"""Other people's packages, each imported when it is first asked for.

decoder = import_peer("kaldi_decoder", "pip install kaldi-decoder")
name_with_version("kaldi-decoder")                    # 'kaldi-decoder 0.3.2'
"""

from __future__ import annotations

import importlib
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from wfstdec.errors import BackendError


def import_peer(module: str, install: str) -> Any:
    """Import a module that need not be there.

    Args:
        module: Its full name.
        install: What the error tells the user to do.

    Raises:
        BackendError: It is not installed, or does not load.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise BackendError(
            f"{module.partition('.')[0]} cannot be imported ({error}); {install}"
        ) from error


def name_with_version(package: str) -> str:
    """The name of a package, with its version where that is known."""
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return package
