"""Flags of the command line, each declared once, and the commands made of them.

`FLAGS` has the arguments of `add_argument` by flag. A command is a function of parsed
arguments, whose docstring is its help, under `command`, which names its flags:

    @command("--blank --to", places={"input": "the graph to read"})
    def convert(args): ...

    made_of(AlignOptions, args)                 # its fields by flags of their names
    build_graph(**values_of(args, "lm blank"))  # lm=args.lm, blank=args.blank
"""

from __future__ import annotations

import argparse
import inspect
import itertools
import math
from argparse import BooleanOptionalAction
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, cast, get_args

from wfstdec.align.options import AlignOptions
from wfstdec.attention.options import AttentionOptions, LengthNorm, Stop
from wfstdec.audio.reading import MAX_SECONDS
from wfstdec.batch.ray import RayOptions
from wfstdec.boost.score_rows import EndRule
from wfstdec.checks.rows import check_frame_shift
from wfstdec.compare.tuning import RANGES, TRIE_GRID, WFST_GRID
from wfstdec.errors import OptionError
from wfstdec.fst.engine import ENGINES
from wfstdec.fst.openfst import FORMS
from wfstdec.fst.topology import TOPOLOGIES
from wfstdec.greedy.options import BACKENDS as GREEDY_BACKENDS
from wfstdec.greedy.options import GreedyOptions
from wfstdec.io.results import FORMATS
from wfstdec.io.subtitles import SubtitleOptions
from wfstdec.search.options import DEFAULT_LATTICE_BEAM
from wfstdec.server.limits import Limits
from wfstdec.text.loading import AUTO
from wfstdec.text.normalize import Normalizer
from wfstdec.transcription.pieces import CutOptions
from wfstdec.transducer.options import TransducerOptions
from wfstdec.trie.lookahead import LookaheadKind
from wfstdec.trie.options import BACKENDS as TRIE_BACKENDS
from wfstdec.trie.options import Merge, TrieOptions
from wfstdec.wfst.options import BACKENDS as WFST_BACKENDS
from wfstdec.wfst.options import WfstOptions

_Made = TypeVar("_Made")

DECODERS: dict[str, Any] = {
    "wfst": WfstOptions,
    "trie": TrieOptions,
    "greedy": GreedyOptions,
    "transducer": TransducerOptions,
    "attention": AttentionOptions,
}
"""Options of each decoder; search flags have their names and defaults."""
_TOKENS = "tokens blank separator lm unk_cost"
INPUTS = {
    "wfst": "graph exact_boosts g2p g2p_phones",
    "trie": f"{_TOKENS} lexicon separator_optional open_vocabulary exact_boosts "
    "g2p g2p_phones",
    "greedy": _TOKENS,
    "transducer": "model head lm separator unk_cost",
    "attention": "model lm separator unk_cost",
}
"""Inputs of each decoder besides its options, flags by name; the first is required."""
CTC_DECODERS = ("wfst", "trie", "greedy")
"""Decoders of log-probs, which any CTC model makes of audio."""
MODEL_KINDS = (
    "encoder mapped hama transformers streaming-onnx onnx-asr onnx nemo torchaudio "
    "function"
).split()
_OF_THE_MODEL = {
    "--tokens": "the model's token table, where the model has none",
    "--blank": "the model's blank, where the model does not name it; a name or an "
    "index, -1 for the last",
    "--frame-shift": "seconds per frame of the model, where the model does not name it",
}
"""Help of flags that with an acoustic model are the model's, not the decoder's."""


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

_KINDS = {"N": int, "HZ": int} | dict.fromkeys(
    "NATS X SECONDS PROB FACTOR S LOW HIGH WORD_COST TOKEN_COST".split(), float
)
"""Types of values by the word that stands for them; others are text."""


