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
import time
from collections.abc import Iterator

from tools.bench import data, experiments
from tools.bench.added_words import scored
from tools.bench.cases import Case
from tools.bench.command import Run
from tools.bench.report import Columns, Row, figure, text_figure
from wfstdec import WfstOptions

COLUMNS: Columns = {
    "g2p": text_figure("g2p"),
    "listed": figure("listed", "d"),
    "said": figure("said", "d"),
    "WER": figure("wer", ".2f"),
    "P": figure("precision", ".2f"),
    "R": figure("recall", ".2f"),
    "F": figure("f", ".2f"),
    "below": figure("below", ".2f"),
    "s": figure("compile_cpu_s", ".1f"),
}


def add_own(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--size", type=int, default=500, help="names in the list")
    add("--beam", type=float, default=13.0)


def main(argv: list[str] | None = None) -> int:
    args, case = experiments.begin(__doc__, argv, add_own)
    assert case.lexicon is not None
    run = Run("tools.bench.boost.names", args)
    cmudict = data.find_data(args.data) / "lexicon" / "cmudict.dict"
    known = set(case.lexicon.words)
    said = set().union(*map(set, case.speech.references.values())) - known
    entries = {word for word, _ in data.read_cmudict(cmudict)}
    names = sorted(said & entries)
    others = sorted(entries - known - said)
    random.Random(args.seed).shuffle(others)
    listed = names + others[: max(0, args.size - len(names))]
    places = sum(one in names for r in case.speech.references.values() for one in r)
    print(f"{len(names)} names in {places} places; a list of {len(listed)}")

    def rows() -> Iterator[Row]:
        yield measured(case, names, args, "none", [])
        for words, told in ((listed, ""), (names, ", names alone")):
            base = measured(case, names, args, str(cmudict), words, f"cmudict{told}")
            yield base
            row = measured(case, names, args, "hama", words, f"hama{told}")
            yield row | {"below": round(base["f"] - row["f"], 2)}
        words = sorted(said)
        yield measured(case, names, args, "hama", words, "hama, all OOV words")

    return run.finish(rows(), COLUMNS, names=len(names), places=places)


def measured(
    case: Case,
    names: list[str],
    args: argparse.Namespace,
    source: str,
    listed: list[str],
    title: str = "",
) -> Row:
    """A row: WER, P, R and F of a list that g2p says, and how long it took to say."""
    options = WfstOptions(beam=args.beam, lm_scale=case.lm_scale)
    decoder = case.wfst_decoder(options, g2p=None if source == "none" else source)
    began = time.process_time()
    boosts = decoder.compile_boosts(listed)
    took = time.process_time() - began
    row: Row = {
        "g2p": title or source,
        "listed": len(listed),
        "said": 0 if boosts.added is None else len(boosts.added.words),
        "pronunciations": 0 if boosts.added is None else len(boosts.added),
        "compile_cpu_s": round(took, 3),
    }
    return row | scored(case, names, decoder, boosts)
