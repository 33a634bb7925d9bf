"""Costs, work and seconds of two decoders on a graph, for `tools.bench.wfst`.

duel = Duel(case)
timed = check_and_time(duel.searches(options), check, args)
agreement = duel.compare(timed.answers)              # what `check` asks first
figures = duel.figures(timed.seconds)
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from tools.bench.cases import Case
from tools.bench.costs import Agreement, compare_costs, found_by_us
from tools.bench.report import Row, speed
from tools.bench.timing import Turns
from tools.peers import kaldi
from wfstdec.boost.compiled import CompiledBoosts, compile_word_boosts
from wfstdec.compare.comparison import Outcome
from wfstdec.graph.packed import PackedGraph, load_graph
from wfstdec.search.backend import make_backend
from wfstdec.search.hypothesis import Hypothesis
from wfstdec.wfst.decoder import WfstDecoder
from wfstdec.wfst.options import BACKENDS, WfstOptions

LOADS = 3
WARM_UP = 3
"""Utterances decoded before a timing."""


class Duel:
    """A case, with its graph, ready for both decoders."""

    def __init__(self, case: Case) -> None:
        assert case.graph is not None
        self.case, self.graph = case, case.graph
        self._fst = kaldi.scaled_fst(case.graph, case.lm_scale)

    def searches(self, options: WfstOptions) -> dict[str, Callable[[], Any]]:
        """Ours with words read, Kaldi's, whose words are not read, ours likewise."""
        utterances = self.case.utterances
        decoder = self.case.wfst_decoder(options)
        peer = kaldi.FasterDecoder(self._fst, options)
        decoder.decode(utterances[:WARM_UP])
        return {
            "ours": partial(read_all, decoder, utterances),
            "kaldi": lambda: [(peer.decode(x), peer.reached_final) for x in utterances],
            "unread": partial(decoder.decode, utterances),
        }

    def compare(self, answers: Mapping[str, Any]) -> Agreement:
        """Compare the costs of all utterances, as `searches` found them."""
        theirs = []
        for path, is_final in answers["kaldi"]:
            words, cost = kaldi.read_path(path, self.graph.words)
            theirs.append(Outcome(" ".join(words), cost, is_final))
        names = list(self.case.speech.logprobs)
        return compare_costs(names, list(map(found_by_us, answers["ours"])), theirs)

    def count_work(self, options: WfstOptions) -> Row:
        """Active states and candidate arcs per frame of our search.

        A candidate is an arc whose cost is within the bound when it is looked at; the
        search on rows counts none.
        """
        backend = make_backend(BACKENDS, "cpu", self.graph)
        no_boosts = CompiledBoosts(compile_word_boosts(None, {})[0])
        sums: Counter[str] = Counter()
        for logprobs in self.case.utterances:
            search: Any = backend.start(options, no_boosts)
            search.advance(logprobs)
            sums.update(search.counts)
            search.finish()
        frames = max(sums["frames"], 1)
        return {"active_per_frame": round(sums["active"] / frames, 1)}

    def figures(self, seconds: Mapping[str, list[float]]) -> Row:
        """Speed of both, from CPU seconds of turns of `searches`."""
        ours, theirs, unread = seconds.values()
        return {
            **speed(self.case.speech.audio_s, ours),
            "kaldi": speed(self.case.speech.audio_s, theirs),
            "ratio": round(min(theirs) / min(ours), 3),
            "ratio_median": round(median(theirs) / median(ours), 3),
            "unread": speed(self.case.speech.audio_s, unread),
            "unread_ratio": round(min(theirs) / min(unread), 3),
        }

    def time_threads(self, options: WfstOptions, repeats: int) -> Row:
        """Seconds on the wall of ours with one and with two threads, by turns.

        Raises:
            AssertionError: Two threads find what one does not.
        """
        if len(os.sched_getaffinity(0)) < 2:
            return {}
        utterances = self.case.utterances
        one, two = (self.case.wfst_decoder(options, threads=n) for n in (1, 2))
        runs: dict[Any, Callable[[], Any]] = {}
        for threads, decoder in ((1, one), (2, two)):
            runs["unread", threads] = partial(decoder.decode, utterances)
            runs["words", threads] = partial(read_all, decoder, utterances)
        turns = Turns(runs, time.perf_counter)
        assert one.decode(utterances) == two.decode(utterances), "threads matter"
        turns.repeat(repeats)
        seconds = {n: turns.seconds["words", n] for n in (1, 2)}
        unread = [min(turns.seconds["unread", n]) for n in (1, 2)]
        return {
            "two_threads_unread_ratio": round(unread[0] / unread[1], 3),
            "one_thread_wall_s": [round(one, 6) for one in seconds[1]],
            "two_threads_wall_s": [round(one, 6) for one in seconds[2]],
            "two_threads_ratio": round(min(seconds[1]) / min(seconds[2]), 3),
        }


def read_all(
    decoder: WfstDecoder, utterances: list[Any], boosts: Any = None
) -> list[Hypothesis]:
    """Decode, and read words and their times, which are made when they are read."""
    found = decoder.decode(utterances, boosts=boosts)
    for hypothesis in found:
        _ = hypothesis.words
    return found


def time_loading(graph: PackedGraph) -> Row:
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
