"""Find the LM scale and the word insertion with the fewest errors on a dev set.

For the WFST decoder (--wfst with its options, --graph), the trie decoder (--trie
with its options, --tokens, --lexicon, --arpa or --lm), or the greedy decoder (--greedy
with its options, --tokens, --arpa or --lm). A grid over both ranges first, then ever
smaller steps around the best; of equally good ones the one with the smaller insertion.
Without a lexicon, what is tuned is the insertion of tokens; of the greedy decoder, that
no insertion can change, the blank penalty (above 0: more tokens). Tokens without a
language model have no LM scale. Tune on other data than you test on.

    wfstdec tune --graph graph.npz --wfst beam=8 --logprobs dev.npz --ref dev.txt
    wfstdec tune --tokens ... --lexicon ... --arpa ... --trie beam_size=64 ...
    wfstdec tune --tokens ... --lm bpe_lm --greedy ...
"""

from __future__ import annotations

import argparse

import wfstdec
from wfstdec.cli import contest
from wfstdec.cli.flags import add_flags
from wfstdec.compare.points import Decode, Setting
from wfstdec.compare.searches import OurSearch
from wfstdec.compare.tuning import Range, Trial, tune
from wfstdec.errors import OptionError

HELP = "LM scale and word insertion for a dev set"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the command its flags."""
    contest.add_speech_flags(parser)
    contest.add_model_flags(parser)
    which = parser.add_mutually_exclusive_group(required=True)
    for name in ("--wfst", "--trie", "--greedy"):
        add_flags(which, name, default=None, nargs="*")
    add_flags(parser, "--lm-scale-range", "--insertion-range", "--max-trials")


def run(args: argparse.Namespace) -> None:
    """Search, say every trial, and then the best."""
    search = _search(args)

    def prepare(setting: Setting) -> Decode:
        return search.prepare({**search.settings[0], **setting})

    tuning = tune(
        prepare,
        contest.speech_of(args),
        _ranges(args),
        max_trials=args.max_trials,
        say=lambda trial: _say(trial, quiet=args.quiet),
    )
    print(f"best of {len(tuning.trials)}: {tuning.best}")
    for border in tuning.borders:
        print(f"{border}: look beyond it")
    if not tuning.complete:
        print(f"cut short after {args.max_trials} trials: better ones may be near")


def _ranges(args: argparse.Namespace) -> dict[str, Range]:
    """Where to look, for the options that can change what is found."""
    insertion, has_lm = "word_insertion", True
    if args.wfst is None and args.lexicon is None:
        insertion, has_lm = "token_insertion", contest.lm_of(args) is not None
    if args.greedy is not None:
        insertion = "blank_penalty"
    ends = {"lm_scale": args.lm_scale_range} if has_lm else {}
    ends[insertion] = args.insertion_range
    return {name: (low, high) for name, (low, high) in ends.items()}


def _search(args: argparse.Namespace) -> OurSearch:
    """The one search that is tuned.

    Raises:
        OptionError: Something that it needs is missing or has no place in it, or a grid
            of several settings.
    """
    if args.greedy is not None and args.lexicon is not None:
        raise OptionError("--greedy with --lexicon, expected tokens alone")
    if args.wfst is not None and args.graph is None:
        raise OptionError("--wfst without --graph, expected a graph to search")
    if args.wfst is not None:
        graph, base = contest.load_graph(args), wfstdec.WfstOptions()
        searches = contest.wfst_of(args, graph, base)
    elif args.greedy is not None:
        searches = contest.greedy_of(args, args.tokens, wfstdec.GreedyOptions())
    else:
        searches = contest.tries_of(args, wfstdec.TrieOptions())
    if len(searches) > 1 or len(searches[0].settings) > 1:
        raise OptionError("several settings to tune, expected one value each")
    return searches[0]


def _say(trial: Trial, *, quiet: bool) -> None:
    if not quiet:
        print(trial, flush=True)
