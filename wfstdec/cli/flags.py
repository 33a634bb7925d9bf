"""Every flag of the command line, once: commands take theirs from here by name."""

from __future__ import annotations

import argparse
import math
from collections.abc import Collection
from dataclasses import fields
from typing import Any, get_args

from wfstdec.attention.options import AttentionOptions
from wfstdec.checks.rows import check_frame_shift
from wfstdec.cli.audio_flags import AUDIO_FLAGS
from wfstdec.cli.kinds import Flag, one_of, switch, takes
from wfstdec.cli.lattice_flags import LATTICE_FLAGS
from wfstdec.cli.model_flags import MODEL_FLAGS, SEARCH_FLAGS
from wfstdec.cli.ray_flags import RAY_FLAGS
from wfstdec.cli.result_flags import ALIGN_FLAGS, RESULT_FLAGS
from wfstdec.cli.serve_flags import SERVE_FLAGS
from wfstdec.cli.text_flags import TEXT_FLAGS
from wfstdec.compare.tuning import RANGES, TRIE_GRID, WFST_GRID
from wfstdec.errors import OptionError
from wfstdec.fst.engine import ENGINES
from wfstdec.fst.openfst import FORMS
from wfstdec.fst.topology import TOPOLOGIES
from wfstdec.greedy.options import BACKENDS as GREEDY_BACKENDS
from wfstdec.greedy.options import GreedyOptions
from wfstdec.text.loading import AUTO
from wfstdec.transducer.options import TransducerOptions
from wfstdec.trie.lookahead import LookaheadKind
from wfstdec.trie.options import BACKENDS as TRIE_BACKENDS
from wfstdec.trie.options import Merge, TrieOptions
from wfstdec.wfst.options import BACKENDS as WFST_BACKENDS
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


def count(text: str, least: int = 0) -> int:
    """An integer, 0 or more."""
    value = int(text)
    if value < least:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected {least} or more")
    return value


def count_above_zero(text: str) -> int:
    """An integer, 1 or more."""
    return count(text, 1)


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


def _search(flag: str, how: Flag) -> Flag:
    """Name a flag's search option; `add_flags` tells the defaults behind its text."""
    option = flag.removeprefix("--").replace("-", "_")
    default = next(iter(search_defaults(option).values()))
    return {"default": default, "option": option, **how}


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


def _range(what: str, option: str) -> Flag:
    """Make a flag of `tune`: the range of an option."""
    how = {"nargs": 2, "default": RANGES[option]}
    return takes(("LOW", "HIGH"), f"where to look for {what}", float, **how)


_BACKENDS = dict.fromkeys((*WFST_BACKENDS, *TRIE_BACKENDS, *GREEDY_BACKENDS))

_SEARCH_FLAGS: dict[str, Flag] = {
    "--beam": takes("NATS", "keep what is this close to the best", float),
    "--beam-size": takes("N", "entries kept in a frame at most", int),
    "--max-active": takes(
        "N", "states kept in a frame at most, or none", count_or_none
    ),
    "--min-active": takes("N", "states kept in a frame whatever the beam", int),
    "--token-top-k": takes(
        "N",
        "only the N most probable tokens may begin in a frame; none: all",
        count_or_none,
    ),
    "--merge": one_of(get_args(Merge), "alignments of a text: the best, or their sum"),
    "--nbest": takes("N", "different texts of each utterance", int),
    "--lookahead": one_of(
        get_args(LookaheadKind),
        "the language model inside words: with its history, without, not at all",
    ),
    "--acoustic-scale": takes("X", "times the log-probs", float),
    "--lm-scale": takes("X", "times the costs of the graph, or language model", float),
    "--word-insertion": takes("NATS", "for each word; above 0 penalises", float),
    "--token-insertion": takes("NATS", "for each token; above 0 penalises", float),
    "--blank-penalty": takes("NATS", "taken from the blank's log-prob", float),
    "--blank-skip-threshold": takes(
        "PROB",
        "follow only blanks in frames where the blank is this probable",
        number_or_none,
    ),
    "--beam-delta": takes(
        "NATS",
        "where max-active binds, narrow the beam to the worst kept plus this",
        number_or_none,
    ),
    "--boost-scale": takes("X", "times all boosts", float),
    **SEARCH_FLAGS,
}
"""Options of searches, by the name that they have there with dashes."""

