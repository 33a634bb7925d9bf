"""Flags of the command line, each declared once, and commands that use them.

`FLAGS` has the arguments of `add_argument` by flag. A command is a function of parsed
arguments, whose docstring is its help, under `command`, which names its flags:

    @command("--blank --to", places={"input": "the graph to read"})
    def convert(args): ...

    made_of(AlignOptions, args)                 # fields by flags of the same names
    build_graph(**values_of(args, "lm blank"))  # lm=args.lm, blank=args.blank
"""

import argparse
import inspect
import math
import os
from argparse import BooleanOptionalAction
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, cast, get_args, get_type_hints

from wfstdec.align.alignment import AlignOptions
from wfstdec.attention.options import AttentionOptions, LengthNorm
from wfstdec.audio.reading import MAX_SECONDS
from wfstdec.batch.ray import RayOptions
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
from wfstdec.readable.options import BuildOptions
from wfstdec.search.options import DEFAULT_LATTICE_BEAM, OpenVocabulary
from wfstdec.server.limits import ENDPOINT_FLOOR_S, Limits
from wfstdec.text.lexicon import AUTO
from wfstdec.text.normalize import Normalizer
from wfstdec.transcription.pieces import CutOptions
from wfstdec.transducer.options import TransducerOptions
from wfstdec.trie.options import BACKENDS as TRIE_BACKENDS
from wfstdec.trie.options import TrieOptions
from wfstdec.wfst.options import BACKENDS as WFST_BACKENDS
from wfstdec.wfst.options import WfstOptions

_Made = TypeVar("_Made")
Args = argparse.Namespace  # Parsed values of flags

DECODERS: dict[str, Any] = {
    "wfst": WfstOptions,
    "trie": TrieOptions,
    "greedy": GreedyOptions,
    "transducer": TransducerOptions,
    "attention": AttentionOptions,
}
"""Options of each decoder; search flags have their names and defaults."""
_TOKENS = "tokens blank separator lm unk_cost"
_WORDS = (
    f"{_TOKENS} lexicon separator_optional open_vocabulary exact_boosts g2p g2p_phones"
)
INPUTS = {
    "wfst": f"graph {_WORDS}",
    "trie": _WORDS,
    "greedy": _TOKENS,
    "transducer": "model head lm separator unk_cost",
    "attention": "model lm separator unk_cost",
}
"""Inputs of each decoder in addition to options; the first is required.

Instead of a graph the WFST decoder accepts a lexicon, with the inputs of the trie.
"""
CTC_DECODERS = ("wfst", "trie", "greedy")  # Decoders of log-probs of any CTC model
_OF_THE_MODEL = {
    "--tokens": "the model's token table, where the model has none",
    "--blank": "the model's blank, where the model does not name it; a name or an "
    "index, -1 for the last",
    "--frame-shift": "seconds per frame of the model, where the model does not name it",
    "--head": "head of a hybrid model: ctc, or transducer (the default)",
}
"""Help of flags that describe the acoustic model, if there is one."""


def flag_of(name: str) -> str:
    """Return the flag of an option."""
    return "--" + name.replace("_", "-")


def name_of(flag: str) -> str:
    """Return the option of a flag."""
    return flag.removeprefix("--").replace("-", "_")


def _number(
    kind: Callable[[str], Any], good: Callable[[Any], bool], expected: str
) -> Callable[[str], Any]:
    def number(text: str) -> Any:
        if not good(value := kind(text)):
            raise argparse.ArgumentTypeError(f"found {text!r}, expected {expected}")
        return value

    return number


def seconds(text: str) -> float:
    """Parse seconds, refusing milliseconds."""
    try:
        return check_frame_shift(float(text))
    except OptionError as error:
        raise argparse.ArgumentTypeError(error.message.partition("=")[2]) from None


def _or_none(kind: Callable[[str], Any], name: str) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        return None if text.lower() == "none" else kind(text)

    read.__name__ = name  # the name in argparse's errors
    return read


def _count_or_auto(text: str) -> int:
    """Parse a number of processes; `auto` is the number of cores."""
    if text == "auto":
        return len(os.sched_getaffinity(0))
    return int(_KINDS["N>0"](text))


