"""Beams as users of pyctcdecode see them; their names are those of its main branch.

text, lm_state, text_frames, logit_score, lm_score = decoder.decode_beams(logits)[0]
decoder.decode_beams(logits)[0].lm_score
beams, cached_lm_scores, cached_p_lm_scores = decoder.get_starting_state()   # `Beam`
"""

from __future__ import annotations

from typing import Any, NamedTuple

Frames = tuple[int, int]
"""The first frame of a word, and one behind its last."""
WordFrames = tuple[str, Frames]
NULL_FRAMES: Frames = (-1, -1)


class OutputBeam(NamedTuple):
    """A beam of `decode_beams`.

    Attributes:
        text: Its words.
        last_lm_state: The state of the language model behind them.
        text_frames: Words with their frames.
        logit_score: The log-sum of its alignments, nats.
        lm_score: The same with language model and hotwords.
    """

    text: str
    last_lm_state: Any
    text_frames: list[WordFrames]
    logit_score: float
    lm_score: float

    def get_mp_safe_beam(self) -> OutputBeam:
        """Copy the beam for another process, without a state that cannot go there."""
        state = self.last_lm_state
        safe = getattr(state, "get_mp_safe_state", None)
        if safe is not None:
            state = safe()
        elif type(state).__module__ == "kenlm":
            state = None
        return self._replace(last_lm_state=state)


class OutputBeamMPSafe(NamedTuple):
    """A beam of `decode_beams_batch`: fields as of `OutputBeam`, without the state."""

    text: str
    text_frames: list[WordFrames]
    logit_score: float
    lm_score: float

    @property
    def last_lm_state(self) -> None:
        """None; in pyctcdecode's main branch it is a field."""
        return None


class Beam(NamedTuple):
    """A beam between two parts of an utterance.

    Attributes:
        text: Its words.
        next_word: A word that ended and is not yet in the text; empty of what
            `partial_decode_beams` gives.
        partial_word: The word under way.
        last_char: The label of the last frame; None where a new word is to begin.
        text_frames: The frames of each word.
        partial_frames: Those of the word under way.
        logit_score: The log-sum of its alignments, nats.
        lm_score: The same with language model and hotwords.
        is_closed: Whether the word under way ends with what comes next.
    """

    text: str
    next_word: str
    partial_word: str
    last_char: str | None
    text_frames: list[Frames]
    partial_frames: Frames
    logit_score: float
    lm_score: float = 0.0
    is_closed: bool = False


LMBeam = Beam
"""The beams that `partial_decode_beams` gives; their `lm_score` is set."""
EMPTY_START_BEAM = Beam("", "", "", None, [], NULL_FRAMES, 0.0)