class SwitchOrChoice(BooleanOptionalAction):
    """A switch of one decoder that is a choice of another: `--flag`, `--flag mean`."""

    def __init__(
        self,
        option_strings: Sequence[str],
        dest: str,
        words: Sequence[str],
        **more: Any,
    ) -> None:
        super().__init__(option_strings, dest, **more)
        self.nargs, self._words = "?", words

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Keep the choice, or whether the switch is on."""
        is_on = not (option_string or "").startswith("--no-")
        if values is not None and (not is_on or values not in self._words):
            shown = ", ".join(map(repr, self._words))
            raise argparse.ArgumentError(
                self, f"invalid choice: {values!r} (choose from {shown})"
            )
        setattr(namespace, self.dest, is_on if values is None else values)


def _how(text: str, kind: Any = None, **more: Any) -> dict[str, Any]:
    """Arguments of `add_argument` for a flag with more than a help text."""
    return {"help": text, "type": kind, **more}


_BACKENDS = dict.fromkeys((*WFST_BACKENDS, *TRIE_BACKENDS, *GREEDY_BACKENDS))
_LIMITS = {
    Limits.flag(limit.name): _how(limit.metadata["help"], default=limit.default)
    for limit in fields(Limits)
}

_TABLE: dict[str, Any] = {
    # building
    "--tokens FILE": "token table of the acoustic model",
    "--blank BLANK": "name or index of the blank, if not recognised",
    "--lexicon FILE": "words and their tokens",
    "--spell WORDS": "a list of words, spelt with the tokens; no --lexicon",
    "--sentencepiece-model MODEL": "SentencePiece model that cuts words into tokens, "
    "where no lexicon does",
    "--separator TOKEN": _how(
        "token between words, or none (default: '|' in tables of Hugging Face, else "
        "none)",
        token_or_none,
        default=AUTO,
    ),
    "--separator-optional": "optional separator between words",
    "--silence TOKEN": "token for silence between words",
    "--silence-prob PROB": _how("probability of silence", default=0.5),
    "--lm PATH": "n-gram language model: ARPA, plain or gzip, a KenLM binary, or a "
    "folder of `wfstdec build-lm`",
    "--arpa FILE": "n-gram language model: ARPA, plain or gzip, or a KenLM binary",
    "--grammar FST": "OpenFst acceptor over words, in place of --lm",
    "--unk-cost NATS": "cost in nats of lexicon words that the language model lacks "
    "(default: without them)",
    "--open-vocabulary WORD_COST TOKEN_COST": "words that the lexicon lacks, spelt by "
    "tokens: nats for each word, in addition to the language model's cost of <unk>, "
    "and for each token",
    "--nemo-tokens": "ARPA file of NeMo, whose words are characters that stand for "
    "tokens",
    "--topology": _how("CTC topology", choices=TOPOLOGIES, default="normal"),
    "--engine": _how(
        "library for the FST operations", choices=tuple(ENGINES), default="kaldifst"
    ),
    "--no-minimize": "no minimization: exact costs, a larger graph",
    # converting
    "--words FILE": "word table: 'word id' lines, <eps> is 0",
    "--to": _how(
        "kind of OpenFst file to write (default: text for .txt, else const)",
        choices=FORMS,
    ),
    # decoding
    "--graph FILE": "search graph of `wfstdec build`",
    "--logprobs PATH": ".npz, Kaldi .ark or .scp, or a folder of .npy: [T, V] each",
    "--decoder": _how("the search", choices=tuple(DECODERS), default="wfst"),
    "--frame-shift SECONDS": _how(
        "seconds per frame", seconds_of_a_frame, default=0.02
    ),
    "--backend BACKEND": _how(
        f"auto (the CPU), {', '.join(_BACKENDS)}", default="auto"
    ),
    "--threads N": _how(
        "utterances in parallel (default: one for each core)", count_above_zero
    ),
    "--output FILE": "file to write",
    # boosts
    "--boost FILE": "words and phrases to favour; 'word<TAB>nats' lines (without a "
    "number a conservative default is used), or JSON lines",
    "--exact-boosts": "words of boost lists as they are written only, not also in "
    "another case, Unicode form or between punctuation",
    "--phrases FILE": "phrases, one a line: to boost ('phrase<TAB>weight', or JSON "
    "lines with lists by utterance), or to score (default: those of the boost lists)",
    "--phrase-unit": _how(
        "unit by which phrases are credited (default: word; token without words)",
        choices=("word", "token"),
    ),
    "--phrase-totals": "weights of --phrases in nats for a whole phrase, as those of "
    "--boost (default: times 1 nat for its first label, 2 + ln(place) for the others)",
    "--phrase-context NATS": _how(
        "credit of the first label of a phrase, by its weight (default: 1)", above_zero
    ),
    "--phrase-depth FACTOR": "factor for labels after the first, plus ln(place) "
    "(default: 2)",
    "--phrase-unknown NATS": "cost of a label of no phrase (default: 0)",
    "--phrase-boundary TOKEN": "token around phrases of tokens, or the ends of the "
    "text: a token that is between words wherever one ends (default: the separator, "
    "unless optional)",
    "--g2p SOURCE": "pronunciations of words that the lexicon or graph lacks: a "
    "lexicon that has them, such as cmudict; a SentencePiece model; a program, words "
    "in, 'word<TAB>phones' out; 'hama', a model (pip install hama==1.7.0); or "
    "'spelling', the default where words are pronounced as they are spelt",
    "--g2p-phones FILE": "tokens of the phones of --g2p, 'phone tokens...' lines; "
    "others go by name, and ARPAbet's by IPA",
    # options of searches, by the names of their fields; defaults are theirs
    "--beam NATS": "beam width in nats; wider is slower and misses less",
    "--beam-size N": "most entries in a frame",
    "--max-active N": _how("most states in a frame, or none", count_or_none),
    "--min-active N": "fewest states in a frame, whatever the beam",
    "--token-top-k N": _how(
        "number of most probable tokens that may begin in a frame; none: all",
        count_or_none,
    ),
    "--merge": _how(
        "alignments of a text: the best, or their sum", choices=get_args(Merge)
    ),
    "--nbest N": "different texts of each utterance",
    "--lookahead": _how(
        "language model inside words: with its history, without, not at all",
        choices=get_args(LookaheadKind),
    ),
    "--acoustic-scale X": "factor of the log-probs",
    "--lm-scale X": "factor of the costs of the graph, or language model",
    "--word-insertion NATS": "cost of each word; above 0 penalises",
    "--token-insertion NATS": "cost of each token; above 0 penalises",
    "--blank-penalty NATS": "nats subtracted from the blank's log-prob",
    "--blank-skip-threshold PROB": _how(
        "probability of the blank from which a frame is of blanks only", number_or_none
    ),
    "--beam-delta NATS": _how(
        "where max-active binds, distance of the narrowed beam from the worst kept",
        number_or_none,
    ),
    "--boost-scale X": "factor of all boosts",
    "--strategy": _how(
        "one token after the other, ALSD++ (a symbol a step), or AES++ (by frames)",
        choices=("greedy", "alsd", "aes"),
    ),
    "--fusion": _how(
        "language models and boosts before the best tokens are taken, or after",
        choices=("late", "early"),
    ),
    "--blank-scored": _how(
        "weight of language models on the blank too", action=BooleanOptionalAction
    ),
    "--max-symbols N": "most tokens in one frame",
    "--expansion-rounds N": "AES++: tokens in a frame",
    "--expansion-beta N": "AES++: labels of an entry beyond the beam size",
    "--expansion-gamma NATS": "AES++: distance of labels of an entry from its best",
    "--prefix-search": _how(
        "AES++: scores move first to texts that are one token longer",
        action=BooleanOptionalAction,
    ),
    "--end-rule": _how(
        "treatment of phrases at the end, a token that competes with them",
        choices=get_args(EndRule),
    ),
    "--ctc-weight X": "weight of the model's CTC head in place of attention, 0 to 1",
    "--pre-beam N": "tokens of a text that CTC scores (none: 1.5 times the beam size)",
    "--final-eos-score NATS": "--end-rule compensated: bonus of an end after a phrase",
    "--length-norm": _how(
        "rank by the cost of a token; of attention: by none, mean or gnmt",
        action=SwitchOrChoice,
        words=get_args(LengthNorm),
    ),
    "--gnmt-alpha X": "--length-norm gnmt: ((5 + n) / 6) to this power",
    "--stop": _how(
        "at no better text possible, at a full list, or at the limit alone",
        choices=get_args(Stop),
    ),
    "--max-tokens-per-s X": "most tokens a second, plus 5",
    "--no-repeat-ngram N": "N tokens in a row that occur only once in a text; 0: no "
    "limit",
    # models
    "--model PATH": "a transducer: what TransducerNet.save wrote, or a folder with "
    "encoder.onnx, decoder.onnx, joiner.onnx and tokens.txt; for `wfstdec decode "
    "--decoder attention`, what JointNet.save wrote; the log-probs are the features "
    "of its encoder",
    "--head HEAD": "head of a model with several (default: the first)",
    "--transducer OPTION=VALUES": _how(
        "the transducer of --model takes part, with options such as strategy=alsd,aes "
        "beam_size=4,10 fusion=late",
        nargs="*",
    ),
    "--transducer-lm PATH": "language model over the tokens of --model: an ARPA file, "
    "or a folder of `wfstdec build-lm`",
    "--attention OPTION=VALUES": _how(
        "the attention decoder of --attention-model takes part, with options such as "
        "beam_size=1,3,8 end_rule=closed,compensated",
        nargs="*",
    ),
    "--attention-model PATH": "an attention decoder with its encoder: what "
    "JointNet.save wrote; the log-probs are the features of its encoder",
    "--attention-lm PATH": "language model over the tokens of --attention-model",
    # lattices
    "--lattice-beam NATS": "beam width in nats of lattices and n-best lists "
    f"(default: {DEFAULT_LATTICE_BEAM:g}, or the beam)",
    "--lattices FILE": "lattices of all utterances, for wfstdec rescore and score",
    "--oracle N": _how(
        "also the WER of the best of N texts (default: 10) and of lattices",
        nargs="?",
        const=10,
    ),
    "--nbest-lists FILE": "n-best lists of `wfstdec decode --nbest N --format jsonl`",
    "--confidence": "probability of each word, from a lattice",
    "--mbr": "text of least expected error in place of the most probable one",
    "--posterior-scale X": _how(
        "factor of all costs, for --confidence and --mbr", default=1.0
    ),
    "--kaldi FILE": "compact lattices as an archive for Kaldi's tools: text if it "
    "ends in .txt, else binary",
    "--kaldi-words FILE": "words of --kaldi by number, as Kaldi's words.txt",
    "--test-lattices FILE": "lattices to test the result of --posterior-scale on "
    "(default: every second speaker of --lattices)",
    "--test-ref FILE": "references of --test-lattices",
    "--confidences FILE": "words with confidences to measure, as `wfstdec decode "
    "--confidence` writes them (.ctm or .jsonl)",
    "--reliability FILE": "plot of the share of right words against confidence: .png "
    "or .svg (needs matplotlib)",
    # results
    "--strict": "stop at the first utterance with a fault (default: skip it)",
    "--resume": "continuation of the results of a run that was stopped",
    "--overwrite": "new results in place of those of a run that was stopped",
    "--format": _how(
        "format of the results (default: by the ending of --output, or text)",
        choices=tuple(FORMATS),
    ),
    "--subtitle-chars N": "characters of a line of subtitles (default: "
    f"{SubtitleOptions.max_chars})",
    "--subtitle-lines N": f"lines of a subtitle (default: {SubtitleOptions.max_lines})",
    "--subtitle-seconds SECONDS": "seconds of a subtitle (default: "
    f"{SubtitleOptions.max_s})",
    "--subtitle-pause SECONDS": "seconds of a pause that ends a subtitle (default: "
    f"{SubtitleOptions.pause_s})",
    # alignment
    "--exact": "search until no alignment of lower cost is possible",
    "--skip-cost NATS": "cost of a word left out (default: none may be)",
    "--insert-cost NATS": "cost of a passage of speech between words (default: there "
    "is none)",
    "--insert-frame-cost NATS": _how(
        "cost of each frame of it in addition", default=AlignOptions.insert_frame_cost
    ),
    # Ray
    "--ray ADDRESS": "Ray cluster: host:port, 'auto', or 'local', which starts one; "
    "--output and --lattices are then folders that all nodes see, the first with "
    "Parquet files",
    "--actors N": "with --ray: processes in parallel, each with its decoder, of "
    "--threads CPUs each, 1 unless given (default: as many as there is room for)",
    "--gpus-per-actor N": _how(
        "with --ray: GPUs, or a part of one (default: 0)",
        float,
        default=RayOptions.gpus,
    ),
    "--batch-rows N": _how(
        "with --ray: rows of a batch for an actor", default=RayOptions.batch_rows
    ),
    "--file-rows N": _how(
        "with --ray: rows of a file of results, about: those lost when a node vanishes",
        default=RayOptions.file_rows,
    ),
    # audio
    "--kind": _how(
        "kind of model, where its files leave that open",
        choices=MODEL_KINDS,
    ),
    "--sample-rate HZ": "sample rate in Hz, where the model has none",
    "--logits": _how(
        "outputs of the model that are not normalised yet (log_softmax)", default=None
    ),
    "--workers N": "pieces of audio encoded in parallel (default: one for each core)",
    "--channel N": "channel of the audio, from 0 (default: all, mixed)",
    "--max-audio-seconds S": _how(
        "longest recording in seconds; longer ones are refused", default=MAX_SECONDS
    ),
    "--allow-cut": "the readable part of files that were cut short",
    "--whole S": _how(
        "longest recording in seconds that is not cut at pauses (default: %(default)g "
        "seconds)",
        default=CutOptions.whole_s,
    ),
    # the server
    "--host HOST": _how("address to listen on: 0.0.0.0 for all", default="127.0.0.1"),
    "--port N": _how("port; 0 takes a free one, printed first", default=8000),
    "--key-file FILE": "file whose first line is the key of clients (default: that of "
    "the environment, WFSTDEC_KEY; without either everybody may come)",
    "--origin ORIGIN": _how(
        "another origin whose pages may use the server, such as https://example.org; "
        "several times for several, '*' for all",
        action="append",
        default=[],
    ),
    "--name NAME": "name of the model in answers (default: its file's name)",
    "--lang LANGUAGE": _how("language in answers", default="en"),
    "--no-page": "no page at /",
    "--ssl-certfile FILE": "TLS: the certificate, PEM",
    "--ssl-keyfile FILE": "TLS: its private key, PEM",
    "--proxy-headers": "trust in X-Forwarded-For and -Proto of those in "
    "--forwarded-allow-ips",
    "--forwarded-allow-ips LIST": _how(
        "addresses of proxies, with commas between; '*' for all",
        default="127.0.0.1,::1",
    ),
    # texts that are compared
    "--ref FILE": "references: 'utterance words...' lines",
    "--hyp FILE": "hypotheses: 'utterance words...' lines",
    "--ignore-case": "comparison of words without their case",
    "--normalize": "comparison of words without case, punctuation (except ' inside "
    "words, and . , : inside numbers), hyphens (taken as spaces) and Unicode form "
    "(NFKC)",
    # scoring and inspecting
    "--worst N": _how("number of worst utterances to show", count, default=0),
    "--draw FILE": "small graph for Graphviz's dot ('-': standard output)",
    "--recipe FOLDER": "recipe other than the shipped one",
    # comparing and tuning
    "--utterances N": _how(
        "number of utterances, evenly spaced (default: all)", count_above_zero
    ),
    "--wfst OPTION=VALUES": _how(
        "options of the WFST decoder, such as beam=8,13 max_active=7000,none",
        nargs="+",
        default=WFST_GRID,
    ),
    "--trie OPTION=VALUES": _how(
        "options of the trie decoder, such as beam_size=32,128 merge=max,sum; or "
        "beam:beam_size=6:16,8:32, values that go together",
        nargs="+",
        default=TRIE_GRID,
    ),
    "--greedy OPTION=VALUES": _how(
        "greedy decoding takes part, with options such as lm_scale=0.2,0.4 "
        "blank_penalty=0,1",
        nargs="*",
    ),
    "--repeats N": _how("timings of every point, in turn", count_above_zero, default=3),
    "--no-peers": "no decoders of others",
    "--json FILE": "file of all figures",
    "--plot FILE": "plot of WER against RTFx: .png or .svg (needs matplotlib)",
    "--lm-scale-range LOW HIGH": _how(
        "range of the LM scale", default=RANGES["lm_scale"]
    ),
    "--insertion-range LOW HIGH": _how(
        "range of the insertion (--greedy: the blank penalty) in nats",
        default=RANGES["word_insertion"],
    ),
    "--boost-range LOW HIGH": _how(
        "range of the scale of --boost", default=RANGES["boost_scale"]
    ),
    "--max-trials N": _how("most evaluations", count_above_zero, default=80),
    "--all": "rare kernels too: every kind of list in every way, greedy, alignment",
    "--quiet": "results and errors only",
    # limits of the server
    **{
        f"{x} {'SECONDS' if x.endswith('-s') else 'N'}": how
        for x, how in _LIMITS.items()
    },
}
"""Help, or help and more, by flag and the word that stands for its value."""


def _flag(usage: str, how: str | dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """A flag and the arguments of `add_argument` for it; without a value a switch."""
    flag, *values = usage.split()
    how = _how(how) if isinstance(how, str) else how
    text, kind, default = how["help"], how.pop("type"), how.get("default")
    if default and "(default" not in text:
        shown = f"{default:g}" if isinstance(default, float) else default
        if isinstance(default, tuple):
            between = " " if isinstance(default[0], str) else " to "
            shown = between.join(map(str, default))
        how["help"] = f"{text} (default: {shown})"
    if values:
        how["metavar"] = values[0] if len(values) == 1 else tuple(values)
        how["type"] = kind or _KINDS.get(values[0], str)
        if len(values) > 1:
            how["nargs"] = len(values)
    elif "choices" not in how:
        how.setdefault("action", "store_true")
    return flag, how


FLAGS = dict(itertools.starmap(_flag, _TABLE.items()))
"""Arguments of `add_argument` by flag."""

RUN = "--strict --resume --overwrite"
SUBTITLES = "--subtitle-chars --subtitle-lines --subtitle-seconds --subtitle-pause"
READING = "--confidence --mbr --posterior-scale"
PHRASES = (
    "--phrase-totals --phrase-unit --phrase-context --phrase-depth --phrase-unknown "
    "--phrase-boundary --sentencepiece-model"
)
BOOSTS = f"--boost --phrases {PHRASES}"
RAY_OPTIONS = "--actors --gpus-per-actor --batch-rows --file-rows"
AUDIO_MODEL = "--kind --sample-rate --logits --workers"
LIMITS = " ".join(_LIMITS)
GIVEN_LATTICES = {"help": "lattices of `wfstdec decode --lattices FILE`"}
"""Of `--lattices` where they are read."""


def search_defaults(name: str) -> dict[str, Any]:
    """The default of a search option in each decoder that has it."""
    return {
        decoder: field.default
        for decoder, options in DECODERS.items()
        for field in fields(options)
        if field.name == name
    }


def add_flags(
    parser: argparse._ActionsContainer,
    names: str,
    decoders: Collection[str] = tuple(DECODERS),
    **changes: Any,
) -> None:
    """Add some of `FLAGS`, with other arguments where there are some."""
    for name in names.split():
        how = {**FLAGS[name], **changes}
        defaults = search_defaults(name_of(name))
        if defaults:
            how.setdefault("default", next(iter(defaults.values())))
        if defaults and "help" not in changes and "(default" not in how["help"]:
            shown = {d: str(x).lower() for d, x in defaults.items() if d in decoders}
            text = ", ".join(f"{value} for {d}" for d, value in shown.items())
            if len(set(shown.values())) == 1:
                text = next(iter(shown.values()))
            how["help"] += f" (default: {text})"
        parser.add_argument(name, **how)


def add_decoder_flags(
    parser: argparse.ArgumentParser, decoders: Sequence[str], *, of_audio: bool
) -> None:
    """Add the flags of decoders, in groups; those not given are not set."""
    text = (
        f"the search: {', '.join(decoders)}; on a graph, on the trie of a lexicon or "
    )
    text += "bare tokens, on bare tokens without a beam"
    text += "" if of_audio else ", and the last two on --model"
    text += f" (default: {decoders[0]})"
    add_flags(parser, "--decoder", choices=decoders, help=text)
    add_flags(parser, "--backend --threads" + ("" if of_audio else " --frame-shift"))
    for flag, text in _OF_THE_MODEL.items() if of_audio else ():
        add_flags(parser, flag, help=text, default=argparse.SUPPRESS)
    # Help shows flags by the decoders that have them; SUPPRESS tells a flag that was
    # not given from a default that was.
    groups: dict[str, argparse._ActionsContainer] = {}
    for name, all_owners in _owners().items():
        owners = [owner for owner in all_owners if owner in decoders]
        if not owners or (of_audio and flag_of(name) in _OF_THE_MODEL):
            continue
        title = f"for --decoder {' or '.join(owners)}"
        if len(owners) == len(decoders):
            title = "for all decoders"
        if title not in groups:
            groups[title] = parser.add_argument_group(title)
        add_flags(groups[title], flag_of(name), decoders, default=argparse.SUPPRESS)


def search_options(args: argparse.Namespace, *, of_audio: bool = False) -> Any:
    """The options of the decoder that the flags ask for."""
    of_model = _OF_THE_MODEL if of_audio else {}
    for name, decoders in _owners().items():
        flag = flag_of(name)
        # A flag of another decoder would have no effect, and nobody would notice.
        if (
            flag not in of_model
            and hasattr(args, name)
            and args.decoder not in decoders
        ):
            raise OptionError(
                f"{flag} with --decoder {args.decoder}, expected flags of that "
                f"decoder; {flag} is for --decoder {' or '.join(decoders)}"
            )
    needed = INPUTS[args.decoder].split()[0]
    if flag_of(needed) not in of_model and not hasattr(args, needed):
        raise OptionError(
            f"--decoder {args.decoder} without {flag_of(needed)}, expected both"
        )
    return made_of(DECODERS[args.decoder], args)


def _owners() -> dict[str, list[str]]:
    """The decoders that have a flag, by its name."""
    owners: dict[str, list[str]] = {}
    for decoder, options in DECODERS.items():
        for name in (*INPUTS[decoder].split(), *(one.name for one in fields(options))):
            owners.setdefault(name, []).append(decoder)
    return owners


@dataclass(frozen=True)
class Command:
    """A command: its function, whose docstring is its help, and its flags by name."""

    run: Callable[[argparse.Namespace], int | None]
    flags: str = ""
    places: Mapping[str, Any] = field(default_factory=dict)  # positional: help or more
    required: str = ""
    one_of: Sequence[str] = ()  # one flag of each is required
    at_most_one: str = ""
    decoders: Sequence[str] = ()  # its decoders, whose flags it has
    of_audio: bool = False
    groups: Mapping[str, str] = field(default_factory=dict)  # by their titles in help
    # Other arguments of `add_argument`, by flag
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    common: str = ""  # flags that a short `--help` shows
    examples: str = ""

    @property
    def description(self) -> str:
        """Its help."""
        return inspect.getdoc(self.run) or ""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Give the command its flags."""
        for name, how in self.places.items():
            parser.add_argument(name, **how)

        def add(where: argparse._ActionsContainer, names: str, **more: Any) -> None:
            for name in names.split():
                add_flags(where, name, **more, **self.changes.get(name, {}))

        add(parser, self.required, required=True)
        for names in self.one_of:
            add(parser.add_mutually_exclusive_group(required=True), names)
        if self.at_most_one:
            add(parser.add_mutually_exclusive_group(), self.at_most_one)
        add(parser, f"{self.flags} --quiet")
        if self.decoders:
            add_decoder_flags(parser, self.decoders, of_audio=self.of_audio)
        for title, names in self.groups.items():
            add(parser.add_argument_group(title), names)


