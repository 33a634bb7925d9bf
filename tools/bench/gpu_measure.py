"""Measurements of `tools.bench.gpu`: no time without the answers of the CPU.

bench = Bench(case, args, Gpu())
setting = Setting(max_active=7000, beam=13.0)
expected = bench.expect(setting)                     # by utterance, from the CPU
rows = [*bench.cpu(setting), *bench.ours(setting, expected)]
rows += bench.riva(setting, expected, peer)
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain, product
from multiprocessing import get_context
from typing import Any, NamedTuple

import numpy as np

from tools.bench.cases import Case
from tools.bench.costs import compare_costs, found_by_us
from tools.bench.gpu_device import Gpu, Padded, Timing
from tools.bench.report import Row, word_errors
from tools.peers.riva import RivaPeer, RivaResult, path_costs
from wfstdec.compare.speech import evenly_spaced
from wfstdec.search.hypothesis import Hypothesis
from wfstdec.wfst.decoder import WfstDecoder
from wfstdec.wfst.gpu.batch import DeviceBatch
from wfstdec.wfst.gpu.layout import PHASES
from wfstdec.wfst.options import WfstOptions

FEWEST = 16
"""Utterances of a point, at least."""
LATTICE_BEAM = 1.0
"""Nats, Riva's."""
BONUS = 1.5
"""Nats, of every boosted word."""
BYTES = {"looked": 16, "active": 32, "arcs": 76, "entries": 96}
"""What the search reads and writes for each: an arc looked at; an entry gone on from,
with its row; an arc that may survive, in all passes; an entry made, with its node."""


class Setting(NamedTuple):
    """Setting of a search that is timed over batches; `boosted`: how many words."""

    max_active: int
    beam: float
    boosted: int = 0


