"""Find the LM scale and the word insertion with the fewest errors on a dev set.

With --boost also the scale of these boosts.

For the WFST decoder (--graph, and --wfst where options of it are given), the trie
decoder (--trie with its options, --tokens, --lexicon, --lm), the greedy decoder
(--greedy with its options, --tokens, --lm), the transducer decoder (--transducer with
its options, --model, --transducer-lm), or the attention decoder (--attention with its
options, --attention-model, --attention-lm). The default setting first, then a grid over
both ranges, then ever smaller steps around the best; of equally good ones the one with
the smaller insertion. Without a lexicon, what is tuned is the insertion of tokens; of
the greedy decoder, that no insertion can change, the blank penalty (above 0: more
tokens). Tokens without a language model have no LM scale. Tune on other data than you
test on.

At the end: the best setting with the 95 % interval of its WER, what it gains on the
options without tuning (bootstrap over utterances, both of the same draws: whether it is
above chance on this data), and the command line that decodes with it.

With --posterior-scale, what is tuned is the scale of confidences on lattices, for the
best normalised cross-entropy: on every second speaker, tested on the others (a speaker
is what stands in an id before the first '-'); or on all, tested on --test-lattices.

    wfstdec tune --graph graph.npz --wfst beam=8 --logprobs dev.npz --ref dev.txt
    wfstdec tune --tokens ... --lexicon ... --lm ... --trie beam_size=64 ...
    wfstdec tune --tokens ... --lm bpe_lm --greedy ...
    wfstdec tune --model model.npz --transducer-lm pieces.arpa --transducer ...
    wfstdec tune --attention-model model.npz --attention-lm pieces.arpa --attention ...
    wfstdec tune --posterior-scale --lattices dev.lat --ref dev.txt
"""

from __future__ import annotations

