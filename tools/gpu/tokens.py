"""The trie at V = 1,025 beside our CPU and NeMo's batched search, on equal log-probs.

    pip install --no-deps nemo-toolkit==3.0.0    # and torch with CUDA, triton,
    pip install cuda-bindings                    # of the driver's CUDA version
    python -m tools.gpu.tokens --output tokens.json
    python -m tools.gpu.tokens --device cpu --output tokens.json    # a rehearsal

Bare tokens: 1,024 pieces and a blank, a language model of order 6 over a random text.
Log-probs are peaked as trained models' are: a piece of that text in every third frame,
375 frames of 40 ms. Ours and NeMo get the same tensor on the device, and a row has the
time until tokens (NeMo) or texts (ours) are on the host, with the error rate against
the pieces that were put in. Our results are compared with the CPU's before. NeMo's row
needs its search as it is meant to run, one CUDA graph ("full_graph"); where something
is missing for that there is none, and the exit status is 3.

The language model is Witten-Bell: an n-gram seen in a history h has the probability
(c(hw) + n(h) P(w | shorter h)) / (c(h) + n(h)), with n(h) different tokens seen behind
h; what was not seen backs off with the weight n(h) / (c(h) + n(h)).
"""

from __future__ import annotations

import argparse
import importlib
import math
import re
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from tools.bench import command
from tools.bench.data import write_arpa
from tools.bench.report import Columns, Row, figure, format_table, text_figure
from tools.gpu import MISSING_STATUS, OK_STATUS, WRONG_STATUS
from tools.peers.interface import PeerInputs
from tools.peers.nemo_ctc import NemoPeer
from wfstdec import TrieDecoder, TrieOptions
from wfstdec.errors import BackendError
from wfstdec.text.tokens import TokenTable

PIECES, ORDER, LM_SCALE = 1024, 6, 0.3
FRAME_S, FRAMES_PER_PIECE = 0.04, 3
BEAM_THRESHOLD = 20.0
"""NeMo's default."""
POINTS = [(16, 20.0), (16, 8.0), (32, 8.0), (128, 12.0)]
"""Sizes and beams of ours; NeMo has the same sizes."""
WHOLE = "full_graph"
"""NeMo's own name for a search that is one CUDA graph."""
_SENTENCES = 400
_WORDS, _WORDS_OF_SENTENCE, _PIECES_OF_WORD = 2000, 15, 4
_ABOVE, _NOISE = 16.0, 2.0
"""What a spoken piece has above the noise, and the noise's standard deviation, nats."""
_BEGIN, _END = "<s>", "</s>"
_NEVER = -99.0
"""What ARPA files say of a token that no history has behind it."""
COLUMNS: Columns = {
    "decoder": text_figure("decoder"),
    "size": figure("beam_size", "d"),
    "beam": figure("beam", "g"),
    "batch": figure("batch", "d"),
    "errors %": figure("errors", ".2f"),
    "ms/batch": figure("ms_per_batch", ".2f"),
    "us/frame": figure("us_per_frame", ".1f"),
    "RTFx": figure("rtfx", ".0f"),
}


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = command.bare_parser(__doc__)
    add = parser.add_argument
    add("--batches", nargs="+", type=int, default=[32, 128, 512, 1, 8])
    add("--points", nargs="+", type=_point, default=POINTS, help="beam_size:beam, ours")
    add("--frames", type=int, default=375, help="of an utterance")
    add("--device", default="cuda", help="torch's; cpu: ours alone, on the CPU")
    add("--only", choices=("ours", "nemo"), help="one of both")
    add("--repeats", type=int, default=5, help="timings of each; default 5")
    add("--output", type=Path, required=True, help="write all figures as JSON")
    return parser.parse_args(argv)


def _point(text: str) -> tuple[int, float]:
    size, beam = text.split(":")
    return int(size), float(beam)


def pieces() -> TokenTable:
    """The tokens, the blank last."""
    return TokenTable((*(f"p{i}" for i in range(PIECES)), "<blank>"), PIECES)


def random_text(rng: np.random.Generator) -> Iterator[list[str]]:
    """Sentences of words that come again, as words do: some often, most seldom."""
    words = [
        [f"p{i}" for i in rng.integers(0, PIECES, rng.integers(1, _PIECES_OF_WORD + 1))]
        for _ in range(_WORDS)
    ]
    for _ in range(_SENTENCES):
        which = (_WORDS * rng.random(_WORDS_OF_SENTENCE) ** 3).astype(int)
        yield [piece for i in which for piece in words[i]]


