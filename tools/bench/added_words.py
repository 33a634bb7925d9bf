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
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import wfstdec
from tools.bench import data, experiments
from tools.bench.boost.cost import time_lists
from tools.bench.build import PHONES
from tools.bench.cases import Case
from tools.bench.command import Run, exit_with
from tools.bench.report import Row
from wfstdec import BoostEntry, WfstDecoder, WfstOptions
from wfstdec.compare.phrase_scores import PhraseCounter
from wfstdec.metrics import score_texts
from wfstdec.text.files import read_lines
from wfstdec.text.lexicon import Lexicon

Said = dict[str, list[tuple[str, ...]]]
"""Words and their pronunciations, in names of tokens."""


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
    for line in read_lines(folder / "lexicon" / "cmudict.dict"):
        word, *phones = line.split("#")[0].split()
        word = re.sub(r"\(\d+\)$", "", word)  # alternates: word(2)
        if word not in known:
            tokens = tuple(PHONES.get(p) or PHONES[p.rstrip("012")] for p in phones)
            said.setdefault(word, [])
            said[word] += [tokens] * (tokens not in said[word])
    return said


def lists_of(case: Case, said: Said, args: argparse.Namespace) -> dict[str, list[str]]:
    """The words of each list."""
    spoken = set().union(*map(set, case.speech.references.values()))
    keys = sorted(spoken & said.keys())
    others = sorted(said.keys() - spoken)
    random.Random(args.seed).shuffle(others)
    return {"alone": keys, "distractors": keys + others[: args.distractors]}


@dataclass(frozen=True)
class Scorer:
    """Scores texts.

    Attributes:
        case: Whose references.
        keys: The key words.
    """

    case: Case
    keys: Sequence[str]

    def row(self, texts: Mapping[str, str]) -> Row:
        """WER, that of utterances with and without a key word, P, R, F, in percent."""
        references, keys = self.case.speech.references, set(self.keys)
        with_keys = {name for name, words in references.items() if keys & set(words)}
        heard = {name: text.split() for name, text in texts.items()}
        parts = {
            "wer": set(references),
            "wer_with": with_keys,
            "wer_without": set(references) - with_keys,
        }
        row: Row = {}
        for name, part in parts.items():
            said = {one: references[one] for one in part}
            row[name] = round(score_texts(said, {o: heard[o] for o in part}).wer, 3)
        scored = PhraseCounter(self.keys).score(references, heard)
        row["places"] = [scored.hits, scored.in_references, scored.in_hypotheses]
        for name, value in (
            ("precision", scored.precision),
            ("recall", scored.recall),
            ("f", scored.f_score),
        ):
            row[name] = None if value is None else round(100 * value, 2)
        return row


def texts_by(decoder: WfstDecoder, case: Case, boosts: Any) -> dict[str, str]:
    hyps = decoder.decode(case.utterances, boosts=boosts)
    return dict(zip(case.speech.logprobs, (hyp.text for hyp in hyps), strict=True))


def entries(words: Sequence[str], said: Said, bonus: float | None) -> list[BoostEntry]:
    return [BoostEntry(word, said[word], bonus) for word in words]


def rebuilt(
    case: Case, words: Sequence[str], said: Said, options: WfstOptions
) -> WfstDecoder:
    """A decoder of a graph that has the words, at the costs that calls have."""
    assert case.lexicon is not None and case.graph is not None and case.graph.calls
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
        unk_cost=case.graph.calls.word_cost,
    )
    shift = case.speech.frame_shift_s
    return WfstDecoder(graph, options, "cpu", frame_shift_s=shift, threads=1)


def quality(
    case: Case, lists: Mapping[str, list[str]], said: Said, args: argparse.Namespace
) -> list[Row]:
    """A row for each list, bonus and graph."""
    options = WfstOptions(beam=args.beam, lm_scale=case.lm_scale)
    decoder, scorer = case.wfst_decoder(options), Scorer(case, lists["alone"])
    rows: list[Row] = []

    def note(graph: str, name: str, bonus: float | None, texts: dict[str, str]) -> None:
        scored = scorer.row(texts)
        usual = "-" if bonus is None else f"{bonus:g}"
        row: Row = {"graph": graph, "list": name, "bonus": bonus} | scored
        rows.append(row)
        figures = [row[one] for one in ("wer", "wer_with", "wer_without")]
        figures += [row[one] or 0.0 for one in ("precision", "recall", "f")]
        told = " ".join(f"{figure:7.2f}" for figure in figures)
        print(f"{graph:8s} {name:12s} {usual:>4s} {told}", flush=True)

    print("graph    list        bonus    WER    with without       P       R       F")
    note("as built", "none", None, texts_by(decoder, case, None))
    for name, words in lists.items():
        added = entries(words, said, None)
        usual = decoder._compiled(added, 1)[0].added
        assert usual is not None
        as_it_comes = {
            usual.words[word - usual.num_known]: float(bonus)
            for word, bonus in zip(usual.word, usual.bonus, strict=True)
        }
        for bonus in (*args.bonuses, None):
            texts = texts_by(decoder, case, entries(words, said, bonus))
            note("as built", name, bonus, texts)
        if args.no_rebuilt:
            continue
        other = rebuilt(case, words, said, options)
        for bonus in (*args.bonuses, None):
            nats = dict.fromkeys(words, bonus) if bonus is not None else as_it_comes
            texts = texts_by(other, case, nats)
            note("rebuilt", name, bonus, texts)
    return rows


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
        print(
            f"{name:12s} {row['entries']:5d} words: time {row['ratio']:.2f}, active "
            f"{row['active']:.2f}, compiled in {row['compile_ms']:.1f} ms, laid out in "
            f"{row['overlay_ms']:.1f} ms"
        )
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
    args = experiments.parse_arguments(__doc__, argv, add_own)
    case = experiments.load_case(args)
    if case.lexicon is None:
        raise SystemExit("words are added: a case with a lexicon, please")
    run = Run("tools.bench.added_words", args)
    said = read_cmudict(case, args)
    lists = lists_of(case, said, args)
    keys = set(lists["alone"])
    words = [w for one in case.speech.references.values() for w in one if w in keys]
    print(f"{len(keys)} key words in {len(words)} places")
    timed = times(case, lists, said, args)
    run.write(quality(case, lists, said, args), times=timed, key_words=len(keys))
    return 0


if __name__ == "__main__":
    exit_with(main)
