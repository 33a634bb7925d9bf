"""Opening sessions with long boost lists: what it takes, and what others wait for it.

    python -m tools.bench.opening --output run.json

Lists of words, of OOV words of cmudict with its pronunciations, and of phrases of two
words; all without numbers. Of each, CPU time and wall time of `Sessions.open` with a
list that was never seen, of `compile_boosts`, of `Sessions.open` with what that gave,
and the longest `advance` of another session, a tenth of a second each, while the list
is opened by another thread. Medians of --repeats lists, milliseconds.
"""

from __future__ import annotations

import argparse
import random
import statistics
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tools.bench import experiments
from tools.bench.added_words import read_cmudict
from tools.bench.cases import Case
from tools.bench.command import Run, exit_with
from tools.bench.report import Row
from wfstdec import BoostEntry, WfstOptions
from wfstdec.search.sessions import Sessions

CHUNK = 5
"""Frames of a chunk: a tenth of a second."""


def add_own(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--sizes", nargs="+", type=int, default=[1000, 15000])
    add("--beam", type=float, default=13.0)


def main(argv: list[str] | None = None) -> int:
    args, case = experiments.begin(__doc__, argv, add_own)
    assert case.lexicon is not None and case.graph is not None
    words = sorted(set(case.lexicon.words) & case.graph.word_ids.keys())
    said = read_cmudict(case, args)
    draw = random.Random(args.seed)
    kinds: dict[str, Callable[[int], list[Any]]] = {
        "words": lambda n: draw.sample(words, n),
        "OOV words": lambda n: [
            BoostEntry(word, said[word]) for word in draw.sample(sorted(said), n)
        ],
        "phrases": lambda n: [" ".join(draw.sample(words, 2)) for _ in range(n)],
    }
    rows = (
        {"kind": kind, "size": size} | measured(case, partial(make, size), args)
        for kind, make in kinds.items()
        for size in args.sizes
    )
    return Run("tools.bench.opening", args).finish(rows)


def measured(case: Case, make: Callable[[], Any], args: argparse.Namespace) -> Row:
    """Medians of some lists, milliseconds."""
    decoder = case.wfst_decoder(WfstOptions(beam=args.beam, lm_scale=case.lm_scale))
    sessions = decoder.sessions()
    sessions.close(sessions.open(make()))  # kernels and tables
    seen: dict[str, list[float]] = {}

    def note(name: str, call: Callable[[], Any]) -> Any:
        wall, cpu = time.perf_counter(), time.thread_time()
        found = call()
        seen.setdefault(f"{name}_cpu_ms", []).append(1e3 * (time.thread_time() - cpu))
        seen.setdefault(f"{name}_ms", []).append(1e3 * (time.perf_counter() - wall))
        return found

    for _ in range(args.repeats):
        listed, ahead, other = make(), make(), make()
        sessions.close(note("open_list", lambda one=listed: sessions.open(one)))
        compiled = note("compile", lambda one=ahead: decoder.compile_boosts(one))
        sessions.close(note("open_compiled", lambda one=compiled: sessions.open(one)))
        waited = longest_advance(case, sessions, other)
        seen.setdefault("longest_advance_ms", []).append(waited)
    return {name: round(statistics.median(all_), 3) for name, all_ in seen.items()}


def longest_advance(case: Case, sessions: Sessions, listed: Any) -> float:
    """How long a chunk takes at most while a list is opened by another thread, ms."""
    frames = np.concatenate(case.utterances[:20]).astype(np.float32)
    session, at, longest = sessions.open(), 0, 0.0
    opened: list[Any] = []
    thread = threading.Thread(target=lambda: opened.append(sessions.open(listed)))
    thread.start()
    while thread.is_alive():
        began = time.perf_counter()
        sessions.advance({session: frames[at : at + CHUNK]})
        longest = max(longest, 1e3 * (time.perf_counter() - began))
        at = (at + CHUNK) % (len(frames) - CHUNK)
    thread.join()
    sessions.close(session)
    sessions.close(opened[0])
    return longest


if __name__ == "__main__":
    exit_with(main)
