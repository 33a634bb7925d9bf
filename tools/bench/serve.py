"""The server under load: the latency table, seconds to finals.

    python -m tools.bench.serve --output run.json          # 64 to 1,000 streams
    python -m tools.bench.serve --no-interims
    python -m tools.bench.serve --model real --streams 4 8 16
    python -m tools.bench.serve --processes 2
    python -m tools.bench.serve --profile small            # a smoke test

A server in a process of its own, streams in real time from another one, on loopback,
chunks of 400 ms. Its encoder costs nothing: a frame of audio is a row of log-probs, so
the figures are those of the decoder, the server and the sockets; `--model real` has the
data's waveform model in its place. Before a time is printed the finals of every stream
were the words, with their times, that `decode` gives for what is between two endpoints.

    compute   of a round: encoder and search, mean
    queue     from the arrival of audio to the round that takes it, mean
    total     from the last byte of a chunk to the message that covers it: mean, 99 %
    final     from the end of the last word to the utterance's final words, median;
              the silence that an endpoint waits for (0.5 s and more) is in it
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import wfstdec
from tools.bench import data, row_encoder
from tools.bench.cases import default_case
from tools.bench.command import Run, exit_with, make_parser, parse, profiles
from tools.bench.data import ROOT
from tools.bench.report import Columns, Row, figure
from tools.bench.row_encoder import (
    SAMPLE_RATE,
    SAMPLES_PER_ROW,
    audio_of_rows,
    rounded_rows,
)
from wfstdec.audio import read_audio
from wfstdec.models import Encoder
from wfstdec.wfst.decoder import WfstDecoder
from wfstdec.wfst.options import WfstOptions

PROFILES = profiles(utterances=6, streams=[4], seconds=8.0)
COLUMNS: Columns = {
    "streams": figure("streams", "d"),
    "a round": figure("streams_a_round", ".0f"),
    "compute ms": figure("compute_ms", ".1f"),
    "queue ms": figure("queue_ms", ".1f"),
    "total ms": figure("total_ms", ".1f"),
    "99 % ms": figure("p99_ms", ".0f"),
    "final s": figure("final_s", ".2f"),
    "RTFx (CPU)": figure("rtfx_cpu", ".0f"),
    "MiB": figure("memory_mib", ".0f"),
    "lag ms": figure("lag_99_ms", ".0f"),
    "": lambda row: row.get("note", ""),
}
_PAUSE_S = 0.8
"""Of silence between two utterances of a stream."""
_SILENCE = -24.0
"""Log-prob of what is not the blank, in silence."""
_ROWS_A_S = SAMPLE_RATE / SAMPLES_PER_ROW
_DIFFERENT = 256
_READY_S = 600.0
_MIB = 1024
_LAG_S = 0.05
"""A load that sends later than this, at 99 %, measures itself."""


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = make_parser(__doc__)
    add = parser.add_argument
    add("--lm", help="a name in the data, or an ARPA file")
    add("--streams", nargs="+", type=int, default=[64, 128, 256, 512, 1000])
    add("--seconds", type=float, default=60.0, help="of audio of a stream")
    add("--chunk-ms", type=float, default=400.0)
    add("--beam", type=float, default=8.0)
    add("--no-interims", dest="interims", action="store_false")
    add("--model", choices=("rows", "real"), default="rows")
    add("--processes", type=int, default=1, help="of the server")
    add("--serve", nargs=argparse.REMAINDER, default=[], help="more flags of `serve`")
    return parse(parser, argv, PROFILES)


# -------------------------------------------------------------------------- sources
class Source(NamedTuple):
    """Audio of streams, and what decodes it rightly.

    Attributes:
        audio: int16 [N] of each stream, by name.
        model: Makes log-probs of it.
        decoder: Says what is right.
        flags: Of `wfstdec serve`, the model first.
    """

    audio: dict[str, np.ndarray]
    model: Encoder
    decoder: WfstDecoder
    flags: list[str]


def of_rows(args: argparse.Namespace, folder: Path) -> Source:
    """Log-probs of the dev set as audio: an encoder that costs nothing."""
    case = default_case(args)
    assert case.graph is not None
    case.graph.save(folder / "graph.npz")
    utterances = [
        audio_of_rows(rounded_rows(rows)).reshape(-1, SAMPLES_PER_ROW)
        for rows in case.utterances
    ]
    silence = np.full((1, len(case.tokens)), _SILENCE, np.float32)
    silence[:, case.tokens.blank] = 0.0
    pause = np.tile(audio_of_rows(silence), (round(_PAUSE_S * _ROWS_A_S), 1))
    options = WfstOptions(beam=args.beam, lm_scale=case.lm_scale)
    return Source(
        joined(utterances, pause, args.seconds, max(args.streams)),
        row_encoder.streaming,
        case.wfst_decoder(options, None),
        ["tools.bench.row_encoder:streaming"],
    )


def of_recordings(args: argparse.Namespace, folder: Path) -> Source:
    """Recordings and the waveform model of the data, which does not stream."""
    found = data.find_data(args.data)
    path, tokens = map(str, data.model_files(found))
    model = wfstdec.load_model(path, tokens, "<blank>", sample_rate=SAMPLE_RATE)
    graph = wfstdec.build_graph(
        tokens=model.spec.tokens,
        lexicon=found / "lexicon" / "lexicon_ipa.txt",
        lm=found / "lm" / f"{args.lm or data.default_lms(found)[0]}.arpa.gz",
        separator="<wb>",
    )
    graph.save(folder / "graph.npz")
    utterances = []
    for one in sorted((found / "audio").iterdir())[: args.utterances]:
        samples = np.round(read_audio(one, SAMPLE_RATE).waveform * 32767)
        num = len(samples) // SAMPLES_PER_ROW
        samples = samples[: num * SAMPLES_PER_ROW].astype(np.int16)
        utterances.append(samples.reshape(num, SAMPLES_PER_ROW))
    size = round(_PAUSE_S * _ROWS_A_S), SAMPLES_PER_ROW
    noise = np.random.default_rng(0).normal(0, 3, size).astype(np.int16)
    options = WfstOptions(beam=args.beam, lm_scale=args.lm_scale)
    flags = [path, "--tokens", tokens, "--blank", "<blank>"]
    return Source(
        joined(utterances, noise, args.seconds, max(args.streams)),
        model,
        WfstDecoder(graph, options, "cpu"),
        [*flags, "--sample-rate", str(SAMPLE_RATE)],
    )


def joined(
    utterances: Sequence[np.ndarray], pause: np.ndarray, seconds: float, num: int
) -> dict[str, np.ndarray]:
    """Audio of streams: utterances with pauses between, each stream its own order.

    Args:
        utterances: int16 [T, 320] each.
        pause: The same.
        seconds: Of each stream.
        num: Streams; there are 256 different ones at most.
    """
    rng, streams = np.random.default_rng(0), {}
    for i in range(min(num, _DIFFERENT)):
        order, parts = rng.permutation(len(utterances)), list[np.ndarray]()
        while sum(map(len, parts)) < seconds * _ROWS_A_S:
            parts += [utterances[order[len(parts) // 2 % len(order)]], pause]
        rows = np.concatenate(parts)[: round(seconds * _ROWS_A_S)]
        streams[f"{i:04}"] = rows.ravel()
    return streams


# --------------------------------------------------------------------------- server
class Server:
    """`wfstdec serve` in a process of its own.

    Args:
        folder: For its log.
        args: Of the command, behind `serve`.
    """

    def __init__(self, folder: Path, args: Sequence[str]) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._log = folder / "server.log"
        self.url = f"127.0.0.1:{port}"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "wfstdec", "serve", *args, "--port", str(port)],
                cwd=ROOT,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        began = time.monotonic()
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() - began > _READY_S:
                self._process.kill()
                raise SystemExit(f"the server is not ready:\n{self._log.read_text()}")
            time.sleep(0.1)

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.url}/ready", timeout=5) as reply:
                return reply.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def measures(self) -> dict[str, float]:
        """Numbers of `/metrics` by name, those of labels added up."""
        with urllib.request.urlopen(f"http://{self.url}/metrics", timeout=30) as file:
            lines = file.read().decode().splitlines()
        found: dict[str, float] = {}
        for line in lines:
            if (parts := re.match(r"([a-z_]+)(?:\{.*\})? ([-+.\w]+)$", line)) is None:
                continue
            found[parts[1]] = found.get(parts[1], 0.0) + float(parts[2])
        return found

    def _workers(self) -> list[int]:
        """Processes that the server has forked."""
        pid = self._process.pid
        return [*map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]

    def private_mib(self) -> list[float]:
        """Memory of each forked process that it shares with no other."""
        return [
            sum(int(kib) for kib in re.findall(r"Private_\w+:\s+(\d+) kB", text)) / _MIB
            for pid in self._workers()
            for text in [Path(f"/proc/{pid}/smaps_rollup").read_text()]
        ]

    def memory_mib(self) -> float:
        """Resident memory now, with the private one of forked processes."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        match = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert match is not None
        return int(match[1]) / _MIB + sum(self.private_mib())

    def cpu_s(self) -> float:
        """CPU seconds of all threads and processes so far."""
        seconds = 0.0
        for pid in (self._process.pid, *self._workers()):
            text = Path(f"/proc/{pid}/stat").read_text()
            fields = text.rpartition(")")[2].split()
            seconds += (int(fields[11]) + int(fields[12])) / 100
        return seconds

    def stop(self) -> int:
        """Drain it; the exit code."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(60)


# ---------------------------------------------------------------------------- bench
class Bench:
    """A source of audio, and servers for it."""

    def __init__(self, args: argparse.Namespace, folder: Path) -> None:
        self._args, self._folder = args, folder
        make = of_recordings if args.model == "real" else of_rows
        self._source = make(args, folder)
        np.savez(folder / "audio.npz", **self._source.audio)
        self._serve = [*self._source.flags, "--graph", str(folder / "graph.npz")]
        self._serve += ["--beam", str(args.beam), "--lm-scale", str(args.lm_scale)]
        self._serve += ["--max-streams", str(max(args.streams)), *args.serve]
        self._serve += ["--processes", str(args.processes)]

    def table(self) -> Iterator[Row]:
        """Run a server for each number of streams; a row each."""
        for num in self._args.streams:
            server = Server(self._folder, self._serve)
            try:
                # The first seconds of a process are not those of a server that runs.
                self._load(server, 4, seconds="warm.json")
                before, cpu_s = server.measures(), server.cpu_s()
                seen = self._load(server, num)
                spent = {
                    name: value - before.get(name, 0.0)
                    for name, value in server.measures().items()
                }
                cpu_s = server.cpu_s() - cpu_s
                memory: Row = {"memory_mib": server.memory_mib()}
                memory |= {"processes": self._args.processes}
                memory |= {"private_mib": server.private_mib()}
            finally:
                code = server.stop()
            if code:
                raise SystemExit(f"the server's exit code is {code}, expected 0")
            if seen["errors"]:  # too many for this machine: a row without figures
                note = f"{len(seen['errors'])} streams failed: {seen['errors'][0]}"
                yield {"streams": num, **memory, "note": note}
            else:
                yield self._row(num, seen, spent, cpu_s) | memory

    def _load(self, server: Server, num: int, *more: str, seconds: str = "") -> Any:
        output = self._folder / (seconds or "seen.json")
        command = [sys.executable, "-m", "tools.bench.serve_load"]
        command += [f"ws://{server.url}/v1/listen", str(self._folder / "audio.npz")]
        command += ["--streams", str(num), "--chunk-ms", str(self._args.chunk_ms)]
        command += ["--interims"] * self._args.interims
        command += ["--output", str(output), *more]
        subprocess.run(command, cwd=ROOT, check=True)
        return json.loads(output.read_text())

    def _checked(self, seen: Any) -> Row:
        """Compare all finals with `decode` of the rows between two endpoints.

        Raises:
            SystemExit: They differ, or a stream failed.
        """
        if seen["errors"]:
            raise SystemExit(f"{len(seen['errors'])} streams: {seen['errors'][:5]}")
        num_words = num_utterances = 0
        for stream in seen["streams"]:
            pieces, found = self._pieces(stream)
            source = self._source
            rows = [source.model.encode([one])[0] for _, one in pieces]
            expected = source.decoder.decode(rows)
            for (first, _), words, hypothesis in zip(
                pieces, found, expected, strict=True
            ):
                right = [
                    (w.text, (first + w.start_frame) / _ROWS_A_S)
                    for w in hypothesis.words
                ]
                shown = [
                    (text, round(start_s * _ROWS_A_S) / _ROWS_A_S)
                    for text, start_s in words
                ]
                if shown != right:
                    raise SystemExit(
                        f"stream {stream['audio']}, row {first}: {shown}, but `decode` "
                        f"gives {right}"
                    )
                num_words += len(words)
            num_utterances += len(pieces)
        return {
            "checked_streams": len(seen["streams"]),
            "utterances": num_utterances,
            "words": num_words,
        }

    def _pieces(
        self, stream: Any
    ) -> tuple[list[tuple[int, np.ndarray]], list[list[tuple[str, float]]]]:
        """Audio between two endpoints with its first row, and the words sent of it."""
        audio = self._source.audio[stream["audio"]]
        waveform = audio.astype(np.float32) / np.float32(32768)
        pieces, found = [], [list[tuple[str, float]]()]
        first = 0
        for message in stream["finals"]:
            words = message["channel"]["alternatives"][0]["words"]
            found[-1] += [(word["word"], word["start"]) for word in words]
            if message["speech_final"]:
                end = round((message["start"] + message["duration"]) * _ROWS_A_S)
                part = slice(first * SAMPLES_PER_ROW, end * SAMPLES_PER_ROW)
                pieces.append((first, waveform[part]))
                found.append([])
                first = end
        num_rows = len(audio) // SAMPLES_PER_ROW
        if found.pop() or abs(first - num_rows) > 2:  # a model may give a row less
            raise SystemExit(
                f"stream {stream['audio']}: finals end at row {first}, expected "
                f"{num_rows}"
            )
        return pieces, found

    def _row(self, num: int, seen: Any, spent: dict[str, float], cpu_s: float) -> Row:
        row: Row = {"streams": num, **self._checked(seen)}
        latencies = np.array(seen["latencies_s"])
        rounds = spent["wfstdec_round_streams_count"]
        audio_s = spent["wfstdec_audio_seconds_total"]
        row |= {
            "interims": self._args.interims,
            "messages": len(latencies),
            "rounds": rounds,
            "streams_a_round": spent["wfstdec_round_streams_sum"] / rounds,
            "encoder_ms": 1e3 * spent["wfstdec_round_encoder_seconds_sum"] / rounds,
            "decoder_ms": 1e3 * spent["wfstdec_round_decoder_seconds_sum"] / rounds,
            "queue_ms": 1e3
            * spent["wfstdec_queue_seconds_sum"]
            / spent["wfstdec_queue_seconds_count"],
            "server_cpu_s": cpu_s,
            "load_cpu_s": seen["cpu_s"],
            "rtfx_cpu": audio_s / cpu_s,
            "lag_99_ms": 1e3 * float(np.quantile(seen["lags_s"], 0.99)),
        }
        row["compute_ms"] = row["encoder_ms"] + row["decoder_ms"]
        if len(latencies):
            row["total_ms"] = 1e3 * float(latencies.mean())
            row["median_ms"] = 1e3 * float(np.median(latencies))
            row["p99_ms"] = 1e3 * float(np.quantile(latencies, 0.99))
        if finals := seen["final_latencies_s"]:
            row["final_s"] = float(np.median(finals))
            row["final_99_s"] = float(np.quantile(finals, 0.99))
        if row["lag_99_ms"] > 1e3 * _LAG_S:
            row["note"] = "the load itself was late"
        return row


def main(argv: list[str] | None = None) -> int:
    args = parse_arguments(argv)
    run = Run("tools.bench.serve", args)
    with tempfile.TemporaryDirectory() as folder:
        return run.finish(Bench(args, Path(folder)).table(), COLUMNS)


if __name__ == "__main__":
    exit_with(main)