class Batch:
    """Log-probs on the device, as many as the largest batch, and what they say."""

    def __init__(self, torch: Any, size: int, frames: int, device: str) -> None:
        rng = np.random.default_rng(1)
        text = random_text(np.random.default_rng(5))
        stream = [int(piece[1:]) for sentence in text for piece in sentence]
        pieces = np.full((size, frames), PIECES)
        for row in pieces:
            count = len(row[::FRAMES_PER_PIECE])
            at = rng.integers(0, len(stream) - count)
            row[::FRAMES_PER_PIECE] = stream[at : at + count]
        generator = torch.Generator(device=device).manual_seed(1)
        shape = size, frames, PIECES + 1
        x = torch.randn(shape, device=device, generator=generator) * _NOISE
        index = torch.as_tensor(pieces, device=device)[..., None]
        x.scatter_add_(2, index, torch.full(index.shape, _ABOVE, device=device))
        self.torch, self.device, self.frames = torch, device, frames
        self.logprobs = x.log_softmax(-1)
        self.lengths = torch.full((size,), frames, device=device)
        self.said = pieces[:, ::FRAMES_PER_PIECE].tolist()

    def time(self, run: Callable[[], Any], repeats: int) -> float:
        """Median seconds of a call, after one that warms up."""
        took = []
        for _ in range(repeats + 1):
            if self.device == "cuda":
                self.torch.cuda.synchronize()
            begin = time.perf_counter()
            run()
            took.append(time.perf_counter() - begin)
        return median(took[1:])

    def figures(self, size: int, seconds: float, found: Sequence[list[int]]) -> Row:
        """Times, rates, and errors against the pieces that were put in."""
        align = importlib.import_module("kaldialign").edit_distance
        pairs = list(zip(found, self.said, strict=False))
        wrong = sum(align(pieces, tokens)["total"] for tokens, pieces in pairs)
        return {
            "errors": 100 * wrong / sum(len(pieces) for _, pieces in pairs),
            "ms_per_batch": 1e3 * seconds,
            "us_per_frame": 1e6 * seconds / self.frames,
            "rtfx": size * self.frames * FRAME_S / seconds,
        }


def ours(args: argparse.Namespace, batch: Batch, arpa: str) -> Iterator[Row]:
    """Rows for the CPU with all cores, and for the device."""
    made: Any = {"tokens": pieces(), "lm": arpa, "frame_shift_s": FRAME_S}
    device = "cuda" if args.device == "cuda" else "cpu"
    first = TrieDecoder(**made, options=TrieOptions(lm_scale=LM_SCALE), backend="cpu")
    for size, beam in args.points:
        cpu = first.with_options(beam_size=size, beam=beam)
        decoder = TrieDecoder(**made, options=cpu.options, backend=device)
        point: Row = {"beam_size": size, "beam": beam}
        for count in args.batches:
            x, lengths = batch.logprobs[:count], batch.lengths[:count].cpu().numpy()
            on_host = x.cpu().numpy()
            wanted = cpu.decode(on_host)
            row: Row = {"decoder": "cpu", "threads": cpu.threads, "batch": count}
            seconds = batch.time(lambda: cpu.decode(on_host), 1)  # noqa: B023
            tokens = [list(one.token_ids) for one in wanted]
            yield point | row | batch.figures(count, seconds, tokens)
            row = {"decoder": "trie", "batch": count}
            row["differ"] = sum(
                a != b for a, b in zip(decoder.decode(x, lengths), wanted, strict=True)
            )
            if not row["differ"]:
                seconds = batch.time(
                    lambda: [h.text for h in decoder.decode(x, lengths)],  # noqa: B023
                    args.repeats,
                )
                row |= batch.figures(count, seconds, tokens)
                if device == "cuda":
                    row["parts_ms"] = parts_of(batch, decoder, x, lengths, args.repeats)
            yield point | row


def parts_of(
    batch: Batch, decoder: TrieDecoder, x: Any, lengths: np.ndarray, repeats: int
) -> dict[str, float]:
    """Milliseconds of a batch's parts: until it is made, searched, ended."""
    backend: Any = decoder._backend
    taken: list[list[float]] = []

    def run() -> None:
        ends = [time.perf_counter()]
        chunks = backend.inputs(x, lengths)
        lists = decoder._boosts.compile(None, len(chunks))
        one = backend.batch(decoder.options, lists, list(map(len, chunks)), False)
        ends.append(time.perf_counter())
        one.advance(chunks)
        ends.append(time.perf_counter())
        one.finish()
        ends.append(time.perf_counter())
        taken.append([1e3 * (b - a) for a, b in zip(ends, ends[1:], strict=False)])

    batch.time(run, repeats)
    middle = np.median(taken[1:], 0).tolist()
    return dict(zip(("begin", "search", "end"), middle, strict=True))


