"""Containers that come in as a stream: FFmpeg reads a pipe, in a thread for each.

    piped = Piped("Ogg", 16000, most_s=10.0, wake=wake)
    piped.give(data, arrived)                    # never waits
    samples, arrived = piped.take(1.0)           # what is decoded
    piped.close()                                # the thread ends

The thread waits where nobody takes what it has decoded: a small file of many hours
fills no memory. FFmpeg is behind what came: by 0.1 s of WebM, by a page of Ogg (a
second, most often), by ten frames of FLAC (2.4 s at 16 kHz). What it has not decoded
when an utterance is flushed belongs to the next one.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import IO, cast

import numpy as np

from wfstdec.audio.reading import AudioReader
from wfstdec.audio.sources import open_av
from wfstdec.errors import AudioError, WfstdecError

BYTES_PER_S = 16_000
"""What bytes that are not decoded yet are counted for."""
_SOON = {"probesize": "4096", "analyzeduration": "0"}
"""Options of FFmpeg: it begins by the first packets, and waits for no more. With
`nobuffer` it would drop the packets that it looked at: up to 0.9 s of MP3."""
NOTHING = np.zeros(0, np.float32)

Taken = tuple[np.ndarray, float]
"""Samples, and when the last of their bytes arrived."""


class AudioBytes:
    """Bytes on their way to samples; here those of which none have come yet.

    `take` and `rest` may be called by any thread.
    """

    @property
    def waiting_s(self) -> float:
        """Seconds that wait to be taken, about."""
        return 0.0

    @property
    def waits_since(self) -> float | None:
        """When the oldest bytes that wait came; None where that is not known."""
        return None

    @property
    def is_ready(self) -> bool:
        """Tell whether there is something to take now, or an error to be raised."""
        return False

    @property
    def is_through(self) -> bool:
        """Tell whether all that was given was taken, but for a part of a sample."""
        return True

    def give(self, data: bytes, arrived: float) -> AudioBytes:
        """Take bytes, cut anywhere; what is to take those behind them."""
        return self

    def end(self) -> None:
        """Say that no more bytes come."""

    def take(self, seconds: float) -> Taken:
        """Take what is ready, at most so much.

        Raises:
            AudioError: The bytes are no audio, or damaged.
        """
        return NOTHING, 0.0

    def rest(self) -> np.ndarray:
        """Take what a resampler holds; it begins anew."""
        return NOTHING

    def close(self) -> None:
        """Give up; no thread is left."""


class _Closed(Exception):
    """Nobody wants the stream any more."""


class _Pipe:
    """File of the bytes that have come; reading waits for more.

    Args:
        idle: Called when a reader begins to wait.
    """

    def __init__(self, idle: Callable[[], object]) -> None:
        self._idle = idle
        self._changed = threading.Condition()
        self._data = bytearray()
        self._has_ended = self._is_closed = False
        self.is_waiting = False

    def __len__(self) -> int:
        return len(self._data)

    def write(self, data: bytes) -> None:
        """Take bytes, without waiting."""
        with self._changed:
            self._data += data
            if data:
                self.is_waiting = False
            self._changed.notify_all()

    def end(self, *, close: bool = False) -> None:
        """Say that no more come; with `close` that nobody wants those that came."""
        with self._changed:
            self._has_ended, self._is_closed = True, self._is_closed or close
            self.is_waiting = False
            self._changed.notify_all()

    def read(self, size: int = -1) -> bytes:
        """Read what is there, at least a byte; nothing at the end."""
        if not self._data and not self._has_ended:
            with self._changed:
                waits = self.is_waiting = not self._data and not self._has_ended
            if waits:
                self._idle()
        with self._changed:
            while not self._data and not self._has_ended:
                self._changed.wait()
            if self._is_closed:
                raise _Closed
            found = bytes(self._data if size < 0 else self._data[:size])
            del self._data[: len(found)]
            return found


class Piped(AudioBytes):
    """Bytes of a container that FFmpeg reads, and resamples to its end.

    Args:
        form: Its name, for errors.
        model_rate: Samples a second that go out.
        most_s: Seconds of samples that may wait.
        wake: Called by the thread when there is something to take, or all is taken.
    """

    def __init__(
        self, form: str, model_rate: int, most_s: float, wake: Callable[[], object]
    ) -> None:
        self._form, self._rate, self._wake = form, model_rate, wake
        self._most = int(most_s * model_rate)
        self._pipe = _Pipe(wake)
        self._changed = threading.Condition()
        self._blocks: list[np.ndarray] = []
        self._waiting = 0  # samples
        self._arrived = 0.0
        self._is_closed = self._is_done = self._has_begun = False
        self._error: WfstdecError | None = None
        self._thread = threading.Thread(
            target=self._run, name="wfstdec-container", daemon=True
        )
        self._thread.start()

    @property
    def waiting_s(self) -> float:
        """Implement `AudioBytes.waiting_s`."""
        return self._waiting / self._rate + len(self._pipe) / BYTES_PER_S

    @property
    def is_ready(self) -> bool:
        """Implement `AudioBytes.is_ready`."""
        return self._waiting > 0 or self._error is not None

    @property
    def is_through(self) -> bool:
        """Implement `AudioBytes.is_through`."""
        return not self._waiting and (self._is_done or self._pipe.is_waiting)

    def give(self, data: bytes, arrived: float) -> AudioBytes:
        """Implement `AudioBytes.give`."""
        self._arrived = arrived
        if not self._is_done:
            self._pipe.write(data)
        return self

    def end(self) -> None:
        """Implement `AudioBytes.end`."""
        self._pipe.end()

    def take(self, seconds: float) -> Taken:
        """Implement `AudioBytes.take`."""
        most = max(1, math.ceil(seconds * self._rate))
        with self._changed:
            if self._error is not None and not self._waiting:
                raise self._error
            if not self._waiting:
                return NOTHING, self._arrived
            samples = np.concatenate(self._blocks)
            found, rest = samples[:most], samples[most:]
            self._blocks = [rest] if len(rest) else []
            self._waiting = len(rest)
            self._changed.notify_all()
        return found, self._arrived

    def close(self) -> None:
        """Implement `AudioBytes.close`."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._pipe.end(close=True)

    def _run(self) -> None:
        try:
            # PyAV asks for nothing but `read`.
            file = cast(IO[bytes], self._pipe)
            with open_av(file, self._form, options=_SOON) as source:
                for block in AudioReader(
                    source, self._rate, None, max_seconds=math.inf, allow_cut=True
                ):
                    with self._changed:
                        while self._waiting >= self._most and not self._is_closed:
                            self._changed.wait()
                        if self._is_closed:
                            raise _Closed
                        self._has_begun = True
                        self._blocks.append(block)
                        self._waiting += len(block)
                    self._wake()
        except _Closed:
            pass
        except WfstdecError as error:
            self._error = error
            if self._form == "MP4" and not self._has_begun:  # why it may be no stream
                self._error = AudioError(
                    f"an MP4 that cannot be read as it comes ({error}), expected one "
                    "in fragments; one with its index at the end goes by a request "
                    "with a file"
                )
                self._error.__cause__ = error
        except Exception as error:  # of FFmpeg, or ours: the stream's, nobody else's
            self._error = AudioError(
                f"cannot read {self._form} ({error!r}), expected audio"
            )
            self._error.__cause__ = error
        finally:
            self._is_done = True
            self._pipe.end(close=True)
            self._wake()