_OPTIONAL = {int: _or_none(int, "count"), float: _or_none(float, "number")}
_KINDS: dict[str, Any] = {
    **dict.fromkeys("NATS X SECONDS PROB FACTOR S LOW HIGH".split(), float),
    **{"WORD_COST": float, "TOKEN_COST": float, "N": int, "HZ": int},
    "N>0": _number(int, lambda x: x > 0, "1 or more"),
    "N>=0": _number(int, lambda x: x >= 0, "0 or more"),
    "NATS>0": _number(float, lambda x: 0 < x < math.inf, "a number above 0"),
}
"""Types of values by metavar; others are text."""


def _how(text: str, **more: Any) -> dict[str, Any]:
    return {"help": text, **more}


_BACKENDS = ", ".join(dict.fromkeys((*WFST_BACKENDS, *TRIE_BACKENDS, *GREEDY_BACKENDS)))
_RANGE = {name: f"LOW HIGH {low} {high}" for name, (low, high) in RANGES.items()}
_CUE = SubtitleOptions()

_TABLE: dict[str, Any] = {
    "--tokens FILE": "token table of the acoustic model",
    "--blank BLANK": "name or index of the blank, if not recognised",
    "--lexicon FILE": "words and their tokens",
    "--spell WORDS": "list of words to spell with the tokens, in place of --lexicon",
    "--sentencepiece-model MODEL": "model that cuts words into tokens, no lexicon",
    "--separator TOKEN": _how(
        "token between words, or none (default: '|' of Hugging Face's tables, or none)",
        type=_or_none(str, "token"),
        default=AUTO,
    ),
    "--separator-optional": "optional separator between words",
    "--silence TOKEN": "token for silence between words",
    "--silence-prob PROB 0.5": "probability of silence",
    "--lm PATH": "n-gram model: ARPA, KenLM binary, or a folder of `wfstdec build-lm`",
    "--arpa FILE": "n-gram model: ARPA, plain or gzip, or a KenLM binary",
    "--grammar FST": "OpenFst acceptor over words, in place of --lm",
    "--unk-cost NATS": "cost of words that the model lacks (default: dropped)",
    "--open-vocabulary WORD_COST TOKEN_COST": "OOV words spelled by tokens: "
    "nats for each word, in addition to its <unk>, and for each token",
    "--nemo-tokens": "ARPA file of NeMo: its words are characters for tokens",
    f"--topology {'|'.join(TOPOLOGIES)} normal": "CTC topology",
    f"--engine {'|'.join(ENGINES)} kaldifst": "FST library that determinizes --grammar",
    "--no-minimize": "no minimization: exact costs, a larger graph",
    "--words FILE": "word table: 'word id' lines, <eps> is 0",
    "--tune FILE+": "printed text to tune on (default: the last twentieth)",
    "--speech FILE": "pauses of punctuated speech: JSON lines with text, as printed, "
    "and words, [start, end] of each",
    f"--vocabulary N>0 {BuildOptions.vocabulary}": "most known words",
    "--passes N>0": "passes over the text (default: 5, more for short texts)",
    f"--to {'|'.join(FORMS)}": "kind of OpenFst file (default: text for .txt, const)",
    "--graph FILE": "search graph of `wfstdec build`",
    "--logprobs PATH": ".npz, Kaldi .ark or .scp, .npy or a folder of them: [T, V] "
    "each; - or ark:- is an ark from standard input",
    f"--decoder {'|'.join(DECODERS)} wfst": "the search",
    "--frame-shift SECONDS 0.02": _how("seconds per frame", type=seconds),
    "--backend BACKEND auto": f"auto (the CPU), {_BACKENDS}",
    "--threads N>0": "utterances in parallel (default: one for each core)",
    "--output FILE": "file to write",
    "--boost FILE": "words and phrases to boost; 'word<TAB>nats' lines (without a "
    "number a conservative default is used), or JSON lines",
    "--only-phrases FILE": "phrases, one per line, as the only vocabulary; '[unk]' is "
    "any other speech",
    "--exact-boosts": "boosted words only as written: case, Unicode form, punctuation",
    "--phrases FILE": "phrases, one per line: to boost ('phrase<TAB>weight', or JSON "
    "lines with lists by utterance; without a weight a conservative default is used), "
    "or to score (default: those of the boost lists)",
    "--phrase-unit word|token": "unit of credit (default: word; token without words)",
    "--phrase-totals": "weights of --phrases in nats for a whole phrase, as those of "
    "--boost (default: times 1 nat for its first label, 2 + ln(place) for the others; "
    "of transducers and attention 1 nat for each)",
    "--phrase-context NATS>0": "credit of a first label, times its weight, 1 if none "
    "is given (default: 1)",
    "--phrase-depth FACTOR": "factor of later labels, plus ln(place); weights as "
    "above (default: 2)",
    "--phrase-boundary TOKEN": "token around phrases of tokens, or the text's ends "
    "(default: the separator, unless optional)",
    "--g2p SOURCE": "pronunciations of OOV words: a "
    "lexicon that has them, such as cmudict; a SentencePiece model; a program, words "
    "in, 'word<TAB>phones' out; 'hama', a model (pip install hama==1.7.0); or "
    "'spelling', the default if tokens spell the words",
    "--g2p-phones FILE": "tokens of the phones of --g2p, 'phone tokens...' lines; "
    "others match by name, ARPAbet's by IPA",
    # options of searches, by the names of their fields, with their kinds and defaults
    "--beam NATS": "beam width in nats; wider is slower and misses less",
    "--beam-size N": "maximum number of entries per frame",
    "--max-active N": "maximum number of active states per frame, or none",
    "--token-top-k N": "most tokens to begin in a frame, by probability; or none",
    "--merge": "alignments of a text: the best, or their sum",
    "--nbest N": "different texts of each utterance",
    "--lookahead": "language model inside words: with its history, without, not at all",
    "--acoustic-scale X": "factor of the log-probs",
    "--lm-scale X": "factor of the costs of the graph, or language model",
    "--word-insertion NATS": "cost of each word; above 0 penalises",
    "--token-insertion NATS": "cost of each token; above 0 penalises",
    "--blank-penalty NATS": "nats subtracted from the blank's log-prob",
    "--blank-skip-threshold PROB": "blank probability above which a frame is skipped",
    "--beam-delta NATS": "nats added to the beam that max-active implies",
    "--boost-scale X": "factor of all boosts",
    "--strategy": "one token after the other, ALSD++ (by symbols), AES++ (by frames)",
    "--blank-scored": "weight of language models on the blank too",
    "--max-symbols N": "most tokens in one frame",
    "--expansion-rounds N": "AES++: tokens in a frame",
    "--expansion-beta N": "AES++: labels of an entry beyond the beam size",
    "--expansion-gamma NATS": "AES++: distance of labels of an entry from its best",
    "--prefix-search": "AES++: first add scores to texts that are one token longer",
    "--end-rule": "treatment of phrases at the end of a text",
    "--ctc-weight X": "weight of the model's CTC head against attention, 0 to 1",
    "--pre-beam N": "tokens of a text that CTC scores (none: 1.5 times the beam size)",
    "--length-norm": _how(
        "rank by the total, by token, or (attention) by token to the power of "
        "--gnmt-alpha",
        choices=get_args(LengthNorm),
    ),
    "--gnmt-alpha X": "--length-norm gnmt: ((5 + n) / 6) to this power",
    "--stop": "end: no better text possible, full list, or only the limit",
    "--max-tokens-per-s X": "maximum number of tokens per second, plus 5",
    "--no-repeat-ngram N": "tokens in a row that may occur only once; 0: no limit",
    "--model PATH": "transducer: a file of TransducerNet.save, or a folder with "
    "encoder.onnx, decoder.onnx, joiner.onnx and tokens.txt; for `wfstdec decode "
    "--decoder attention` a file of JointNet.save; the log-probs are the features of "
    "its encoder",
    "--head HEAD": "head of a model with several (default: the first)",
    "--transducer OPTION=VALUES*": "transducer of --model: strategy=alsd,aes "
    "beam_size=4,10",
    "--transducer-lm PATH": "language model over its tokens: ARPA, or of build-lm",
    "--attention OPTION=VALUES*": "attention decoder of --attention-model: "
    "beam_size=1,3,8 end_rule=closed,none",
    "--attention-model PATH": "attention decoder with its encoder: a file "
    "of JointNet.save; the log-probs are the features of its encoder",
    "--attention-lm PATH": "language model over the tokens of --attention-model",
    "--lattice-beam NATS": "beam width in nats of lattices and n-best lists "
    f"(default: {DEFAULT_LATTICE_BEAM:g}, or the beam)",
    "--lattices FILE": "lattices of all utterances, for wfstdec rescore and score",
    "--oracle N?": _how(
        "WER of the best of N texts (default: 10) and of lattices", const=10
    ),
    "--nbest-lists FILE": "n-best lists of `wfstdec decode --nbest N --format jsonl`",
    "--confidence": "probability of each word, from a lattice",
    "--mbr": "text of least expected error instead of the most probable one",
    "--posterior-scale X 1": "factor of costs in --confidence, --mbr",
    "--kaldi FILE": "compact lattices for Kaldi's tools: text for .txt, else binary",
    "--kaldi-words FILE": "words of --kaldi by number, as Kaldi's words.txt",
    "--test-lattices FILE": "lattices to test the result of --posterior-scale on "
    "(default: every second speaker of --lattices)",
    "--test-ref FILE": "references of --test-lattices",
    "--confidences FILE": "words of `wfstdec decode --confidence`, .ctm or .jsonl",
    "--reliability FILE": "plot of accuracy by confidence: .png, .svg (matplotlib)",
    "--strict": "stop at the first utterance with a fault (default: skip it)",
    "--resume": "continue the results of an interrupted run",
    "--overwrite": "replace the results of an interrupted run",
    f"--format {'|'.join(FORMATS)}": "format of results (default: by --output, text)",
    "--smart": "readable text: --itn en --punctuate en",
    "--itn GRAMMAR": "numbers, dates and sums in digits: en, en:all (0 to 9 too), a "
    ".fst or .far file over bytes, or off",
    "--punctuate MODEL": "punctuation and capitals: en, a file of build-punctuation, "
    "or off",
    "--display-words FILE": "written forms, one per line, of words that differ only in "
    "case: McDonald",
    "--join TEXT": "separator of words in texts and subtitles (default: a space, and "
    "nothing in scripts without spaces, such as Chinese)",
    "--subtitle-chars N": f"characters of a line (default: {_CUE.max_chars})",
    "--subtitle-lines N": f"lines of a subtitle (default: {_CUE.max_lines})",
    "--subtitle-seconds SECONDS": f"seconds of a subtitle (default: {_CUE.max_s})",
    "--subtitle-pause SECONDS": f"pause that ends a subtitle (default: {_CUE.pause_s})",
    "--exact": "search until no alignment of lower cost is possible",
    "--skip-cost NATS": "cost of a skipped word (default: none may be skipped)",
    "--unknown wildcard|error wildcard": "words that cannot be spelled: any speech, or "
    "an error",
    "--insert-cost NATS": "cost of speech between words (default: not allowed)",
    f"--insert-frame-cost NATS {AlignOptions.insert_frame_cost}": "additional cost "
    "of each of its frames",
    "--ray ADDRESS": "Ray cluster: host:port, 'auto', or 'local', which starts one; "
    "--output and --lattices are then folders on all nodes, the first of Parquet",
    "--actors N": "with --ray: processes, of --threads CPUs each, 1 unless given "
    "(default: as many as fit)",
    f"--gpus-per-actor N {RayOptions.gpus}": _how(
        "with --ray: GPUs, or a part of one (default: 0)", type=float
    ),
    f"--batch-rows N {RayOptions.batch_rows}": "with --ray: rows of a batch",
    f"--file-rows N {RayOptions.file_rows}": "with --ray: rows of a file of results",
    "--audio PATH+": "recordings of the lattices, by their names: files, folders, "
    "lists of paths (.txt), manifests (.jsonl)",
    "--model-weight X 0.5": "weight of the costs of --model",
    "--model-texts N>0 16": "texts of each lattice that --model compares",
    "--kind encoder|mapped|hama|transformers-attention|transformers|onnx-transducer|"
    "nemo-attention|onnx-attention|streaming-onnx|onnx-asr|onnx|function": "kind of "
    "model, if its files do not determine it",
    "--sample-rate HZ": "sample rate in Hz, if the model has none",
    "--logits": _how("model outputs not normalised yet (log_softmax)", default=None),
    "--language CODE": "language that Whisper or Canary writes (default: en)",
    "--workers N": "pieces of audio encoded in parallel (default: one for each core)",
    "--channel N": "channel of the audio, from 0 (default: all, mixed)",
    f"--max-audio-seconds S {MAX_SECONDS}": "longest recording accepted",
    "--allow-cut": "accept the intact part of truncated files",
    f"--whole S {CutOptions.whole_s}": "longest recording not cut at pauses",
    "--host HOST 127.0.0.1": "address to listen on: 0.0.0.0 for all",
    "--port N 8000": "port; 0 takes a free one, and prints it",
    "--processes N 1": _how(
        "processes that share the port and the memory of the decoder; auto: one for "
        "each core",
        type=_count_or_auto,
    ),
    "--key-file FILE": "file whose first line is the key of clients (default: that of "
    "the environment, WFSTDEC_KEY; without either anyone may connect)",
    "--origin ORIGIN": _how(
        "further origin whose pages may use the server, such as https://example.org; "
        "repeatable, '*' for all",
        action="append",
        default=[],
    ),
    "--host-name NAME": _how(
        "further name of the server for clients, such as that of a proxy; repeatable, "
        "'*' for all",
        action="append",
        default=[],
    ),
    f"--endpoint-floor-ms N>=0 {round(1000 * ENDPOINT_FLOOR_S)}": "shortest silence "
    "that ends an utterance, in ms; shorter endpointing only signals",
    "--name NAME": "name of the model in responses (default: its file's name)",
    "--lang LANGUAGE en": "language in responses",
    "--wyoming ADDRESS": "address for Wyoming, the protocol of Home Assistant, such as "
    "tcp://127.0.0.1:10300; of this machine only, as the protocol has no keys",
    "--wyoming-any": "allow any address in --wyoming, without authentication",
    "--prompt-boosts on|off on": "rare words and names of OpenAI's `prompt` as boosts",
    "--no-page": "no page at /",
    "--ssl-certfile FILE": "TLS: the certificate, PEM",
    "--ssl-keyfile FILE": "TLS: its private key, PEM",
    "--proxy-headers": "trust in X-Forwarded-For and -Proto of --forwarded-allow-ips",
    "--forwarded-allow-ips LIST 127.0.0.1,::1": "proxies, with commas; '*' for all",
    "--ref FILE": "references: 'utterance words...' lines, .jsonl, .ctm or .trn",
    "--hyp FILE": "hypotheses: 'utterance words...' lines, .jsonl, .ctm or .trn",
    "--ignore-case": "ignore case when comparing words",
    "--characters": "character error rates instead of word error rates; spaces are "
    "ignored",
    "--normalize": "ignore case, punctuation (except ' inside "
    "words, and . , : inside numbers), hyphens (read as spaces) and Unicode form "
    "(NFKC)",
    "--worst N>=0 0": "worst utterances to show",
    "--draw FILE": "small graph for Graphviz's dot ('-': standard output)",
    "--recipe FOLDER": "recipe other than the shipped one",
    "--utterances N>0": "utterances, evenly spaced (default: all)",
    f"--wfst OPTION=VALUES+ {' '.join(WFST_GRID)}": "WFST decoder: beam=8,13 "
    "max_active=7000,none",
    f"--trie OPTION=VALUES+ {' '.join(TRIE_GRID)}": "trie decoder: beam_size=32,128 "
    "merge=max,sum; or beam:beam_size=6:16,8:32, values that vary together",
    "--greedy OPTION=VALUES*": "greedy decoder: lm_scale=0.2,0.4 blank_penalty=0,1",
    "--repeats N>0 3": "timings of every point",
    "--json FILE": "file of all figures",
    "--plot FILE": "plot of WER against RTFx: .png or .svg (needs matplotlib)",
    f"--lm-scale-range {_RANGE['lm_scale']}": "range of the LM scale",
    f"--insertion-range {_RANGE['word_insertion']}": "range of the insertion "
    "(--greedy: the blank penalty), nats",
    f"--boost-range {_RANGE['boost_scale']}": "range of --boost's scale",
    "--max-trials N>0 80": "most evaluations",
    "--all": "also rare kernels: all kinds of boost lists, greedy, alignment",
    "--quiet": "results and errors only",
}
"""Help, or arguments of `add_argument`, by flag, metavar and default.

Metavars are in capitals, with a bound (`N>0`), or `?`, `*`, `+` as in argparse; choices
are separated by `|`. A flag without either is a switch, or an option of searches, with
kind and default of its field.
"""
for _limit in fields(Limits):
    _value = "SECONDS" if _limit.name.endswith("_s") else "N"
    _default = "" if _limit.default is None else _limit.default
    _usage = f"{Limits.flag(_limit.name)} {_value} {_default}"
    _TABLE[_usage] = _limit.metadata["help"]


