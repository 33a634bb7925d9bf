"""Compare searches on your own data: WER against speed, at several beams.

With --graph the WFST decoder takes part, with --tokens (and --lexicon, --arpa or --lm)
the trie decoder, with --greedy the greedy one, and other people's decoders where
they are installed. A grid is the product of its options; those that are no widths
(beam, max_active, beam_size, ...) make searches of their own, but for greedy decoding,
which has no widths:

    --wfst beam=8,10,13 max_active=7000,none
    --trie beam_size=32,128,512 merge=max,sum
    --greedy lm_scale=0.2,0.4

The language model is over words with a lexicon, else over tokens. Greedy decoding is of
bare tokens: beside a lexicon it goes without the language model.

With --boost all but the peers run once more with each list ("word or phrase<TAB>nats",
or JSON lines with lists by utterance): credited by words, or with --phrase-unit token,
and always without words, token by token.

The table has, for each point, the WER, how the --phrases were recognised (precision,
recall, F over their occurrences, utterance by utterance), RTFx (seconds of audio per
CPU second of one thread, the fastest of --repeats turns), search errors (utterances
whose total cost is above that of the widest setting of the same search, relative 1e-3),
utterances that reached no final state, and the growth of the process's memory. Costs
mean nothing across searches, so no search error does.
"""

from __future__ import annotations

import argparse
from typing import Any

import wfstdec
from wfstdec.cli import contest
from wfstdec.cli.flags import add_flags
from wfstdec.cli.phrases import refuse_phrase_flags
from wfstdec.compare.plotting import check_plot, plot
from wfstdec.compare.points import Search
from wfstdec.compare.report import table
from wfstdec.compare.running import run as run_comparison
from wfstdec.compare.searches import OurSearch
from wfstdec.errors import OptionError
from wfstdec.io.boost_lists import BoostLists, read_boosts, read_phrases

HELP = "searches side by side: WER, speed, search errors, memory"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the command its flags."""
    contest.add_speech_flags(parser)
    contest.add_model_flags(parser)
    add_flags(parser, "--wfst", "--trie", "--greedy", "--lm-scale", "--word-insertion")
    add_flags(parser, "--boost", nargs="+", default=[])
    add_flags(parser, "--phrase-unit", "--phrase-boundary", "--sentencepiece")
    add_flags(parser, "--phrases", "--repeats", "--no-peers", "--json", "--plot")


def run(args: argparse.Namespace) -> None:
    """Run all of it, and show and keep the outcome."""
    if args.plot is not None:
        check_plot(args.plot)
    lists = _boost_lists(args.boost)
    if not lists:
        refuse_phrase_flags(args, without="--boost")
    phrases = read_phrases(args.phrases) if args.phrases else _phrases_of(lists)
    speech = contest.speech_of(args)
    comparison = run_comparison(
        speech,
        _searches(args),
        boosts={
            name: {utterance: found.of(utterance) for utterance in speech.logprobs}
            for name, found in lists.items()
        },
        phrases=phrases,
        repeats=args.repeats,
    )
    if args.json is not None:
        comparison.save(args.json)
    if args.plot is not None:
        plot(comparison, args.plot)
    print(table(comparison))


def _searches(args: argparse.Namespace) -> list[Search]:
    scales: dict[str, Any] = {
        "lm_scale": args.lm_scale,
        "word_insertion": args.word_insertion,
    }
    ours: list[OurSearch] = []
    graph = None if args.graph is None else contest.load_graph(args)
    if graph is not None:
        found = contest.wfst_of(args, graph, wfstdec.WfstOptions(**scales))
        ours += contest.with_boosts(args, found, words=True)
    if args.tokens is not None:
        found = contest.tries_of(args, wfstdec.TrieOptions(**scales))
        ours += contest.with_boosts(args, found, words=args.lexicon is not None)
    if args.greedy is not None:
        tokens = graph.item.tokens if graph and not args.tokens else args.tokens
        base = wfstdec.GreedyOptions(lm_scale=args.lm_scale)
        found = contest.greedy_of(args, tokens, base)
        ours += contest.with_boosts(args, found, words=False)
    if not ours:
        raise OptionError(
            "neither --graph nor --tokens, expected one for the WFST decoder, or the "
            "other for the trie decoder, or both"
        )
    searches: list[Search] = [*ours]
    if not args.no_peers:
        searches += contest.peers_of(args, graph.item if graph else None)
    return searches


def _boost_lists(paths: list[str]) -> dict[str, BoostLists]:
    lists: dict[str, BoostLists] = {}
    for path in paths:
        name = contest.list_name(path)
        if name in lists:
            raise OptionError(f"two boost lists called {name!r}, expected other names")
        lists[name] = read_boosts(path)
    return lists


def _phrases_of(lists: dict[str, BoostLists]) -> list[str]:
    """Without phrases to score: all that any list favours."""
    found = {
        phrase
        for one in lists.values()
        for boosts in (one.common, *one.own.values())
        for phrase, bonus in boosts.items()
        if bonus > 0
    }
    return sorted(found)
