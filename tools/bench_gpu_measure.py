"""What `bench_gpu.py` measures: no time without the answers of the CPU.

bench = Bench(Case(speech, "lm_books.3g", graph), plan, Gpu())
setting = Setting(max_active=7000, beam=13.0)
expected = bench.expect(setting)                     # by utterance, from the CPU
rows = [bench.cpu(setting), *bench.ours(setting, expected)]
rows += bench.riva(setting, expected, files)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain, product
from typing import Any, NamedTuple

import numpy as np
import riva_peer
from bench_compare import Comparison, compare, outcome_of
from bench_data import SpeechSet, evenly_spaced
from bench_gpu_device import Gpu, Padded, Row, Timing, count_work

from wfstdec.graph.packed import PackedGraph
from wfstdec.metrics import score_texts
from wfstdec.search.hypothesis import Hypothesis
from wfstdec.wfst.decoder import WfstDecoder
from wfstdec.wfst.options import WfstOptions

FEWEST = 16
"""Utterances of a point, at least."""
BONUS = 1.5
"""Nats, of every boosted word."""
BYTES = {"looked": 16, "active": 32, "arcs": 76, "entries": 96}
"""What the search reads and writes for each: an arc looked at; an entry gone on from,
with its row; an arc that may survive, in all passes; an entry made, with its node."""


class Setting(NamedTuple):
    """What is timed over batches.

    Attributes:
        max_active: As in `WfstOptions`.
        beam: Likewise.
        boosted: Words that are boosted.
    """

    max_active: int
    beam: float
    boosted: int = 0


class Plan(NamedTuple):
    """What all points have in common.

    Attributes:
        batches: Numbers of utterances.
        dtypes: Of the log-probs, for ours.
        threads: Of a block, for ours.
        lattice_beams: For Riva's.
        lm_scale: Of all decoders.
        repeats: Timings of each point.
        skip: Whether a point is not wanted, by the beginning of its row.
    """

    batches: Sequence[int]
    dtypes: Sequence[str]
    threads: Sequence[int]
    lattice_beams: Sequence[float]
    lm_scale: float
    repeats: int
    skip: Callable[[Row], bool]


@dataclass(frozen=True, eq=False)
class Case:
    """A set on a graph."""

    speech: SpeechSet
    lm: str
    graph: PackedGraph

    def batches(self, size: int) -> list[list[str]]:
        """The utterances of the batches of a point, one batch after the other.

        Small batches: as many as make `FEWEST` utterances, evenly spread over the set.
        Large ones: the utterances of the set, again and again.
        """
        count = max(1, FEWEST // size)
        names = evenly_spaced(list(self.speech.logprobs), count * size)
        return [
            [names[i % len(names)] for i in range(first, first + size)]
            for first in range(0, count * size, size)
        ]

    def arrays(self, names: Sequence[str]) -> list[np.ndarray]:
        """Their log-probs."""
        return [self.speech.logprobs[name] for name in names]

    def boosts(self, count: int) -> dict[str, float] | None:
        """So many words of the graph, evenly spread over its table."""
        if count == 0:
            return None
        words = self.graph.words[1:]
        return dict.fromkeys(words[:: max(1, len(words) // count)][:count], BONUS)

    def wer(self, texts: dict[str, str]) -> float:
        """The word error rate, per cent, of some of the utterances."""
        references = {name: self.speech.references[name] for name in texts}
        return score_texts(references, {n: t.split() for n, t in texts.items()}).wer


class Bench:
    """Measures a case on a GPU; each method gives rows of figures."""

    def __init__(self, case: Case, plan: Plan, gpu: Gpu) -> None:
        self.case, self.plan, self.gpu = case, plan, gpu
        self._shift_s = case.speech.frame_shift_s

    def options(self, setting: Setting) -> WfstOptions:
        """The options of all decoders."""
        beam, max_active = setting.beam, setting.max_active
        return WfstOptions(beam, max_active, lm_scale=self.plan.lm_scale)

    def row(self, setting: Setting, batch: int, **more: object) -> Row:
        """What says which point a row is of."""
        speech = self.case.speech
        told = {"set": speech.name, "note": speech.note, "lm": self.case.lm}
        return told | setting._asdict() | {"batch": batch} | more

    def on_cpu(self, setting: Setting) -> WfstDecoder:
        """Our decoder on the CPU, one utterance per processor."""
        graph, options = self.case.graph, self.options(setting)
        return WfstDecoder(graph, options, "cpu", frame_shift_s=self._shift_s)

    def expect(self, setting: Setting, dtype: str = "float32") -> dict[str, Hypothesis]:
        """What the CPU finds in all utterances, their log-probs rounded to a type."""
        names, boosts = list(self.case.speech.logprobs), self._boosts(setting)
        arrays = [as_given(x, dtype) for x in self.case.arrays(names)]
        found = self.on_cpu(setting).decode(arrays, boosts=boosts)
        return dict(zip(names, found, strict=True))

    def cpu(self, setting: Setting) -> Row:
        """A row for the CPU, on all utterances; empty where it is not wanted."""
        names, boosts = list(self.case.speech.logprobs), self._boosts(setting)
        decoder, arrays = self.on_cpu(setting), self.case.arrays(names)
        row = self.row(setting, len(names), decoder="cpu", threads=decoder.threads)
        if self.plan.skip(row):
            return {}
        decoder.decode(arrays[:1])
        begin = time.perf_counter()
        found = decoder.decode(arrays, boosts=boosts)
        seconds = time.perf_counter() - begin
        texts = [hypothesis.text for hypothesis in found]
        return row | self._times([names], texts, Timing([seconds], [seconds]))

    def ours(self, setting: Setting, expected: dict[str, Hypothesis]) -> Iterator[Row]:
        """Rows per batch; without times where answers are not the CPU's."""
        plan, boosts = self.plan, self._boosts(setting)
        arrays = self.case.speech.logprobs.values()
        wanted = {
            dtype: expected
            if all(np.array_equal(x, as_given(x, dtype)) for x in arrays)
            else self.expect(setting, dtype)
            for dtype in plan.dtypes
        }
        for size, dtype, threads in product(plan.batches, plan.dtypes, plan.threads):
            row = self.row(setting, size, decoder="ours", dtype=dtype, threads=threads)
            if plan.skip(row):
                continue
            decoder = self.gpu.decoder(
                self.case.graph,
                self.options(setting),
                frame_shift_s=self._shift_s,
                threads=threads,
            )
            names = self.case.batches(size)
            batches = self._upload(names, dtype)
            run = partial(_each, batches, partial(_decode, decoder, boosts))
            found = run()
            row["differ"] = sum(
                hypothesis != wanted[dtype][name]
                for name, hypothesis in zip(chain(*names), found, strict=True)
            )
            if row["differ"] == 0:
                timing = self.gpu.time(run, plan.repeats)
                row |= self._times(names, [one.text for one in found], timing)
                row |= _traffic(count_work(decoder, batches, boosts), timing)
                paths = partial(_each, batches, partial(_search, decoder, boosts))
                timing = self.gpu.time(paths, plan.repeats)
                row["search_ms"] = 1e3 * timing.median_s / len(batches)
            yield row

    def riva(
        self,
        setting: Setting,
        expected: dict[str, Hypothesis],
        files: riva_peer.RivaFiles,
    ) -> Iterator[Row]:
        """Rows per batch and lattice beam: best paths, and words of least risk."""
        for size, lattice_beam in product(self.plan.batches, self.plan.lattice_beams):
            row = self.row(setting, size, decoder="riva", lattice_beam=lattice_beam)
            if self.plan.skip(row):
                continue
            peer = riva_peer.RivaDecoder(
                files,
                self.options(setting),
                batch=size,
                lattice_beam=lattice_beam,
                frame_shift_s=self._shift_s,
            )
            names = self.case.batches(size)
            batches = self._upload(names, "float32")
            found = _each(batches, peer.decode)
            run = partial(_each, batches, peer.run)
            timing = self.gpu.time(run, self.plan.repeats)
            costs = {"costs": self._compare(setting, chain(*names), expected, found)}
            texts = [" ".join(one.words) for one in found]
            yield row | costs | self._times(names, texts, timing)
            texts = list(map(" ".join, _each(batches, peer.decode_mbr)))
            timing = self.gpu.time(
                partial(_each, batches, peer.run_mbr), self.plan.repeats
            )
            yield row | {"decoder": "riva mbr"} | self._times(names, texts, timing)
            del peer
            self.gpu.release()

    def _upload(self, names: list[list[str]], dtype: str) -> list[Padded]:
        return [self.gpu.upload(self.case.arrays(batch), dtype) for batch in names]

    def _compare(
        self,
        setting: Setting,
        names: Iterable[str],
        expected: dict[str, Hypothesis],
        found: list[riva_peer.RivaResult],
    ) -> Row:
        """The costs of both, each utterance once."""
        by_name = dict(zip(names, found, strict=True))
        graph, options = self.case.graph, self.options(setting)
        arrays, results = self.case.arrays(list(by_name)), list(by_name.values())
        theirs = riva_peer.outcomes_of(graph, options, arrays, results)
        ours = [outcome_of(expected[name]) for name in by_name]
        return _renamed(compare(list(by_name), ours, theirs))

    def _boosts(self, setting: Setting) -> dict[str, float] | None:
        return self.case.boosts(setting.boosted)

    def _times(self, names: list[list[str]], texts: list[str], timing: Timing) -> Row:
        """Times, rates and the word error rate; each utterance counts once."""
        lengths = [[len(x) for x in self.case.arrays(batch)] for batch in names]
        audio_s = sum(map(sum, lengths)) * self._shift_s
        seconds, longest = timing.median_s, sum(map(max, lengths))
        return {
            "wer": self.case.wer(dict(zip(chain(*names), texts, strict=True))),
            "batches": len(names),
            "audio_s": round(audio_s, 2),
            "longest_frames": longest,
            "event_s": timing.event_s,
            "wall_s": timing.wall_s,
            "rtfx": audio_s / seconds,
            "ms_per_batch": 1e3 * seconds / len(names),
            "us_per_frame": 1e6 * seconds / longest,
        }


