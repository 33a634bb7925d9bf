"""Costs, work and seconds of two decoders on a graph, for `tools.bench.wfst`.

duel = Duel(case)
agreement, texts = duel.compare(options)             # first
figures = duel.time(options, repeats=5)              # if they agree
"""

from __future__ import annotations

import os
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from tools.bench.cases import Case
from tools.bench.costs import Agreement, compare_costs, found_by_us
from tools.bench.report import Row, speed
from tools.bench.timing import Turns
from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.boost.words import compile_word_boosts
from wfstdec.compare.peers import kaldi
from wfstdec.compare.points import Outcome
from wfstdec.graph.packed import PackedGraph, load_graph
from wfstdec.search.backends import make_backend
from wfstdec.wfst.backend_choice import BACKENDS
from wfstdec.wfst.decoder import WfstDecoder
from wfstdec.wfst.options import WfstOptions

LOADS = 3
WARM_UP = 3
"""Utterances decoded before a timing."""


class Duel:
    """A case ready for both decoders.

    Args:
        case: It has a graph.

    Attributes:
        case: The same.
        graph: Its graph.
    """

    def __init__(self, case: Case) -> None:
        assert case.graph is not None
        self.case, self.graph = case, case.graph
        self._fst = kaldi.scaled_fst(case.graph, case.lm_scale)

    def compare(self, options: WfstOptions) -> tuple[Agreement, dict[str, str]]:
        """Decode everything once with both; also our texts by utterance."""
        utterances, peer = self.case.utterances, self._peer(options)
        theirs = []
        for logprobs in utterances:
            words, cost = kaldi.read_path(peer.decode(logprobs), self.graph.words)
            theirs.append(Outcome(" ".join(words), cost, peer.reached_final))
        hypotheses = self.case.wfst_decoder(options).decode(utterances)
        names = list(self.case.speech.logprobs)
        agreement = compare_costs(names, list(map(found_by_us, hypotheses)), theirs)
        return agreement, {u: h.text for u, h in zip(names, hypotheses, strict=True)}

    def _peer(self, options: WfstOptions) -> kaldi.FasterDecoder:
        return kaldi.FasterDecoder(self._fst, options)

    def count_work(self, options: WfstOptions) -> Row:
        """Active states and candidate arcs per frame of our search.

        A candidate is an arc whose cost is within the bound when it is looked at.
        """
        backend = make_backend(BACKENDS, "cpu", self.graph)
        no_boosts = CompiledBoosts(compile_word_boosts(None, {})[0])
        sums = dict.fromkeys(("frames", "active", "arcs"), 0)
        for logprobs in self.case.utterances:
            search: Any = backend.start(options, no_boosts)
            search.advance(logprobs)
            sums = {name: total + search.counts[name] for name, total in sums.items()}
            search.finish()
        frames = max(sums["frames"], 1)
        return {
            "active_per_frame": round(sums["active"] / frames, 1),
            "candidates_per_frame": round(sums["arcs"] / frames, 1),
        }

    def time(self, options: WfstOptions, repeats: int) -> Row:
        """CPU seconds of both in one thread, by turns."""
        utterances = self.case.utterances
        decoder, peer = self.case.wfst_decoder(options), self._peer(options)

        def run_peer() -> None:
            for logprobs in utterances:
                peer.decode(logprobs)

        decoder.decode(utterances[:WARM_UP])
        turns = Turns(
            {
                "ours": lambda: _words(decoder, utterances),
                "kaldi": run_peer,
                "unread": lambda: decoder.decode(utterances),
            }
        )
        turns.repeat(repeats)
        ours, theirs, unread = turns.seconds.values()
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
        runs = {
            (threads, read.__name__): partial(read, decoder, utterances)
            for threads, decoder in ((1, one), (2, two))
            for read in (_paths, _words)
        }
        turns = Turns(runs, time.perf_counter)
        assert one.decode(utterances) == two.decode(utterances), "threads matter"
        turns.repeat(repeats)
        seconds = {n: turns.seconds[n, "_words"] for n in (1, 2)}
        unread = [min(turns.seconds[n, "_paths"]) for n in (1, 2)]
        return {
            "two_threads_unread_ratio": round(unread[0] / unread[1], 3),
            "one_thread_wall_s": [round(one, 6) for one in seconds[1]],
            "two_threads_wall_s": [round(one, 6) for one in seconds[2]],
            "two_threads_ratio": round(min(seconds[1]) / min(seconds[2]), 3),
        }


def _paths(decoder: WfstDecoder, utterances: list[Any]) -> None:
    decoder.decode(utterances)


def _words(decoder: WfstDecoder, utterances: list[Any]) -> None:
    """Words and their times are made when they are read."""
    for hypothesis in decoder.decode(utterances):
        _ = hypothesis.words


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
