"""`WfstOptions` as kernels take them: numbers of fixed types, no `None`."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from wfstdec.boost.instalments import instalment_size
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
    has_insertion: bool  # whether `word_insertion` is in force
    has_words: bool  # whether words are boosted
    instalment: np.float32  # see `boost/instalments.py`
    pricing: Pricing


@functools.lru_cache(maxsize=64)
def scales_of(options: WfstOptions, has_words: bool) -> Scales:
    """The options as kernels take them.

    Args:
        options: The user's.
        has_words: Whether any utterance has boosted words.
    """
    delta = options.beam_delta
    return Scales(
        beam=min(np.float32(options.beam), NO_CUTOFF),
        beam_delta=np.float32(-1 if delta is None else delta),
        max_active=np.uint64(options.max_active or 1 << 40),
        min_active=np.uint64(options.min_active),
        lm_scale=np.float32(options.lm_scale),
        word_insertion=np.float32(options.word_insertion),
        has_insertion=options.word_insertion != 0,
        has_words=has_words,
        instalment=instalment_size(options.beam),
        pricing=pricing_of(options),
    )
