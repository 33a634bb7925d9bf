"""What the `experiments_*.py` have in common: cases, word lists, searches, files.

args = parse_arguments(__doc__, argv, utterances=None)
case = load_case(args)
rare = rare_words(case, args.common)
"""

from __future__ import annotations

import os

for _name in ("OMP", "MKL", "OPENBLAS", "NUMBA"):
    os.environ[f"{_name}_NUM_THREADS"] = "1"  # before NumPy reads it

# ruff: noqa: E402
import argparse
import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import bench_data
import numpy as np
from beam_cases import Case, Inputs, make_cases

import wfstdec
from wfstdec.boost.phrases import PhraseBoosts, PhraseCompiler, PhraseOptions
from wfstdec.boost.spelling import by_lexicon, by_table
from wfstdec.compare.comparison import Comparison, Point
from wfstdec.compare.loading import trie_factory
from wfstdec.compare.plotting import COLOURS, MARKERS, check_plot
from wfstdec.compare.searches import (
    DecoderSearch,
    trie_searches,
    wfst_searches,
)
from wfstdec.compare.speech import Speech
from wfstdec.errors import FormatError
from wfstdec.text.arpa import read_arpa
from wfstdec.text.files import atomic_write

Row = dict[str, Any]
Grid = Mapping[str, Sequence[Any]]
Phrases = Mapping[str, float]
Panel = tuple[str, str, Mapping[str, list[tuple[float, float]]]]
"""Of a picture: title, y label, and curves by name."""


