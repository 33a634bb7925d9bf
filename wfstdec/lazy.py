"""Public names that are imported when they are first asked for: a quick `import`.

__getattr__, __dir__, __all__ = names_of_stub(__name__, __file__)

The imports stand in `__init__.pyi`, once: type checkers read them there too.
"""

import ast
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any


def names_of_stub(
    package: str, file: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Make `__getattr__`, `__dir__` and `__all__` of a package."""
    stub = ast.parse(Path(file).with_suffix(".pyi").read_text("utf-8"))
    homes = {
        alias.name: node.module or ""
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    names = sorted(homes)

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if homes[name] == package:  # a module of the package
            return importlib.import_module(f"{package}.{name}")
        return getattr(importlib.import_module(homes[name]), name)

    return get, lambda: names, names
