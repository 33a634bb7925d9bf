"""Every flag of the command line, once: commands take theirs from here by name."""

from __future__ import annotations

import argparse
import math
from dataclasses import MISSING, fields
from typing import Any

from wfstdec.compare.tuning import RANGES
from wfstdec.fst.engine import ENGINES
from wfstdec.fst.openfst_io import FORMS
from wfstdec.fst.topology import TOPOLOGIES
from wfstdec.io.results import FORMATS
from wfstdec.wfst.options import DecodeOptions

DEFAULTS: dict[str, Any] = {
    field.name: field.default
    for field in fields(DecodeOptions)
    if field.default is not MISSING
}
"""The search options, by name; their flags and defaults are made of these."""


def number_or_none(text: str) -> float | None:
    """A number; `none` stands for no limit."""
    return None if text.lower() == "none" else float(text)


def count_or_none(text: str) -> int | None:
    """An integer; `none` stands for no limit."""
    return None if text.lower() == "none" else int(text)


def above_zero(text: str) -> float:
    """A number above 0, finite."""
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a number above 0")
    return value


def count(text: str) -> int:
    """An integer, 0 or more."""
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected 0 or more")
    return value


def count_above_zero(text: str) -> int:
    """An integer, 1 or more."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected 1 or more")
    return value


number_or_none.__name__ = "number"  # how argparse calls them in its errors
count_or_none.__name__ = "count"


def _search(name: str, kind: Any, metavar: str, text: str) -> dict[str, Any]:
    """A flag of `DecodeOptions`, with the default that stands there."""
    default = DEFAULTS[name]
    shown = "none" if default is None else default
    text = f"{text} (default: {shown})"
    return {"type": kind, "default": default, "metavar": metavar, "help": text}


FLAGS: dict[str, dict[str, Any]] = {
    # building
    "--tokens": {"metavar": "FILE", "help": "token table of the acoustic model"},
    "--blank": {"help": "name or index of the blank, where it is not recognised"},
    "--lexicon": {"metavar": "FILE", "help": "words and their tokens"},
    "--spell": {
        "metavar": "WORDS",
        "help": "in place of --lexicon: a list of words, spelt with the tokens",
    },
    "--sentencepiece": {
        "metavar": "MODEL",
        "help": "the SentencePiece model that segments the words of --spell",
    },
    "--separator": {"metavar": "TOKEN", "help": "the token between words"},
    "--separator-optional": {
        "action": "store_true",
        "help": "the separator may be left out between words too",
    },
    "--silence": {"metavar": "TOKEN", "help": "a token for silence between words"},
    "--silence-prob": {
        "type": float,
        "default": 0.5,
        "metavar": "PROB",
        "help": "the probability of silence at each place (default: 0.5)",
    },
    "--arpa": {"metavar": "FILE", "help": "n-gram language model, plain or gzip"},
    "--grammar": {
        "metavar": "FST",
        "help": "in place of --arpa: an OpenFst acceptor over words",
    },
    "--unk-cost": {
        "type": float,
        "metavar": "NATS",
        "help": "keep lexicon words that the language model lacks, at this cost",
    },
    "--topology": {
        "choices": TOPOLOGIES,
        "default": "normal",
        "help": "the CTC topology (default: normal)",
    },
    "--engine": {
        "choices": tuple(ENGINES),
        "default": "kaldifst",
        "help": "what does the FST operations (default: kaldifst)",
    },
    "--no-minimize": {
        "action": "store_true",
        "help": "do not minimize: exact costs, a larger graph",
    },
    # converting
    "--words": {"metavar": "FILE", "help": "word table: 'word id' lines, <eps> is 0"},
    "--to": {
        "choices": FORMS,
        "help": "kind of OpenFst file to write (default: text for .txt, else const)",
    },
    # decoding
    "--graph": {"metavar": "FILE", "help": "what `wfstdec build` wrote"},
    "--logprobs": {
        "metavar": "PATH",
        "help": ".npz, Kaldi .ark or .scp, or a folder of .npy: [T, V] each",
    },
    "--beam": _search("beam", float, "NATS", "keep what is this close to the best"),
    "--max-active": _search(
        "max_active", count_or_none, "N", "states kept in a frame at most, or none"
    ),
    "--min-active": _search(
        "min_active", int, "N", "states kept in a frame whatever the beam"
    ),
    "--beam-delta": _search(
        "beam_delta",
        number_or_none,
        "NATS",
        "where max-active binds, narrow the beam to the worst kept plus this",
    ),
    "--acoustic-scale": _search("acoustic_scale", float, "X", "times the log-probs"),
    "--lm-scale": _search("lm_scale", float, "X", "times the costs of the graph"),
    "--word-insertion": _search(
        "word_insertion", float, "NATS", "for each word; above 0 penalises"
    ),
    "--blank-penalty": _search(
        "blank_penalty", float, "NATS", "taken from the blank's log-prob"
    ),
    "--blank-skip-threshold": _search(
        "blank_skip_threshold",
        number_or_none,
        "PROB",
        "follow only blanks in frames where the blank is this probable",
    ),
    "--frame-shift": {
        "type": above_zero,
        "default": 0.02,
        "metavar": "SECONDS",
        "help": "from one frame to the next (default: 0.02)",
    },
    "--boost": {
        "metavar": "FILE",
        "help": "'word<TAB>nats' for all, or JSON lines with lists by utterance",
    },
    "--backend": {
        "default": "auto",
        "help": "auto (the CPU), cpu, cuda, reference (default: auto)",
    },
    "--threads": {
        "type": count,
        "default": 0,
        "metavar": "N",
        "help": "utterances at once (default: 0, one for each core)",
    },
    "--format": {
        "choices": tuple(FORMATS),
        "default": "text",
        "help": "of the results (default: text)",
    },
    "--output": {"metavar": "FILE", "help": "what to write"},
    # scoring and looking
    "--ref": {"metavar": "FILE", "help": "references: 'utterance words...' lines"},
    "--hyp": {"metavar": "FILE", "help": "hypotheses: 'utterance words...' lines"},
    "--worst": {
        "type": count,
        "default": 0,
        "metavar": "N",
        "help": "show the N utterances with the most errors",
    },
    "--draw": {
        "metavar": "FILE",
        "help": "write a small graph for Graphviz's dot ('-': standard output)",
    },
    "--recipe": {
        "metavar": "FOLDER",
        "help": "a recipe other than the shipped one",
    },
    # comparing and tuning
    "--utterances": {
        "type": count_above_zero,
        "metavar": "N",
        "help": "so many of the utterances, evenly spread (default: all)",
    },
    "--wfst": {
        "nargs": "+",
        "default": ["beam=6,8,10,13,17"],
        "metavar": "OPTION=VALUES",
        "help": "options of the WFST decoder, such as beam=8,13 max_active=7000,none",
    },
    "--trie": {
        "nargs": "+",
        "default": ["beam_size=16,32,64,128,256,512"],
        "metavar": "OPTION=VALUES",
        "help": "options of the trie decoder, such as beam_size=32,128 merge=max,sum",
    },
    "--phrases": {
        "metavar": "FILE",
        "help": "phrases to score, one a line (default: those of the boost lists)",
    },
    "--repeats": {
        "type": count_above_zero,
        "default": 3,
        "metavar": "N",
        "help": "time every point so often, by turns (default: 3)",
    },
    "--no-peers": {
        "action": "store_true",
        "help": "leave out other people's decoders",
    },
    "--json": {"metavar": "FILE", "help": "keep all figures in this file"},
    "--plot": {
        "metavar": "FILE",
        "help": "draw WER against RTFx: .png or .svg (needs matplotlib)",
    },
    "--lm-scale-range": {
        "nargs": 2,
        "type": float,
        "default": RANGES["lm_scale"],
        "metavar": ("LOW", "HIGH"),
        "help": "where to look for the LM scale (default: {} to {})".format(
            *RANGES["lm_scale"]
        ),
    },
    "--insertion-range": {
        "nargs": 2,
        "type": float,
        "default": RANGES["word_insertion"],
        "metavar": ("LOW", "HIGH"),
        "help": "where to look for the insertion, nats (default: {} to {})".format(
            *RANGES["word_insertion"]
        ),
    },
    "--max-trials": {
        "type": count_above_zero,
        "default": 80,
        "metavar": "N",
        "help": "the most evaluations (default: 80)",
    },
    "--quiet": {"action": "store_true", "help": "say nothing but results and errors"},
}


def add_flags(parser: argparse._ActionsContainer, *names: str, **changes: Any) -> None:
    """Give a command some of `FLAGS`, in this order; `changes` go for all named."""
    for name in names:
        parser.add_argument(name, **{**FLAGS[name], **changes})


def add_search_flags(parser: argparse.ArgumentParser) -> None:
    """Give a command a flag for every field of `DecodeOptions`."""
    group = parser.add_argument_group("search")
    for name in DEFAULTS:
        flag = "--" + name.replace("_", "-")
        group.add_argument(flag, **FLAGS[flag])


def search_options(args: argparse.Namespace) -> DecodeOptions:
    """The options that the search flags say.

    Raises:
        OptionError: One is out of range.
    """
    return DecodeOptions(**{name: getattr(args, name) for name in DEFAULTS})
