"""Alignment of a text: words and tokens with times, misfits; options."""

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from wfstdec.search.hypothesis import HasWords, Token, Word, seconds, words_as_dicts
from wfstdec.search.options import MAX_NATS, CheckedOptions, is_between
from wfstdec.text.display import short


@dataclass(frozen=True)
class AlignOptions(CheckedOptions):
    """Options of `ForcedAligner`; costs are in nats, lower is better.

        total = acoustic + pronunciations and silences
                + skip_cost * words left out
                + insert_cost * passages put in + insert_frame_cost * their frames

    Attributes:
        beam: Partial paths above the frame's best cost plus `beam` are dropped. It is
            widened until a path reaches the end of the text.
        exact: Search again, with a beam wide enough to prove that no alignment has a
            lower cost.
        skip_cost: Cost of leaving out a word of the text; `None` forbids it.
        insert_cost: Cost of a passage of speech between words that is not in the text;
            `None` forbids it.
        insert_frame_cost: Nats of inserted speech per frame, in addition to the cost
            of the most probable token. With 0 a passage would never end and would
            displace the text from the beam.
        misfit_below: Words below this confidence may be misfits, as may frames between
            words.
        misfit_nats: They are misfits if their extra cost over the model's own output
            exceeds this.

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
        self.check_width("beam")
        good, expected = is_between(0, MAX_NATS), f"a number of nats, 0 to {MAX_NATS:g}"
        for name in ("skip_cost", "insert_cost"):
            self.check(name, good, f"{expected}, or None", optional=True)
        self.check("insert_frame_cost", good, expected)
        self.check("misfit_below", is_between(0, 1), "a number from 0 to 1")
        self.check_width("misfit_nats")


MisfitKind = Literal["weak", "speech", "left out", "put in", "not reached", "unknown"]


class Misfit(NamedTuple):
    """A place where text and audio do not match.

    `"weak"`: words with a low confidence; `"speech"`: speech between words that is not
    in the text; `"left out"`: words that the alignment leaves out; `"put in"`: speech
    that it inserts; `"not reached"`: words after the end of the audio, with one that it
    cuts off; `"unknown"`: a word that cannot be spelled, aligned with any speech.
    """

    kind: MisfitKind
    first_word: int  # position of the first word in the text, from 0
    end_word: int  # one after the last; `first_word` without words
    text: str  # these words
    start_s: float  # seconds to the first frame
    end_s: float  # seconds to the end of the last
    start_frame: int
    end_frame: int  # one after the last
    confidence: float  # of these frames, see `Alignment`

    def __str__(self) -> str:
        first, last = self.first_word + 1, self.end_word
        where = f"word {first}" if first == last else f"words {first}-{last}"
        where = f"{where} {self.text!r}" if first <= last else f"before word {first}"
        return f"{self.kind}: {where}, {self.start_s:.2f}-{self.end_s:.2f} s"


@dataclass(frozen=True)
class Alignment(HasWords):
    """Times of the words of a known text.

    A confidence measures how close the alignment is to the model's most probable
    tokens: the geometric mean, over the frames in which either is not blank, of

        probability of the aligned token / probability of the most probable token

    of a word over all its frames, of a token over its own. It is 1 where the two agree.
    It is not calibrated, and is not the probability that the word is right.

    Attributes:
        words: The aligned ones, in order; `Word.confidence` as above, None for unknown
            words.
        positions: Position of each in the text, from 0.
        tokens: Of words, separators and silences, in order, with confidences.
        word_tokens: The first token of each word, and one after its last.
        transcript: The words of the text.
        misfits: Places where text and audio do not match, in order of time.
        total_cost: Nats, of the whole path.
        excess: The total minus the cost of the most probable token of each frame.
        exact: Whether it is proved that no alignment has a lower cost; otherwise it is
            the best within the beam, or `reached_end` is False.
        reached_end: Whether the path covers the text to its end.
        num_frames: Frames of the utterance.
        missing_frames: Frames by which it is too short for the text, or 0.
        frame_shift_s: Seconds per frame.
    """

    words: tuple[Word, ...]
    positions: tuple[int, ...]
    tokens: tuple[Token, ...] = field(repr=False)
    word_tokens: tuple[tuple[int, int], ...] = field(repr=False)
    transcript: tuple[str, ...] = field(repr=False)
    misfits: tuple[Misfit, ...]
    total_cost: float
    excess: float
    exact: bool
    reached_end: bool
    num_frames: int
    missing_frames: int
    frame_shift_s: float

    def to_dict(self) -> dict[str, Any]:
        """Return words with times and confidences, and misfits, for `json.dumps`."""
        misfits = [misfit._asdict() for misfit in self.misfits]
        words = words_as_dicts(self.words)
        names = "total_cost excess exact reached_end num_frames missing_frames"
        others = {name: getattr(self, name) for name in names.split()}
        return {"text": self.text, "words": words, "misfits": misfits, **others}

    def __repr__(self) -> str:
        fits = "fits" if self.fits else f"{len(self.misfits)} misfits"
        fits += "" if self.reached_end else ", end not reached"
        fits += f", {n} frames missing" if (n := self.missing_frames) else ""
        duration = seconds(self.num_frames, self.frame_shift_s)
        words = f"{short(self.text)}, {len(self.words)} words"
        return f"Alignment({words}, {duration:g} s, {fits})"

    @property
    def fits(self) -> bool:
        """Whether there is no misfit and the end of the text was reached."""
        return self.reached_end and not self.misfits