def as_given(logprobs: np.ndarray, dtype: str) -> np.ndarray:
    """Log-probs as a GPU gets them, in float32 again."""
    return logprobs.astype(dtype).astype(np.float32)


def _decode(
    decoder: WfstDecoder, boosts: dict[str, float] | None, *batch: Any
) -> list[Hypothesis]:
    return decoder.decode(*batch, boosts)


def _search(
    decoder: WfstDecoder, boosts: dict[str, float] | None, *batch: Any
) -> list[Any]:
    """`_decode` without what makes words and times of paths, on the CPU."""
    utterances = decoder._utterances(*batch)
    compiled = decoder._boosts.compile(boosts, len(utterances))
    return decoder._search(utterances, compiled)


def _each(batches: list[Padded], decode: Callable[..., list[Any]]) -> list[Any]:
    """What a decoder finds in batches, one after the other."""
    return [found for batch in batches for found in decode(*batch)]


def _traffic(counts: Row, timing: Timing) -> Row:
    """Work per frame, and the bandwidth that it makes, whatever cache it comes from."""
    frames = max(counts["frames"], 1)
    moved = sum(counts[name] * size for name, size in BYTES.items())
    figures = {f"{name}_per_frame": round(counts[name] / frames, 1) for name in BYTES}
    for name in ("shared", "spilled"):
        figures[f"{name}_share"] = round(counts[name] / frames, 4)
    return figures | {"gb_per_s": moved / timing.median_s / 1e9}


def _renamed(found: Comparison) -> Row:
    """A comparison with a decoder that is not Kaldi's own."""
    figures = asdict(found)
    return {name.replace("kaldi", "theirs"): value for name, value in figures.items()}
