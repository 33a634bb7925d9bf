"""Messages of `WS /v1/listen`: what clients say, and what the stream's events become.

    read_message('{"type": "Configure", "keyterms": ["new york"]}')   Configure(...)
    answers = Answers("hama", version)
    answers.of(Words(...))                                     {"type": "Results", ...}

Fields that Deepgram's messages do not have: `rule` and `latency_ms` of `Results`,
`cost` of an alternative, `effective` and `warnings` of `ConfigureSuccess`, `ignored`
and `warnings` of `Metadata`.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import json
import math
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from wfstdec.search.hypothesis import Hypothesis, Word
from wfstdec.server.events import SpeechStarted, UtteranceEnd, Words

Json = dict[str, Any]

_PLAIN = ("KeepAlive", "Finalize", "CloseStream")
_CONFIGURED = ("keyterms", "keywords", "boosts")
_SHOWN, _NAMED = 200, 20
"""How much of a wrong message its sender sees again, and of how many names."""
_SPACE = uuid.UUID("0d7d4a4e-6b0f-5f5c-9f7c-7a4d3c1f2b68")
"""A name space of our own: the same model has the same id on every server."""


class MessageError(ValueError):
    """A client's message cannot be understood; the text says what was expected.

    Args:
        found: The message, or the part that is wrong.
        expected: What it was to be.
    """

    def __init__(self, found: Any, expected: str) -> None:
        text = found if isinstance(found, str) else repr(found)
        self.found = text[:_SHOWN]
        super().__init__(f"found {self.found!r}, expected {expected}")


@dataclass(frozen=True)
class Plain:
    """A message without content.

    Attributes:
        type: 'KeepAlive', 'Finalize' or 'CloseStream'.
    """

    type: str


@dataclass(frozen=True)
class Configure:
    """Other boosts from now on; None keeps what there is, an empty list clears.

    Attributes:
        keyterms, keywords: As in the query; not checked yet.
        boosts: JSON as in boost files; not checked yet.
        ignored: Names of what else was to be changed.
    """

    keyterms: Any = None
    keywords: Any = None
    boosts: Any = None
    ignored: tuple[str, ...] = ()


def read_message(text: str) -> Plain | Configure:
    """Read a text message of a client.

    Raises:
        MessageError: No JSON object, or of no type that there is.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise MessageError(text, "an object of JSON") from None
    kind = found.get("type") if isinstance(found, dict) else None
    if kind == "Configure":
        # A null is as good as nothing, as in many generated clients.
        more = {name: value for name, value in found.items() if value is not None}
        del more["type"]
        known = {name: more.pop(name, None) for name in _CONFIGURED}
        return Configure(
            **known, ignored=tuple(name[:_SHOWN] for name in more)[:_NAMED]
        )
    if isinstance(kind, str) and kind in _PLAIN:
        return Plain(kind)
    expected = ", ".join(map(repr, (*_PLAIN, "Configure")))
    raise MessageError(text, f"an object of JSON with a 'type' of {expected}")


@dataclass(frozen=True)
class Answers:
    """Messages to a stream's client.

    Attributes:
        model: The name of the model.
        version: Of the program.
        request_id: Of the stream.
        created: When it was opened, in ISO form.
    """

    model: str
    version: str
    request_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    created: str = field(
        default_factory=lambda: (
            datetime.datetime.now(datetime.UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z")
        )
    )

    def of(self, event: Words | SpeechStarted | UtteranceEnd) -> Json:
        """Put what was heard into words."""
        if isinstance(event, SpeechStarted):
            return {"type": "SpeechStarted", "channel": [0], "timestamp": event.at_s}
        if isinstance(event, UtteranceEnd):
            last = event.last_word_end_s
            return {"type": "UtteranceEnd", "channel": [0, 1], "last_word_end": last}
        said = {
            "type": "Results",
            "channel_index": [0, 1],
            "start": event.start_s,
            "duration": max(event.end_s - event.start_s, 0.0),
            "is_final": event.is_final,
            "speech_final": event.is_final and event.ends_utterance,
            "channel": {"alternatives": _alternatives(event)},
            "metadata": self._metadata,
            "latency_ms": round(1000 * event.latency_s, 3),
        }
        if event.is_answer:
            said["from_finalize"] = True
        if event.rule is not None:
            rule = dataclasses.asdict(event.rule)
            # JSON has no infinity.
            said["rule"] = {n: None if x == math.inf else x for n, x in rule.items()}
        return said

    @functools.cached_property
    def _metadata(self) -> Json:
        info = {"name": self.model, "version": self.version, "arch": "ctc"}
        return {
            "request_id": self.request_id,
            "model_info": info,
            "model_uuid": str(uuid.uuid5(_SPACE, self.model)),
        }

    def metadata(
        self, heard_s: float, ignored: Sequence[str], warnings: Sequence[str]
    ) -> Json:
        """Tell what the stream is, or was.

        There is no digest of the audio: nobody reads it, and it would be made where
        all streams wait for it.
        """
        return {
            "type": "Metadata",
            "transaction_key": "deprecated",
            "request_id": self.request_id,
            "sha256": "",
            "created": self.created,
            "duration": heard_s,
            "channels": 1,
            "ignored": list(ignored),
            "warnings": list(warnings),
        }

    def configured(
        self, keyterms: Sequence[str] | None, *, now: bool, warnings: Sequence[str]
    ) -> Json:
        """Tell that boosts were changed; `keyterms` only where they were replaced."""
        said = self._said("ConfigureSuccess")
        if keyterms is not None:
            said["keyterms"] = list(keyterms)
        said["effective"] = "now" if now else "next_utterance"
        said["warnings"] = list(warnings)
        return said

    def not_configured(self, code: str, description: str) -> Json:
        """Tell that boosts were not changed, and why."""
        return self._said("ConfigureFailure", code=code, description=description)

    def error(self, variant: str, description: str, message: str = "") -> Json:
        """Tell what is wrong; `message` is the client's own that it is about."""
        what = {"variant": variant, "description": description, "message": message}
        return self._said("Error", **what)

    def _said(self, kind: str, **fields: str) -> Json:
        return {"type": kind, "request_id": self.request_id, **fields}


def _alternatives(event: Words) -> list[Json]:
    """The words that are new; of an utterance that ends, the n-best list behind them.

    What was already sent of the utterance is left out of all of them.
    """
    best = event.hypotheses[0] if event.hypotheses else None
    found = [_alternative(event.words, best)]
    sent = len(best.words) - len(event.words) if best is not None else 0
    for one in event.hypotheses[1:]:
        words = one.words
        if sent:
            words = tuple(word for word in words if word.start_s >= event.start_s)
        found.append(_alternative(words, one))
    return found


def _alternative(words: Sequence[Word], whole: Hypothesis | None) -> Json:
    known = [word.confidence for word in words if word.confidence is not None]
    said = {
        "transcript": " ".join(word.text for word in words),
        # The mean of the words'; 0 where there are none.
        "confidence": float(sum(known) / len(known)) if known else 0.0,
        "words": [
            {
                "word": word.text,
                "start": float(word.start_s),
                "end": float(word.end_s),
                "confidence": float(word.confidence or 0.0),
                "punctuated_word": word.text,
            }
            for word in words
        ],
    }
    if whole is not None and math.isfinite(whole.total_cost):
        said["cost"] = float(whole.total_cost)
    return said