def parse_arguments(
    description: str | None,
    argv: list[str] | None,
    add_own: Callable[[argparse.ArgumentParser], None],
) -> argparse.Namespace:
    """The flags of all experiments, and those of one.

    Raises:
        WfstdecError: A file could not be written at the end.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--case", default="dev:lm_books.3g_pruned", help="set:model, see beam_cases")
    add("--utterances", type=int, help="so many of the set, evenly spread")
    add("--common", type=int, default=5000, help="the likeliest words are not rare")
    add("--lm-scale", type=float, default=0.8, help="of word language models")
    add("--token-lm-scale", type=float, default=0.3, help="of those over pieces")
    add("--repeats", type=int, default=3, help="timings of each point; default 3")
    add("--seed", type=int, default=1, help="what lists are drawn by; default 1")
    add("--data", type=Path, help="default ../shared/data, else the demo's recipe")
    add("--cache", type=Path, default=bench_data.CACHE, help="for graphs and models")
    add("--synthetic", type=Path, help="where sets are made; default in the cache")
    add("--output", type=Path, help="write all figures as JSON")
    add("--plot", type=Path, help="draw them: .png or .svg")
    add_own(parser)
    args = parser.parse_args(argv)
    _check_files(args)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("wfstdec").setLevel(logging.WARNING)
    logging.getLogger("wfstdec.compare").setLevel(logging.INFO)
    return args


def _check_files(args: argparse.Namespace) -> None:
    if args.plot is not None:
        check_plot(args.plot)
    if args.output is not None and not args.output.parent.is_dir():
        raise FormatError(f"{args.output}: cannot write: no such folder")


def load_case(args: argparse.Namespace) -> Case:
    """The set and language model of `--case`."""
    inputs = Inputs(
        data=bench_data.find_data(args.data),
        cache=args.cache,
        synthetic=args.synthetic or args.cache,
        limit=args.utterances,
        lm_scale=args.lm_scale,
        token_lm_scale=args.token_lm_scale,
    )
    [case] = make_cases([args.case], inputs)
    return case


def speech_of(case: Case) -> Speech:
    """The utterances as comparisons take them."""
    speech = case.speech
    return Speech(speech.logprobs, speech.references, speech.frame_shift_s)


def searches_of(case: Case, wfst: Grid, trie: Grid) -> list[DecoderSearch]:
    """Our decoders over grids; without a lexicon the trie decoder alone."""
    shift, scale = case.speech.frame_shift_s, case.lm_scale
    searches: list[DecoderSearch] = []
    if case.graph is not None:
        base = wfstdec.WfstOptions(lm_scale=scale)
        searches += wfst_searches(case.graph, base, wfst, frame_shift_s=shift)
    make = trie_factory(
        tokens=case.tokens,
        lexicon=case.lexicon,
        lm=case.arpa,
        separator=case.separator,
        frame_shift_s=shift,
    )
    return searches + trie_searches(make, wfstdec.TrieOptions(lm_scale=scale), trie)


def rare_words(case: Case, common: int) -> list[str]:
    """Words of the language model that are none of the likeliest, sorted.

    With a lexicon, those of it; without, the words of the references alone, of which
    those count as common that occur in more than one utterance.
    """
    if case.lexicon is None:
        said = [set(words) for words in case.speech.references.values()]
        words = sorted(set().union(*said))
        return [word for word in words if sum(word in one for one in said) == 1]
    model = read_arpa(case.arpa)
    unigrams = model.ngrams[0]
    order = unigrams.words[:, 0][np.argsort(unigrams.cost, kind="stable")]
    known = set(case.lexicon.words)
    return sorted(known & {model.words[i] for i in order[common:]})


def like_others(case: Case, rare: set[str]) -> set[str]:
    """The rare words that are said like one that is not rare; none without a lexicon.

    Credit by tokens would favour the other one as much: with 20,000 rare words, `u` and
    `ar` among them, that is twice the word errors.
    """
    if case.lexicon is None:
        return set()
    pairs = zip(case.lexicon.words, case.lexicon.pronunciations, strict=True)
    said = list(pairs)
    others = {way for word, way in said if word not in rare}
    return {word for word, way in said if word in rare and way in others}


def token_phrases(case: Case, phrases: Phrases) -> PhraseBoosts:
    """Phrases credited token by token, in whole worth what is said of them, nats."""
    between = None if case.separator is None else case.tokens.ids[case.separator]
    if case.lexicon is not None:
        speller = by_lexicon(case.lexicon, separator=between)
    else:
        model = case.speech.recipe.tokens.parent / "bpe.model"
        speller = by_table(case.tokens, sentencepiece_model=model)
    options = PhraseOptions(weights_are_totals=True)
    return PhraseCompiler(speller, case.tokens, options, boundary=between).compile(
        phrases
    )


def row_of(point: Point, **more: Any) -> Row:
    """A point as it goes into the file."""
    scored = point.phrases
    row: Row = {"search": point.search, **point.setting, **more}
    row |= {
        "wer": round(point.wer, 3),
        "errors": [
            point.errors.insertions,
            point.errors.deletions,
            point.errors.substitutions,
        ],
        "rtfx": round(point.rtfx, 1),
        "cpu_s": list(point.cpu_s),
        "search_errors": point.search_errors,
        "unfinished": point.unfinished,
        "memory_mb": point.memory_mb,
    }
    if scored is not None:
        row |= {
            "phrases": [scored.hits, scored.in_references, scored.in_hypotheses],
            "precision": scored.precision,
            "recall": scored.recall,
            "f": scored.f_score,
        }
    return row


def write_report(
    args: argparse.Namespace, tool: str, comparison: Comparison, rows: Iterable[Row]
) -> None:
    """Keep the figures, without any path."""
    if args.output is None:
        return
    options = {
        name: value
        for name, value in vars(args).items()
        if not isinstance(value, Path) and value is not None
    }
    facts = dict(comparison.facts) | {"machine": bench_data.describe_machine()}
    searches = {name: dict(one.options) for name, one in comparison.searches.items()}
    report = {"tool": tool, "date": time.strftime("%Y-%m-%d"), "options": options}
    report |= {"facts": facts, "searches": searches, "rows": list(rows)}
    with atomic_write(args.output, "w") as file:
        json.dump(report, file, indent=1)
        file.write("\n")


def draw(
    path: Path | None,
    panels: Sequence[Panel],
    x_label: str,
    *,
    log_x: bool = False,
    lines_at: Iterable[float] = (),
) -> None:
    """Panels side by side, and dotted lines in all."""
    if path is None:
        return
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.6 * len(panels), 4.2), layout="constrained")
    for axes, (title, y_label, curves) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True
    ):
        for i, (name, points) in enumerate(curves.items()):
            style = {"color": COLOURS[i % len(COLOURS)]}
            style["marker"] = MARKERS[i % len(MARKERS)]
            axes.plot(*zip(*points, strict=True), label=name, markersize=4, **style)
        for x in lines_at:
            axes.axvline(x, color="#777777", linestyle=":", linewidth=1)
        axes.set(title=title, xlabel=x_label, ylabel=y_label)
        axes.set_xscale("log" if log_x else "linear")
        axes.grid(True, color="#dddddd", linewidth=0.5)
        axes.legend(frameon=False, fontsize=7)
    figure.savefig(path, dpi=150)