def search_defaults(name: str) -> dict[str, Any]:
    """Return the default of a search option in each decoder that has it."""
    return {
        decoder: field.default
        for decoder, options in DECODERS.items()
        for field in fields(options)
        if field.name == name
    }


def _arguments(usage: str, how: str | dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return a flag and its arguments of `add_argument`."""
    flag, *words = usage.split()
    made: dict[str, Any] = {"help": how} if isinstance(how, str) else how
    if words and "|" in words[0]:
        made["choices"] = words.pop(0).split("|")
    values = [word for word in words if word.isupper()]
    if values:
        nargs = values[0][-1] if values[0][-1] in "?*+" else None
        values = [word.rstrip("?*+") for word in values]
        made.setdefault("type", _KINDS.get(values[0], str))
        names = tuple(word.partition(">")[0] for word in values)
        made["metavar"] = names if len(names) > 1 else names[0]
        if nargs or len(names) > 1:
            made["nargs"] = nargs or len(names)
    if defaults := tuple(map(made.get("type", str), words[len(values) :])):
        made["default"] = defaults if "nargs" in made else defaults[0]
    # The kind of a search option is that of the first decoder that has it.
    for decoder, default in list(search_defaults(name_of(flag)).items())[:1]:
        made["default"] = default
        hint = get_type_hints(DECODERS[decoder])[name_of(flag)]
        if hint is bool:
            made.setdefault("action", BooleanOptionalAction)
        elif not values:
            made.setdefault("choices", get_args(hint))
        elif default is None or type(None) in get_args(hint):
            made["type"] = _OPTIONAL[made["type"]]
    if not values and "choices" not in made:
        made.setdefault("action", "store_true")
    return flag, made


FLAGS = dict(_arguments(usage, how) for usage, how in _TABLE.items())
"""Arguments of `add_argument` by flag."""

RUN = "--strict --resume --overwrite"
SUBTITLES = (
    "--join --subtitle-chars --subtitle-lines --subtitle-seconds --subtitle-pause"
)
READABLE = "--smart --itn --punctuate --display-words"
READING = "--confidence --mbr --posterior-scale"
PHRASES = (
    "--phrase-totals --phrase-unit --phrase-context --phrase-depth --phrase-boundary "
    "--sentencepiece-model"
)
BOOSTS = f"--boost --only-phrases --phrases {PHRASES}"
RAY_OPTIONS = "--actors --gpus-per-actor --batch-rows --file-rows"
AUDIO_MODEL = "--kind --sample-rate --logits --workers --language"
LIMITS = " ".join(Limits.flag(one.name) for one in fields(Limits))
GIVEN_LATTICES = {"help": "lattices of `wfstdec decode --lattices FILE`"}
"""`--lattices` as an input."""


def add_flags(
    parser: argparse._ActionsContainer,
    names: str,
    decoders: Collection[str] = tuple(DECODERS),
    **changes: Any,
) -> None:
    """Add some of `FLAGS`, with overrides."""
    for name in names.split():
        how = {**FLAGS[name], **changes}
        if "help" not in changes and "(default" not in how["help"]:
            how["help"] += _default_shown(name, decoders)
        parser.add_argument(name, **how)


def _default_shown(name: str, decoders: Collection[str]) -> str:
    default, defaults = FLAGS[name].get("default"), search_defaults(name_of(name))
    shown = {d: str(x).lower() for d, x in defaults.items() if d in decoders}
    text = f"{default:g}" if isinstance(default, float) else str(default or "")
    if len(set(shown.values())) > 1:
        text = ", ".join(f"{value} for {d}" for d, value in shown.items())
    elif shown:
        text = next(iter(shown.values()))
    elif isinstance(default, tuple):
        text = (" " if isinstance(default[0], str) else " to ").join(map(str, default))
    return f" (default: {text})" if text else ""


def add_decoder_flags(
    parser: argparse.ArgumentParser, decoders: Sequence[str], *, of_audio: bool
) -> None:
    """Add the flags of decoders, in groups; absent flags remain unset."""
    text = (
        f"the search, by default {'that of the model, or ' * of_audio}{decoders[0]}; "
        f"of {', '.join(decoders)}: on a graph, on the trie of a lexicon or bare "
        "tokens, on bare tokens without a beam, and the last two on "
        + ("models of these kinds" if of_audio else "--model")
    )
    default = None if of_audio else decoders[0]
    add_flags(parser, "--decoder", choices=decoders, help=text, default=default)
    add_flags(parser, "--backend --threads" + ("" if of_audio else " --frame-shift"))
    for flag, text in _OF_THE_MODEL.items() if of_audio else ():
        add_flags(parser, flag, help=text, default=argparse.SUPPRESS)
    # Help shows flags by the decoders that have them; SUPPRESS distinguishes an absent
    # flag from a default.
    groups: dict[str, argparse._ActionsContainer] = {}
    for name, all_owners in _owners().items():
        owners = [owner for owner in all_owners if owner in decoders]
        if not owners or (of_audio and flag_of(name) in {*_OF_THE_MODEL, "--model"}):
            continue
        is_common = len(owners) == len(decoders)
        of = "all decoders" if is_common else f"--decoder {' or '.join(owners)}"
        if of not in groups:
            groups[of] = parser.add_argument_group(f"for {of}")
        add_flags(groups[of], flag_of(name), decoders, default=argparse.SUPPRESS)


def search_options(args: Args) -> Any:
    """Return the options of the decoder chosen by the flags."""
    of_model = _OF_THE_MODEL if hasattr(args, "acoustic_model") else {}
    for name, decoders in _owners().items():
        flag = flag_of(name)
        is_ours = args.decoder in decoders or flag in of_model
        # A flag of another decoder would have no effect, unnoticed.
        if hasattr(args, name) and not is_ours:
            raise OptionError(
                f"{flag} with --decoder {args.decoder}, expected flags of that "
                f"decoder; {flag} is for --decoder {' or '.join(decoders)}"
            )
    needed = INPUTS[args.decoder].split()[0]
    if needed == "graph" and hasattr(args, "lexicon"):
        needed = "tokens"
    is_given = hasattr(args, needed) or needed in ("model", "tokens") and bool(of_model)
    if not is_given:
        other = ", or a --lexicon" if needed == "graph" else ""
        raise OptionError(
            f"--decoder {args.decoder} without {flag_of(needed)}, expected both{other}"
        )
    return made_of(DECODERS[args.decoder], args)


def _owners() -> dict[str, list[str]]:
    owners: dict[str, list[str]] = {}
    for decoder, options in DECODERS.items():
        for name in (*INPUTS[decoder].split(), *(one.name for one in fields(options))):
            owners.setdefault(name, []).append(decoder)
    return owners


@dataclass(frozen=True)
class Command:
    """Command: a function, whose docstring is its help, and its flags by name."""

    run: Callable[[Args], int | None]
    flags: str = ""
    places: Mapping[str, Any] = field(default_factory=dict)  # positional: help or more
    required: str = ""
    one_of: Sequence[str] = ()  # at most one flag of each
    at_most_one: str = ""
    decoders: Sequence[str] = ()  # decoders, whose flags it has
    groups: Mapping[str, str] = field(default_factory=dict)  # by their titles in help
    # Overrides of arguments of `add_argument`, by flag
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    common: str = ""  # flags in a short `--help`
    examples: str = ""

    @property
    def shown(self) -> str:
        """Return the flags of a short `--help`, by default all."""
        return self.common or " ".join([self.required, *self.one_of, self.flags])

    @property
    def description(self) -> str:
        """Help of the command."""
        return inspect.getdoc(self.run) or ""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add its flags to a parser."""
        for name, how in self.places.items():
            parser.add_argument(name, **how)

        def add(where: argparse._ActionsContainer, names: str, **more: Any) -> None:
            for name in names.split():
                add_flags(where, name, **more, **self.changes.get(name, {}))

        add(parser, self.required, required=True)
        for names in self.one_of:
            add(parser.add_mutually_exclusive_group(), names)
        if self.at_most_one:
            add(parser.add_mutually_exclusive_group(), self.at_most_one)
        add(parser, f"{self.flags} --quiet")
        if self.decoders:
            of_audio = "acoustic_model" in self.places
            add_decoder_flags(parser, self.decoders, of_audio=of_audio)
        for title, names in self.groups.items():
            add(parser.add_argument_group(title), names)


def changed(default: Any, text: str, **more: Any) -> dict[str, Any]:
    """Return an override of the default and help of a flag."""
    return {"default": default, "help": text, **more}


def command(flags: str = "", **how: Any) -> Callable[[Any], Command]:
    """Turn a function into a command."""
    return lambda run: Command(run, flags, **how)


def made_of(kind: type[_Made], args: Args, **others: Any) -> _Made:
    """Build a dataclass: fields are flags by name, except `others`."""
    names = {field.name for field in fields(cast(Any, kind))} - others.keys()
    return kind(**given_of(args, names), **others)


def given_of(args: Args, names: Iterable[str]) -> dict[str, Any]:
    """Return the values of flags on the command line."""
    return {name: value for name, value in vars(args).items() if name in names}


def values_of(args: Args, names: str) -> dict[str, Any]:
    """Return values of flags as arguments, by names separated by spaces."""
    return {name: getattr(args, name) for name in names.split()}


def need(args: Args, flags: str, other: str) -> None:
    """Raise `OptionError` for flags that have no effect without another one."""
    if getattr(args, name_of(other), None) is None:
        for shown in _given(args, flags):
            raise OptionError(f"{shown} without {other}, expected both")


def refuse(args: Args, flags: str, other: str) -> None:
    """Raise `OptionError` for flags that have no effect with another one."""
    for shown in _given(args, flags):
        raise OptionError(f"{shown} with {other}, expected one of them")


def _given(args: Args, flags: str) -> Iterator[str]:
    for flag in flags.split():
        value = getattr(args, name_of(flag), None)
        if value not in (None, False, FLAGS[flag].get("default")):
            is_number = isinstance(value, int | float) and value is not True
            yield f"{flag} {value}" if is_number else flag


def normalizer_of(args: Args) -> Normalizer:
    """Return the rules of `--ignore-case` and `--normalize`."""
    return made_of(Normalizer, args)


def open_vocabulary_of(args: Args) -> OpenVocabulary | None:
    """Return the costs of `--open-vocabulary`."""
    return args.open_vocabulary and OpenVocabulary(*args.open_vocabulary)


def limits_of(args: Args) -> Limits:
    """Return the limits of the server."""
    flags = {one.name: name_of(Limits.flag(one.name)) for one in fields(Limits)}
    return Limits(**{name: getattr(args, flag) for name, flag in flags.items()})
