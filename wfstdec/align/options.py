"""Options of alignment, checked when they are made."""

from __future__ import annotations

from dataclasses import dataclass

from wfstdec.search.options import MAX_NATS, CheckedOptions, is_between


@dataclass(frozen=True)
class AlignOptions(CheckedOptions):
    """Options of `ForcedAligner`; costs are in nats, lower is better.

        total = acoustic + pronunciations and silences
                + skip_cost * words left out
                + insert_cost * passages put in + insert_frame_cost * their frames

    Attributes:
        beam: Partial paths that cost more than the frame's best plus `beam` are
            dropped. It is widened while no path reaches the end of the text.
        exact: Search again, with as wide a beam as is needed for a proof that no
            alignment is cheaper.
        skip_cost: Words of the text may be left out, at so much each; `None`: they
            may not.
        insert_cost: Speech that the text does not have may stand between words, at so
            much a passage; `None`: it may not.
        insert_frame_cost: What is said there costs so much more, in each frame, than
            the most probable token. With 0 a passage would have no reason to end: it
            would drive the text out of the beam.
        misfit_below: Words of less confidence may be misfits, and so may frames
            between words;
        misfit_nats: they are if they also cost so much more than what the model would
            have said by itself.

    Raises:
        OptionError: A value is out of range.
    """

    beam: float = 60.0
    exact: bool = False
    skip_cost: float | None = None
    insert_cost: float | None = None
    insert_frame_cost: float = 0.3
    misfit_below: float = 0.2
    misfit_nats: float = 10.0

    def __post_init__(self) -> None:
        """Check every value."""
        self.check_width("beam")
        good, expected = is_between(0, MAX_NATS), f"a number of nats, 0 to {MAX_NATS:g}"
        for name in ("skip_cost", "insert_cost"):
            self.check(name, good, f"{expected}, or None", optional=True)
        self.check("insert_frame_cost", good, expected)
        self.check("misfit_below", is_between(0, 1), "a number from 0 to 1")
        self.check_width("misfit_nats")
