"""Checkouts of the project side by side: the names that each has for one thing.

    process = start_worker("worker.py", checkout, arguments)   # imports that checkout
    TrieDecoder = public("TrieDecoder")                        # inside the worker

What a checkout may call otherwise stands here and nowhere else, the newest name first.
The interpreter is always the one that runs the script, so that two checkouts differ in
nothing but their sources.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PUBLIC = {
    "TrieDecoder": ("TrieDecoder", "BeamDecoder"),
    "TrieOptions": ("TrieOptions", "BeamOptions"),
    "WfstOptions": ("WfstOptions", "DecodeOptions"),
}
"""Names in `wfstdec` itself, where they are not the same in all checkouts."""
SPELLING = ("wfstdec.boost.spelling", "wfstdec.spelling")
DEVICE_BACKENDS = ("DeviceBackend", "GpuBackend", "CudaBackend")
"""Classes that search on a device, wherever in the package they are defined."""
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")


def environment(checkout: Path) -> dict[str, str]:
    """Variables under which Python imports the package of a checkout."""
    single = dict.fromkeys(ONE_THREAD, "1")
    return os.environ | single | {"PYTHONPATH": str(checkout)}


def start_worker(
    script: str, checkout: Path, arguments: list[str], **options: Any
) -> subprocess.Popen:
    """Run a script of this folder on a checkout; options as `subprocess.Popen`."""
    command = [sys.executable, str(HERE / script), str(checkout), *arguments]
    where = {"cwd": checkout, "env": environment(checkout)}
    return subprocess.Popen(command, **where, **options)


def data_folder(given: Path | None, checkout: Path) -> Path:
    """The folder of real data: as given, else `../shared/data` beside the checkout.

    Raises:
        SystemExit: There is none.
    """
    folder = given or checkout.resolve().parent / "shared" / "data"
    if not (folder / "posteriors").is_dir():
        sys.exit(f"{folder}: no folder with posteriors, expected one; give --data")
    return folder.resolve()


def check_import(checkout: Path) -> None:
    """See that `wfstdec` is that of the checkout, and no installed one.

    Raises:
        SystemExit: It is another.
    """
    found = Path(str(importlib.import_module("wfstdec").__file__)).resolve()
    if found.parents[1] != checkout.resolve():
        sys.exit(f"wfstdec is imported from {found}, expected it from {checkout}")


def public(name: str) -> Any:
    """Look a thing up in `wfstdec` by the newest of its names that is known."""
    package = importlib.import_module("wfstdec")
    for candidate in PUBLIC.get(name, (name,)):
        if hasattr(package, candidate):
            return getattr(package, candidate)
    raise AttributeError(f"wfstdec has none of {PUBLIC.get(name, (name,))}")


def spelling() -> Any:
    """The module with `by_words` and `by_lexicon`."""
    for module in SPELLING:
        if importlib.util.find_spec(module):
            return importlib.import_module(module)
    raise ModuleNotFoundError(f"none of {SPELLING}")


def use_emulated_device(decoder: Any, checkout: Path, **options: Any) -> None:
    """Let a `WfstDecoder` search by the CUDA kernels, emulated on the CPU.

    Args:
        decoder: It keeps its backend in some attribute.
        checkout: Its tests have the emulation.
        options: `first_capacity` of the backend, the rest of the emulated device.
    """
    capacity = options.pop("first_capacity")
    device = _emulated_device(checkout)(**options)
    module, name = _defining_module(checkout, DEVICE_BACKENDS)
    kind = getattr(importlib.import_module(module), name)
    (attribute,) = (
        key
        for key, value in vars(decoder).items()
        if type(value).__name__.endswith("Backend")
    )
    setattr(decoder, attribute, kind(decoder.graph, device, first_capacity=capacity))


def _emulated_device(checkout: Path) -> Any:
    """The class in `tests` that runs kernels compiled with `emulation.h`."""
    tests = checkout / "tests"
    for path in sorted(tests.rglob("*.py")):
        text = path.read_text("utf-8")
        found = re.search(r"^class (Emulated\w*)", text, re.MULTILINE)
        if found is None or "emulation.h" not in text:
            continue
        name = "same_results_emulation"
        if name not in sys.modules:
            folders = [path.parent, *path.parent.parents]  # for what it imports itself
            sys.path += [str(f) for f in folders if f.is_relative_to(tests)]
            spec = importlib.util.spec_from_file_location(name, path)
            assert spec is not None and spec.loader is not None
            sys.modules[name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(sys.modules[name])
        return getattr(sys.modules[name], found[1])
    raise FileNotFoundError(f"{tests}: no class of an emulated device")


def _defining_module(checkout: Path, names: tuple[str, ...]) -> tuple[str, str]:
    """The module of the package that defines a class, and the name it has there."""
    for name in names:
        paths = sorted((checkout / "wfstdec").rglob("*.py"))
        # The trie has a backend of that name too, and comes first.
        for path in sorted(paths, key=lambda path: "wfst" not in path.parts):
            if re.search(rf"^class {name}\b", path.read_text("utf-8"), re.MULTILINE):
                parts = path.relative_to(checkout).with_suffix("").parts
                return ".".join(p for p in parts if p != "__init__"), name
    raise ImportError(f"{checkout}: the package defines none of {names}")
