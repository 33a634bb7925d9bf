"""Options of the greedy decoder and its backends."""

from dataclasses import dataclass
from typing import ClassVar

from wfstdec.search.options import CheckedOptions

BACKENDS = {
    "cpu": "wfstdec.greedy.decoder:CpuBackend",
}
"""Constructors of backends by name, as `module:function`; see `search.backend`."""


@dataclass(frozen=True)
class GreedyOptions(CheckedOptions):
    """Options of the greedy decoder; see `TrieOptions` for those of the same name.

        total = acoustic_scale * acoustic + lm_scale * graph
                + token_insertion * tokens - boost_scale * boosts

    Attributes:
        acoustic_scale: Multiplies the negated log-probs.
        lm_scale: Multiplies the costs of the language model.
        token_insertion: Added for every token; changes costs, but no decision.
        blank_penalty: Subtracted from the blank's log-prob, before the scale; part
            of the acoustic cost.
        boost_scale: Multiplies all boosts.

    Raises:
        OptionError: A value is out of range.
    """

    acoustic_scale: float = 1.0
    lm_scale: float = 1.0
    token_insertion: float = 0.0
    blank_penalty: float = 0.0
    boost_scale: float = 1.0

    blank_skip_threshold: ClassVar[None] = None  # frames are too cheap to skip

    def __post_init__(self) -> None:
        self.check_scales("acoustic_scale", "lm_scale", "boost_scale")
        self.check_nats("token_insertion", "blank_penalty")
