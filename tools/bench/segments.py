"""Lattices of a long session: what it keeps, with and without handing out segments.

    python -m tools.bench.segments --output run.json        # an hour
    python -m tools.bench.segments --profile small          # a smoke test

One session goes through a set's utterances, one after the other and again until the
minutes are over, by chunks. Every now and then its settled segments are taken, or not,
or it records no lattice at all. Before anything is told, the segments have to be the
lattice of the session that handed out none, arc for arc, and the words that came out
those of `close`.

    kept_mb   what the session's own arrays take after each tenth of the time
    delay_s   from the middle of a segment until it comes out
    cpu_s     of all `advance` and all `settled_lattices`, one thread, taken by turns
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np

from tools.bench.cases import Case, default_case
from tools.bench.command import Run, exit_with, make_parser, parse, profiles
from tools.bench.report import Row
from wfstdec.lattice.arrays import Lattice
from wfstdec.search.hypothesis import Hypothesis, Word
from wfstdec.search.paths.lattice import SegmentReader
from wfstdec.search.sessions import Sessions
from wfstdec.wfst.decoder import WfstDecoder
from wfstdec.wfst.options import WfstOptions

HOWS = ("no lattice", "lattice", "segments")
PROFILES = profiles(
    {"beams": [4.0, 6.0, 8.0], "minutes": 60.0},
    **{"beams": [6.0], "minutes": 0.5, "utterances": 6},
)


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = make_parser(__doc__)
    add = parser.add_argument
    add("--set", default="dev")
    add("--lm", help="of the graph: a name in the data, or an ARPA file")
    add("--beam", type=float, default=13.0)
    add("--beams", nargs="+", type=float, help="of lattices")
    add("--minutes", type=float, help="that the session lasts")
    add("--chunk-ms", type=float, default=400.0)
    add("--every-s", type=float, default=2.0, help="from taking to taking")
    return parse(parser, argv, PROFILES)


def bytes_of(thing: Any) -> int:
    """Sum the bytes of the arrays in an object's attributes and tuples."""
    if isinstance(thing, np.ndarray):
        return thing.nbytes
    if isinstance(thing, tuple):
        return sum(map(bytes_of, thing))
    return 0


def kept_mb(sessions: Sessions, session: Any) -> float:
    """Memory of the arrays that are a session's own, MB."""
    search = sessions._find(session).search
    history = search._history
    own = *vars(history).values(), search._state.value, search._kept  # on rows
    own += tuple(vars(history.settled).values())
    rules = bytes_of(history._rule)  # the graph's
    return round((bytes_of(own) - rules) / 1e6, 3)


@dataclass
class Gone:
    """Outcome of a session, and its cost.

    Attributes:
        parts: Its lattices.
        words: Those of the segments.
        closed: Its hypothesis, where it recorded no lattice.
        waited: Frames from the middle of each segment until it came out.
        kept_mb: What it kept after each tenth.
        cpu_s: Of `advance` and `settled_lattices`.
    """

    parts: list[Lattice] = field(default_factory=list)
    words: list[Word] = field(default_factory=list)
    closed: Hypothesis | None = None
    waited: list[float] = field(default_factory=list)
    kept_mb: list[float] = field(default_factory=list)
    cpu_s: float = 0.0


