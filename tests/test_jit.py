"""The disk cache of compiled kernels."""

import pickle

import numba
import numpy as np
import pytest

from wfstdec.jit import jit, kernel


def kernel_of(path, factor, decorate):
    """A kernel in a file of its own."""
    path.write_text(f"def times(values):\n    return values[0] * {factor}\n")
    names = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    return decorate(names["times"])


@pytest.mark.parametrize("decorate", [jit, kernel])
def test_an_index_that_another_version_left_is_not_read(tmp_path, decorate):
    """It may name classes that are no more."""
    values = np.full(1, 2.0)
    times = kernel_of(tmp_path / "kernels.py", 3, decorate)
    index = times._cache._cache_file._index_path
    gone = b"cwfstdec.jit\nNoSuchClass\n."
    (tmp_path / "__pycache__").mkdir(exist_ok=True)
    for version in (numba.__version__, "another"):
        with open(index, "wb") as file:
            pickle.dump(version, file, protocol=-1)
            file.write(gone)
        times = kernel_of(tmp_path / "kernels.py", 3, decorate)
        assert times(values) == 6
        again = kernel_of(tmp_path / "kernels.py", 3, decorate)
        assert again(values) == 6
        assert sum(again.stats.cache_hits.values()) == 1
