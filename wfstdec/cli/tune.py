"""Find the LM scale and the word insertion with the fewest errors on a dev set.

With --boost also the scale of these boosts.

For the WFST decoder (--wfst with its options, --graph), the trie decoder (--trie with
its options, --tokens, --lexicon, --arpa or --lm), the greedy decoder (--greedy with its
options, --tokens, --arpa or --lm), or the transducer decoder (--transducer with its
options, --model, --transducer-lm). A grid over both ranges first, then ever
smaller steps around the best; of equally good ones the one with the smaller insertion.
Without a lexicon, what is tuned is the insertion of tokens; of the greedy decoder, that
no insertion can change, the blank penalty (above 0: more tokens). Tokens without a
language model have no LM scale. Tune on other data than you test on.

With --posterior-scale, what is tuned is the scale of confidences on lattices, for the
best normalised cross-entropy: on every second speaker, tested on the others (a speaker
is what stands in an id before the first '-'); or on all, tested on --test-lattices.

    wfstdec tune --graph graph.npz --wfst beam=8 --logprobs dev.npz --ref dev.txt
    wfstdec tune --tokens ... --lexicon ... --arpa ... --trie beam_size=64 ...
    wfstdec tune --tokens ... --lm bpe_lm --greedy ...
    wfstdec tune --model model.npz --transducer-lm pieces.arpa --transducer ...
    wfstdec tune --posterior-scale --lattices dev.lat --ref dev.txt
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable

import wfstdec
from wfstdec.cli import compare_flags, posterior_scale
from wfstdec.cli.compare_flags import grid_of
from wfstdec.cli.flags import add_flags
from wfstdec.compare.searches import DecoderSearch
from wfstdec.compare.tuning import Range, Trial, one_setting, tune
from wfstdec.errors import OptionError
from wfstdec.io.boost_files import read_boosts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the command its flags."""
    compare_flags.add_speech_flags(parser, needs_logprobs=False)
    compare_flags.add_model_flags(parser)
    which = parser.add_mutually_exclusive_group(required=True)
    for name in ("--wfst", "--trie", "--greedy", "--transducer"):
        add_flags(which, name, default=None, nargs="*")
    tried = "tune the scale of posteriors of --lattices; scales to try first, if any"
    add_flags(which, "--posterior-scale", default=None, nargs="*", help=tried)
    add_flags(parser, "--lattices", "--test-lattices", "--test-ref", "--reliability")
    add_flags(parser, "--boost", "--lm-scale-range", "--insertion-range")
    add_flags(parser, "--boost-range", "--max-trials")


def run(args: argparse.Namespace) -> None:
    """Search, say every trial, and then the best."""
    if args.posterior_scale is not None:
        posterior_scale.run(args)
        return
    for name in ("lattices", "test_lattices", "test_ref", "reliability"):
        if getattr(args, name) is not None:
            flag = f"--{name.replace('_', '-')}"
            raise OptionError(f"{flag} without --posterior-scale, expected both")
    if args.logprobs is None:
        raise OptionError("no --logprobs, expected what is decoded")
    searches, speech = _searches(args), compare_flags.speech_of(args)
    prepare, boosts = one_setting(searches), None
    tunable = searches[0].tunable
    if args.boost:
        lists = read_boosts(args.boost)
        given = [lists.of(utterance) for utterance in speech.logprobs]
        boosts = searches[0].compile_boosts(given)
        tunable = (*tunable, "boost_scale")
    tuning = tune(
        prepare,
        speech,
        _ranges(args, tunable),
        boosts=boosts,
        max_trials=args.max_trials,
        say=lambda trial: _say(trial, quiet=args.quiet),
    )
    print(f"best of {len(tuning.trials)}: {tuning.best}")
    for border in tuning.borders:
        print(f"{border}: look beyond it")
    if not tuning.complete:
        print(f"cut short after {args.max_trials} trials: better ones may be near")


def _ranges(args: argparse.Namespace, options: Iterable[str]) -> dict[str, Range]:
    """Ranges of each option: of the scales, or that of insertions."""
    scales = {"lm_scale": args.lm_scale_range, "boost_scale": args.boost_range}
    return {name: tuple(scales.get(name, args.insertion_range)) for name in options}


def _searches(args: argparse.Namespace) -> list[DecoderSearch]:
    """The search that is tuned; several where a grid has several settings.

    Raises:
        OptionError: Something that it needs is missing or has no place in it.
    """
    models = compare_flags.models_of(args)
    if args.wfst is not None:
        wfst = wfstdec.WfstOptions()
        return models.wfst_searches(wfst, grid_of(args.wfst, wfst))
    if args.trie is not None:
        trie = wfstdec.TrieOptions()
        return models.trie_searches(trie, grid_of(args.trie, trie))
    if args.transducer is not None:
        transducer = wfstdec.TransducerOptions()
        grid = grid_of(args.transducer, transducer)
        return models.transducer_searches(transducer, grid)
    if args.lexicon is not None:
        raise OptionError("--greedy with --lexicon, expected tokens alone")
    greedy = wfstdec.GreedyOptions()
    return models.greedy_searches(greedy, grid_of(args.greedy, greedy))


def _say(trial: Trial, *, quiet: bool) -> None:
    if not quiet:
        print(trial, flush=True)
