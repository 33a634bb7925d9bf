"""What a user can set on alignment; checked at birth."""

from __future__ import annotations

from dataclasses import dataclass

from wfstdec.search.option_checks import CheckedOptions


@dataclass(frozen=True)
class AlignOptions(CheckedOptions):
    """Options of `ForcedAligner`; costs are in nats, lower is better.

        total = acoustic + pronunciations and silences
                + skip_cost * words left out + insert_cost * passages put in

    Attributes:
        beam: Partial paths that cost more than the frame's best plus `beam` are
            dropped. It is widened while no path reaches the end of the text.
        exact: Search again, with as wide a beam as is needed for a proof that no
            alignment is cheaper.
        skip_cost: Words of the text may be left out, at so much each; `None`: they
            may not.
        insert_cost: Speech that the text does not have may stand between words, at so
            much a passage; `None`: it may not. What is said there costs as much as
            the most probable token of each frame.
        weak_below: Words of less confidence are reported as misfits, and so is speech
            between words that is as badly explained.

    Raises:
        OptionError: A value is out of range.
    """

    beam: float = 60.0
    exact: bool = False
    skip_cost: float | None = None
    insert_cost: float | None = None
    weak_below: float = 0.1

    def __post_init__(self) -> None:
        """Check every value."""
        self.check_width("beam")
        for name in ("skip_cost", "insert_cost"):
            self.check(
                name, lambda x: 0 <= x <= 1e6, "nats, 0 to 1e6, or None", optional=True
            )
        self.check("weak_below", lambda x: 0 <= x <= 1, "a number from 0 to 1")
