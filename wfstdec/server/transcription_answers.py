"""Answers to requests for transcriptions, in each format that may be asked for.

    body, kind = answer(transcript, request, language, warnings)     # of a whole file
    delta_event("so far")                                            # of a stream

Long ones take a while to make: not on the event loop.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from wfstdec.io.subtitles import cue_bounds, srt_text, vtt_text
from wfstdec.search.hypothesis import Hypothesis, Word
from wfstdec.server.transcription_request import TranscriptionRequest
from wfstdec.transcription import Transcript

_LEAST = 1e-10
"""Probability below which the logarithm of a confidence does not fall."""

_TEXTS: Mapping[str, tuple[Callable[[Hypothesis], str], str]] = {
    "text": (lambda found: found.text + "\n", "text/plain"),
    "srt": (lambda found: srt_text(found.words), "application/x-subrip"),
    "vtt": (lambda found: vtt_text(found.words), "text/vtt"),
}
"""Makers of a body, and its type, of formats that are text."""


def answer(
    transcript: Transcript,
    request: TranscriptionRequest,
    language: str,
    warnings: Sequence[str],
) -> tuple[bytes, str]:
    """Make the body of the answer to a request, and say its content type."""
    hypotheses = transcript.hypotheses(request.nbest)
    if request.format in _TEXTS:
        make, kind = _TEXTS[request.format]
        return make(hypotheses[0]).encode(), f"{kind}; charset=utf-8"
    fields: dict[str, Any] = {"text": hypotheses[0].text}
    if request.format == "verbose_json":
        fields = {
            "task": "transcribe",
            "language": language,
            "duration": _rounded(transcript.audio_s),
            **fields,
            "words": words_of(hypotheses[0].words),
            "segments": segments_of(hypotheses[0].words),
        }
    fields |= _more(transcript, hypotheses, request, warnings)
    return _json(fields), "application/json"


def delta_event(text: str) -> bytes:
    """Make the event of words behind those of the events before."""
    return event({"type": "transcript.text.delta", "delta": text})


def done_event(
    transcript: Transcript, request: TranscriptionRequest, warnings: Sequence[str]
) -> bytes:
    """Make the last event of a stream: the text and the words of all."""
    hypotheses = transcript.hypotheses(request.nbest)
    text, words = hypotheses[0].text, hypotheses[0].words
    fields: dict[str, Any] = {"type": "transcript.text.done", "text": text}
    fields |= {"words": words_of(words), "segments": segments_of(words)}
    return event(fields | _more(transcript, hypotheses, request, warnings))


def event(fields: Mapping[str, Any]) -> bytes:
    """Format an event of `text/event-stream`."""
    return b"data: " + _json(fields) + b"\n\n"


def words_of(words: Sequence[Word]) -> list[dict[str, Any]]:
    """Words with times, and confidences where there are any."""
    return [
        {
            "word": word.text,
            "start": _rounded(word.start_s),
            "end": _rounded(word.end_s),
        }
        | ({} if word.confidence is None else {"confidence": _rounded(word.confidence)})
        for word in words
    ]


def segments_of(words: Sequence[Word]) -> list[dict[str, Any]]:
    """Words as subtitles are cut, with all fields that OpenAI's clients read.

    What our search has no such thing as is empty or 0: `tokens`, `temperature`,
    `no_speech_prob`; and `avg_logprob` is the mean logarithm of the words'
    confidences, 0 where there are none.
    """
    found = []
    for number, (first, end) in enumerate(cue_bounds(words)):
        some = words[first:end]
        text = " ".join(word.text for word in some)
        data = text.encode()
        sure = [word.confidence for word in some if word.confidence is not None]
        logs = [math.log(max(one, _LEAST)) for one in sure]
        found.append(
            {
                "id": number,
                "seek": round(100 * some[0].start_s),
                "start": _rounded(some[0].start_s),
                "end": _rounded(some[-1].end_s),
                "text": text,
                "tokens": [],
                "temperature": 0.0,
                "avg_logprob": _rounded(sum(logs) / len(logs) if logs else 0.0),
                "compression_ratio": _rounded(len(data) / len(zlib.compress(data))),
                "no_speech_prob": 0.0,
            }
        )
    return found


def _more(
    transcript: Transcript,
    hypotheses: Sequence[Hypothesis],
    request: TranscriptionRequest,
    warnings: Sequence[str],
) -> dict[str, Any]:
    """Fields of all answers in JSON: use, and our own where there is something."""
    seconds = _rounded(transcript.audio_s)
    fields: dict[str, Any] = {"usage": {"type": "duration", "seconds": seconds}}
    if request.nbest > 1:
        costs = ("total_cost", "graph_cost", "acoustic_cost", "boost_cost")
        fields["nbest"] = [
            {"text": one.text, "words": words_of(one.words)}
            | {name: _cost(getattr(one, name)) for name in costs}
            for one in hypotheses
        ]
    if warnings:
        fields["warnings"] = list(warnings)
    return fields


def _rounded(number: float) -> float:
    """To the millionth: frame * shift leaves digits like 0.6000000000000001."""
    return round(float(number), 6)


def _cost(cost: float) -> float | None:
    """JSON knows no infinity: null."""
    return float(cost) if math.isfinite(cost) else None


def _json(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()
