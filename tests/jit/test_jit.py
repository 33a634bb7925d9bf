"""The sources that machine code is keyed by."""

import importlib
import inspect
import pkgutil
from pathlib import Path
from types import ModuleType

import pytest

import wfstdec
from wfstdec.jit.cache import sources, stamp


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
    if name.startswith(("wfstdec.transducer.", "wfstdec.attention.")):
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
    assert "wfstdec.wfst.cpu.entries" in sources("wfstdec.wfst.cpu.frame")
    assert "wfstdec.wfst.cpu.frame" not in sources("wfstdec.trie.cpu.frame")
    assert stamp("wfstdec.wfst.cpu.frame") != stamp("wfstdec.trie.cpu.frame")
