"""Events of a stream: what the engine says about it, for protocols to put into words.

    Words(is_final=False)      what was heard since the last final; may still change
    Words(is_final=True)       these words can no longer change
    Words(ends_utterance=True) and the utterance is over

Finals come in order, do not overlap, and each word is in one of them. What is said
behind a final that is still being found comes after it.
"""

from __future__ import annotations

from dataclasses import dataclass

from wfstdec.search.endpoints import EndpointRule
from wfstdec.search.hypothesis import Hypothesis, Word


@dataclass(frozen=True)
class Words:
    """Words of a stretch of audio; all times are those of the stream.

    Attributes:
        words: Those since the last final one, in order; may be empty.
        start_s: Where the stretch begins: the end of the last final's.
        end_s: Where it ends.
        is_final: Whether they can no longer change.
        ends_utterance: Whether the utterance ends here; the next one begins at `end_s`.
        rule: What ended it; None where the client, or the end of the stream, did.
        hypotheses: Of the whole utterance, best first, where it ends; one, or the
            n-best list where the server was started with one. Words of it that were
            final before are in it again, with confidences where there are any.
        is_answer: Whether it answers a `flush`.
        latency_s: Seconds from the arrival of the last audio that was searched to here.
    """

    words: tuple[Word, ...]
    start_s: float
    end_s: float
    is_final: bool = False
    ends_utterance: bool = False
    rule: EndpointRule | None = None
    hypotheses: tuple[Hypothesis, ...] = ()
    is_answer: bool = False
    latency_s: float = 0.0


@dataclass(frozen=True)
class SpeechStarted:
    """The first token of an utterance was heard.

    Attributes:
        at_s: Seconds of the stream.
    """

    at_s: float


@dataclass(frozen=True)
class UtteranceEnd:
    """No word has come for as long as the client asked; once for each last word.

    Attributes:
        last_word_end_s: Seconds of the stream.
    """

    last_word_end_s: float


@dataclass(frozen=True)
class BoostsChanged:
    """A new boost list is in force, or was refused.

    It comes once for the list that a stream was opened with, unless that is None, and
    once for each `change_boosts`, in order. A protocol may wait for the first before it
    says that a stream is open, and refuse the stream where the list was refused.

    Attributes:
        from_now: Whether it holds for the utterance under way; if not, from the next.
        warnings: Of words that the decoder cannot find, as a decoder warns of them.
        error: Why it was refused; the list before it stays. None if it was not.
    """

    from_now: bool = False
    warnings: tuple[str, ...] = ()
    error: Exception | None = None


@dataclass(frozen=True)
class Room:
    """Event: there is room for audio again after `Stream.is_full`."""


@dataclass(frozen=True)
class Finished:
    """The stream is over; nothing follows.

    Attributes:
        heard_s: Seconds of audio.
        error: What ended it; None where the client did, or the server drains.
    """

    heard_s: float
    error: Exception | None = None


Event = Words | SpeechStarted | UtteranceEnd | BoostsChanged | Room | Finished