@dataclass(frozen=True, eq=False)
class Measuring:
    """Batches of a case on a GPU, and the rows of what is timed there.

    Attributes:
        case: A set on a graph.
        args: From `gpu.parse_arguments`.
        gpu: Where.
    """

    case: Case
    args: argparse.Namespace
    gpu: Gpu

    def batches(self, size: int) -> list[list[str]]:
        """The utterances of the batches of a point, one batch after the other.

        Small batches: as many as make `FEWEST` utterances, evenly spaced over the set.
        Large ones: the utterances of the set, again and again.
        """
        count = max(1, FEWEST // size)
        names = evenly_spaced(list(self.case.speech.logprobs), count * size)
        return [
            [names[i % len(names)] for i in range(first, first + size)]
            for first in range(0, count * size, size)
        ]

    def row(self, setting: Any, batch: int, **more: object) -> Row:
        """Row of a report that names its point."""
        speech = self.case.speech
        facts = {"set": speech.name, "note": speech.note, "lm": self.case.lm}
        return facts | setting._asdict() | {"batch": batch} | more

    def _upload(self, names: list[list[str]], dtype: str) -> list[Padded]:
        logprobs = self.case.speech.logprobs
        return [self.gpu.upload([logprobs[n] for n in one], dtype) for one in names]

    def _times(self, names: list[list[str]], texts: list[str], timing: Timing) -> Row:
        """Times, rates and the word error rate; each utterance counts once."""
        speech = self.case.speech
        lengths = [[len(speech.logprobs[name]) for name in batch] for batch in names]
        audio_s = sum(map(sum, lengths)) * speech.frame_shift_s
        seconds, longest = timing.median_s, sum(map(max, lengths))
        by_name = dict(zip(chain(*names), texts, strict=True))
        return {
            **word_errors({name: speech.references[name] for name in by_name}, by_name),
            "batches": len(names),
            "audio_s": round(audio_s, 2),
            "longest_frames": longest,
            "event_s": timing.event_s,
            "wall_s": timing.wall_s,
            "rtfx": audio_s / seconds,
            "ms_per_batch": 1e3 * seconds / len(names),
            "us_per_frame": 1e6 * seconds / longest,
        }


@dataclass(frozen=True, eq=False)
class Bench(Measuring):
    """Measures the WFST search on a case; each method gives rows of figures."""

    def boosts(self, setting: Setting) -> dict[str, float] | None:
        """Words of the graph, evenly spaced over its table."""
        if setting.boosted == 0:
            return None
        words = self.case.graph.words[1:]
        step = max(1, len(words) // setting.boosted)
        return dict.fromkeys(words[::step][: setting.boosted], BONUS)

    def options(self, setting: Setting) -> WfstOptions:
        """The options of all decoders."""
        scale = self.case.lm_scale
        return WfstOptions(setting.beam, setting.max_active, lm_scale=scale)

    def expect(self, setting: Setting, dtype: str = "float32") -> dict[str, Hypothesis]:
        """Decode all utterances on the CPU, their log-probs rounded to a type."""
        arrays = [as_given(rows, dtype) for rows in self.case.utterances]
        decoder = self.case.wfst_decoder(self.options(setting), threads=None)
        found = decoder.decode(arrays, boosts=self.boosts(setting))
        return dict(zip(self.case.speech.logprobs, found, strict=True))

    def cpu(self, setting: Setting) -> Iterator[Row]:
        """Rows per batch for the CPU: a thread per processor, then a process."""
        boosts, logprobs = self.boosts(setting), self.case.speech.logprobs
        decoder = self.case.wfst_decoder(self.options(setting), threads=None)
        alone = self.case.wfst_decoder(self.options(setting), threads=1)
        for kind, size in product(("cpu", "cpu processes"), self.args.batches):
            facts = {"decoder": kind, "threads": decoder.threads}
            row = self.row(setting, size, **facts)
            if kind != "cpu" and size < FEWEST:
                continue
            names = self.batches(size)
            batches = [[logprobs[name] for name in one] for one in names]
            with contextlib.ExitStack() as stack:
                read = partial(_texts, decoder, boosts)
                if kind != "cpu":
                    # They have the batches as they are made, without a copy.
                    _of_processes[:] = [partial(_texts, alone, boosts), batches[0]]
                    pool = get_context("fork").Pool(decoder.threads)
                    read = partial(_in_processes, stack.enter_context(pool))
                texts, seconds = [], []
                for i in range(self.args.repeats + 1):
                    begin = time.perf_counter()
                    texts = [text for batch in batches for text in read(batch)]
                    if i > 0:
                        seconds.append(time.perf_counter() - begin)
            yield row | self._times(names, texts, Timing(seconds, seconds))

    def ours(self, setting: Setting, expected: dict[str, Hypothesis]) -> Iterator[Row]:
        """Rows per batch; without times where answers are not the CPU's."""
        args, graph = self.args, self.case.graph
        wanted = {}
        for dtype in args.dtypes:
            pairs = ((rows, as_given(rows, dtype)) for rows in self.case.utterances)
            exact = all(np.array_equal(*pair) for pair in pairs)
            wanted[dtype] = expected if exact else self.expect(setting, dtype)
        for size, dtype, threads in product(args.batches, args.dtypes, args.threads):
            row = self.row(setting, size, decoder="ours", dtype=dtype, threads=threads)
            decoder = self.gpu.decoder(
                graph,
                self.options(setting),
                frame_shift_s=self.case.speech.frame_shift_s,
                threads=threads,
            )
            names = self.batches(size)
            row |= self._check_and_time(setting, decoder, names, wanted[dtype], dtype)
            yield row

    def _check_and_time(
        self,
        setting: Setting,
        decoder: WfstDecoder,
        names: list[list[str]],
        wanted: dict[str, Hypothesis],
        dtype: str,
    ) -> Row:
        """How many answers differ; if none does, times and work too."""
        batches, boosts = self._upload(names, dtype), self.boosts(setting)
        run = partial(each, batches, partial(decoder.decode, boosts=boosts))
        found = run()
        pairs = zip(chain(*names), found, strict=True)
        differ = sum(hypothesis != wanted[name] for name, hypothesis in pairs)
        if differ:
            return {"differ": differ}
        timing = self.gpu.time(run, self.args.repeats)
        row = self._times(names, [one.text for one in found], timing)
        row |= self._work(decoder, batches[0], boosts, row["us_per_frame"])
        paths = partial(each, batches, partial(_search, decoder, boosts))
        timing = self.gpu.time(paths, self.args.repeats)
        search_ms = 1e3 * timing.median_s / len(batches)
        return {"differ": 0, **row, "search_ms": search_ms}

    def _work(
        self,
        decoder: WfstDecoder,
        batch: Padded,
        boosts: dict[str, float] | None,
        us_per_frame: float,
    ) -> Row:
        """Work of a frame, its bandwidth, and microseconds of a frame by phase."""
        utterances = decoder._backend.inputs(*batch)
        compiled = decoder._boosts.compile(boosts, len(utterances))
        graph = decoder._backend.device_graph  # type: ignore[union-attr]
        counts, row = phases_of(
            lambda: DeviceBatch(graph, decoder.options, compiled), utterances, PHASES
        )
        frames = max(counts["frames"], 1)
        moved = sum(counts[name] * size for name, size in BYTES.items()) / frames
        for name in BYTES:
            row[f"{name}_per_frame"] = round(counts[name] / frames, 1)
        for name in ("shared", "spilled"):
            row[f"{name}_share"] = round(counts[name] / frames, 4)
        return row | {"gb_per_s": len(utterances) * moved / us_per_frame / 1e3}

    def riva(
        self, setting: Setting, expected: dict[str, Hypothesis], peer: RivaPeer
    ) -> Iterator[Row]:
        """Rows per batch."""
        for size in self.args.batches:
            row = self.row(setting, size, decoder="riva", lattice_beam=LATTICE_BEAM)
            names = self.batches(size)
            batches = self._upload(names, "float32")
            decoder = peer.decoder(row)  # a row has the options that it takes
            found = each(batches, decoder.decode)
            run = partial(each, batches, decoder.run)
            timing = self.gpu.time(run, self.args.repeats)
            costs = {"costs": self._compare(chain(*names), expected, found)}
            texts = [" ".join(one.words) for one in found]
            yield row | costs | self._times(names, texts, timing)
            del decoder, run
            self.gpu.release()

    def _compare(
        self,
        names: Iterable[str],
        expected: dict[str, Hypothesis],
        results: list[RivaResult],
    ) -> Row:
        """The costs of both, each utterance once."""
        by_name, case = dict(zip(names, results, strict=True)), self.case
        arrays = [case.speech.logprobs[name] for name in by_name]
        found = list(by_name.values())
        theirs = path_costs(case.graph, arrays, found, lm_scale=case.lm_scale)
        ours = [found_by_us(expected[name]) for name in by_name]
        return asdict(compare_costs(list(by_name), ours, theirs))


_of_processes: list[Any] = []
"""What processes of the CPU decode with, and the batch."""


def _texts(
    decoder: WfstDecoder, boosts: dict[str, float] | None, batch: list[np.ndarray]
) -> list[str]:
    return [one.text for one in decoder.decode(batch, boosts=boosts)]


def _decode_some(which: list[int]) -> list[tuple[int, str]]:
    read, batch = _of_processes
    return list(zip(which, read([batch[i] for i in which]), strict=True))


def _in_processes(pool: Any, batch: list[np.ndarray]) -> list[str]:
    """Texts by processes that each take a few utterances at a time, the long first."""
    order = sorted(range(len(batch)), key=lambda i: -len(batch[i]))
    parts = [order[i : i + 4] for i in range(0, len(order), 4)]
    found = dict(chain.from_iterable(pool.imap_unordered(_decode_some, parts)))
    return [found[i] for i in range(len(batch))]


def as_given(logprobs: np.ndarray, dtype: str) -> np.ndarray:
    """Log-probs as a GPU gets them, in float32 again."""
    return logprobs.astype(dtype).astype(np.float32)


def _search(
    decoder: WfstDecoder, boosts: dict[str, float] | None, *batch: Any
) -> list[Any]:
    """`decode` without what makes words and times of paths, on the CPU."""
    utterances = decoder._backend.inputs(*batch)
    compiled = decoder._boosts.compile(boosts, len(utterances))
    return decoder._search(utterances, compiled)


def each(batches: list[Padded], decode: Callable[..., list[Any]]) -> list[Any]:
    """Decode batches one after the other."""
    return [found for batch in batches for found in decode(*batch)]


def phases_of(
    make_search: Callable[[], Any], chunks: Sequence[Any], phases: Sequence[str]
) -> tuple[dict[str, int], Row]:
    """Time the phases of a batch: the work of its frames, and microseconds of one.

    Args:
        make_search: Makes the batch's search, a `wfstdec.gpu.batch.Batch`.
        chunks: Its utterances, as a backend's `inputs` gives them.
        phases: Their names.
    """
    cycles, per_us = np.zeros(0), 1.0
    for _ in range(2):  # the first one compiles, and finds out what must grow
        search = make_search()
        search.takes_times = True
        search.advance(chunks)
        search.finish()
        cycles = search.phase_times.astype(np.float64)
        # The clock that ran, not the highest there is.
        per_us = 1e3 * float(search.clocks[0]) / max(1.0, float(search.clocks[1]))
    counts = search.counts
    frames = max(1, counts["frames"])
    us = (cycles / (per_us or 1.0) / frames).tolist()  # a clock may have stood still
    return counts, {
        "frames": counts["frames"],
        "cycles_per_us": per_us,
        "phases_us": dict(zip(phases, us, strict=True)),
        "spilled": counts["spilled"],
    }