def go_through(
    decoder: WfstDecoder, x: np.ndarray, how: str, size: int, every: int
) -> Gone:
    """A session through some log-probs: what it gave, and what it cost.

    `decoder`: a new one, whose pools have nothing from other sessions. `how`: one of
    `HOWS`.
    """
    sessions = decoder.sessions(lattices=how != "no lattice")
    session, reader, gone = sessions.open(), SegmentReader(), Gone()
    marks = [len(x) * tenth // 10 for tenth in range(1, 11)]
    for first in range(0, len(x), size):
        now, new = min(first + size, len(x)), []
        began = time.process_time()
        sessions.advance({session: x[first:now]})
        if how == "segments" and now // every > first // every:
            new = sessions.settled_lattices(session)
        gone.cpu_s += time.process_time() - began
        for part in new:
            gone.waited.append(now - part.first_frame - part.num_frames / 2)
            gone.words += reader.read(part)
        gone.parts += new
        while marks and now >= marks[0]:
            gone.kept_mb.append(kept_mb(sessions, session))
            marks.pop(0)
    if how == "no lattice":
        gone.closed = sessions.close(session)
    else:
        gone.parts.append(sessions.close_lattice(session))
    if how == "segments":  # of the whole at once confidences would not fit into memory
        gone.words += reader.read(gone.parts[-1], is_last=True)
    return gone


def row_of(gone: Gone, shift: float) -> Row:
    """Row of the report for a session."""
    row: Row = {"kept_mb": gone.kept_mb}
    if len(gone.parts) > 1:
        lengths = [part.num_frames * shift for part in gone.parts[:-1]]
        waited = [frames * shift for frames in gone.waited]
        row["segments"] = len(lengths)
        for name, found in (("length_s", lengths), ("delay_s", waited)):
            middle, most = round(median(found), 2), round(max(found), 2)
            row[name] = {"median": middle, "most": most}
    return row


def check(found: dict[str, Gone]) -> None:
    """Raise where segments are not the lattice, or words not those of `close`."""
    (whole,), parts = found["lattice"].parts, found["segments"].parts
    arcs = np.concatenate([part.arcs for part in parts])
    before = np.cumsum([0, *(part.num_states - 1 for part in parts[:-1])])
    offset = np.repeat(before, [part.num_arcs for part in parts]).astype(np.uint32)
    arcs["state"] += offset
    arcs["nextstate"] += offset
    states = [*(part.states[:-1] for part in parts[:-1]), parts[-1].states]
    if arcs.tobytes() != whole.arcs.tobytes():
        raise AssertionError("the arcs of segments are not those of the whole")
    if np.concatenate(states).tobytes() != whole.states.tobytes():
        raise AssertionError("the states of segments are not those of the whole")
    said = tuple(word._replace(confidence=None) for word in found["segments"].words)
    closed = found["no lattice"].closed
    if closed is None or said != closed.words:
        raise AssertionError("the words of segments are not those of the whole")


def measure(case: Case, args: argparse.Namespace) -> Iterator[Row]:
    """A row for each lattice beam."""
    shift = case.speech.frame_shift_s
    total = round(60 * args.minutes / shift)
    speech = np.concatenate(case.utterances)
    x = np.concatenate([speech] * -(-total // len(speech)))[:total]
    size, every = round(args.chunk_ms / 1e3 / shift), round(args.every_s / shift)
    for beam in args.beams:
        options = WfstOptions(beam=args.beam, lm_scale=case.lm_scale, lattice_beam=beam)
        found: dict[str, Gone] = {}
        seconds: dict[str, list[float]] = {how: [] for how in HOWS}
        for turn in range(args.repeats + 1):
            for how in HOWS if turn % 2 else reversed(HOWS):
                decoder = case.wfst_decoder(options)
                found[how] = go_through(decoder, x, how, size, every)
                if turn:  # the first one warms up
                    seconds[how].append(found[how].cpu_s)
        check(found)
        row: Row = {"lattice_beam": beam, "minutes": args.minutes}
        row["arcs_per_frame"] = round(found["lattice"].parts[0].num_arcs / len(x), 2)
        row["words"] = len(found["segments"].words)
        medians = {how: median(taken) for how, taken in seconds.items()}
        for how in HOWS:
            row[how] = row_of(found[how], shift) | {
                "cpu_s": round(medians[how], 2),
                "ratio": round(medians[how] / medians[HOWS[0]], 3),
            }
        yield row


def main(argv: list[str] | None = None) -> int:
    args = parse_arguments(argv)
    run, case = Run("tools.bench.segments", args), default_case(args, args.set)
    print(case.headline())
    return run.finish(measure(case, args), case=case.name)


if __name__ == "__main__":
    exit_with(main)