FLAGS: dict[str, Flag] = {
    # building
    "--tokens": takes("FILE", "token table of the acoustic model"),
    "--blank": takes(None, "name or index of the blank, where it is not recognised"),
    "--lexicon": takes("FILE", "words and their tokens"),
    "--spell": takes(
        "WORDS", "in place of --lexicon: a list of words, spelt with the tokens"
    ),
    "--sentencepiece-model": takes(
        "MODEL",
        "the SentencePiece model that cuts words into tokens, where no lexicon does",
    ),
    "--separator": takes(
        "TOKEN",
        "the token between words, or none (default: '|' in tables of Hugging "
        "Face, else none)",
        token_or_none,
        default=AUTO,
    ),
    "--separator-optional": switch("the separator may be left out between words too"),
    "--silence": takes("TOKEN", "a token for silence between words"),
    "--silence-prob": takes(
        "PROB", "the probability of silence at each place", float, default=0.5
    ),
    "--lm": takes(
        "PATH",
        "n-gram language model: ARPA, plain or gzip, a KenLM binary, or a "
        "folder of `wfstdec build-lm`",
    ),
    "--arpa": takes(
        "FILE", "n-gram language model: ARPA, plain or gzip, or a KenLM binary"
    ),
    "--grammar": takes("FST", "in place of --lm: an OpenFst acceptor over words"),
    "--unk-cost": takes(
        "NATS", "keep lexicon words that the language model lacks, at this cost", float
    ),
    "--open-vocabulary": takes(
        ("WORD_COST", "TOKEN_COST"),
        "words that the lexicon lacks, spelled by tokens: nats for each word, "
        "beside what the language model asks for <unk>, and for each token",
        float,
        nargs=2,
    ),
    "--nemo-tokens": switch(
        "the words of the ARPA file are characters that stand for tokens, as "
        "NeMo writes them"
    ),
    "--topology": one_of(TOPOLOGIES, "the CTC topology", default="normal"),
    "--engine": one_of(
        tuple(ENGINES), "what does the FST operations", default="kaldifst"
    ),
    "--no-minimize": switch("do not minimize: exact costs, a larger graph"),
    # converting
    "--words": takes("FILE", "word table: 'word id' lines, <eps> is 0"),
    "--to": one_of(
        FORMS, "kind of OpenFst file to write (default: text for .txt, else const)"
    ),
    # decoding
    "--graph": takes("FILE", "what `wfstdec build` wrote"),
    "--logprobs": takes(
        "PATH", ".npz, Kaldi .ark or .scp, or a folder of .npy: [T, V] each"
    ),
    "--decoder": one_of(tuple(DECODERS), "the search", default="wfst"),
    "--frame-shift": takes(
        "SECONDS", "from one frame to the next", seconds_of_a_frame, default=0.02
    ),
    "--boost": takes(
        "FILE",
        "words and phrases to favour: 'word<TAB>nats' lines (leave the number "
        "out and a safe weight is chosen), or JSON lines",
    ),
    "--exact-boosts": switch(
        "words of boost lists count as they are written, not also in another case, "
        "Unicode form or between punctuation"
    ),
    "--phrase-unit": one_of(
        ("word", "token"),
        "what phrases are credited by (default: word; token without words)",
    ),
    "--phrase-totals": switch(
        "weights of --phrases are nats for a whole phrase, as those of --boost "
        "are (default: times 1 nat for its first label, 2 + ln(place) for the others)"
    ),
    "--phrase-context": takes(
        "NATS",
        "what the first label of a phrase is worth, by its weight (default: 1)",
        above_zero,
    ),
    "--phrase-depth": takes(
        "FACTOR",
        "factor for labels after the first, plus ln(place) (default: 2)",
        float,
    ),
    "--phrase-unknown": takes(
        "NATS", "what a label of no phrase costs (default: 0)", float
    ),
    "--phrase-boundary": takes(
        "TOKEN",
        "phrases of tokens stand between such tokens or the ends: a token that "
        "stands between words wherever one ends (default: the separator, unless "
        "optional)",
    ),
    "--backend": takes(None, f"auto (the CPU), {', '.join(_BACKENDS)}", default="auto"),
    "--threads": takes(
        "N", "utterances at once (default: one for each core)", count_above_zero
    ),
    "--output": takes("FILE", "what to write"),
    # scoring and looking
    "--worst": takes(
        "N", "show the N utterances with the most errors", count, default=0
    ),
    "--draw": takes(
        "FILE", "write a small graph for Graphviz's dot ('-': standard output)"
    ),
    "--recipe": takes("FOLDER", "a recipe other than the shipped one"),
    # comparing and tuning
    "--utterances": takes(
        "N", "use N utterances, evenly spaced (default: all)", count_above_zero
    ),
    "--wfst": takes(
        "OPTION=VALUES",
        "options of the WFST decoder, such as beam=8,13 max_active=7000,none",
        nargs="+",
        default=WFST_GRID,
    ),
    "--trie": takes(
        "OPTION=VALUES",
        "options of the trie decoder, such as beam_size=32,128 merge=max,sum; "
        "or beam:beam_size=6:16,8:32, values that go together",
        nargs="+",
        default=TRIE_GRID,
    ),
    "--greedy": takes(
        "OPTION=VALUES",
        "greedy decoding takes part, with options such as lm_scale=0.2,0.4 "
        "blank_penalty=0,1",
        nargs="*",
    ),
    "--phrases": takes(
        "FILE",
        "phrases, one a line: to boost ('phrase<TAB>weight', or JSON lines "
        "with lists by utterance), or to score (default: those of the boost lists)",
    ),
    "--repeats": takes(
        "N", "time every point so often, by turns", count_above_zero, default=3
    ),
    "--no-peers": switch("leave out other people's decoders"),
    "--json": takes("FILE", "keep all figures in this file"),
    "--plot": takes("FILE", "draw WER against RTFx: .png or .svg (needs matplotlib)"),
    "--lm-scale-range": _range("the LM scale", "lm_scale"),
    "--insertion-range": _range(
        "the insertion (--greedy: the blank penalty), nats", "word_insertion"
    ),
    "--boost-range": _range("the scale of --boost", "boost_scale"),
    "--max-trials": takes("N", "the most evaluations", count_above_zero, default=80),
    "--all": switch(
        "what few need too: every kind of list in every way, greedy, alignment"
    ),
    "--quiet": switch("say nothing but results and errors"),
    **MODEL_FLAGS,
    **LATTICE_FLAGS,
    **RESULT_FLAGS,
    **RAY_FLAGS,
    **AUDIO_FLAGS,
    **SERVE_FLAGS,
    **TEXT_FLAGS,
    **ALIGN_FLAGS,
    **{flag: _search(flag, how) for flag, how in _SEARCH_FLAGS.items()},
}


def add_flags(
    parser: argparse._ActionsContainer,
    *names: str,
    decoders: Collection[str] = tuple(DECODERS),
    **changes: Any,
) -> None:
    """Give a command some of `FLAGS`, in this order."""
    for name in names:
        how = {**FLAGS[name], **changes}
        option = how.pop("option", None)
        if option is not None and "help" not in changes:
            how["help"] += _defaults_told(option, decoders)
        parser.add_argument(name, **how)