def nemo(args: argparse.Namespace, batch: Batch, arpa: str) -> Iterator[Row]:
    """Rows for NeMo's search; it ends where that is not one CUDA graph."""
    peer = NemoPeer(PeerInputs(tokens=pieces(), arpa=arpa, lm_scale=LM_SCALE))
    peer.to_gpu()
    for size in dict.fromkeys(size for size, _ in args.points):
        for count in args.batches:
            # An object for each size of batch: its graph takes as long for fewer.
            setting = {"beam_size": size, "beam_threshold": BEAM_THRESHOLD}
            search = peer.search(setting)
            x, lengths = batch.logprobs[:count].contiguous(), batch.lengths[:count]

            def run(search: Any = search, x: Any = x, lengths: Any = lengths) -> Any:
                found = search(x, lengths)
                found.flatten_sort_(score_norm=False)
                return found.transcript_wb[:, 0].tolist()  # waits for the device

            run()  # makes the graph, or falls back
            mode = search.cuda_graphs_mode
            if mode is None or str(getattr(mode, "value", mode)) != WHOLE:
                raise BackendError(
                    f"NeMo's CUDA graphs: {mode}, not {WHOLE}: no row; they need "
                    "triton, cuda-bindings, a driver for 12.6"
                )
            texts = peer.read(search(x, lengths), lengths.tolist())
            tokens = [
                [int(number) for number in re.findall(r"p(\d+)", text)]
                for text, _ in texts
            ]
            seconds = batch.time(run, args.repeats)
            row: Row = {"decoder": "nemo", "beam_size": size, "beam": BEAM_THRESHOLD}
            row |= {"batch": count, "cuda_graphs_mode": WHOLE}
            yield row | batch.figures(count, seconds, tokens)


def write_token_lm(
    spelled: Sequence[Sequence[str]], tokens: Iterable[str], path: Path
) -> None:
    """Write a model of order `ORDER` as an ARPA file.

    Args:
        spelled: Sentences to count.
        tokens: All that there are but the blank; each gets a probability.
        path: The file.
    """
    behind: defaultdict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    for sentence in spelled:
        marked = (_BEGIN, *sentence, _END)
        for end in range(1, len(marked)):
            for length in range(min(ORDER, end + 1)):
                behind[marked[end - length : end]][marked[end]] += 1
    everyone = [*tokens, _END]
    levels: list[dict[tuple[str, ...], float]] = [{} for _ in range(ORDER)]
    seen, types = behind[()].total(), len(behind[()])
    for token in everyone:
        share = types / len(everyone)
        levels[0][(token,)] = (behind[()][token] + share) / (seen + types)
    for history in sorted(behind, key=lambda one: (len(one), one)):
        counts = behind[history] if history else Counter()
        n, total = len(counts), counts.total()
        for token, count in counts.items():
            shorter = levels[len(history) - 1][(*history[1:], token)]
            levels[len(history)][(*history, token)] = (count + n * shorter) / (
                total + n
            )
    levels[0][(_BEGIN,)] = 0.0
    orders = []
    for level in filter(None, levels):
        lines = []
        for gram, probability in sorted(level.items()):
            logprob = math.log10(probability) if probability else _NEVER
            fields = [f"{logprob:.6f}", " ".join(gram)]
            if len(gram) < ORDER and gram in behind:
                n, total = len(behind[gram]), behind[gram].total()
                fields.append(f"{math.log10(n / (n + total)):.6f}")
            lines.append(fields)
        orders.append(lines)
    write_arpa(path, orders)


def rows_of(args: argparse.Namespace) -> Iterator[Row]:
    """All rows; NeMo's are missing where it is not installed as it should be."""
    torch = importlib.import_module("torch")
    batch = Batch(torch, max(args.batches), args.frames, args.device)
    best = batch.logprobs[:4].max(-1, keepdim=True).values
    near = (batch.logprobs[:4] > best - 8).sum(-1).float().mean()
    print(f"{float(near):.1f} tokens within 8 nats of the best", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        arpa = Path(folder) / "pieces.arpa"
        text = list(random_text(np.random.default_rng(5)))
        write_token_lm(text, pieces().names[:-1], arpa)
        if args.only != "nemo":
            yield from ours(args, batch, str(arpa))
        if args.only != "ours" and args.device == "cuda":
            try:
                yield from nemo(args, batch, str(arpa))
            except BackendError as error:
                yield {"decoder": "nemo", "failed": str(error)}


def main(argv: list[str] | None = None) -> int:
    """Time all points; the file is written after each."""
    args = parse_arguments(argv)
    rows: list[Row] = []
    log = command.Run("tools.gpu.tokens", args)
    for row in rows_of(args):
        rows.append(row)
        print(row, flush=True)
        log.write(rows)
    print(format_table(COLUMNS, [row for row in rows if "rtfx" in row]))
    if any(row.get("differ") for row in rows):
        return WRONG_STATUS
    return MISSING_STATUS if any("failed" in row for row in rows) else OK_STATUS


if __name__ == "__main__":
    sys.exit(main())
