"""What `bench_cpu.py` measures: costs, work and seconds of two decoders on one graph.

case = Case(speech, "lm_books.3g", graph, kaldi_peer.scaled_fst(graph, 0.8), 0.8)
comparison, hypotheses = compare_costs(case, options)        # first
figures = time_both(case, options, repeats=5)                # if they agree
"""

from __future__ import annotations

import gc
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench_compare import Comparison, Outcome, compare, outcome_of
from bench_data import SpeechSet

from wfstdec.boost.boosts import UtteranceBoosts
from wfstdec.boost.words import compile_word_boosts
from wfstdec.compare.peers import kaldi as kaldi_peer
from wfstdec.graph.packed import PackedGraph, load_graph
from wfstdec.metrics import score_texts
from wfstdec.search.backends import make_backend
from wfstdec.search.hypothesis import Hypothesis
from wfstdec.wfst.backends import BACKENDS
from wfstdec.wfst.decoder import WfstDecoder
from wfstdec.wfst.options import WfstOptions

LOADS = 3
WARM_UP = 3
"""Utterances decoded before a timing."""

Figures = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Case:
    """A set on a graph, ready for both decoders.

    Attributes:
        speech: The utterances.
        lm: The name of the language model.
        graph: The graph.
        fst: The same for Kaldi, scaled by `lm_scale`.
        lm_scale: What both use.
    """

    speech: SpeechSet
    lm: str
    graph: PackedGraph
    fst: Any
    lm_scale: float

    def decoder(self, options: WfstOptions, threads: int = 1) -> WfstDecoder:
        """Ours."""
        shift = self.speech.frame_shift_s
        return WfstDecoder(
            self.graph, options, "cpu", frame_shift_s=shift, threads=threads
        )

    def peer(self, options: WfstOptions) -> kaldi_peer.FasterDecoder:
        """Kaldi's."""
        if options.lm_scale != self.lm_scale:
            raise ValueError(f"{options.lm_scale=!r}, expected {self.lm_scale!r}")
        return kaldi_peer.FasterDecoder(self.fst, options)


def compare_costs(
    case: Case, options: WfstOptions
) -> tuple[Comparison, dict[str, Hypothesis]]:
    """Decode everything once with both; also our hypotheses by utterance."""
    logprobs = case.speech.logprobs
    hypotheses = case.decoder(options).decode(list(logprobs.values()))
    peer, theirs = case.peer(options), []
    for array in logprobs.values():
        words, cost = kaldi_peer.read_path(peer.decode(array), case.graph.words)
        theirs.append(Outcome(cost, peer.reached_final, " ".join(words)))
    ours = [outcome_of(hypothesis) for hypothesis in hypotheses]
    comparison = compare(list(logprobs), ours, theirs)
    return comparison, dict(zip(logprobs, hypotheses, strict=True))


def score(case: Case, hypotheses: dict[str, Hypothesis]) -> Figures:
    """The word error rate."""
    texts = {u: hypothesis.text.split() for u, hypothesis in hypotheses.items()}
    found = score_texts(case.speech.references, texts)
    e = found.errors
    errors = [e.insertions, e.deletions, e.substitutions]
    return {"wer": found.wer, "errors": errors, "wer_line": found.wer_line}


def count_work(case: Case, options: WfstOptions) -> Figures:
    """Active states and candidate arcs per frame of our search.

    A candidate is an arc whose cost is within the bound when it is looked at.
    """
    backend = make_backend(BACKENDS, "cpu", case.graph)
    no_boosts = UtteranceBoosts(compile_word_boosts(None, {})[0])
    sums = dict.fromkeys(("frames", "active", "arcs"), 0)
    for logprobs in case.speech.logprobs.values():
        search: Any = backend.start(options, no_boosts)
        search.advance(logprobs)
        sums = {name: total + search.counts[name] for name, total in sums.items()}
        search.finish()
    frames = max(sums["frames"], 1)
    return {
        "active_per_frame": round(sums["active"] / frames, 1),
        "candidates_per_frame": round(sums["arcs"] / frames, 1),
    }


def time_both(case: Case, options: WfstOptions, repeats: int) -> Figures:
    """CPU seconds of both in one thread, by turns."""
    utterances = list(case.speech.logprobs.values())
    decoder, peer = case.decoder(options), case.peer(options)

    def run_peer() -> None:
        for logprobs in utterances:
            peer.decode(logprobs)

    decoder.decode(utterances[:WARM_UP])
    seconds = by_turns(
        {"ours": lambda: decoder.decode(utterances), "kaldi": run_peer},
        repeats,
        time.process_time,
    )
    figures: Figures = {f"{name}_cpu_s": _rounded(s) for name, s in seconds.items()}
    for kind, take in (("min", min), ("median", median)):
        ours, kaldi = take(seconds["ours"]), take(seconds["kaldi"])
        figures[f"ours_rtfx_{kind}"] = round(case.speech.seconds / ours, 1)
        figures[f"kaldi_rtfx_{kind}"] = round(case.speech.seconds / kaldi, 1)
        figures[f"ratio_{kind}"] = round(kaldi / ours, 3)
    return figures


def time_threads(case: Case, options: WfstOptions, repeats: int) -> Figures:
    """Seconds on the wall of ours with one and with two threads, by turns.

    Raises:
        AssertionError: Two threads find what one does not.
    """
    if len(os.sched_getaffinity(0)) < 2:
        return {}
    utterances = list(case.speech.logprobs.values())
    one, two = case.decoder(options), case.decoder(options, threads=2)
    assert one.decode(utterances) == two.decode(utterances), "threads change results"
    seconds = by_turns(
        {"one": lambda: one.decode(utterances), "two": lambda: two.decode(utterances)},
        repeats,
        time.perf_counter,
    )
    figures: Figures = {f"{name}_wall_s": _rounded(s) for name, s in seconds.items()}
    for kind, take in (("min", min), ("median", median)):
        ratio = take(seconds["one"]) / take(seconds["two"])
        figures[f"two_threads_ratio_{kind}"] = round(ratio, 3)
    return figures


def by_turns(
    functions: dict[str, Callable[[], Any]], repeats: int, clock: Callable[[], float]
) -> dict[str, list[float]]:
    """Time each function `repeats` times; who begins changes from turn to turn."""
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    order = list(functions)
    for _ in range(repeats):
        for name in order:
            gc.collect()
            begin = clock()
            functions[name]()
            seconds[name].append(clock() - begin)
        order.reverse()
    return seconds


def time_loading(graph: PackedGraph) -> Figures:
    """Sizes, and seconds on the wall to load the graph and make a decoder of it."""
    loads, decoders = [], []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.npz"
        graph.save(path)
        size = path.stat().st_size
        for _ in range(LOADS):
            begin = time.perf_counter()
            loaded = load_graph(path)
            loads.append(time.perf_counter() - begin)
            begin = time.perf_counter()
            WfstDecoder(loaded, backend="cpu")
            decoders.append(time.perf_counter() - begin)
    return {
        "states": graph.num_states,
        "arcs": graph.num_arcs,
        "file_mb": round(size / 1e6, 1),
        "load_s": round(median(loads), 3),
        "decoder_s": round(median(decoders), 3),
    }


def _rounded(values: Sequence[float]) -> list[float]:
    return [round(value, 5) for value in values]