import argparse
import shlex
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from wfstdec.boost.lists import BoostEntry
from wfstdec.cli import compare_flags
from wfstdec.cli.decoders import KINDS, flag_of
from wfstdec.cli.flags import DECODERS, FLAGS, add_flags
from wfstdec.cli.lattice_flags import GIVEN_LATTICES
from wfstdec.cli.text_flags import normalizer_of
from wfstdec.compare.confidence import (
    SCALES,
    ScaleTrial,
    by_speaker,
    judge_all,
    measure,
    tune_posterior_scale,
)
from wfstdec.compare.models import DecoderSearch
from wfstdec.compare.plotting import check_plot, plot_reliability, plot_tuning
from wfstdec.compare.tuning import Tuning, one_setting, tune
from wfstdec.errors import OptionError
from wfstdec.io.boost_files import read_boosts
from wfstdec.io.text import read_text
from wfstdec.lattice.file import LatticeFile, open_lattices
from wfstdec.text.files import read_lines
from wfstdec.text.loading import AUTO
from wfstdec.text.pairing import Pairing


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the command its flags."""
    compare_flags.add_speech_flags(parser, needs_logprobs=False)
    compare_flags.add_model_flags(parser)
    which = parser.add_mutually_exclusive_group()
    for name in ("--wfst", "--trie", "--greedy", "--transducer", "--attention"):
        add_flags(which, name, default=None, nargs="*")
    tried = "tune the scale of posteriors of --lattices; scales to try first, if any"
    add_flags(which, "--posterior-scale", default=None, nargs="*", help=tried)
    add_flags(parser, "--lattices", help=GIVEN_LATTICES)
    add_flags(parser, "--test-lattices", "--test-ref", "--reliability")
    add_flags(parser, "--boost", "--lm-scale-range", "--insertion-range")
    add_flags(parser, "--boost-range", "--max-trials")
    text = "draw WER against what is tuned: .png or .svg (needs matplotlib)"
    add_flags(parser, "--plot", help=text)


def run(args: argparse.Namespace) -> None:
    """Search, say every trial, and then the best."""
    if args.posterior_scale is not None:
        _tune_scale(args)
        return
    for name in ("lattices", "test_lattices", "test_ref", "reliability"):
        if getattr(args, name) is not None:
            text = f"{flag_of(name)} without --posterior-scale, expected both"
            raise OptionError(text)
    if all(getattr(args, name) is None for name in DECODERS):
        if args.graph is None:
            flags = ", ".join(flag_of(name) for name in DECODERS)
            raise OptionError(
                f"no --graph and none of {flags}, expected what is to be tuned"
            )
        args.wfst = []
    if args.logprobs is None:
        raise OptionError("no --logprobs, expected what is decoded")
    if args.plot is not None:
        check_plot(args.plot)
    name = next(name for name in DECODERS if getattr(args, name) is not None)
    if name == "greedy" and args.lexicon is not None:
        raise OptionError("--greedy with --lexicon, expected tokens alone")
    models = compare_flags.models_of(args)
    searches = compare_flags.searches_of(models, name, getattr(args, name))
    speech = compare_flags.speech_of(args)
    # A grid has several settings; tuning looks for one itself.
    prepare, boosts = one_setting(searches), None
    [search] = searches
    tunable = search.tunable
    if args.boost:
        lists = read_boosts(args.boost)
        given = [lists.of(utterance) for utterance in speech.logprobs]
        boosts = search.compile_boosts(given)
        tunable = (*tunable, "boost_scale")
    options = replace(search.base, **search.settings[0])
    # Those of the scales, or that of insertions.
    scales = {"lm_scale": args.lm_scale_range, "boost_scale": args.boost_range}
    tuning = tune(
        prepare,
        speech,
        {name: tuple(scales.get(name, args.insertion_range)) for name in tunable},
        boosts=boosts,
        max_trials=args.max_trials,
        default={name: getattr(options, name) for name in tunable},
        say=(lambda _: None) if args.quiet else partial(print, flush=True),
    )
    _report(tuning, args.max_trials)
    if args.plot is not None:
        plot_tuning(tuning, args.plot)
    if args.boost and search.compile is not None and _is_no_phrase_list(args.boost):
        print(f"--boost {args.boost} is left out below: it is no list for --phrases")
    command = decode_command(args, replace(options, **tuning.best.setting), search)
    print(f"to decode with it:\n{command}")


def _report(tuning: Tuning, max_trials: int) -> None:
    """Say the best trial, how sure it is, and what is left to do."""
    print(f"best of {len(tuning.trials)}: {tuning.best}")
    if tuning.interval is not None:
        count = len(tuning.best.counts[0])
        print(f"95 % interval: {tuning.interval} (bootstrap over {count} utterances)")
    print(f"without tuning: {tuning.default}")
    if tuning.gain is not None:
        print(f"gain on this data: {tuning.gain}")
    for border in tuning.borders:
        print(f"{border}: look beyond it")
    if not tuning.complete:
        print(f"cut short after {max_trials} trials: better ones may be near")


def decode_command(
    args: argparse.Namespace, options: Any, search: DecoderSearch
) -> str:
    """The command line that decodes with these options, quoted for a shell."""
    kind = next(name for name, known in DECODERS.items() if type(options) is known)
    flags: list[tuple[str, Any]] = [("decoder", kind)] if kind != "wfst" else []
    flags += [(name, getattr(args, name, None)) for name in KINDS[kind].inputs]
    own = {
        "transducer": {"lm": args.transducer_lm},
        "attention": {"lm": args.attention_lm, "model": args.attention_model},
    }
    flags = [(n, own.get(kind, {}).get(n, x)) for n, x in flags]
    between = {AUTO: None, None: "none"}
    flags = [(n, between.get(x, x) if n == "separator" else x) for n, x in flags]
    flags = [(name, x) for name, x in flags if x is not None and x is not False]
    flags += [
        (field.name, getattr(options, field.name))
        for field in fields(options)
        # Only what is not the default, so that the command stays short enough to be
        # read.
        if getattr(options, field.name) != field.default
    ]
    if args.frame_shift != FLAGS["--frame-shift"]["default"]:
        flags.append(("frame_shift", args.frame_shift))
    # A decoder without words takes a list as phrases.
    if args.boost and search.compile is None:
        flags.append(("boost", args.boost))
    elif args.boost and not _is_no_phrase_list(args.boost):
        flags.append(("phrases", args.boost))
        if None not in read_boosts(args.boost).common.values():
            flags.append(("phrase_totals", True))
    flags.append(("logprobs", args.logprobs))
    words = [word for name, value in flags for word in _flag(name, value)]
    return shlex.join(["wfstdec", "decode", *words])


def _is_no_phrase_list(path: str) -> bool:
    """Tell whether `--phrases` cannot take a list: JSON lines, or numbers for some."""
    lists = read_boosts(path)
    numbers = list(lists.common.values())
    is_mixed = None in numbers and any(one is not None for one in numbers)
    are_entries = any(isinstance(one, BoostEntry) for one in numbers)
    is_json = next(filter(str.strip, read_lines(path)), "").lstrip().startswith("{")
    return bool(lists.own) or is_mixed or are_entries or is_json


def _flag(name: str, value: Any) -> list[str]:
    """A flag and its value, as the command line takes them."""
    if isinstance(value, bool):
        return [flag_of(name) if value else f"--no-{name.replace('_', '-')}"]
    if isinstance(value, list | tuple):
        return [flag_of(name), *map(str, value)]
    text = "none" if value is None else str(value)
    return [f"{flag_of(name)}={text}"] if text[0] == "-" else [flag_of(name), text]


def _tune_scale(args: argparse.Namespace) -> None:
    """Tune the scale of confidences on some speakers, and test it on others."""
    if args.lattices is None:
        raise OptionError("--posterior-scale without --lattices, expected both")
    if (args.test_lattices is None) != (args.test_ref is None):
        raise OptionError("--test-lattices and --test-ref, expected both or none")
    if args.reliability:
        check_plot(args.reliability)
    normalizer = normalizer_of(args)
    lattices, references = _paired(args.lattices, args.ref)
    if args.test_lattices is not None:
        others_said = _paired(args.test_lattices, args.test_ref)
        given = judge_all(lattices, references, normalizer=normalizer)
        others = judge_all(*others_said, normalizer=normalizer)
    else:
        given, others = (
            judge_all(lattices, references, some, normalizer)
            for some in by_speaker(lattices)
        )

    def say(trial: ScaleTrial) -> None:
        if not args.quiet:
            print(trial, flush=True)

    tuning = tune_posterior_scale(given, args.posterior_scale or SCALES, say)
    print(f"best of {len(tuning.trials)}: {tuning.best}")
    tested = {scale: measure(others, scale) for scale in (tuning.best.scale, 1.0)}
    for found in tested.values():
        print(f"on others, {found}")
    if args.reliability:
        series = {
            f"scale {s:g}, {m.quality}": m.quality.bins for s, m in tested.items()
        }
        plot_reliability(series, args.reliability)


def _paired(path: str, ref: str) -> tuple[LatticeFile, dict[str, tuple[str, ...]]]:
    """Lattices and references, which have utterances in common."""
    lattices, references = open_lattices(path), read_text(ref)
    Pairing.of(lattices, references, (Path(path).name, Path(ref).name)).check()
    return lattices, references