def command(flags: str = "", **how: Any) -> Callable[[Any], Command]:
    """Make a command of a function."""
    return lambda run: Command(run, flags, **how)


def flag_of(name: str) -> str:
    """The flag of an option."""
    return "--" + name.replace("_", "-")


def name_of(flag: str) -> str:
    """The option of a flag."""
    return flag.removeprefix("--").replace("-", "_")


def made_of(kind: type[_Made], args: argparse.Namespace, **others: Any) -> _Made:
    """Make an object of a dataclass: fields are flags by name, except `others`."""
    names = {field.name for field in fields(cast(Any, kind))} - others.keys()
    return kind(**given_of(args, names), **others)


def given_of(args: argparse.Namespace, names: Iterable[str]) -> dict[str, Any]:
    """The values of flags that the command line has."""
    return {name: value for name, value in vars(args).items() if name in names}


def values_of(args: argparse.Namespace, names: str) -> dict[str, Any]:
    """Values of flags, by names with spaces between: arguments of the same names."""
    return {name: getattr(args, name) for name in names.split()}


def need(args: argparse.Namespace, flags: str, other: str) -> None:
    """Raise `OptionError` for flags that have no effect without another one."""
    if getattr(args, name_of(other), None) is not None:
        return
    for flag in flags.split():
        value = getattr(args, name_of(flag), None)
        if value not in (None, False, FLAGS[flag].get("default")):
            shown = f"{flag} {value}" if isinstance(value, int | float) else flag
            shown = flag if value is True else shown
            raise OptionError(f"{shown} without {other}, expected both")


def normalizer_of(args: argparse.Namespace) -> Normalizer:
    """The rules that `--ignore-case` and `--normalize` ask for."""
    return made_of(Normalizer, args)


def limits_of(args: argparse.Namespace) -> Limits:
    """The limits of the server that flags ask for."""
    return Limits(
        **{one.name: getattr(args, f"max_{one.name}") for one in fields(Limits)}
    )
