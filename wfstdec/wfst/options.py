"""Options of the WFST decoder, and its backends."""

import functools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from wfstdec.boost.kernels import max_credit_per_arc
from wfstdec.search.hypothesis import NO_CUTOFF
from wfstdec.search.logprobs import Pricing, pricing_of
from wfstdec.search.options import LatticeOptions

BACKENDS = {
    "cpu": "wfstdec.wfst.cpu.backend:CpuBackend",
    "cuda": "wfstdec.wfst.gpu.backend:backend_for",
}
"""Constructors of backends by name, as `module:function`; see `search.backend`."""


@dataclass(frozen=True)
class WfstOptions(LatticeOptions):
    """Options of the WFST decoder; costs are in nats, lower is better.

        total = acoustic_scale * acoustic + lm_scale * graph
                + word_insertion * words - boost_scale * boosts

    Attributes:
        beam: Beam width: states above the frame's best cost plus `beam` are dropped.
        max_active: Most search states that a frame continues from; `None` is no limit.
        acoustic_scale: Factor of the negated log-probs.
        lm_scale: Factor of the graph's costs, arcs and final costs.
        word_insertion: Cost of each word; positive values penalise.
        blank_penalty: Subtracted from the blank's log-prob before scaling; part of the
            acoustic cost.
        boost_scale: Factor of all boosts.
        blank_skip_threshold: Frames whose blank has at least this probability follow
            only blank arcs; `None` follows all.
        beam_delta: If `max_active` is reached, the next frame's beam is the worst kept
            cost plus this, at most `beam`; `None` keeps the beam.
        lattice_beam: Largest extra cost of a lattice's paths over the best; at most
            `beam`. `None` is 8, or the beam if that is less.
        nbest: Number of different texts that `decode_nbest` returns.

    Raises:
        OptionError: A value is out of range.
    """

    beam: float = 13.0
    max_active: int | None = 7000
    acoustic_scale: float = 1.0
    lm_scale: float = 1.0
    word_insertion: float = 0.0
    blank_penalty: float = 0.0
    boost_scale: float = 1.0
    blank_skip_threshold: float | None = None
    beam_delta: float | None = None
    lattice_beam: float | None = None
    nbest: int = 1

    def __post_init__(self) -> None:
        self.check_width("beam")
        self.check_count("max_active", optional=True)
        self.check_scales("acoustic_scale", "lm_scale", "boost_scale")
        self.check_nats("word_insertion", "blank_penalty")
        self.check_probability("blank_skip_threshold")
        self.check_width("beam_delta", optional=True)
        self.check_lattice_beam()
        self.check_count("nbest")


class SearchParams(NamedTuple):
    """Options of a search as plain numbers."""

    beam: np.float32
    beam_delta: np.float32  # below 0: none
    max_active: np.uint64
    lm_scale: np.float32
    word_insertion: np.float32
    has_insertion: bool  # whether `word_insertion` is not 0
    has_words: bool  # whether words are boosted
    instalment: np.float32  # see `boost/kernels.py`
    pricing: Pricing


@functools.lru_cache(maxsize=64)
def search_params(options: WfstOptions, has_words: bool) -> SearchParams:
    """Return the options for kernels."""
    delta = options.beam_delta
    return SearchParams(
        beam=min(np.float32(options.beam), NO_CUTOFF),
        beam_delta=np.float32(-1 if delta is None else delta),
        max_active=np.uint64(options.max_active or 1 << 40),
        lm_scale=np.float32(options.lm_scale),
        word_insertion=np.float32(options.word_insertion),
        has_insertion=options.word_insertion != 0,
        has_words=has_words,
        instalment=max_credit_per_arc(options.beam),
        pricing=pricing_of(options),
    )
