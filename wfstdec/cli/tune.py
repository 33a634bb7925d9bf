"""Find the LM scale and the word insertion with the fewest errors on a dev set.

For the WFST decoder (--wfst with its options, --graph), or the trie beam decoder
(--trie with its options, --tokens, --lexicon, --arpa). A grid over both ranges first,
then ever smaller steps around the best; of equally good ones the one with the smaller
word insertion. Without a lexicon, what is tuned is the insertion of tokens. Tune on
other data than you test on.

    wfstdec tune --graph graph.npz --wfst beam=8 --logprobs dev.npz --ref dev.txt
    wfstdec tune --tokens ... --lexicon ... --arpa ... --trie beam_size=64 ...
"""

from __future__ import annotations

import argparse

import wfstdec
from wfstdec.cli import contest
from wfstdec.cli.flags import add_flags
from wfstdec.compare.points import Decode, Setting
from wfstdec.compare.searches import OurSearch
from wfstdec.compare.tuning import Trial, tune
from wfstdec.errors import OptionError

HELP = "LM scale and word insertion for a dev set"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the command its flags."""
    contest.add_speech_flags(parser)
    contest.add_model_flags(parser)
    which = parser.add_mutually_exclusive_group(required=True)
    for name in ("--wfst", "--trie"):
        add_flags(which, name, default=None, nargs="*")
    add_flags(parser, "--lm-scale-range", "--insertion-range", "--max-trials")


def run(args: argparse.Namespace) -> None:
    """Search, say every trial, and then the best."""
    search = _search(args)
    insertion = "word_insertion"
    if args.trie is not None and args.lexicon is None:
        insertion = "token_insertion"

    def prepare(setting: Setting) -> Decode:
        return search.prepare({**search.settings[0], **setting})

    ranges = {"lm_scale": args.lm_scale_range, insertion: args.insertion_range}
    tuning = tune(
        prepare,
        contest.speech_of(args),
        {name: tuple(ends) for name, ends in ranges.items()},
        max_trials=args.max_trials,
        say=lambda trial: _say(trial, quiet=args.quiet),
    )
    print(f"best of {len(tuning.trials)}: {tuning.best}")
    for border in tuning.borders:
        print(f"{border}: look beyond it")
    if not tuning.complete:
        print(f"cut short after {args.max_trials} trials: better ones may be near")


def _search(args: argparse.Namespace) -> OurSearch:
    """The one search that is tuned.

    Raises:
        OptionError: No graph, or a grid of several settings.
    """
    if args.wfst is not None and args.graph is None:
        raise OptionError("--wfst without --graph, expected a graph to search")
    if args.wfst is not None:
        graph, base = contest.load_graph(args), wfstdec.DecodeOptions()
        searches = contest.wfst_of(args, graph, base)
    else:
        searches = contest.tries_of(args, wfstdec.BeamOptions())
    if len(searches) > 1 or len(searches[0].settings) > 1:
        raise OptionError("several settings to tune, expected one value each")
    return searches[0]


def _say(trial: Trial, *, quiet: bool) -> None:
    if not quiet:
        print(trial, flush=True)
