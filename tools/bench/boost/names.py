"""Names without pronunciations: F of lists whose words g2p says, by where it gets them.

    python -m tools.bench.boost names --output run.json

Names are the words of the references that the lexicon lacks and cmudict has: a list of
--size of them and others of cmudict that nobody says, no phone and no number in it. By
turns without a list, with cmudict's pronunciations (`g2p=` its file), and with what
hama's G2P makes of the spelling; and with hama and all words that the lexicon lacks,
also those that cmudict lacks too. WER, P, R and F in percent; P, R and F are of the
names that are said, and `below` is how far F is below that with cmudict.
"""

from __future__ import annotations

import argparse
import random
import re
import time

from tools.bench import data, experiments
from tools.bench.added_words import Scorer, texts_by
from tools.bench.cases import Case
from tools.bench.command import Run
from tools.bench.report import Row
from wfstdec import WfstDecoder, WfstOptions
from wfstdec.text.files import read_lines


def add_own(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--size", type=int, default=500, help="names in the list")
    add("--beam", type=float, default=13.0)


def main(argv: list[str] | None = None) -> int:
    args = experiments.parse_arguments(__doc__, argv, add_own)
    case = experiments.load_case(args)
    if case.lexicon is None:
        raise SystemExit("names are added: a case with a lexicon, please")
    run = Run("tools.bench.boost.names", args)
    cmudict = data.find_data(args.data) / "lexicon" / "cmudict.dict"
    known = set(case.lexicon.words)
    said = set().union(*map(set, case.speech.references.values())) - known
    entries = {re.sub(r"\(\d+\)$", "", one.split()[0]) for one in read_lines(cmudict)}
    names = sorted(said & entries)
    others = sorted(entries - known - said)
    random.Random(args.seed).shuffle(others)
    listed = names + others[: max(0, args.size - len(names))]
    places = sum(one in names for r in case.speech.references.values() for one in r)
    print(f"{len(names)} names in {places} places; a list of {len(listed)}")
    scorer = Scorer(case, names)
    rows = [
        measured(case, scorer, args, "none", []),
        measured(case, scorer, args, str(cmudict), listed, "cmudict"),
        measured(case, scorer, args, "hama", listed),
        measured(case, scorer, args, str(cmudict), names, "cmudict, names alone"),
        measured(case, scorer, args, "hama", names, "hama, names alone"),
        measured(case, scorer, args, "hama", sorted(said), "hama, all OOV words"),
    ]
    for row, base in ((rows[2], rows[1]), (rows[4], rows[3])):
        row["below"] = round(base["f"] - row["f"], 2)
        print(f"{row['g2p']}: F {row['below']:.2f} below that of cmudict")
    run.write(rows, names=len(names), places=places)
    return 0


def measured(
    case: Case,
    scorer: Scorer,
    args: argparse.Namespace,
    source: str,
    names: list[str],
    title: str = "",
) -> Row:
    """A row: WER, P, R and F of a list that g2p says, and how long it took to say."""
    assert case.graph is not None
    decoder = WfstDecoder(
        case.graph,
        WfstOptions(beam=args.beam, lm_scale=case.lm_scale),
        "cpu",
        frame_shift_s=case.speech.frame_shift_s,
        threads=1,
        g2p=None if source == "none" else source,
    )
    began = time.process_time()
    boosts = decoder.compile_boosts(names)
    took = time.process_time() - began
    row: Row = {
        "g2p": title or source,
        "listed": len(names),
        "said": 0 if boosts.added is None else len(boosts.added.words),
        "pronunciations": 0 if boosts.added is None else len(boosts.added),
        "compile_cpu_s": round(took, 3),
    }
    row |= scorer.row(texts_by(decoder, case, boosts))
    figures = [row[one] or 0.0 for one in ("wer", "precision", "recall", "f")]
    told = " ".join(f"{figure:6.2f}" for figure in figures)
    print(f"{row['g2p']:22s} {row['said']:4d} of {len(names):4d} {told}  {took:.1f} s")
    return row
