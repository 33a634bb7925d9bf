"""The experiments of the papers on GPU decoders, with ours: tables by one command.

    python -m tools.gpu.papers --output papers.json                # on a GPU
    python -m tools.gpu.papers --device cpu --profile small --output papers.json

    offline      encoder and WFST over batches (table 2 of the GPU WFST paper)
    streams      encoder and WFST, streams that come in chunks (table 3 there)
    transducer   greedy and ALSD++ over batches, model and search on the device

The encoder is a Transformer of random weights that runs on the same device before each
search; log-probs are those of the set, so that the search has real work. The CPU's rows
get them on the host. Results on the device are compared with the CPU's before any time
is taken; those of transducers, whose models round otherwise on a GPU, are counted.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tools.bench import command
from tools.bench.cases import Case, default_case
from tools.bench.report import Columns, Row, figure, format_table, text_figure
from tools.gpu import OK_STATUS, WRONG_STATUS, tokens
from tools.peers.riva import pad
from wfstdec import TransducerDecoder, TransducerOptions, WfstDecoder, WfstOptions
from wfstdec.attention.encoder import HeadConfig, TransducerConfig
from wfstdec.compare.speech import evenly_spaced
from wfstdec.transducer.torch_model import Head

SMALL: Row = {"batches": [1, 2], "streams": [2], "layers": 1, "rounds": 3, "frames": 40}
PROFILES = command.profiles(**SMALL)
WIDTH, FEATURES = 512, 80
CHUNK, CONTEXT = 16, 48
"""Frames of a chunk, and those before it that the encoder sees again."""
PIECES, JOINT, EMITTED_S = 1024, 640, 0.08
"""Tokens, width and frame shift of a transducer of Parakeet's size."""
COLUMNS: Columns = {
    "table": text_figure("table"),
    **{name: tokens.COLUMNS[name] for name in ("decoder", "batch", "RTFx")},
    "encoder ms": figure("encoder_ms", ".2f"),
    "ms": figure("ms", ".2f"),
    "ms, 99 %": figure("ms_99", ".2f"),
    "differ": figure("differ", "d"),
}


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = command.make_parser(__doc__)
    add = parser.add_argument
    add("--device", default="cuda", help="torch's; cpu for a rehearsal")
    add("--tables", nargs="+", default=list(TABLES), choices=list(TABLES))
    add("--batches", nargs="+", type=int, default=[1, 8, 32, 128, 400])
    add("--streams", nargs="+", type=int, default=[1, 32, 128, 400])
    add("--layers", type=int, default=16, help="of the encoder")
    add("--rounds", type=int, default=60, help="chunks of each stream")
    add("--frames", type=int, default=375, help="of 40 ms, of transducers")
    add("--lm", help="a name in the data, or an ARPA file")
    add("--beam", type=float, default=13.0)
    add("--max-active", type=int, default=7000)
    return command.parse(parser, argv, PROFILES)


