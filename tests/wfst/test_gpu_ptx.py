"""The WFST search's tests in emulation once more, of the PTX that NVRTC makes of it.

Every test of a search runs as it is, on a device whose kernels are PTX that was
translated back (`cuda_emulation/ptx.py`).
"""

import shutil
import types

import pytest
import test_gpu_added_words
import test_gpu_backend
import test_gpu_lattices
import test_gpu_word_pieces
from cuda_emulation.device import PTX, EmulatedDevice
from test_gpu_backend import real_boosts
from test_gpu_word_pieces import pieces

__all__ = ["pieces", "real_boosts"]
pytestmark = [
    pytest.mark.skipif(not shutil.which("g++"), reason="needs g++"),
    pytest.mark.nvrtc,
    pytest.mark.share,
]
OF_THE_SOURCE = {"test_the_kernels_hold_to_the_line_width"}


@pytest.fixture(autouse=True)
def made_of_ptx(monkeypatch):
    pytest.importorskip("cupy", reason="needs the extra `nvrtc`")
    monkeypatch.setattr(EmulatedDevice, "made_of", PTX)


def of_ptx(test):
    """Copy a test, all of whose cases are in shares then."""
    parts = test.__code__, test.__globals__, test.__name__, test.__defaults__
    copy = types.FunctionType(*parts, test.__closure__)
    copy.__doc__ = test.__doc__
    marks = getattr(test, "pytestmark", [])
    copy.pytestmark = [mark for mark in marks if mark.name != "share"]
    return copy


for module in (
    test_gpu_backend,
    test_gpu_lattices,
    test_gpu_word_pieces,
    test_gpu_added_words,
):
    searched = module.__name__.removeprefix("test_gpu_")
    for name, test in list(vars(module).items()):
        if name.startswith("test_") and callable(test) and name not in OF_THE_SOURCE:
            name = f"test_{searched}_{name.removeprefix('test_')}"
            globals()[name] = of_ptx(test)
