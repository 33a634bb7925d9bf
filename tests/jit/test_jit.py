"""The disk cache of compiled kernels."""

import importlib.util
import pickle
import sys
from pathlib import Path

import numba
import numpy as np
import pytest

from wfstdec.jit import jit, kernel


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
