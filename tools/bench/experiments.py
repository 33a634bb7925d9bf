"""Common parts of the papers' experiments on boosts and beams.

args = parse_arguments(__doc__, argv, add_own)
case = load_case(args)
rare = rare_words(case, args.common)
experiment = Experiment("tools.bench.boost.magnitude", case, args)
comparison = experiment.compare(searches, boosts, phrases, describe)
draw(args.plot, panels, "boost, nats")
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tools.bench.cases import Case, Inputs, make_cases
from tools.bench.command import Run, make_parser, parse
from tools.bench.report import Row, errors_of
from wfstdec import TrieOptions, WfstOptions, compare
from wfstdec.boost.phrase_compilers import phrase_compiler
from wfstdec.boost.phrases import PhraseBoosts, PhraseOptions
from wfstdec.compare.comparison import Comparison, Point
from wfstdec.compare.plotting import COLOURS, MARKERS, check_plot
from wfstdec.compare.searches import DecoderSearch
from wfstdec.text.arpa import read_arpa
from wfstdec.text.vocabulary import Vocabulary

Grid = Mapping[str, Sequence[Any]]
Panel = tuple[str, str, Mapping[str, list[tuple[float, float]]]]
"""Of a picture: title, y label, and curves by name."""


def parse_arguments(
    description: str | None,
    argv: list[str] | None,
    add_own: Callable[[argparse.ArgumentParser], None],
) -> argparse.Namespace:
    """The flags of all experiments, and those of one.

    Raises:
        WfstdecError: The plot could not be written at the end.
    """
    parser = make_parser(description)
    parser.set_defaults(repeats=3)
    add = parser.add_argument
    add("--case", default="dev:lm_books.3g_pruned", help="set:language model")
    add("--common", type=int, default=5000, help="the likeliest words are not rare")
    add("--token-lm-scale", type=float, default=0.3, help="of those over pieces")
    add("--seed", type=int, default=1, help="what lists are drawn by; default 1")
    add("--plot", type=Path, help="draw the figures: .png or .svg")
    add_own(parser)
    args = parse(parser, argv)
    if args.plot is not None:
        check_plot(args.plot)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("wfstdec").setLevel(logging.WARNING)
    logging.getLogger("wfstdec.compare").setLevel(logging.INFO)
    return args


def load_case(args: argparse.Namespace) -> Case:
    """The set and language model of `--case`."""
    [case] = make_cases([args.case], Inputs.of(args))
    return case


class Experiment:
    """A comparison of our decoders whose figures go to a file.

    Args:
        tool: What was started.
        case: What is decoded.
        args: From `parse_arguments`.
    """

    def __init__(self, tool: str, case: Case, args: argparse.Namespace) -> None:
        self._case, self._args, self._run = case, args, Run(tool, args)

    def compare(
        self,
        searches: Sequence[DecoderSearch],
        boosts: Mapping[str, Mapping[str, Any]],
        phrases: Iterable[str],
        describe: Callable[[Point], Row],
    ) -> Comparison:
        """Run, print and keep a comparison.

        Args:
            searches: From `searches_of`.
            boosts: By the name of a list, the boosts of each utterance.
            phrases: Those that are scored.
            describe: What is added to a point's row.
        """
        comparison = compare.run(
            self._case.speech,
            searches,
            boosts=boosts,
            phrases=phrases,
            repeats=self._args.repeats,
        )
        print(compare.table(comparison))
        rows = [row_of(point) | describe(point) for point in comparison.points]
        options = {name: dict(one.options) for name, one in comparison.searches.items()}
        self._run.write(rows, facts=dict(comparison.facts), searches=options)
        return comparison


def searches_of(case: Case, wfst: Grid, trie: Grid) -> list[DecoderSearch]:
    """Our decoders over grids; without a lexicon the trie decoder alone."""
    shift, scale = case.speech.frame_shift_s, case.lm_scale
    searches: list[DecoderSearch] = []
    if case.graph is not None:
        base = WfstOptions(lm_scale=scale)
        searches += compare.wfst_searches(case.graph, base, wfst, frame_shift_s=shift)
    factory = compare.trie_factory(
        tokens=case.tokens,
        lexicon=case.lexicon,
        lm=case.arpa,
        separator=case.separator,
        frame_shift_s=shift,
    )
    return searches + compare.trie_searches(factory, TrieOptions(lm_scale=scale), trie)


def row_of(point: Point) -> Row:
    """A point as it goes into the file."""
    row: Row = {
        "search": point.search,
        "setting": dict(point.setting),
        "wer": round(point.wer, 3),
        "errors": errors_of(point.errors),
        "rtfx": round(point.rtfx, 1),
        "cpu_s": list(point.cpu_s),
        "search_errors": point.search_errors,
        "unfinished": point.unfinished,
        "memory_mb": point.memory_mb,
    }
    if point.phrases is None:
        return row
    scored = point.phrases
    return row | {
        "phrases": [scored.hits, scored.in_references, scored.in_hypotheses],
        "precision": scored.precision,
        "recall": scored.recall,
        "f": scored.f_score,
    }


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


def token_phrases(case: Case, phrases: Mapping[str, float]) -> PhraseBoosts:
    """Phrases credited token by token, in whole worth what is said of them, nats."""
    separator = None if case.separator is None else case.tokens.ids[case.separator]
    pieces = case.speech.recipe.tokens.parent / "bpe.model"
    compiler = phrase_compiler(
        Vocabulary.of(case.tokens, lexicon=case.lexicon, separator=separator),
        PhraseOptions(weights_are_totals=True),
        unit="token",
        sentencepiece_model=pieces if case.lexicon is None else None,
    )
    return compiler.compile(phrases)


def curves_of(
    points: Iterable[Point],
    name: Callable[[Point], str | None],
    place: Callable[[Point], tuple[float, float]],
) -> dict[str, list[tuple[float, float]]]:
    """Points joined to curves by name; those without a name are left out."""
    curves: dict[str, list[tuple[float, float]]] = {}
    for point in points:
        if (called := name(point)) is not None:
            curves.setdefault(called, []).append(place(point))
    return curves


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
