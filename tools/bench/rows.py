"""The proof of the search on rows of LG: against the packed search and FasterDecoder.

    python -m tools.bench.rows --output run.json                # all parts, one by one
    python -m tools.bench.rows --parts beams pieces             # some of them
    python -m tools.bench.rows --cases hard:lm_books.3g_pruned --beams 10 --kinds whole
    python -m tools.bench.rows --profile small                  # a smoke test

Everything that both of our searches find is compared first, bit for bit, and the costs
of FasterDecoder's paths with ours; where they differ nothing is told, exit status 1.
Then all are timed by turns in one process, nanoseconds of CPU for a frame, one thread.
A part takes five minutes at most on a quiet machine, its data and graphs being there;
`storage` builds two graphs of 135,000 words, for some ten minutes.

    beams, pieces, hard, ljspeech, compact    whole utterances; FasterDecoder beside
    boosts      300 boosted words, 300 phrases of two words, 300 OOV words
    sessions    chunks of several sizes; looked at; with boosts
    fewest      `min_active`
    lattices    on both searches, and best paths beside
    threads     seconds on the wall of one thread over those of two
    phases      `tools.bench.row_phases`: steps of a frame; warm caches
    storage     `tools.bench.row_storage`: graph files, loading, memory
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np

from tools.bench import row_phases, row_storage
from tools.bench.cases import Case, Inputs, load_set, make_case
from tools.bench.command import Run, exit_with, make_parser, parse, profiles
from tools.bench.report import Row
from tools.bench.row_storage import PackedBackend
from tools.bench.timing import Turns
from tools.bench.wfst_measure import Duel, read_all
from wfstdec import BoostEntry
from wfstdec.fst.topology import TOPOLOGIES
from wfstdec.wfst.decoder import WfstDecoder
from wfstdec.wfst.options import WfstOptions

BOOSTED = "words", "phrases", "oov"
IN_CHUNKS = "chunks", "looks", *(f"chunks-{kind}" for kind in BOOSTED)
KINDS = "whole", *BOOSTED, "fewest", *IN_CHUNKS, "lattices", "threads"
"""Whole utterances; with 300 boosted words, phrases, OOV words; with `min_active`;
sessions that get a chunk at a time, that are looked at after each, and with boosts."""
WORDS, NATS = 300, 3.0
"""How many words or phrases are boosted, and by how much."""
LM = "lm_books.3g_pruned"


class Part(NamedTuple):
    """Cases, beams and kinds that are measured together; how many utterances."""

    cases: list[str]
    beams: list[float]
    kinds: list[str]
    utterances: int
    topology: str = "normal"
    chunks: tuple[int, ...] = (32,)


BOTH = [f"dev:{LM}", f"bpe-mid:{LM}"]
"""Phones of real speech, and synthetic word pieces."""
STORED = [f"{speech}:{lm}" for lm in (LM, "en-us.3g") for speech in ("dev", "bpe-mid")]
PARTS = {
    "beams": Part([f"dev:{LM}"], [8, 10, 13, 17], ["whole"], 100),
    "pieces": Part([f"bpe-mid:{LM}"], [8, 10, 13, 17], ["whole"], 30),
    "hard": Part([f"hard:{LM}"], [8, 10, 13], ["whole"], 20),
    "ljspeech": Part([f"ljspeech:{LM}"], [8, 10, 13], ["whole"], 60),
    "compact": Part([f"dev:{LM}"], [8, 10, 13], ["whole"], 60, "compact"),
    "boosts": Part(BOTH, [8, 13], list(BOOSTED), 30),
    "sessions": Part(BOTH, [8, 13], list(IN_CHUNKS), 30, chunks=(16, 32, 128)),
    "fewest": Part([f"dev:{LM}"], [8, 13], ["fewest"], 40),
    "lattices": Part(BOTH, [8, 13], ["lattices"], 30),
    "threads": Part(BOTH, [8, 13], ["threads"], 60),
    "phases": Part(BOTH, [8, 13], ["phases"], 30),
    "storage": Part(STORED, [], ["storage"], 0),
}
PROFILES = profiles(cases=["dev:lm"], beams=[8.0], utterances=4)


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = make_parser(__doc__)
    add = parser.add_argument
    add("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    add("--cases", nargs="+", help="these in place of parts")
    add("--beams", nargs="+", type=float, default=[8.0, 10.0, 13.0, 17.0])
    add("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    add("--topology", choices=TOPOLOGIES, default="normal")
    add("--chunk", type=int, help="frames of a chunk; default: of the part, or 32")
    add("--min-active", type=int, default=200)
    return parse(parser, argv, PROFILES)


def in_chunks(
    decoder: WfstDecoder, arrays: list[np.ndarray], boosts: Any, size: int, look: bool
) -> Any:
    """Decode utterances one after the other, in chunks; partial results too."""
    sessions, found = decoder.sessions(), []
    for array in arrays:
        one = sessions.open(boosts)
        for first in range(0, len(array), size):
            sessions.advance({one: array[first : first + size]})
            if look:
                found.append(sessions.partial(one))
        found.append(sessions.close(one))
    return found


def boosted_words(case: Case, size: int = 1) -> dict[str, float]:
    """Some words of the graph; with a size of 2, as many pairs of them."""
    assert case.graph is not None
    rng = np.random.default_rng(0)
    picked = rng.permutation(len(case.graph.words) - 1)[: size * WORDS] + 1
    words = [case.graph.words[i] for i in picked.tolist()]
    return {" ".join(some): NATS for some in zip(*[iter(words)] * size, strict=True)}


def oov_words(case: Case) -> list[BoostEntry]:
    """Words that nobody has, said as two words of the lexicon one after the other."""
    assert case.graph is not None
    said, names = case.graph.vocabulary.pronunciations, case.graph.tokens.names
    picked = np.random.default_rng(0).integers(len(said), size=WORDS + 1).tolist()
    spans = [slice(*said.splits[i : i + 2].tolist()) for i in picked]
    texts = [" ".join(names[t] for t in said.tokens[span].tolist()) for span in spans]
    return [
        BoostEntry(f"oov{i}", [f"{one} {other}"], NATS)
        for i, (one, other) in enumerate(pairwise(texts))
    ]


def task_of(
    kind: str, decoder: WfstDecoder, case: Case, args: argparse.Namespace, chunk: int
) -> Callable[[], Any]:
    """Make the call that is timed."""
    arrays = [np.ascontiguousarray(x, np.float32) for x in case.utterances]
    boosts: Any = None
    if kind.endswith(("words", "phrases")):
        boosts = boosted_words(case, 1 + kind.endswith("phrases"))
    elif kind.endswith("oov"):
        boosts = oov_words(case)
    if kind in IN_CHUNKS:
        return partial(in_chunks, decoder, arrays, boosts, chunk, kind == "looks")
    if kind == "fewest":
        decoder = decoder.with_options(min_active=args.min_active)
    return partial(read_all, decoder, arrays, boosts)


def decoders_of(case: Case, beam: float) -> dict[str, WfstDecoder]:
    """Ours on the packed graph, and on rows."""
    options = WfstOptions(beam=beam, lm_scale=case.lm_scale)
    decoders = {name: case.wfst_decoder(options) for name in ("packed", "rows")}
    assert case.graph is not None
    decoders["packed"]._backend = PackedBackend(case.graph)
    backend: Any = decoders["rows"]._backend
    if backend.on_rows is None:
        raise SystemExit(f"{case.name}: a graph that is not searched on rows")
    return decoders


def measure(
    case: Case, beam: float, kind: str, args: argparse.Namespace, chunk: int = 0
) -> Row:
    """Compare both searches, and FasterDecoder where it can; nanoseconds a frame.

    Raises:
        SystemExit: They find different things.
    """
    decoders, duel = decoders_of(case, beam), None
    tasks = {
        name: task_of(kind, one, case, args, chunk) for name, one in decoders.items()
    }
    if kind == "whole":
        duel = Duel(case)
        options = WfstOptions(beam=beam, lm_scale=case.lm_scale)
        tasks["kaldi"] = duel.searches(options)["kaldi"]
    turns = Turns(tasks)
    answers = turns.take()  # kernels are compiled
    where = f"{case.name}, beam {beam:g}, {kind}"
    if answers["packed"] != answers["rows"]:
        raise SystemExit(f"{where}: different results")
    row = row_of(case, beam, kind) | ({"chunk": chunk} if chunk else {})
    if duel is not None:
        found = {"ours": answers["rows"], "kaldi": answers["kaldi"]}
        agreement = duel.compare(found)
        row["texts_differ"] = agreement.texts_differ
        if not agreement.agrees:
            raise SystemExit(f"{where}: other costs than FasterDecoder {agreement}")
    row |= timed(turns, args.repeats, row["frames"])
    row["results"] = len(answers["rows"])
    row |= ratios(row, "packed") | (ratios(row, "kaldi") if duel else {})
    return row


def row_of(case: Case, beam: float, kind: str) -> Row:
    """Name a case, a beam and a kind, with the frames of the case."""
    frames, graph = sum(map(len, case.utterances)), case.graph
    assert graph is not None
    row: Row = {"case": case.name, "topology": graph.topology, "beam": beam}
    return row | {"kind": kind, "frames": frames}


def timed(turns: Turns, repeats: int, frames: int) -> Row:
    """Take turns anew; the least and the median nanoseconds a frame of each."""
    for seconds in turns.seconds.values():
        seconds.clear()
    turns.repeat(repeats)
    row: Row = {}
    for name, seconds in turns.seconds.items():
        each = [round(1e9 * one / frames) for one in seconds]
        row |= {f"{name}_ns": min(each), f"{name}_median_ns": statistics.median(each)}
    return row


def ratios(row: Row, other: str) -> Row:
    """How many times as long another one takes as the search on rows."""
    return {
        f"{other}_ratio": round(row[f"{other}_ns"] / row["rows_ns"], 3),
        f"{other}_median_ratio": round(
            row[f"{other}_median_ns"] / row["rows_median_ns"], 3
        ),
    }


def measure_lattices(case: Case, beam: float, args: argparse.Namespace) -> Row:
    """Compare lattices of both searches to the bit, and time them; best paths too.

    Raises:
        SystemExit: They find different lattices.
    """
    decoders, arrays = decoders_of(case, beam), case.utterances
    tasks: dict[str, Callable[[], Any]] = {
        name: partial(one.decode_lattice, arrays) for name, one in decoders.items()
    }
    tasks["best"] = partial(read_all, decoders["rows"], arrays)
    turns = Turns(tasks)
    answers = turns.take()
    where = f"{case.name}, beam {beam:g}"
    on_packed, lattices = answers["packed"], answers["rows"]
    for one, other in zip(on_packed, lattices, strict=True):
        same = one.search_cost == other.search_cost
        same &= one.states.tobytes() == other.states.tobytes()
        if not same or one.arcs.tobytes() != other.arcs.tobytes():
            raise SystemExit(f"{where}: different lattices")
    best = [one.text(one.word_ids(one.best_arcs())) for one in lattices]
    if best != [one.text for one in answers["best"]]:
        raise SystemExit(f"{where}: other best paths in lattices")
    row = row_of(case, beam, "lattices")
    row |= timed(turns, args.repeats, row["frames"])
    num_arcs = sum(one.num_arcs for one in lattices)
    row["arcs_per_frame"] = round(num_arcs / row["frames"], 1)
    return row | ratios(row, "packed")


def rows_of(part: Part, args: argparse.Namespace) -> Iterator[Row]:
    """Measure a part."""
    limit = args.utterances or part.utterances
    if part.kinds == ["phases"]:
        given = argparse.Namespace(**vars(args) | {"utterances": limit})
        yield from row_phases.phases(part.cases, part.beams, given)
        return
    inputs = replace(Inputs.of(args), limit=limit)
    for of_case in part.cases:
        speech, _, lm = of_case.rpartition(":")
        if part.kinds == ["storage"]:
            yield row_storage.measure_storage(speech, lm, part.topology, args)
            continue
        case = make_case(load_set(speech, inputs), lm, inputs, part.topology)
        for beam, kind in product(part.beams, part.kinds):
            if kind == "lattices":
                yield measure_lattices(case, beam, args)
            elif kind == "threads":
                options = WfstOptions(beam=beam, lm_scale=case.lm_scale)
                on_wall = Duel(case).time_threads(options, args.repeats)
                yield row_of(case, beam, kind) | on_wall
            elif kind in IN_CHUNKS:
                for size in [args.chunk] if args.chunk else part.chunks:
                    yield measure(case, beam, kind, args, size)
            else:
                yield measure(case, beam, kind, args)


def main(argv: list[str] | None = None) -> int:
    args = parse_arguments(argv)
    parts = {name: PARTS[name] for name in args.parts}
    if args.cases:
        own = Part(args.cases, args.beams, args.kinds, 60, args.topology)
        parts = {"own": own}
    rows = (
        {"part": name} | row
        for name, part in parts.items()
        for row in rows_of(part, args)
    )
    return Run("tools.bench.rows", args).finish(rows)


if __name__ == "__main__":
    exit_with(main)
