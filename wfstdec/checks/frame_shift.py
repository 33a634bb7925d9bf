"""Check the seconds from one frame to the next, which are often given in ms."""

from __future__ import annotations

import math

from wfstdec.errors import OptionError

LONGEST_S = 1.0
"""No model has longer frames: they would miss whole words."""


def check_frame_shift(frame_shift_s: float) -> float:
    """Check seconds per frame.

    Raises:
        OptionError: Not above 0, not finite, or so long that it is milliseconds.
    """
    if not (math.isfinite(frame_shift_s) and frame_shift_s > 0):
        raise OptionError(f"frame_shift_s={frame_shift_s!r}, expected seconds, above 0")
    if frame_shift_s > LONGEST_S:
        raise OptionError(
            f"frame_shift_s={frame_shift_s!r}, expected seconds, at most "
            f"{LONGEST_S:g}; milliseconds? then {frame_shift_s / 1000:g}"
        )
    return frame_shift_s
