"""Load for a running server: streams in real time, and when their words came.

    python -m tools.bench.serve_load ws://127.0.0.1:8000/v1/listen audio.npz \
        --streams 256 --output seen.json

A process of its own, so that it shares no interpreter with the server. Each stream
sends a chunk of audio when it has been spoken, and the streams begin evenly spread over
one chunk. Every message says how much audio it covers: its latency is the time since
the last byte of the chunk was sent in which that ends.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from websockets.asyncio.client import ClientConnection, connect

ENCODING = "encoding=linear16&sample_rate=16000"
_RATE = 16000
_HANDSHAKES_A_SECOND = 250
_LAST_ANSWER_S = 30.0
"""A server that says nothing for so long after the end has forgotten the stream."""


class Load:
    """Streams side by side, and what came of each.

    Args:
        url: Of the server, with its query.
        audio: int16 [N] by name.
        chunk_s: Seconds of a chunk.
    """

    def __init__(self, url: str, audio: dict[str, np.ndarray], chunk_s: float) -> None:
        self._url, self._chunk_s = url, chunk_s
        self._audio = audio
        self._names = itertools.cycle(sorted(audio))
        self.streams: list[dict[str, Any]] = []
        self.latencies_s: list[float] = []
        self.final_latencies_s: list[float] = []
        self.lags_s: list[float] = []
        self.errors: list[str] = []

    async def run(self, num: int) -> None:
        """Run the streams side by side, once to their ends."""
        connecting_s = num / _HANDSHAKES_A_SECOND
        began = time.perf_counter() + 1.0 + connecting_s
        await asyncio.gather(
            *(
                self._stream(began + i * self._chunk_s / num, i / _HANDSHAKES_A_SECOND)
                for i in range(num)
            )
        )

    async def _stream(self, began: float, wait_s: float) -> None:
        name, sent = next(self._names), list[float]()
        seen: dict[str, Any] = {"audio": name, "finals": []}
        try:
            await asyncio.sleep(wait_s)  # handshakes are spread: done before they count
            async with connect(
                self._url, compression=None, max_size=None, open_timeout=60
            ) as socket:
                reader = asyncio.create_task(self._read(socket, seen, sent, began))
                await self._send(socket, name, sent, began)
                await asyncio.wait_for(reader, _LAST_ANSWER_S)
            self.streams.append(seen)
        except Exception as error:  # whatever it is, it is reported
            self.errors.append(f"{name}: {type(error).__name__}: {error}")

    async def _send(
        self, socket: ClientConnection, name: str, sent: list[float], began: float
    ) -> None:
        audio, size = self._audio[name], round(self._chunk_s * _RATE)
        for first in range(0, len(audio), size):
            chunk = audio[first : first + size]
            due = began + (first + len(chunk)) / _RATE
            await asyncio.sleep(due - time.perf_counter())
            sent.append(time.perf_counter())
            self.lags_s.append(sent[-1] - due)
            await socket.send(chunk.tobytes())
        await socket.send('{"type": "CloseStream"}')

    async def _read(
        self,
        socket: ClientConnection,
        seen: dict[str, Any],
        sent: list[float],
        began: float,
    ) -> None:
        audio_s = len(self._audio[seen["audio"]]) / _RATE
        async for text in socket:
            now, message = time.perf_counter(), json.loads(text)
            if message["type"] != "Results":
                continue
            end_s = message["start"] + message["duration"]
            ended = len(sent) * self._chunk_s >= audio_s
            settled = message["is_final"] and not message["speech_final"]
            # Behind the last chunk CloseStream asks for what is left; and settled words
            # end long before the audio that settled them.
            if not ended and not settled:
                chunk = min(len(sent), max(1, -int(-end_s // self._chunk_s))) - 1
                self.latencies_s.append(now - sent[chunk])
            if not message["is_final"]:
                continue
            seen["finals"].append(message)
            words = message["channel"]["alternatives"][0]["words"]
            if message["speech_final"] and words and not ended:
                self.final_latencies_s.append(now - began - words[-1]["end"])


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("url", help="of the server's /v1/listen")
    add("audio", type=Path, help=".npz, int16 [N] of each stream, by name")
    add("--streams", type=int, required=True, help="side by side")
    add("--chunk-ms", type=float, default=400.0)
    add("--interims", action="store_true")
    add("--output", type=Path, required=True, help="JSON of what was seen")
    args = parser.parse_args(argv)
    with np.load(args.audio) as file:
        audio = {name: file[name] for name in file}
    interims = f"&interim_results={str(args.interims).lower()}"
    load = Load(f"{args.url}?{ENCODING}{interims}", audio, args.chunk_ms / 1000)
    asyncio.run(load.run(args.streams))
    usage = resource.getrusage(resource.RUSAGE_SELF)
    seen = {
        "latencies_s": load.latencies_s,
        "final_latencies_s": load.final_latencies_s,
        "lags_s": load.lags_s,
        "errors": load.errors,
        "streams": load.streams,
        "cpu_s": usage.ru_utime + usage.ru_stime,
    }
    args.output.write_text(json.dumps(seen))
    return 0


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
