"""Compare searches on your own data: WER against speed, at several beams.

With --graph the WFST decoder takes part, with --tokens (and --lexicon, --lm)
the trie decoder, with --greedy the greedy one, with --model a transducer, with
--attention-model an attention decoder, and other people's decoders where they are
installed. A grid is the product of its options;
options joined by colons go together, value by value. Those that are no widths (beam,
max_active, beam_size, ...) make searches of their own, but for greedy decoding, which
has no widths:

    --wfst beam=8,10,13 max_active=7000,none     six settings
    --trie beam:beam_size=6:16,8:32,10:128       three: beam 6 with size 16, and so on
    --trie beam=8 beam_size=32,128 merge=max,sum
    --greedy lm_scale=0.2,0.4

The encoder of a transducer or an attention decoder takes the log-probs; the time of
such a model is part of the speed, and told apart. It has tokens and a language model
(--transducer-lm, --attention-lm) of its own.

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

With --oracle it has the WER of the best of n-best lists and of lattices as well: what
no rescoring can be better than. Lattices are made apart from what is timed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from wfstdec.cli import compare_flags
from wfstdec.cli.boost_flags import refuse_phrase_flags
from wfstdec.cli.decoders import flag_of
from wfstdec.cli.flags import add_flags
from wfstdec.compare.comparison import Search, table
from wfstdec.compare.models import Models
from wfstdec.compare.plotting import check_plot, plot
from wfstdec.compare.running import run as run_comparison
from wfstdec.errors import OptionError
from wfstdec.io.boost_files import BoostFile, read_boosts, read_phrases


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the command its flags."""
    compare_flags.add_speech_flags(parser)
    compare_flags.add_model_flags(parser)
    add_flags(parser, "--wfst", "--trie", "--greedy", "--transducer", "--attention")
    add_flags(parser, "--lm-scale", "--word-insertion")
    add_flags(parser, "--boost", nargs="+", default=[])
    add_flags(parser, "--phrase-unit", "--phrase-boundary", "--sentencepiece-model")
    add_flags(parser, "--phrases", "--repeats", "--oracle", "--no-peers")
    add_flags(parser, "--json", "--plot")


def run(args: argparse.Namespace) -> None:
    """Run all of it, and show and keep the outcome."""
    if args.plot is not None:
        # Before hours of searches, not behind them.
        check_plot(args.plot)
    # The files by their names, without the endings.
    lists: dict[str, BoostFile] = {}
    for path in args.boost:
        name = Path(path).name.split(".")[0]
        if name in lists:
            raise OptionError(f"two boost lists called {name!r}, expected other names")
        lists[name] = read_boosts(path)
    if not lists:
        refuse_phrase_flags(args, without="--boost")
    if args.phrases:
        phrases = read_phrases(args.phrases)
    else:
        phrases = sorted(set().union(*(one.favoured for one in lists.values())))
    speech = compare_flags.speech_of(args)
    comparison = run_comparison(
        speech,
        _searches(args, compare_flags.models_of(args)),
        boosts=lists,
        phrases=phrases,
        repeats=args.repeats,
        oracle=args.oracle,
    )
    if args.json is not None:
        comparison.save(args.json)
    if args.plot is not None:
        plot(comparison, args.plot)
    print(table(comparison))


def _searches(args: argparse.Namespace, models: Models) -> list[Search]:
    scales = {"lm_scale": args.lm_scale, "word_insertion": args.word_insertion}
    needed = {
        "wfst": "graph",
        "trie": "tokens",
        "greedy": "greedy",
        "transducer": "model",
        "attention": "attention_model",
    }
    searches: list[Search] = []
    for name, flag in needed.items():
        grid = getattr(args, name)
        if getattr(args, flag) is not None:
            # The others have no words to pay for.
            own = scales if name in ("wfst", "trie") else {"lm_scale": args.lm_scale}
            searches += compare_flags.searches_of(models, name, grid or (), **own)
        elif grid is not None and name in ("transducer", "attention"):
            raise OptionError(f"--{name} without {flag_of(flag)}, expected both")
    if not searches:
        raise OptionError(
            "neither --graph nor --tokens, expected one for the WFST decoder, or the "
            "other for the trie decoder, or both"
        )
    # Last: peers take part in what our searches are made of.
    if not args.no_peers and (args.tokens or args.graph):
        searches += models.peer_searches(**scales)
    return searches
