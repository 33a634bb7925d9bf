"""The disk cache of compiled kernels."""

import importlib
import importlib.util
import inspect
import pickle
import pkgutil
import sys
from pathlib import Path
from types import ModuleType

import numba
import numpy as np
import pytest

import wfstdec
from wfstdec.jit import jit, kernel
from wfstdec.jit.compiling import sources, stamp


def kernel_of(folder, decorate):
    """A kernel in a module of its own."""
    path = folder / "a_kernel_of_test_jit.py"
    path.write_text("def times(values):\n    return values[0] * 3\n")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return decorate(module.times)


@pytest.mark.parametrize("decorate", [jit, kernel])
def test_an_index_that_another_version_left_is_not_read(tmp_path, decorate):
    """It may name classes that are no more."""
    values = np.full(1, 2.0)
    times = kernel_of(tmp_path, decorate)
    index = times._cache._cache_file._index_path
    gone = b"cwfstdec.jit\nNoSuchClass\n."
    Path(index).parent.mkdir(parents=True, exist_ok=True)
    for version in (numba.__version__, "another"):
        with open(index, "wb") as file:
            pickle.dump(version, file, protocol=-1)
            file.write(gone)
        times = kernel_of(tmp_path, decorate)
        assert times(values) == 6
        again = kernel_of(tmp_path, decorate)
        assert again(values) == 6
        assert sum(again.stats.cache_hits.values()) == 1


def modules_with_kernels():
    for found in pkgutil.walk_packages(wfstdec.__path__, "wfstdec."):
        path = Path(wfstdec.__file__).parents[1] / (
            found.name.replace(".", "/") + ".py"
        )
        if path.is_file() and "wfstdec.jit import" in path.read_text():
            yield found.name


@pytest.mark.parametrize("name", list(modules_with_kernels()))
def test_machine_code_is_keyed_by_all_sources_that_it_was_made_of(name):
    """Whatever a kernel names is of a module that its key knows."""
    if name.startswith("wfstdec.transducer."):
        pytest.importorskip("torch")
    known = sources(name)
    module = importlib.import_module(name)
    for one in vars(module).values():
        code = getattr(one, "py_func", None)
        if code is None or code.__module__ != name:
            continue
        for used in map(code.__globals__.get, code.__code__.co_names):
            if isinstance(used, ModuleType):
                home = used.__name__
            else:
                home = getattr(inspect.unwrap(used), "__module__", None) or name
            if home.split(".")[0] == "wfstdec":
                assert home in known, (code.__name__, used)


def test_a_change_elsewhere_leaves_machine_code_as_it_is():
    assert "wfstdec.wfst.cpu.recombination" in sources("wfstdec.wfst.cpu.frame")
    assert "wfstdec.wfst.cpu.frame" not in sources("wfstdec.trie.cpu.frame")
    assert stamp("wfstdec.wfst.cpu.frame") != stamp("wfstdec.trie.cpu.frame")
