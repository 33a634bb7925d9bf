"""Log-probs on a device: what comes back of them."""

import numpy as np
import pytest
from cuda_emulation.device import EmulatedDevice, in_16_bits, in_32_bits

from wfstdec.gpu.logprobs import BFLOAT16, FLOAT16, download_frame

GIVEN = {
    "float32": in_32_bits,
    "float16": lambda x, padding: in_16_bits(x, FLOAT16, padding),
    "bfloat16": lambda x, padding: in_16_bits(x, BFLOAT16, padding),
}


@pytest.mark.parametrize("padding", [0, 3])
@pytest.mark.parametrize("kind", GIVEN)
def test_a_bad_frame_comes_back_as_it_was_given(kind, padding):
    """A planted fault that forgot the padding between frames was not found."""
    x = -np.arange(20, dtype=np.float32).reshape(5, 4) / 4
    given = GIVEN[kind](x, padding=padding)
    for frame in range(5):
        row = download_frame(EmulatedDevice(), given, frame, 4)
        assert row.dtype == np.float32 and np.array_equal(row, x[frame])