class Bench:
    """What the tables share: torch, the device, a clock."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.torch = args, importlib.import_module("torch")
        self.on_gpu = args.device == "cuda"

    def time(self, run: Callable[[], Any], repeats: int) -> np.ndarray:
        """Milliseconds of each call, after one that warms up."""
        took = []
        for _ in range(repeats + 1):
            self.wait()
            begin = time.perf_counter()
            run()
            self.wait()
            took.append(1e3 * (time.perf_counter() - begin))
        return np.array(took[1:])

    def wait(self) -> None:
        """Until the device has done its work."""
        if self.on_gpu:
            self.torch.cuda.synchronize()

    def encoder(self, num_tokens: int) -> Callable[[Any, Any], Any]:
        """A function of features and log-probs: the latter, behind the encoder."""
        nn = self.torch.nn
        layer = nn.TransformerEncoderLayer(
            WIDTH, 8, 4 * WIDTH, batch_first=True, norm_first=True
        )
        layers = nn.TransformerEncoder(
            layer, self.args.layers, enable_nested_tensor=False
        )
        parts = nn.Linear(FEATURES, WIDTH), layers, nn.Linear(WIDTH, num_tokens)
        net = nn.Sequential(*parts).eval().to(self.args.device)
        net = net.to(self.torch.bfloat16) if self.on_gpu else net

        def encode(features: Any, logprobs: Any) -> Any:
            with self.torch.inference_mode():
                out = net(features)[:, -logprobs.shape[1] :].float()
                return logprobs + 0 * out.clamp(-1, 1)

        return encode

    def features(self, batch: int, frames: int) -> Any:
        """Random features [B, T, F] on the device."""
        kind = self.torch.bfloat16 if self.on_gpu else self.torch.float32
        return self.torch.randn(batch, frames, FEATURES, device=self.args.device).to(
            kind
        )

    def searches(self, case: Case) -> dict[str, tuple[WfstDecoder, Callable]]:
        """Decoders by name, and what brings log-probs to where they want them."""
        options = WfstOptions(
            self.args.beam, self.args.max_active, lm_scale=case.lm_scale
        )
        cpu = case.wfst_decoder(options, threads=None)
        found: dict[str, tuple[WfstDecoder, Callable]] = {
            f"cpu, {cpu.threads} threads": (cpu, lambda x: x.cpu().numpy())
        }
        if self.on_gpu:
            cuda = WfstDecoder(case.graph, options, "cuda")
            found["cuda"] = cuda, lambda x: x
        return found


def offline(bench: Bench) -> Iterator[Row]:
    """Whole utterances: encoder and search."""
    args, case = bench.args, default_case(bench.args)
    encode, searches = bench.encoder(len(case.tokens)), bench.searches(case)
    for batch in args.batches:
        names = evenly_spaced(list(case.speech.logprobs), batch)
        names = [names[i % len(names)] for i in range(batch)]
        padded, lengths = pad([case.speech.logprobs[name] for name in names])
        x = bench.torch.as_tensor(padded, device=args.device)
        features = bench.features(batch, x.shape[1])
        encoder_ms = np.median(bench.time(lambda: encode(features, x), args.repeats))  # noqa: B023
        wanted = None
        for name, (decoder, place) in searches.items():

            def run() -> list[Any]:
                logprobs = place(encode(features, x))  # noqa: B023
                return decoder.decode(logprobs, lengths)  # noqa: B023

            found = run()
            wanted = wanted or found
            row: Row = {"table": "offline", "decoder": name, "batch": batch}
            row["differ"] = sum(a != b for a, b in zip(found, wanted, strict=True))
            if not row["differ"]:
                texts = bench.time(lambda: [h.text for h in run()], args.repeats)  # noqa: B023
                row |= {"encoder_ms": float(encoder_ms), "ms": float(np.median(texts))}
                audio_s = float(lengths.sum()) * case.speech.frame_shift_s
                row["rtfx"] = 1e3 * audio_s / row["ms"]
            yield row


def streams(bench: Bench) -> Iterator[Row]:
    """Streams that all have a chunk in each round: the time of a round."""
    args, case = bench.args, default_case(bench.args)
    encode = bench.encoder(len(case.tokens))
    longest = sorted(case.utterances, key=len)[-max(8, len(case.utterances) // 8) :]
    for count in args.streams:
        stream = np.concatenate(longest)
        rounds = min(args.rounds, len(stream) // CHUNK)
        starts = np.linspace(0, len(stream) - rounds * CHUNK, count).astype(int)
        rows = np.stack([stream[s : s + rounds * CHUNK] for s in starts])
        x = bench.torch.as_tensor(rows, device=args.device)
        features = bench.features(count, CONTEXT + CHUNK)
        for name, (decoder, place) in bench.searches(case).items():
            sessions = decoder.sessions()
            ids = [sessions.open() for _ in range(count)]
            parts = iter(x.split(CHUNK, 1))

            def run() -> None:
                part = place(encode(features, next(parts)))  # noqa: B023
                sessions.advance(dict(zip(ids, part, strict=True)))  # noqa: B023

            took = bench.time(run, rounds - 1)
            closed = [sessions.close(one) for one in ids]
            whole = decoder.decode(list(place(x)))
            row: Row = {"table": "streams", "decoder": name, "batch": count}
            row["differ"] = sum(a != b for a, b in zip(closed, whole, strict=True))
            if not row["differ"]:
                row["ms"] = float(np.median(took))
                row["ms_99"] = float(np.quantile(took, 0.99))
                chunk_ms = 1e3 * CHUNK * case.speech.frame_shift_s
                row["rtfx"] = count * chunk_ms / row["ms"]
            yield row


class Random:
    """A transducer of random weights with Parakeet's sizes, on a device.

    The last number of a frame is added to the blank's logit, for a rate of tokens as in
    speech.
    """

    def __init__(self, torch: Any, durations: tuple[int, ...], device: str) -> None:
        torch.manual_seed(3)
        head = HeadConfig(predictor="lstm", durations=durations)
        names = tuple(f"t{i}" for i in range(PIECES))
        config = TransducerConfig(names, (head,), dim=JOINT)
        net = Head(config, head).eval().requires_grad_(False)
        net.joiner.tokens.weight *= 8
        net = net.to(device)
        self.tokens, self.blank, self.durations = names, PIECES, durations
        self.start, self.predict = net.predictor.start, net.predictor.predict
        self._joiner, self._log_softmax = net.joiner, torch.log_softmax

    def join(self, frames: Any, g: Any) -> Any:
        """Implement `TransducerModel.join`."""
        inner = (frames[..., :-1] + g).tanh()
        logits = self._joiner.tokens(inner)
        logits[..., -1] += frames[..., -1]
        logprobs = self._log_softmax(logits, -1)
        if not self.durations:
            return logprobs
        return logprobs, self._log_softmax(self._joiner.durations(inner), -1)


def transducer(bench: Bench) -> Iterator[Row]:
    """Frames of random encoders through greedy search and ALSD++."""
    torch, args = bench.torch, bench.args
    for durations in ((), (0, 1, 2, 3, 4)):
        for strategy, beam in (("greedy", 1), ("alsd", 4)):
            for batch in args.batches:
                torch.manual_seed(4)
                frames = torch.randn(batch, args.frames // 2, JOINT + 1)
                frames[..., -1] = 30.0
                frames[:, :: tokens.FRAMES_PER_PIECE, -1] = -30.0
                wanted = None
                for device in ["cpu", *["cuda"] * bench.on_gpu]:
                    decoder = TransducerDecoder(
                        Random(torch, durations, device),
                        options=TransducerOptions(
                            strategy=strategy, beam_size=beam, max_symbols=1
                        ),
                        frame_shift_s=EMITTED_S,
                        batch_size=batch,
                        device=device,
                    )
                    given = list(frames.to(device))
                    found = [one.token_ids for one in decoder.decode(given)]
                    wanted = wanted or found
                    took = bench.time(lambda: decoder.decode(given), 2)  # noqa: B023
                    audio_s = frames.shape[0] * frames.shape[1] * EMITTED_S
                    kind = "TDT" if durations else "RNN-T"
                    ms = float(np.median(took))
                    yield {
                        "table": "transducer",
                        "decoder": f"{kind}, {strategy} {beam}, {device}",
                        "batch": batch,
                        "ms": ms,
                        "rtfx": 1e3 * audio_s / ms,
                        "rounded_otherwise": sum(
                            a != b for a, b in zip(found, wanted, strict=True)
                        ),
                        "tokens_per_frame": sum(map(len, found))
                        / frames[..., 0].numel(),
                    }


TABLES = {"offline": offline, "streams": streams, "transducer": transducer}


def main(argv: list[str] | None = None) -> int:
    """Measure the tables; the file is written after each row."""
    args = parse_arguments(argv)
    bench, rows = Bench(args), []
    log = command.Run("tools.gpu.papers", args)
    for name in args.tables:
        for row in TABLES[name](bench):
            rows.append(row)
            print(row, flush=True)
            log.write(rows)
        print(format_table(COLUMNS, [row for row in rows if row["table"] == name]))
    return WRONG_STATUS if any(row.get("differ") for row in rows) else OK_STATUS


if __name__ == "__main__":
    sys.exit(main())
