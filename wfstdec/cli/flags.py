"""Every flag of the command line, once: commands take theirs from here by name."""

from __future__ import annotations

import argparse
import math
from collections.abc import Collection, Container, Sequence
from dataclasses import fields
from itertools import pairwise
from typing import Any, get_args

from wfstdec.attention.options import AttentionOptions
from wfstdec.checks.frame_shift import check_frame_shift
from wfstdec.cli.attention_flags import (
    ATTENTION_MODEL_FLAGS,
    ATTENTION_SEARCH_FLAGS,
)
from wfstdec.cli.audio_flags import AUDIO_FLAGS
from wfstdec.cli.lattice_flags import LATTICE_FLAGS
from wfstdec.cli.ray_flags import RAY_FLAGS
from wfstdec.cli.result_flags import ALIGN_FLAGS, RESULT_FLAGS
from wfstdec.cli.serve_flags import SERVE_FLAGS
from wfstdec.cli.text_flags import TEXT_FLAGS
from wfstdec.cli.transducer_flags import MODEL_FLAGS, SEARCH_FLAGS
from wfstdec.compare.grids import TRIE_GRID, WFST_GRID
from wfstdec.compare.tuning import RANGES
from wfstdec.errors import OptionError
from wfstdec.fst.engine import ENGINES
from wfstdec.fst.openfst_io import FORMS
from wfstdec.fst.topology import TOPOLOGIES
from wfstdec.greedy.options import BACKENDS as GREEDY_BACKENDS
from wfstdec.greedy.options import GreedyOptions
from wfstdec.text.loading import AUTO
from wfstdec.transducer.options import TransducerOptions
from wfstdec.trie.lookahead import LookaheadKind
from wfstdec.trie.options import BACKENDS as TRIE_BACKENDS
from wfstdec.trie.options import Merge, TrieOptions
from wfstdec.wfst.backend_choice import BACKENDS as WFST_BACKENDS
from wfstdec.wfst.options import WfstOptions

DECODERS: dict[str, Any] = {
    "wfst": WfstOptions,
    "trie": TrieOptions,
    "greedy": GreedyOptions,
    "transducer": TransducerOptions,
    "attention": AttentionOptions,
}
"""The options of each decoder; the search flags and their defaults are made of them."""


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


def seconds_of_a_frame(text: str) -> float:
    """Seconds, no milliseconds."""
    try:
        return check_frame_shift(float(text))
    except OptionError as error:
        raise argparse.ArgumentTypeError(error.message.partition("=")[2]) from None


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


def threads(text: str) -> int | None:
    """An integer, 1 or more; 0, an old spelling, is one for each core."""
    return count(text) or None


def token_or_none(text: str) -> str | None:
    """A token; `none` stands for none."""
    return None if text.lower() == "none" else text


seconds_of_a_frame.__name__ = "seconds"
number_or_none.__name__ = "number"  # how argparse calls them in its errors
count_or_none.__name__ = "count"


def search_defaults(name: str) -> dict[str, Any]:
    """The default of a search option in each decoder that has it."""
    return {
        decoder: field.default
        for decoder, options in DECODERS.items()
        for field in fields(options)
        if field.name == name
    }


def _search(name: str, text: str, **how: Any) -> dict[str, Any]:
    """A flag of a search option; `add_flags` tells the defaults behind its text."""
    default = next(iter(search_defaults(name).values()))
    return {"default": default, "help": text, "option": name, **how}


def _defaults_told(option: str, decoders: Collection[str]) -> str:
    """The defaults of a search option in these decoders, for a help text."""
    shown = {
        decoder: "none" if value is None else f"{value}"
        for decoder, value in search_defaults(option).items()
        if decoder in decoders
    }
    if len(set(shown.values())) == 1:
        return f" (default: {next(iter(shown.values()))})"
    listed = ", ".join(f"{value} for {decoder}" for decoder, value in shown.items())
    return f" (default: {listed})"


_BACKENDS = dict.fromkeys((*WFST_BACKENDS, *TRIE_BACKENDS, *GREEDY_BACKENDS))
_NATS = {"type": float, "metavar": "NATS"}
_FACTOR = {"type": float, "metavar": "X"}
_COUNT = {"type": int, "metavar": "N"}
_COUNT_OR_NONE = {"type": count_or_none, "metavar": "N"}

