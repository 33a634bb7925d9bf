"""Our decoders on a GPU beside riva-asrlib-decoder and our CPU backends.

    python -m tools.bench.gpu --output run.json                       # the headline
    python -m tools.bench.gpu --profile trie --output trie.json

Graphs are built where they are not in the cache. At every point our hypotheses are
compared with the CPU's before anything is timed; where one differs there is no time,
and the exit status is 1. Times are medians by CUDA events over whole calls, warmed up:
log-probs on the device, words with times on the host (Riva's n-best list is not read);
"search ms" is without what makes words and times of our paths, on the CPU. The times
of phases come from a build of its own, in which a thread of each block reads the clock
between them. Riva's decoder is compared where it is installed: word error rates, and
what its paths cost beside ours. NeMo's is compared by `tools.gpu.tokens`. The file is
written after every point.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product

from tools.bench import command, data
from tools.bench import gpu_report as report
from tools.bench.cases import Case, Inputs, load_set, make_case
from tools.bench.command import exit_with
from tools.bench.gpu_device import Gpu
from tools.bench.gpu_measure import Bench, Setting
from tools.bench.gpu_trie import TrieBench, TrieSetting
from tools.bench.report import Row
from tools.gpu import OK_STATUS, WRONG_STATUS
from tools.peers.riva import PACKAGE, RivaPeer
from wfstdec.compare.speech import evenly_spaced
from wfstdec.errors import BackendError

HEADLINE = [(7000, 13.0), (1000, 8.0), (3000, 10.0), (10000, 17.0)]
TRIE = [(16, 8.0), (32, 8.0), (128, 12.0)]
"""Sizes and beams of the trie."""
PROFILES: dict[str, Row] = {
    "headline": {},
    "trie": {"settings": [], "trie": TRIE, "batches": [128, 1, 32, 512]},
    "small": command.profiles(settings=HEADLINE[:1], batches=[1, 8])["small"],
}


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = command.make_parser(__doc__)
    add = parser.add_argument
    add("--sets", nargs="+", default=["dev"], help="see tools.bench.cases")
    add("--lms", nargs="+", help="names in the data, or ARPA files")
    add(
        "--settings", nargs="+", type=_setting, default=HEADLINE, help="max_active:beam"
    )
    add("--trie", nargs="+", type=_setting, default=[], help="beam_size:beam")
    add("--boosted", nargs="+", type=int, default=[0, 1000], help="words boosted")
    add("--batches", nargs="+", type=int, default=[128, 1, 8, 32, 400])
    add("--dtypes", nargs="+", default=["float32", "float16"], help="ours")
    add("--threads", nargs="+", type=int, default=[512, 128], help="of a block, ours")
    add("--only", choices=("ours", "riva"), help="one, in this process")
    args = command.parse(parser, argv, PROFILES)
    if args.output is None or min(args.batches) < 1:
        parser.error("--output is needed, and --batches must be 1 or more")
    return args


def _setting(text: str) -> tuple[int, float]:
    most, beam = text.split(":")
    return int(most), float(beam)


def cases(args: argparse.Namespace) -> Iterator[Case]:
    """Every set with every language model."""
    inputs, most = Inputs.of(args), max(args.batches)
    names = args.lms or data.default_lms(inputs.data)[:1]
    for set_name, lm in product(args.sets, names):
        case = make_case(load_set(set_name, inputs), lm, inputs)
        chosen = evenly_spaced(list(case.speech.logprobs), most)
        yield replace(case, speech=case.speech.take(chosen))


class Points:
    """Points, one after the other, and the file that they go to."""

    def __init__(self, args: argparse.Namespace, gpu: Gpu) -> None:
        self._args, self._gpu = args, gpu
        self.run, self.rows = command.Run("tools.bench.gpu", args), list[Row]()
        self.run.machine |= gpu.describe() | {PACKAGE: None}

    def measure(self) -> None:
        """Ours at all points first; the peers' after, for what they may break."""
        args, made = self._args, (self._args, self._gpu)
        only = args.only
        every = list(cases(args))
        tries = [TrieSetting(*point) for point in args.trie]
        benches = [Bench(case, *made) for case in every]
        trie_benches = [TrieBench(case, *made) for case in every if tries]
        for bench, point in product(benches, args.settings):
            for boosted in args.boosted if only in (None, "ours") else ():
                setting = Setting(point[0], point[1], boosted)
                expected = bench.expect(setting)
                self.add(bench.cpu(setting))
                self.add(bench.ours(setting, expected))
        if only in (None, "ours"):
            for trie, size in product(trie_benches, tries):
                self.add(trie.cpu(size))
                self.add(trie.ours(size, trie.expect(size)))
        if only in (None, "riva") and args.settings:
            self.measure_riva(benches)

    def measure_riva(self, benches: Sequence[Bench]) -> None:
        """Riva's decoder on all cases, if it is there."""
        for bench in benches:
            self._gpu.release()
            try:
                shift_s = bench.case.speech.frame_shift_s
                peer = RivaPeer(bench.case.peer_inputs(), shift_s)
            except BackendError as error:
                print(f"without {PACKAGE}: {error}")
                return
            self.compare(bench, peer)

    def compare(self, bench: Bench, peer: RivaPeer) -> None:
        """Riva's decoder at all points, until it fails."""
        self.run.machine[PACKAGE] = peer.name.removeprefix(f"{PACKAGE} ")
        for point in self._args.settings:
            setting = Setting(*point)
            try:
                self.add(bench.riva(setting, bench.expect(setting), peer))
            except RuntimeError as error:
                row = bench.row(setting, 0, decoder="riva")
                self.add([row | {"failed": f"{PACKAGE} failed: {error}"}])

    def add(self, rows: Iterable[Row]) -> None:
        """Keep rows as they come."""
        for row in rows:
            print(report.line(row), flush=True)
            self.rows.append(row)
            self.run.write(self.rows)


def main(argv: list[str] | None = None, gpu: Gpu | None = None) -> int:
    points = Points(parse_arguments(argv), gpu or Gpu())
    points.measure()
    rows = points.rows
    for case in sorted({(row["set"], row["lm"]) for row in rows}):
        own = [row for row in rows if (row["set"], row["lm"]) == case]
        print(f"\n{', '.join(case)}\n{report.table(own)}")
    print("\n".join(report.verdicts(rows)))
    if any(row.get("differ") or "failed" in row for row in rows):
        return WRONG_STATUS
    return OK_STATUS


if __name__ == "__main__":
    exit_with(main)
