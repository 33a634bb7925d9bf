"""Common parts of the papers' experiments on boosts and beams.

args, case = begin(__doc__, argv, add_own)
rare = rare_words(case, args.common)
run = Run("tools.bench.boost.magnitude", args)
status = compare_lists(run, case, searches, boosts=..., phrases=..., describe=...)
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tools.bench.cases import Case, Inputs, make_cases
from tools.bench.command import Run, make_parser, parse
from tools.bench.report import Row, errors_of
from wfstdec import TrieOptions, WfstOptions, compare
from wfstdec.boost.compile import phrase_compiler
from wfstdec.boost.phrases import PhraseBoosts, PhraseOptions
from wfstdec.compare.comparison import Point
from wfstdec.compare.models import DecoderSearch
from wfstdec.text.arpa import read_arpa
from wfstdec.text.vocabulary import Vocabulary

Grid = Mapping[str, Sequence[Any]]


def begin(
    description: str | None,
    argv: list[str] | None,
    add_own: Callable[[argparse.ArgumentParser], None],
    *,
    words: bool = True,
) -> tuple[argparse.Namespace, Case]:
    """Parse the flags of all experiments and those of one; load the case.

    Args:
        description: The experiment's.
        argv: The flags; None for those of this process.
        add_own: Adds its own flags.
        words: The case must have a lexicon.

    Raises:
        WfstdecError: The output could not be written at the end.
        SystemExit: There is no lexicon.
    """
    parser = make_parser(description)
    parser.set_defaults(repeats=3)
    add = parser.add_argument
    add("--case", default="dev:lm_books.3g_pruned", help="set:language model")
    add("--common", type=int, default=5000, help="the likeliest words are not rare")
    add("--token-lm-scale", type=float, default=0.3, help="of those over pieces")
    add("--seed", type=int, default=1, help="what lists are drawn by; default 1")
    add_own(parser)
    args = parse(parser, argv)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("wfstdec").setLevel(logging.WARNING)
    logging.getLogger("wfstdec.compare").setLevel(logging.INFO)
    [case] = make_cases([args.case], Inputs.of(args))
    if words and case.lexicon is None:
        raise SystemExit(f"{args.case}: no words, expected a case with a lexicon")
    return args, case


def compare_lists(
    run: Run,
    case: Case,
    searches: Sequence[DecoderSearch],
    *,
    boosts: Mapping[str, Mapping[str, Any]],
    phrases: Iterable[str],
    describe: Callable[[Point], Row],
) -> int:
    """Run, print and keep a comparison; 0, the exit status.

    Args:
        run: The experiment under way.
        case: What is decoded.
        searches: From `searches_of`.
        boosts: By the name of a list, the boosts of each utterance.
        phrases: Those that are scored.
        describe: What is added to a point's row.
    """
    comparison = compare.run(
        case.speech,
        searches,
        boosts=boosts,
        phrases=phrases,
        repeats=run.args.repeats,
    )
    print(compare.table(comparison))
    rows = [row_of(point) | describe(point) for point in comparison.points]
    options = {name: dict(one.options) for name, one in comparison.searches.items()}
    run.write(rows, facts=dict(comparison.facts), searches=options)
    return 0


def searches_of(case: Case, wfst: Grid, trie: Grid) -> list[DecoderSearch]:
    """Our decoders over grids; without a lexicon the trie decoder alone."""
    shift, scale = case.speech.frame_shift_s, case.lm_scale
    searches: list[DecoderSearch] = []
    if case.graph is not None:
        base = WfstOptions(lm_scale=scale)
        searches += compare.wfst_searches(case.graph, base, wfst, frame_shift_s=shift)
    factory = compare.trie_factory(**case.files)
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
    said = list(zip(case.lexicon.words, case.lexicon.pronunciations, strict=True))
    others = {way for word, way in said if word not in rare}
    return {word for word, way in said if word in rare and way in others}


def pieces_of(case: Case) -> Any:
    """The SentencePiece model of a case without a lexicon; None with one."""
    if case.lexicon is not None:
        return None
    return case.speech.recipe.tokens.parent / "bpe.model"


def token_phrases(case: Case, phrases: Mapping[str, float]) -> PhraseBoosts:
    """Phrases credited token by token, in whole worth what is said of them, nats."""
    separator = None if case.separator is None else case.tokens.ids[case.separator]
    compiler = phrase_compiler(
        Vocabulary.of(case.tokens, lexicon=case.lexicon, separator=separator),
        PhraseOptions(weights_are_totals=True),
        unit="token",
        sentencepiece_model=pieces_of(case),
    )
    return compiler.compile(phrases)
