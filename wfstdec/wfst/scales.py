"""`WfstOptions` as kernels take them: numbers of fixed types, no `None`."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from wfstdec.search.acoustics import Pricing, pricing_of
from wfstdec.search.costs import NO_CUTOFF
from wfstdec.wfst.options import WfstOptions


class Scales(NamedTuple):
    """The options of a search, scales, widths and counts, as plain numbers."""

    beam: np.float32
    beam_delta: np.float32  # below 0: none
    max_active: np.uint64
    min_active: np.uint64
    lm_scale: np.float32
    word_insertion: np.float32
    has_extras: bool  # whether insertion or boosts are in force
    pricing: Pricing


@functools.lru_cache(maxsize=64)
def scales_of(options: WfstOptions, boosted: bool) -> Scales:
    """The options as kernels take them.

    Args:
        options: The user's.
        boosted: Whether any utterance has boosts.
    """
    delta = options.beam_delta
    return Scales(
        beam=min(np.float32(options.beam), NO_CUTOFF),
        beam_delta=np.float32(-1 if delta is None else delta),
        max_active=np.uint64(options.max_active or 1 << 40),
        min_active=np.uint64(options.min_active),
        lm_scale=np.float32(options.lm_scale),
        word_insertion=np.float32(options.word_insertion),
        has_extras=bool(options.word_insertion != 0 or boosted),
        pricing=pricing_of(options),
    )