FLAGS: dict[str, dict[str, Any]] = {
    # building
    "--tokens": {"metavar": "FILE", "help": "token table of the acoustic model"},
    "--blank": {"help": "name or index of the blank, where it is not recognised"},
    "--lexicon": {"metavar": "FILE", "help": "words and their tokens"},
    "--spell": {
        "metavar": "WORDS",
        "help": "in place of --lexicon: a list of words, spelt with the tokens",
    },
    "--sentencepiece-model": {
        "metavar": "MODEL",
        "help": "the SentencePiece model that cuts words into tokens, where no lexicon "
        "does",
    },
    "--separator": {
        "type": token_or_none,
        "default": AUTO,
        "metavar": "TOKEN",
        "help": "the token between words, or none (default: '|' in tables of Hugging "
        "Face, else none)",
    },
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
    "--lm": {
        "metavar": "PATH",
        "help": "n-gram language model: ARPA, plain or gzip, a KenLM binary, or a "
        "folder of `wfstdec build-lm`",
    },
    "--arpa": {
        "metavar": "FILE",
        "help": "n-gram language model: ARPA, plain or gzip, or a KenLM binary",
    },
    "--grammar": {
        "metavar": "FST",
        "help": "in place of --lm: an OpenFst acceptor over words",
    },
    "--unk-cost": {
        "type": float,
        "metavar": "NATS",
        "help": "keep lexicon words that the language model lacks, at this cost",
    },
    "--open-vocabulary": {
        "nargs": 2,
        "type": float,
        "metavar": ("WORD_COST", "TOKEN_COST"),
        "help": "words that the lexicon lacks, spelled by tokens: nats for each word, "
        "beside what the language model asks for <unk>, and for each token",
    },
    "--nemo-tokens": {
        "action": "store_true",
        "help": "the words of the ARPA file are characters that stand for tokens, as "
        "NeMo writes them",
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
    "--decoder": {
        "choices": tuple(DECODERS),
        "default": "wfst",
        "help": "the search (default: wfst)",
    },
    "--beam": _search("beam", "keep what is this close to the best", **_NATS),
    "--beam-size": _search("beam_size", "entries kept in a frame at most", **_COUNT),
    "--max-active": _search(
        "max_active", "states kept in a frame at most, or none", **_COUNT_OR_NONE
    ),
    "--min-active": _search(
        "min_active", "states kept in a frame whatever the beam", **_COUNT
    ),
    "--token-top-k": _search(
        "token_top_k",
        "only so many tokens, the most probable, may begin in a frame, or none",
        **_COUNT_OR_NONE,
    ),
    "--merge": _search(
        "merge", "alignments of a text: the best, or their sum", choices=get_args(Merge)
    ),
    "--nbest": _search("nbest", "different texts of each utterance", **_COUNT),
    "--lookahead": _search(
        "lookahead",
        "the language model inside words: with its history, without, not at all",
        choices=get_args(LookaheadKind),
    ),
    "--acoustic-scale": _search("acoustic_scale", "times the log-probs", **_FACTOR),
    "--lm-scale": _search(
        "lm_scale", "times the costs of the graph, or language model", **_FACTOR
    ),
    "--word-insertion": _search(
        "word_insertion", "for each word; above 0 penalises", **_NATS
    ),
    "--token-insertion": _search(
        "token_insertion", "for each token; above 0 penalises", **_NATS
    ),
    "--blank-penalty": _search(
        "blank_penalty", "taken from the blank's log-prob", **_NATS
    ),
    "--blank-skip-threshold": _search(
        "blank_skip_threshold",
        "follow only blanks in frames where the blank is this probable",
        type=number_or_none,
        metavar="PROB",
    ),
    "--beam-delta": _search(
        "beam_delta",
        "where max-active binds, narrow the beam to the worst kept plus this",
        type=number_or_none,
        metavar="NATS",
    ),
    "--frame-shift": {
        "type": seconds_of_a_frame,
        "default": 0.02,
        "metavar": "SECONDS",
        "help": "from one frame to the next (default: 0.02)",
    },
    "--boost": {
        "metavar": "FILE",
        "help": "words and phrases to favour: 'word<TAB>nats' lines (leave the number "
        "out and a safe weight is chosen), or JSON lines",
    },
    "--boost-scale": _search("boost_scale", "times all boosts", **_FACTOR),
    "--phrase-unit": {
        "choices": ("word", "token"),
        "help": "what phrases are credited by (default: word; token without words)",
    },
    "--phrase-totals": {
        "action": "store_true",
        "help": "weights of --phrases are nats for a whole phrase, as those of --boost "
        "are (default: times 1 nat for its first label, 2 + ln(place) for the others)",
    },
    "--phrase-context": {
        "type": above_zero,
        "metavar": "NATS",
        "help": "what the first label of a phrase is worth, by its weight (default: 1)",
    },
    "--phrase-depth": {
        "type": float,
        "metavar": "FACTOR",
        "help": "labels after the first are worth so many times that, and ln(place) "
        "(default: 2)",
    },
    "--phrase-unknown": {
        "type": float,
        "metavar": "NATS",
        "help": "what a label of no phrase costs (default: 0)",
    },
    "--phrase-boundary": {
        "metavar": "TOKEN",
        "help": "phrases of tokens stand between such tokens or the ends: a token that "
        "stands between words wherever one ends (default: the separator, unless "
        "optional)",
    },
    "--backend": {
        "default": "auto",
        "help": f"auto (the CPU), {', '.join(_BACKENDS)} (default: auto)",
    },
    "--threads": {
        "type": threads,
        "metavar": "N",
        "help": "utterances at once (default: one for each core)",
    },
    "--output": {"metavar": "FILE", "help": "what to write"},
    # scoring and looking
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
        "default": WFST_GRID,
        "metavar": "OPTION=VALUES",
        "help": "options of the WFST decoder, such as beam=8,13 max_active=7000,none "
        f"(default: {' '.join(WFST_GRID)})",
    },
    "--trie": {
        "nargs": "+",
        "default": TRIE_GRID,
        "metavar": "OPTION=VALUES",
        "help": "options of the trie decoder, such as beam_size=32,128 merge=max,sum; "
        "or beam:beam_size=6:16,8:32, values that go together (default: "
        f"{' '.join(TRIE_GRID)})",
    },
    "--greedy": {
        "nargs": "*",
        "metavar": "OPTION=VALUES",
        "help": "greedy decoding takes part, with options such as lm_scale=0.2,0.4 "
        "blank_penalty=0,1",
    },
    "--phrases": {
        "metavar": "FILE",
        "help": "phrases, one a line: to boost ('phrase<TAB>weight', or JSON lines "
        "with lists by utterance), or to score (default: those of the boost lists)",
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
        "help": "where to look for the insertion (--greedy: the blank penalty), nats "
        "(default: {} to {})".format(*RANGES["word_insertion"]),
    },
    "--boost-range": {
        "nargs": 2,
        "type": float,
        "default": RANGES["boost_scale"],
        "metavar": ("LOW", "HIGH"),
        "help": "where to look for the scale of --boost (default: {} to {})".format(
            *RANGES["boost_scale"]
        ),
    },
    "--max-trials": {
        "type": count_above_zero,
        "default": 80,
        "metavar": "N",
        "help": "the most evaluations (default: 80)",
    },
    "--all": {
        "action": "store_true",
        "help": "what few need too: every kind of list in every way, greedy, alignment",
    },
    "--quiet": {"action": "store_true", "help": "say nothing but results and errors"},
    **MODEL_FLAGS,
    **ATTENTION_MODEL_FLAGS,
    **LATTICE_FLAGS,
    **RESULT_FLAGS,
    **RAY_FLAGS,
    **AUDIO_FLAGS,
    **SERVE_FLAGS,
    **TEXT_FLAGS,
    **ALIGN_FLAGS,
    **{
        flag: _search(name, text, **how)
        for flag, (name, text, how) in (SEARCH_FLAGS | ATTENTION_SEARCH_FLAGS).items()
    },
}


