"""NeMo's batched search over tokens, on what torch has: rows for `tools.gpu.phases`.

    pip install --no-deps nemo-toolkit==3.0.0               # and torch
    python -m tools.gpu.tokens --output nemo.json

A language model over tokens in which all cost the same: what it says is not compared,
only how long it takes for the utterances that the WFST search is timed on.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from tools.bench import command, data
from tools.bench.cases import Inputs, load_set
from tools.bench.report import Row
from tools.gpu.steps import MISSING_STATUS
from wfstdec.compare.peers.nemo import NemoPeer
from wfstdec.compare.points import PeerInputs
from wfstdec.compare.speech import evenly_spaced
from wfstdec.errors import BackendError
from wfstdec.text.symbols import TokenTable, read_tokens

PROFILES: dict[str, Row] = {"small": {"data": data.RECIPE, "batches": [1, 8]}}
SETTING = {"beam_size": 16, "beam_threshold": 20.0}


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = command.make_parser(__doc__)
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8, 32, 128, 400])
    args = command.parse(parser, argv, PROFILES)
    if args.output is None:
        parser.error("--output is needed")
    return args


def uniform_arpa(tokens: TokenTable, path: Path) -> None:
    """Write a language model of order 1 in which all tokens cost the same."""
    names = [name for i, name in enumerate(tokens.names) if i != tokens.blank]
    each = -math.log10(len(names) + 1)
    lines = [f"{each:.6f}\t{name}" for name in ("</s>", *names)]
    head = ["\\data\\", f"ngram 1={len(lines) + 1}", "", "\\1-grams:", "-99\t<s>\t0"]
    path.write_text("\n".join([*head, *lines, "", "\\end\\", ""]), "utf-8")


def runner(peer: NemoPeer) -> tuple[Callable[[Sequence[np.ndarray]], Any], str]:
    """What searches a padded batch, and the device that it does so on."""
    torch = peer._torch
    device = "cuda" if torch.cuda.is_available() else "cpu"
    peer._lm = peer._lm.to(device)
    search = peer.search(SETTING)

    def run(batch: Sequence[np.ndarray]) -> Any:
        lengths = [len(rows) for rows in batch]
        shape = len(batch), max(lengths), batch[0].shape[1]
        padded = np.full(shape, -1e4, np.float32)
        padded[..., -1] = 0.0
        for rows, own in zip(batch, padded, strict=True):
            own[: len(rows)] = peer.nemo_order(rows)
        logprobs = torch.from_numpy(padded).to(device)
        found = search(logprobs, torch.tensor(lengths).to(device))
        found.flatten_sort_(score_norm=False)
        return found.transcript_wb[:, 0].tolist()  # waits for the device

    return run, device


def main(argv: list[str] | None = None) -> int:
    """Time all batches; the file is written after each."""
    args = parse_arguments(argv)
    speech = load_set("dev", Inputs.of(args))
    tokens = read_tokens(speech.recipe.tokens)
    with tempfile.TemporaryDirectory() as folder:
        arpa = Path(folder) / "uniform.arpa"
        uniform_arpa(tokens, arpa)
        try:
            run, device = runner(NemoPeer(PeerInputs(tokens=tokens, arpa=str(arpa))))
        except BackendError as error:
            print(error)
            return MISSING_STATUS
    names = evenly_spaced(list(speech.logprobs), max(args.batches))
    all_rows: list[Row] = []
    log = command.Run("tools.gpu.tokens", args)
    for size in args.batches:
        batch = [speech.logprobs[names[i % len(names)]] for i in range(size)]
        assert len(run(batch)) == size
        seconds = []
        for _ in range(args.repeats):
            begin = time.perf_counter()
            run(batch)
            seconds.append(time.perf_counter() - begin)
        audio_s = sum(map(len, batch)) * speech.frame_shift_s
        took = median(seconds)
        row: Row = {"decoder": f"nemo ({device})", "batch": size, **SETTING}
        row |= {"ms_per_batch": 1e3 * took, "rtfx": audio_s / took}
        all_rows.append(row)
        print(row, flush=True)
        log.write(all_rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
