"""NeMo's batched search over word pieces on a GPU: rows for `tools.gpu.phases`.

    pip install --no-deps nemo-toolkit==3.0.0    # and torch with CUDA, triton,
    pip install cuda-bindings                    # of the driver's CUDA version
    python -m tools.gpu.tokens --output nemo.json

A row is written where NeMo runs as it is meant to: the whole search one CUDA graph
("full_graph" in the row), the language model by its Triton kernel. Where something is
missing for that there is none, and the exit status is 3.

1,024 pieces, a language model of order 6 with the n-grams of a random text, random
log-probs: what is found means nothing, only how long it takes, which does not depend on
the numbers. Log-probs are on the GPU before, transcripts on the host after.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from tools.bench import command
from tools.bench.gpu_trie import WHOLE, write_token_lm
from tools.bench.report import Row
from tools.gpu import MISSING_STATUS, OK_STATUS
from tools.peers.interface import PeerInputs, import_peer
from tools.peers.nemo_ctc import NemoPeer
from wfstdec.errors import BackendError
from wfstdec.text.tokens import TokenTable

PIECES = 1024
FRAMES, FRAME_S = 375, 0.04
"""Fifteen seconds, and what a frame of an encoder with word pieces takes."""
BEAM_THRESHOLD = 20.0
_SENTENCES = 400
_WORDS, _WORDS_OF_SENTENCE, _PIECES_OF_WORD = 2000, 15, 4


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = command.bare_parser(__doc__)
    add = parser.add_argument
    add("--batches", nargs="+", type=int, default=[1, 8, 32, 128, 400])
    add("--beam-sizes", nargs="+", type=int, default=[16, 4, 128])
    add("--repeats", type=int, default=5, help="timings of each; default 5")
    add("--output", type=Path, required=True, help="write all figures as JSON")
    return parser.parse_args(argv)


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


def random_arpa(path: Path) -> None:
    """Write a model of the n-grams of a random text."""
    text = list(random_text(np.random.default_rng(5)))
    write_token_lm(text, pieces().names[:-1], path)


def make_peer() -> NemoPeer:
    """NeMo's search with such a model.

    Raises:
        BackendError: NeMo or torch is not installed.
    """
    with tempfile.TemporaryDirectory() as folder:
        arpa = Path(folder) / "pieces.arpa"
        random_arpa(arpa)
        return NemoPeer(PeerInputs(tokens=pieces(), arpa=str(arpa), lm_scale=0.3))


def searcher(
    peer: NemoPeer, beam_size: int, batch: int, device: str, frames: int = FRAMES
) -> tuple[Any, Callable[[], list[Any]]]:
    """NeMo's own object, and what searches a batch of random log-probs with it.

    An object for each size of batch: its CUDA graph takes as long for fewer.
    """
    torch = peer._torch
    search = peer.search({"beam_size": beam_size, "beam_threshold": BEAM_THRESHOLD})
    torch.manual_seed(1)
    shape = batch, frames, PIECES + 1
    logprobs = torch.randn(shape, device=device).mul_(3.0).log_softmax(-1)
    lengths = torch.full((batch,), frames, device=device)

    def run() -> list[Any]:
        found = search(logprobs, lengths)
        found.flatten_sort_(score_norm=False)
        return found.transcript_wb[:, 0].tolist()  # waits for the device

    return search, run


def row_of(
    search: Any, run: Callable[[], list[Any]], batch: int, repeats: int
) -> Row | None:
    """Time a batch; None where the search is not one CUDA graph."""
    assert len(run()) == batch  # makes the graph, or falls back
    mode = search.cuda_graphs_mode
    if mode is None or str(getattr(mode, "value", mode)) != WHOLE:
        return None
    ends = [time.perf_counter()]
    for _ in range(repeats):
        run()
        ends.append(time.perf_counter())
    took = median(after - before for before, after in pairwise(ends))
    return {
        "decoder": f"nemo, {PIECES} pieces, beam size {search.beam_size}",
        "batch": batch,
        "beam_size": search.beam_size,
        "cuda_graphs_mode": WHOLE,
        "ms_per_batch": 1e3 * took,
        "us_per_batched_frame": 1e6 * took / FRAMES,
        "rtfx": batch * FRAMES * FRAME_S / took,
    }


def main(argv: list[str] | None = None) -> int:
    """Time all points; the file is written after each."""
    args = parse_arguments(argv)
    try:
        torch = import_peer("torch", "pip install torch")
        if not torch.cuda.is_available():
            raise BackendError(
                "torch has no CUDA here: NeMo would not be compared fairly"
            )
        torch.zeros(1, device="cuda")  # the device, before anything else
        peer = make_peer()
    except BackendError as error:
        print(error)
        return MISSING_STATUS
    peer.to_gpu()
    rows: list[Row] = []
    log = command.Run("tools.gpu.tokens", args)
    for beam_size in args.beam_sizes:
        for batch in args.batches:
            search, run = searcher(peer, beam_size, batch, "cuda")
            row = row_of(search, run, batch, args.repeats)
            if row is None:
                print(
                    f"NeMo's CUDA graphs: {search.cuda_graphs_mode}, not {WHOLE}: no "
                    "row; they need triton, cuda-bindings, a driver for 12.6"
                )
                return MISSING_STATUS
            rows.append(row)
            print(row, flush=True)
            log.write(rows)
    return OK_STATUS


if __name__ == "__main__":
    sys.exit(main())