OLD_FLAGS = {
    "--arpa": "--lm",
    "--text": "--ref",
    "--sentencepiece": "--sentencepiece-model",
    "--align-beam": "--beam",
}
"""Old spellings of flags, for one version: of commands that have the new one alone."""


def with_new_spellings(
    argv: Sequence[str], known: Container[str]
) -> tuple[list[str], list[str]]:
    """Replace old spellings on a command line.

    Args:
        argv: The command line.
        known: The flags of its command.

    Returns:
        The command line, and what to say of it.

    Raises:
        OptionError: A flag stands there by its old name and by its new one.
    """
    words, told = [], []
    for word in argv:
        old, equals, value = word.partition("=")
        new = OLD_FLAGS.get(old)
        if new is not None and new in known and old not in known:
            if any(other.partition("=")[0] == new for other in argv):
                raise OptionError(f"both {new} and {old}, its old name, expected {new}")
            told.append(f"{old} is now called {new}; the old name goes soon")
            word = new + equals + value
        words.append(word)
    if ("--threads", "0") in pairwise(argv) or "--threads=0" in argv:
        told.append("--threads 0 is now said by leaving --threads out")
    return words, told


def add_flags(
    parser: argparse._ActionsContainer,
    *names: str,
    decoders: Collection[str] = tuple(DECODERS),
    **changes: Any,
) -> None:
    """Give a command some of `FLAGS`, in this order.

    Args:
        parser: Of the command.
        *names: The flags.
        decoders: Those that the command has: help texts tell their defaults.
        **changes: For all named, in place of what `FLAGS` says.
    """
    for name in names:
        how = {**FLAGS[name], **changes}
        option = how.pop("option", None)
        if option is not None and "help" not in changes:
            how["help"] += _defaults_told(option, decoders)
        parser.add_argument(name, **how)
