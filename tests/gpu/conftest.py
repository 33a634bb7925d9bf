import gc
import sys

import pytest
from cupy_stand_in import Kernel

from wfstdec.gpu import cupy_device as cuda


@pytest.fixture
def cupy(monkeypatch, tmp_path):
    """Puts a replacement in the place of CuPy: `cupy(stand_in())`; None: no CuPy."""
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path / "kernels"))

    def install(module):
        cuda.load_cupy.cache_clear()
        Kernel.launched.clear()
        monkeypatch.setitem(sys.modules, "cupy", module)

    yield install
    monkeypatch.undo()
    cuda.load_cupy.cache_clear()
    gc.collect()  # decoders share the memory of a GPU while they live
