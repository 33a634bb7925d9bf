"""Options of the token-passing search; checked at birth."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from wfstdec.boost.kernels import instalment_size
from wfstdec.search.acoustics import Pricing, pricing_of
from wfstdec.search.costs import NO_CUTOFF
from wfstdec.search.options import MAX_COUNT, LatticeOptions, is_count


@dataclass(frozen=True)
class WfstOptions(LatticeOptions):
    """Options of the WFST decoder; costs are in nats, lower is better.

        total = acoustic_scale * acoustic + lm_scale * graph
                + word_insertion * words - boost_scale * boosts

    Attributes:
        beam: Entries that cost more than the frame's best plus `beam` are dropped;
            `inf` drops none.
        max_active: The most distinct search states that a frame goes on from; `None`
            sets no limit.
        min_active: The fewest that a frame goes on from while there are so many,
            whatever the beam.
        acoustic_scale: Multiplies the negated log-probs.
        lm_scale: Multiplies the costs of the graph: arcs and final costs.
        word_insertion: Added for every word; above 0 penalises.
        blank_penalty: Subtracted from the blank's log-prob, before the scale; part
            of the acoustic cost.
        boost_scale: Multiplies all boosts.
        blank_skip_threshold: At a frame where the blank's probability is at least
            this, only blank arcs are followed; `None` follows all.
        beam_delta: Where `max_active` binds, the next frame's beam is the worst kept
            cost plus this, if that is less than `beam`; `None` keeps the beam.
        lattice_beam: A lattice keeps what a path goes through that costs no more than
            the best plus this; at most `beam`. `None` is 8, or the beam if that is
            less.
        nbest: How many different texts `decode_nbest` gives, from a lattice.

    Raises:
        OptionError: A value is out of range.
    """

    beam: float = 13.0
    max_active: int | None = 7000
    min_active: int = 0
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
        """Check every value."""
        self.check_width("beam")
        self.check_count("max_active", optional=True)
        limit = MAX_COUNT if self.max_active is None else self.max_active
        expected = f"0 to max_active ({self.max_active!r})"
        self.check("min_active", is_count(0, limit), expected)
        self.check_scales("acoustic_scale", "lm_scale", "boost_scale")
        self.check_nats("word_insertion", "blank_penalty")
        self.check_probability("blank_skip_threshold")
        self.check_width("beam_delta", optional=True)
        self.check_lattice_beam()
        self.check_count("nbest")


class SearchParams(NamedTuple):
    """The options of a search, scales, widths and counts, as plain numbers."""

    beam: np.float32
    beam_delta: np.float32  # below 0: none
    max_active: np.uint64
    min_active: np.uint64
    lm_scale: np.float32
    word_insertion: np.float32
    has_insertion: bool  # whether `word_insertion` is in force
    has_words: bool  # whether words are boosted
    instalment: np.float32  # see `boost/kernels.py`
    pricing: Pricing


@functools.lru_cache(maxsize=64)
def search_params(options: WfstOptions, has_words: bool) -> SearchParams:
    """The options as kernels take them.

    Args:
        options: The user's.
        has_words: Whether any utterance has boosted words.
    """
    delta = options.beam_delta
    return SearchParams(
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
