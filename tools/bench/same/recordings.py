"""Recordings of decoders' answers, to the last bit.

    recording = Recording(threads=1)
    with recording.section("wfst"):
        recording.decode("beam 8", decoder, logprobs, boosts)
        recording.in_chunks("beam 8, chunks", decoder, logprobs, boosts)
        recording.note("graph", {"states": 12})
    recording.sections["wfst"]["beam 8/utterance"]

Costs and times are written as hexadecimal floats: equal text means equal bits. Besides
what a hypothesis says there is the total as the search added it up, float32 steps: a
change in the order of additions shows there, and hardly anywhere else.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

COSTS = ("total", "graph", "acoustic", "insertion", "boost")
CHUNKS = 6
"""Pieces that a streamed utterance is cut into; some are empty."""

Logprobs = Mapping[str, np.ndarray]


class Recording:
    """Records by section and key.

    Args:
        threads: What decoders are given as `threads`.

    Attributes:
        sections: Key to record, for each section.
        seconds: How long each section took.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.sections: dict[str, dict[str, Any]] = {}
        self.seconds: dict[str, float] = {}
        self._current: dict[str, Any] = {}

    @contextlib.contextmanager
    def section(self, name: str) -> Iterator[None]:
        """Where the records that follow belong."""
        self._current = self.sections.setdefault(name, {})
        begin = time.perf_counter()
        yield
        seconds = time.perf_counter() - begin
        self.seconds[name] = round(seconds, 1)
        count = len(self._current)
        print(f"{name}: {count} records, {seconds:.1f} s", file=sys.stderr, flush=True)

    def note(self, key: str, record: Any) -> None:
        """Keep a record.

        Raises:
            ValueError: There is one of that key.
        """
        if key in self._current:
            raise ValueError(f"two records of {key!r}")
        self._current[key] = record

    def decode(
        self, case: str, decoder: Any, logprobs: Logprobs, boosts: Any = None
    ) -> None:
        """Decode whole utterances; n-best lists too where the decoder has them."""
        arrays = list(logprobs.values())
        with _search_costs(decoder) as costs:
            found = decoder.decode(arrays, boosts=boosts)
        self._hypotheses(case, logprobs, found, costs)
        if getattr(decoder.options, "nbest", 1) > 1:
            lists = decoder.decode_nbest(arrays, boosts=boosts)
            for name, hypotheses in zip(logprobs, lists, strict=True):
                ranked = [_record_of(hypothesis) for hypothesis in hypotheses]
                self.note(f"{case}/n-best/{name}", ranked)

    def padded(
        self, case: str, decoder: Any, logprobs: Logprobs, boosts: Any = None
    ) -> None:
        """Decode one array [B, T, V] with lengths; what pads it is no log-prob."""
        arrays = list(logprobs.values())
        lengths = [len(array) for array in arrays]
        shape = (len(arrays), max(lengths), arrays[0].shape[1])
        batch = np.full(shape, np.nan, np.float32)
        for row, array in zip(batch, arrays, strict=True):
            row[: len(array)] = array
        with _search_costs(decoder) as costs:
            found = decoder.decode(batch, lengths, boosts=boosts)
        self._hypotheses(case, logprobs, found, costs)

    def in_chunks(
        self, case: str, decoder: Any, logprobs: Logprobs, boosts: Any = None
    ) -> None:
        """Decode side by side, each utterance cut at random places."""
        rng = np.random.default_rng(len(case))
        cut = []
        for array in logprobs.values():
            places = np.sort(rng.integers(0, len(array) + 1, CHUNKS - 1))
            cut.append(np.split(array, places))
        rounds = list(zip(*cut, strict=True))
        with _search_costs(decoder) as costs:
            found = _stream(decoder, rounds, len(cut), boosts)
        self._hypotheses(case, logprobs, found, costs)

    def _hypotheses(
        self, case: str, names: Logprobs, found: Sequence[Any], costs: dict[int, float]
    ) -> None:
        for name, one in zip(names, found, strict=True):
            cost = costs[id(one)].hex()
            self.note(f"{case}/{name}", _record_of(one) | {"search_cost": cost})


def digest_of(*arrays: np.ndarray) -> str:
    """32 hex digits of the types, shapes and contents of arrays."""
    digest = hashlib.blake2b(digest_size=16)
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def hex_of(values: Sequence[float] | np.ndarray) -> list[str]:
    """Floats to the last bit."""
    return [float(value).hex() for value in values]


def _stream(decoder: Any, rounds: Sequence[Any], count: int, boosts: Any) -> list[Any]:
    """Utterances as they come in, side by side."""
    each = boosts if isinstance(boosts, list | tuple) else [boosts] * count
    sessions = decoder.sessions()
    names = [sessions.open(one) for one in each]
    for chunks in rounds:
        sessions.advance(dict(zip(names, chunks, strict=True)))
    return [sessions.close(name) for name in names]


@contextlib.contextmanager
def _search_costs(decoder: Any) -> Iterator[dict[int, float]]:
    """The totals of searches, by the id of the hypothesis that was made of each.

    They are in what the search hands over, which users never see.
    """
    costs: dict[int, float] = {}

    def note(result: Any, hypothesis: Any) -> None:
        best = result[0] if isinstance(result, list) else result
        costs[id(hypothesis)] = float(best.search_cost)

    make = decoder._reader
    decoder._reader = lambda boosts: _NotingReader(make(boosts), note)
    try:
        yield costs
    finally:
        del decoder._reader


class _NotingReader:
    """A reader that tells of each result and the hypothesis that it makes of it."""

    def __init__(self, reader: Any, note: Any) -> None:
        self._reader, self._note = reader, note

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    def hypothesis(self, found: Any, *more: Any) -> Any:
        """Record a hypothesis."""
        hypothesis = self._reader.hypothesis(found, *more)
        self._note(found, hypothesis)
        return hypothesis

    def hypotheses(self, found: Any, *more: Any) -> Any:
        """Record hypotheses that are read together."""
        hypotheses = self._reader.hypotheses(found, *more)
        for one, hypothesis in zip(found, hypotheses, strict=True):
            self._note(one, hypothesis)
        return hypotheses


def _record_of(hypothesis: Any) -> dict[str, Any]:
    """All that a hypothesis says."""
    return {
        "text": hypothesis.text,
        "words": [
            [w.text, w.start_frame, w.end_frame, *hex_of([w.start_s, w.end_s])]
            for w in hypothesis.words
        ],
        "token_ids": [int(token) for token in hypothesis.token_ids],
        "token_frames": [[int(f) for f in side] for side in hypothesis.token_frames],
        **{f"{c}_cost": float(getattr(hypothesis, f"{c}_cost")).hex() for c in COSTS},
        "reached_final": bool(hypothesis.reached_final),
        "died_at_frame": hypothesis.died_at_frame,
        "num_frames": int(hypothesis.num_frames),
    }
