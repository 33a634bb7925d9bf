"""A stream as its handler has it: its settings, and what waits for the next round."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from wfstdec.boost.lists import BoostsLike
from wfstdec.search.options import CheckedOptions
from wfstdec.server.audio_bytes import ENCODINGS, ContainerBytes, RawBytes
from wfstdec.server.containers import BYTES_PER_S, AudioBytes


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
            self.check_choice("encoding", tuple(ENCODINGS))
        self.check("sample_rate", lambda x: 1000 <= x <= 384000, "1000 to 384000")
        self.check("channels", lambda x: 1 <= x <= 8, "1 to 8")
        for name in ("endpoint_silence_s", "utterance_end_s"):
            self.check(
                name,
                lambda x: 0 < x and not math.isnan(x),
                "seconds, above 0, or None",
                optional=True,
            )


class End(Enum):
    """End of an utterance at the client's wish."""

    FLUSH = "the utterance"
    FINISH = "the stream"


class NewBoosts(NamedTuple):
    """A boost list that is to hold from here on."""

    boosts: BoostsLike


Message = bytes | End | NewBoosts


class Stream:
    """Stream as its handler has it; no method waits.

    A handler that reads faster than words are found waits while `is_full`:

        stream.send(data)
        while stream.is_full:
            await room.wait()                     # set by the event `Room`
            room.clear()

    Args:
        settings: What its client asks for.
        context: Anything of the handler's own.
        sample_rate: The model's.
        buffered_s: Seconds of audio that may wait.
        wake: Tells the engine that there is something new.

    Attributes:
        settings: As it was opened.
        context: Anything of the handler's own: whom to hand events to.
        inbox: What was sent, with the time it came; the engine takes it.
        audio: Makes samples of bytes; the engine's.
        is_aborted: Whether it was given up.
        awaits_room: Whether `Room` is to be said once there is some.
    """

    def __init__(
        self,
        settings: StreamSettings,
        context: Any,
        *,
        sample_rate: int,
        buffered_s: float,
        wake: Callable[[Stream], None],
    ) -> None:
        self.settings, self.context = settings, context
        self.inbox: deque[tuple[Message, float]] = deque()
        self.audio: AudioBytes
        if settings.encoding is None:
            self.audio = ContainerBytes(sample_rate, buffered_s, lambda: wake(self))
            self._bytes_per_s = BYTES_PER_S
        else:
            coding, rate = ENCODINGS[settings.encoding], settings.sample_rate
            self.audio = RawBytes(coding, rate, settings.channels, sample_rate)
            self._bytes_per_s = coding.width * settings.channels * rate
        self.is_aborted = self.awaits_room = False
        self._wake, self._most_s = wake, buffered_s
        self._has_ended = False
        self._sent = self._taken = 0  # bytes, counted by one thread each

    @property
    def buffered_s(self) -> float:
        """Seconds of audio that were sent and are not searched.

        Those of a container are counted by 16,000 bytes until they are decoded.
        """
        return (self._sent - self._taken) / self._bytes_per_s + self.audio.waiting_s

    @property
    def is_full(self) -> bool:
        """Tell whether more than `Limits.buffered_s` waits, so that `Room` is said."""
        return self.buffered_s > self._most_s

    @property
    def has_room(self) -> bool:
        """Tell whether no more than half of what may wait does."""
        return self.buffered_s <= self._most_s / 2

    def send(self, data: bytes) -> None:
        """Take audio as it came: an encoding's bytes, cut anywhere, or a container's.

        After `finish` it is left out, as is all else.
        """
        if data and not self._has_ended:
            self._sent += len(data)
            self.awaits_room = self.awaits_room or self.is_full
            self._put(bytes(data))

    def flush(self) -> None:
        """Make final what was sent so far, and end the utterance.

        The answer, `Words` that `is_answer`, comes once for each call, without words
        where none are new.
        """
        self._put(End.FLUSH)

    def change_boosts(self, boosts: BoostsLike) -> None:
        """Use another list: now if no word has begun, else from the next utterance.

        `BoostsChanged` comes once for each call, in their order.
        """
        self._put(NewBoosts(boosts))

    def finish(self) -> None:
        """End the stream: finals, then `Finished`."""
        self._put(End.FINISH)
        self._has_ended = True

    def abort(self) -> None:
        """Give the stream up: nothing more is said about it."""
        self._has_ended = self.is_aborted = True
        self._wake(self)

    def take(self) -> Message:
        """Take the next message; bytes go to `audio`. For the engine."""
        message, arrived = self.inbox.popleft()
        if isinstance(message, bytes):
            self.audio = self.audio.give(message, arrived)
            self._taken += len(message)
        return message

    def _put(self, message: Message) -> None:
        if not self._has_ended:
            self.inbox.append((message, time.monotonic()))
            self._wake(self)
