"""Words that the graph does not have: WER, F and time of lists that add them.

    python -m tools.bench.added_words --output run.json

Key words are those of the references that are in cmudict and not in the lexicon; their
pronunciations are cmudict's, in tokens. Lists, for all utterances:

    alone        the key words
    distractors  with --distractors others of the same kind that nobody says

Each with --bonuses nats for every word, and as it comes (`boost/automatic.py`). Beside
them the graph that is built again with the words of the list in its lexicon, at what
the language model asks for `<unk>`, and the same bonuses. P, R and F are of the key
words; utterances with and without them are counted apart. Times are of the search
alone, by turns, at the usual bonuses.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

import wfstdec
from tools.bench import data, experiments
from tools.bench.boost.cost import time_lists
from tools.bench.cases import Case
from tools.bench.command import Run, exit_with
from tools.bench.report import Columns, Row, figure, format_table, text_figure
from wfstdec import BoostEntry, WfstDecoder, WfstOptions
from wfstdec.compare.comparison import PhraseCounter
from wfstdec.metrics import score_texts
from wfstdec.text.files import read_lines
from wfstdec.text.lexicon import Lexicon

Said = dict[str, list[tuple[str, ...]]]
"""Words and their pronunciations, in names of tokens."""
COLUMNS: Columns = {
    "graph": text_figure("graph"),
    "list": text_figure("list"),
    "bonus": figure("bonus", "g"),
    "WER": figure("wer", ".2f"),
    "with": figure("wer_with", ".2f"),
    "without": figure("wer_without", ".2f"),
    "P": figure("precision", ".2f"),
    "R": figure("recall", ".2f"),
    "F": figure("f", ".2f"),
}
TIMES: Columns = {
    "list": text_figure("list"),
    "words": figure("entries", "d"),
    "time": figure("ratio", ".2f"),
    "active": figure("active", ".2f"),
    "compiled ms": figure("compile_ms", ".1f"),
    "laid out ms": figure("overlay_ms", ".1f"),
}


def add_own(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--distractors", type=int, default=1000)
    add("--bonuses", nargs="*", type=float, default=[0.0, 2.0, 4.0, 6.0, 8.0])
    add("--beam", type=float, default=13.0)
    add("--no-rebuilt", action="store_true", help="leave out graphs built again")


def read_cmudict(case: Case, args: argparse.Namespace) -> Said:
    """The words of cmudict that the lexicon does not have."""
    folder = data.find_data(args.data)
    known = {line.split("\t")[0] for line in read_lines(case.speech.recipe.lexicon)}
    said: Said = {}
    for word, tokens in data.read_cmudict(folder / "lexicon" / "cmudict.dict"):
        if word not in known and tokens not in said.setdefault(word, []):
            said[word].append(tokens)
    return said


def lists_of(case: Case, said: Said, args: argparse.Namespace) -> dict[str, list[str]]:
    """The words of each list."""
    spoken = set().union(*map(set, case.speech.references.values()))
    keys = sorted(spoken & said.keys())
    others = sorted(said.keys() - spoken)
    random.Random(args.seed).shuffle(others)
    return {"alone": keys, "distractors": keys + others[: args.distractors]}


def scored(case: Case, keys: Sequence[str], decoder: WfstDecoder, boosts: Any) -> Row:
    """Decode: WER, that of utterances with and without a key word, P, R, F, percent."""
    hyps = decoder.decode(case.utterances, boosts=boosts)
    texts = [hyp.text.split() for hyp in hyps]
    heard = dict(zip(case.speech.logprobs, texts, strict=True))
    references, wanted = case.speech.references, set(keys)
    with_keys = {name for name, words in references.items() if wanted & set(words)}
    parts = {
        "wer": set(references),
        "wer_with": with_keys,
        "wer_without": set(references) - with_keys,
    }
    row: Row = {}
    for name, part in parts.items():
        said = {one: references[one] for one in part}
        row[name] = round(score_texts(said, {o: heard[o] for o in part}).wer, 3)
    found = PhraseCounter(keys).score(references, heard)
    row["places"] = [found.hits, found.in_references, found.in_hypotheses]
    scores = {"precision": found.precision, "recall": found.recall, "f": found.f_score}
    for name, value in scores.items():
        row[name] = None if value is None else round(100 * value, 2)
    return row


def entries(words: Sequence[str], said: Said, bonus: float | None) -> list[BoostEntry]:
    return [BoostEntry(word, said[word], bonus) for word in words]


def rebuilt(
    case: Case, words: Sequence[str], said: Said, options: WfstOptions
) -> WfstDecoder:
    """A decoder of a graph that has the words, at the costs that calls have."""
    assert case.lexicon is not None and case.graph is not None and case.graph.oov_exits
    ways = [(word, way) for word in words for way in said[word]]
    lexicon = Lexicon(
        (*case.lexicon.words, *(word for word, _ in ways)),
        (
            *case.lexicon.pronunciations,
            *(tuple(map(case.tokens.index, way)) for _, way in ways),
        ),
        np.append(case.lexicon.costs, np.zeros(len(ways), np.float32)),
    )
    graph = wfstdec.build_graph(
        tokens=case.tokens,
        lexicon=lexicon,
        lm=case.arpa,
        separator=case.separator,
        unk_cost=case.graph.oov_exits.word_cost,
    )
    return case.wfst_decoder(options, graph=graph)


def quality(
    case: Case, lists: Mapping[str, list[str]], said: Said, args: argparse.Namespace
) -> Iterator[Row]:
    """A row for each list, bonus and graph."""
    options, keys = WfstOptions(beam=args.beam, lm_scale=case.lm_scale), lists["alone"]
    decoder = case.wfst_decoder(options)
    row: Row = {"graph": "as built", "list": "none", "bonus": None}
    yield row | scored(case, keys, decoder, None)
    for name, words in lists.items():
        added = entries(words, said, None)
        usual = decoder._compiled(added, 1)[0].added
        assert usual is not None
        as_it_comes = {
            usual.words[word - usual.num_known]: float(bonus)
            for word, bonus in zip(usual.word, usual.bonus, strict=True)
        }
        for bonus in (*args.bonuses, None):
            row = {"graph": "as built", "list": name, "bonus": bonus}
            yield row | scored(case, keys, decoder, entries(words, said, bonus))
        if args.no_rebuilt:
            continue
        other = rebuilt(case, words, said, options)
        for bonus in (*args.bonuses, None):
            nats = dict.fromkeys(words, bonus) if bonus is not None else as_it_comes
            row = {"graph": "rebuilt", "list": name, "bonus": bonus}
            yield row | scored(case, keys, other, nats)


def times(
    case: Case, lists: Mapping[str, list[str]], said: Said, args: argparse.Namespace
) -> list[Row]:
    """A row for each list: its time over that without, and until it is ready."""
    decoder = case.wfst_decoder(WfstOptions(beam=args.beam, lm_scale=case.lm_scale))
    arrays = [np.ascontiguousarray(x, np.float32) for x in case.utterances]
    boosts = {"none": None} | {
        name: entries(words, said, None) for name, words in lists.items()
    }
    rows = []
    for name, timed in time_lists(decoder, arrays, boosts, args.repeats):
        ready = [_ready_s(case, boosts[name]) for _ in range(5)]
        row: Row = {
            "list": name,
            "entries": len(lists.get(name, ())),
            "ratio": timed["ratio"],
            "active": timed["entries"],
            "compile_ms": round(1e3 * min(one for one, _ in ready), 2),
            "overlay_ms": round(1e3 * min(one for _, one in ready), 2),
            "seconds": timed["seconds"],
        }
        rows.append(row)
    return rows


def _ready_s(case: Case, boosts: Any) -> tuple[float, float]:
    """Seconds to compile a list by a decoder that has seen none, and to lay it out."""
    decoder = case.wfst_decoder(WfstOptions())
    decoder._compiled([BoostEntry("a-a", [case.tokens.names[5]])], 1)  # its tables
    began = time.perf_counter()
    compiled = decoder._compiled(boosts, 1)
    between = time.perf_counter()
    decoder._backend.start(decoder.options, compiled[0])
    return between - began, time.perf_counter() - between


def main(argv: list[str] | None = None) -> int:
    args, case = experiments.begin(__doc__, argv, add_own)
    run = Run("tools.bench.added_words", args)
    said = read_cmudict(case, args)
    lists = lists_of(case, said, args)
    keys = set(lists["alone"])
    words = [w for one in case.speech.references.values() for w in one if w in keys]
    print(f"{len(keys)} key words in {len(words)} places")
    timed = times(case, lists, said, args)
    print(format_table(TIMES, timed))
    rows = quality(case, lists, said, args)
    return run.finish(rows, COLUMNS, times=timed, key_words=len(keys))


if __name__ == "__main__":
    exit_with(main)
