"""Cost of lattices, how much is in them, and the gain of rescoring.

    python -m tools.bench.lattices --output run.json
    python -m tools.bench.lattices --decoder trie --output run.json
    python -m tools.bench.lattices --profile small

CPU time of one thread by turns: decoding, decoding with lattices, rescoring; rescoring
as if a word's pronunciations differed in cost, so that paths are cut into words (made
up: each costs 0.3 nats more than the one before); and compact lattices. WER of the
best path, of the best of n-best lists and of lattices (what no choice can be better
than), and of the best path after rescoring; beside it that of the language model's own
graph where `--graphs` asks for it. Before anything is timed, best paths have to be the
1-best.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from tools.bench import data
from tools.bench.cases import Case, Inputs, lattice_flags, load_set, make_case
from tools.bench.command import Run, exit_with, make_parser, parse, profiles
from tools.bench.report import Row
from tools.bench.timing import Turns
from wfstdec.compare.quality import lattice_errors
from wfstdec.lattice.arrays import Lattice
from wfstdec.lattice.compact import compact_lattice
from wfstdec.lattice.nbest import nbest_paths
from wfstdec.lattice.rescoring import rescored
from wfstdec.lm.ngram import NgramLM
from wfstdec.metrics import count_errors, score_texts
from wfstdec.search.decoder import Decoder
from wfstdec.wfst.options import WfstOptions

_CUT, _COMPACT = "rescoring_of_cut_paths", "compact"
PROFILES = profiles(
    {"rescore": ["lm_books.3g", "lm_books.4g"], "beams": [4.0, 6.0, 8.0]},
    **{"rescore": [], "beams": [6.0], "utterances": 6, "repeats": 3},
)


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = make_parser(__doc__)
    add = parser.add_argument
    add("--set", default="dev")
    add("--lm", help="of the graph: a name in the data, or an ARPA file")
    add("--rescore", nargs="*", help="language models, names or ARPA files")
    add("--graphs", nargs="*", default=[], help="of these also the graph's WER")
    lattice_flags(parser)
    add("--beams", nargs="+", type=float, help="of lattices")
    return parse(parser, argv, PROFILES)


def wer_of(case: Case, texts: list[str]) -> float:
    """Percent."""
    said = dict(zip(case.speech.references, map(str.split, texts), strict=True))
    return round(score_texts(case.speech.references, said).wer, 3)


def best_texts(lattices: list[Lattice]) -> list[str]:
    """The best path of each."""
    return [one.text(one.word_ids(one.best_arcs())) for one in lattices]


def oracle_wers(case: Case, lattices: list[Lattice]) -> Row:
    """The fewest errors of the 10 and 100 best, and of all paths."""
    references = list(case.speech.references.values())
    words, row = sum(map(len, references)), {}
    for n in (10, 100):
        errors = 0
        for reference, one in zip(references, lattices, strict=True):
            texts = [one.text(one.word_ids(a)) for a in nbest_paths(one, n).arcs]
            errors += min(count_errors(reference, t.split()).total for t in texts)
        row[f"nbest_{n}"] = round(100 * errors / words, 3)
    pairs = zip(lattices, references, strict=True)
    errors = sum(lattice_errors(one, reference) for one, reference in pairs)
    return row | {"lattice": round(100 * errors / words, 3)}


def measure(
    case: Case, lms: dict[str, NgramLM], args: argparse.Namespace
) -> Iterator[Row]:
    """A row for each lattice beam."""
    for beam in args.beams:
        decoder = case.lattice_decoder(args, beam)
        hypotheses = decoder.decode(case.utterances)
        lattices = decoder.decode_lattice(case.utterances)
        assert best_texts(lattices) == [hyp.text for hyp in hypotheses]
        frames = sum(map(len, case.utterances))
        row: Row = {
            "lattice_beam": beam,
            "arcs_per_frame": round(sum(one.num_arcs for one in lattices) / frames, 2),
            "wer": wer_of(case, best_texts(lattices)),
            "oracle_wer": oracle_wers(case, lattices),
            "rescored_wer": {
                name: wer_of(case, best_texts([rescored(one, lm) for one in lattices]))
                for name, lm in lms.items()
            },
        }
        yield row | timed(decoder, case, lattices, lms, args.repeats)


def timed(
    decoder: Decoder,
    case: Case,
    lattices: list[Lattice],
    lms: dict[str, NgramLM],
    repeats: int,
) -> Row:
    """CPU seconds by turns, and what they are of decoding."""
    functions: dict[str, Callable[[], Any]] = {
        "decode": partial(decoder.decode, case.utterances),
        "decode_lattice": partial(decoder.decode_lattice, case.utterances),
    }
    for name, lm in lms.items():
        functions[name] = lambda lm=lm: [rescored(one, lm) for one in lattices]
    if lms:
        priced, first = with_costs(lattices), next(iter(lms.values()))
        functions[_CUT] = lambda: [rescored(one, first) for one in priced]
    functions[_COMPACT] = lambda: list(map(compact_lattice, lattices))
    turns = Turns(functions)
    turns.repeat(repeats)
    seconds = {name: median(taken) for name, taken in turns.seconds.items()}
    alone = seconds["decode"]
    return {
        "ratio": round(seconds["decode_lattice"] / alone, 3),
        "rescoring_ratio": {name: round(seconds[name] / alone, 3) for name in lms},
        "other_ratio": {
            name: round(seconds[name] / alone, 3)
            for name in (_CUT, _COMPACT)
            if name in seconds
        },
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
    }


def with_costs(lattices: list[Lattice]) -> list[Lattice]:
    """Give the pronunciations of words in lattices different costs."""
    vocabulary = lattices[0].vocabulary
    said = vocabulary.pronunciations
    place = np.arange(len(said)) - said.word_splits[said.word]
    cost = (0.3 * place).astype(np.float32)
    priced = replace(vocabulary, entries=replace(said, cost=cost))
    return [replace(one, vocabulary=priced) for one in lattices]


def main(argv: list[str] | None = None) -> int:
    args = parse_arguments(argv)
    run, inputs = Run("tools.bench.lattices", args), Inputs.of(args)
    lm = args.lm or data.default_lms(inputs.data)[0]
    speech = load_set(args.set, inputs)
    case = make_case(speech, lm, inputs)
    words = case.lattice_decoder(args, 0.0).vocabulary.words
    arpas = [data.find_lm(name, inputs.data) for name in args.rescore]
    lms = {data.name_of_lm(arpa): NgramLM.from_arpa(arpa, words) for arpa in arpas}
    graphs = {}
    for name in args.graphs:
        other = make_case(speech, name, inputs)
        options = WfstOptions(beam=args.beam, lm_scale=other.lm_scale)
        found = other.wfst_decoder(options).decode(case.utterances)
        graphs[name] = wer_of(other, [hyp.text for hyp in found])
    print(case.headline())
    rows = measure(case, lms, args)
    return run.finish(rows, case=case.name, graph_wer=graphs)


if __name__ == "__main__":
    exit_with(main)
