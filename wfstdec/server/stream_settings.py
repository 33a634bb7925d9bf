"""Settings of a stream: what its client asked for, whatever protocol it speaks."""

from __future__ import annotations

import math
from dataclasses import dataclass

from wfstdec.boost.lists import BoostsLike
from wfstdec.search.options import CheckedOptions


@dataclass(frozen=True)
class StreamSettings(CheckedOptions):
    """Settings that a client asks for its stream.

    Attributes:
        encoding: 'linear16', 'mulaw' or 'alaw'; None where the audio says what it is
            by its first bytes (WAV, FLAC, Ogg, WebM, ...).
        sample_rate: Samples a second of an encoding.
        channels: Channels, interleaved; they are mixed.
        boosts: A list as `Sessions.open` takes it.
        interims: Whether words that may still change are wanted.
        endpoint_silence_s: Silence that ends an utterance with a good end (the second
            of the rules; the others keep their distance); None for the server's rules,
            `inf` for no rule of silence.
        utterance_end_s: Seconds behind the last word after which `UtteranceEnd` is
            said; None for never.
        speech_started: Whether `SpeechStarted` is wanted.

    Raises:
        OptionError: A value is out of range.
    """

    encoding: str | None = None
    sample_rate: int = 16000
    channels: int = 1
    boosts: BoostsLike = None
    interims: bool = False
    endpoint_silence_s: float | None = None
    utterance_end_s: float | None = None
    speech_started: bool = False

    def __post_init__(self) -> None:
        """Check every value."""
        if self.encoding is not None:
            self.check_choice("encoding", ("linear16", "mulaw", "alaw"))
        self.check("sample_rate", lambda x: 1000 <= x <= 384000, "1000 to 384000")
        self.check("channels", lambda x: 1 <= x <= 8, "1 to 8")
        for name in ("endpoint_silence_s", "utterance_end_s"):
            self.check(
                name,
                lambda x: 0 < x and not math.isnan(x),
                "seconds, above 0, or None",
                optional=True,
            )
