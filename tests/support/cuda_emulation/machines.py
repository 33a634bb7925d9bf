"""Both ways to emulate a device, for all tests of a module that imports `made_of`.

from cuda_emulation.machines import made_of

__all__ = ["made_of"]        # a fixture that every test here has
"""

import pytest

from cuda_emulation.device import PTX, SOURCE, EmulatedDevice


@pytest.fixture(
    autouse=True,
    params=[SOURCE, pytest.param(PTX, marks=[pytest.mark.nvrtc, pytest.mark.share])],
)
def made_of(request, monkeypatch):
    """Kernels from the source, or from the PTX that NVRTC makes of it: in shares."""
    if request.param == PTX:
        pytest.importorskip("cupy", reason="needs the extra `nvrtc`")
    monkeypatch.setattr(EmulatedDevice, "made_of", request.param)
