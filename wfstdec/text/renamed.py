"""Old spellings of arguments: they work for one version, and warn.

lm = renamed(lm, arpa, new="lm", old="arpa")
"""

from __future__ import annotations

import warnings
from typing import Any

from wfstdec.errors import OptionError


def renamed(value: Any, old_value: Any, *, new: str, old: str) -> Any:
    """The value of an argument that may be given by its old name.

    Args:
        value: By its name; None where it is not given.
        old_value: By its old name.
        new: The name.
        old: The old one.

    Raises:
        OptionError: Both are given.

    Warns:
        DeprecationWarning: The old one is.
    """
    if old_value is None:
        return value
    if value is not None:
        raise OptionError(f"both {new} and {old}, its old name, expected {new} alone")
    warnings.warn(
        f"{old} is now called {new}; the old name goes in the next version",
        DeprecationWarning,
        stacklevel=3,
    )
    return old_value
