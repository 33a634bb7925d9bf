"""Commands that decode, align and rescore: log-probs, audio, lattices."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import wfstdec
from wfstdec.align.alignment import AlignOptions
from wfstdec.attention import open_decoder
from wfstdec.batch.aligning import align_file
from wfstdec.batch.decoding import (
    BoostLists,
    LatticeReading,
    Tally,
    decode_file,
    rescore_file,
)
from wfstdec.batch.ray import (
    DecodeRows,
    RayOptions,
    RowWorker,
    TranscribeRows,
    are_rows,
    logprob_rows,
    recording_rows,
    run_rows,
)
from wfstdec.boost.g2p import G2p
from wfstdec.boost.phrases import PhraseOptions
from wfstdec.cli.flags import (
    AUDIO_MODEL,
    BOOSTS,
    CTC_DECODERS,
    DECODERS,
    GIVEN_LATTICES,
    INPUTS,
    PHRASES,
    RAY_OPTIONS,
    READABLE,
    READING,
    RUN,
    SUBTITLES,
    Args,
    changed,
    command,
    flag_of,
    given_of,
    made_of,
    name_of,
    need,
    normalizer_of,
    open_vocabulary_of,
    search_options,
    values_of,
)
from wfstdec.cli.main import TEXTS
from wfstdec.errors import OptionError
from wfstdec.io.boost_files import read_boosts, read_phrase_weights
from wfstdec.io.journal import (
    FOLDER_JOURNAL,
    Restart,
    is_finished,
    settings_as_json,
)
from wfstdec.io.lattices import KaldiLatticeWriter
from wfstdec.io.logprobs import open_logprobs, path_and_kind, scp_files
from wfstdec.io.outputs import STDOUT
from wfstdec.io.results import format_named, result_writer
from wfstdec.io.subtitles import SUBTITLES as SUBTITLE_FORMATS
from wfstdec.io.subtitles import SubtitleOptions
from wfstdec.lattice.file import LatticeWriter
from wfstdec.models import Encoder, EncoderSpec, load_model
from wfstdec.models.loading import family_of
from wfstdec.search.decoder import Decoder
from wfstdec.search.hypothesis import Word
from wfstdec.text.files import atomic_write, digest, is_stream, read_lines, reading
from wfstdec.transcription.encoding import AudioOptions
from wfstdec.transcription.files import find_recordings, transcribe_files
from wfstdec.transcription.pieces import CutOptions
from wfstdec.transcription.transcriber import Transcriber

_log = logging.getLogger("wfstdec.decode")
RESULTS = {"help": "results: .txt, .jsonl, .ctm, .srt, .vtt or .TextGrid"}
"""Of `--output`."""
_MODELS = "ONNX file, folder of a model, hama, module:function, or .json"
MODEL = {"metavar": "MODEL", "help": _MODELS}
_AUDIO = "files, folders, lists of paths (.txt), manifests (.jsonl)"
_MISFITS_AT_MOST = 20
_PHRASE_FIELDS = {"context": "c0", "depth": "beta"}
_SUBTITLE_FIELDS = dict(
    chars="max_chars", lines="max_lines", seconds="max_s", pause="pause_s"
)
"""Fields of `PhraseOptions` and `SubtitleOptions` by suffix of their flags."""
_NO_SETTINGS = frozenset(
    "command output quiet threads workers strict resume overwrite "
    "ray actors gpus_per_actor batch_rows file_rows".split()
)
"""Flags that do not change results."""
_FILES = (
    "acoustic_model graph tokens lexicon lm model boost phrases sentencepiece_model "
    "g2p g2p_phones lattices"
).split()
"""Flags that may name a file: other nodes have other current folders."""


@command(
    f"--output --format {READABLE} {SUBTITLES} {RUN} {BOOSTS} --lattices {READING}",
    required="--logprobs",
    decoders=tuple(DECODERS),
    groups={"for --ray": f"--ray {RAY_OPTIONS}"},
    changes={"--output": RESULTS},
    common="--logprobs --graph --decoder --output --lm-scale --beam --nbest --boost "
    "--confidence --threads",
    # They run in `graphs/librispeech_demo`, if it has a graph.
    examples=r"""
  wfstdec decode --graph graph.npz --logprobs logprobs.npz --output hyp.ctm
  wfstdec decode --decoder trie --tokens tokens.txt --lexicon lexicon.txt.gz \
      --lm lm.arpa.gz --separator '<wb>' --logprobs logprobs.npz --output hyp.jsonl
""",
)
def decode(args: Args) -> None:
    r"""Decode log-probs: words, times and costs of each utterance.

    Five decoders: wfst on a graph; trie on a lexicon or bare tokens; greedy on bare
    tokens; transducer and attention, whose encoders take the log-probs or features:

        wfstdec decode --graph graph.npz --logprobs x.npz
        wfstdec decode --tokens ... --lexicon ... --lm ... --logprobs x.npz
        wfstdec decode --decoder trie --tokens ... --lexicon ... --lm ... \
            --logprobs x.npz
        wfstdec decode --decoder greedy --tokens ... --lm bpe.arpa --logprobs x.npz
        wfstdec decode --decoder transducer --model model.npz --logprobs x.npz
        wfstdec decode --decoder attention --model model.npz --logprobs x.npz

    Results are in the order of the log-probs, by default on standard output. An
    utterance with a fault is named and skipped, and the exit code is 1. Results of an
    interrupted run are kept next to --output, and --resume continues there.

    On a Ray cluster (--ray) log-probs may also be rows: Parquet, or shards of
    WebDataset; --output is a folder of Parquet.
    """
    if args.ray is not None:
        path = Path(args.logprobs)
        rows = [path] if are_rows([path]) else logprob_rows(path)
        run_on_ray(args, rows, _decode_rows)
        return
    need(args, RAY_OPTIONS, "--ray")
    asked = Decoding(args)
    how, logprobs = asked.run_options(), open_logprobs(args.logprobs)
    if is_done(args, how["restart"]):
        return
    decoder = make_decoder(args, asked.options)
    how |= {"boosts": asked.boosts(decoder), "lattices": asked.reading}
    finish(decode_file(decoder, logprobs, args.output, **how), args)


def _decode_rows(args: Args) -> DecodeRows:
    asked = Decoding(args)
    how: Any = {"lattices": asked.reading, "keep": args.lattices}
    decoder = make_decoder(args, asked.options)
    return DecodeRows(decoder, asked.boosts, nbest=asked.nbest, **how)


@command(
    f"--output --format {READABLE} {SUBTITLES} {RUN} {BOOSTS} --lattices {READING} "
    f"{AUDIO_MODEL} --channel --max-audio-seconds --allow-cut --whole",
    places={
        "acoustic_model": MODEL,
        "audio": {"metavar": "AUDIO", "nargs": "+", "help": _AUDIO},
    },
    decoders=tuple(DECODERS),
    groups={"for --ray": f"--ray {RAY_OPTIONS}"},
    changes={"--output": RESULTS},
    common="--graph --decoder --output --tokens --blank --sample-rate --lm-scale "
    "--beam --boost --resume",
    # They run in `graphs/librispeech_demo`, if it has a graph.
    examples=r"""
  wfstdec transcribe model.json audio --graph graph.npz --output words.jsonl
  wfstdec transcribe model.json audio/1462-170142-0030.mp3 --graph graph.npz \
      --lm-scale 0.8 --boost boosts.txt --output words.srt
""",
)
def transcribe(args: Args) -> None:
    r"""Transcribe audio: recordings of any length to words with times, or subtitles.

        wfstdec transcribe model.onnx talk.mp3 --graph graph.npz --lm-scale 0.8
        wfstdec transcribe model.onnx calls/ --tokens tokens.txt --blank '<blank>' \
            --sample-rate 16000 --graph graph.npz --output calls.jsonl
        wfstdec transcribe model.onnx hour.flac --decoder trie --lexicon ... --lm ... \
            --output hour.srt

    MODEL is an ONNX file, a folder of a model, 'hama', 'module:function', or a .json
    file that maps the model's tokens to the graph's. AUDIO are files, folders, lists of
    paths (.txt), Kaldi's .scp, or NeMo's manifests (.jsonl). The graph, or --lexicon,
    must be over the model's tokens. Long recordings are cut at pauses, and each segment
    is encoded as a whole. A recording with a fault is named and skipped, and the exit
    code is 1. Results of an interrupted run are kept next to --output, and --resume
    continues there.

    On a Ray cluster (--ray) AUDIO may also be rows: Parquet, or shards of WebDataset;
    --output is a folder of Parquet.
    """
    if args.ray is not None:
        rows = args.audio
        if not are_rows(rows):
            rows = list(recording_rows(find_recordings(rows)))
        run_on_ray(args, rows, _transcribe_rows)
        return
    need(args, RAY_OPTIONS, "--ray")
    choose_decoder(args)
    sources, asked = find_recordings(args.audio), Decoding(args)
    how = asked.run_options()  # of the flags, before the model changes them
    if is_done(args, how["restart"]):
        return
    transcriber = _transcriber(asked, load_acoustic_model(args))
    how["boosts"] = asked.boosts(transcriber.decoder)
    finish(transcribe_files(transcriber, sources, args.output, **how), args)


def _transcriber(asked: Decoding, model: Encoder) -> Transcriber:
    args = asked.args
    return Transcriber(
        model,
        make_decoder(args, asked.options),
        cuts=CutOptions(whole_s=args.whole),
        audio=AudioOptions(args.channel, args.max_audio_seconds, args.allow_cut),
        workers=args.workers,
        nbest=asked.nbest > 1,
        lattices=asked.reading,
    )


def _transcribe_rows(args: Args) -> TranscribeRows:
    args = Args(**vars(args))  # the model changes some
    choose_decoder(args)
    args.workers = args.workers or args.threads
    asked, model = Decoding(args), load_acoustic_model(args)
    transcriber = partial(_transcriber, asked, model)
    how: Any = {"nbest": asked.nbest, "keep": args.lattices}
    return TranscribeRows(transcriber, asked.boosts, **how)


@command(
    f"{READABLE} --output",
    places={
        "input": {
            "metavar": "FILE",
            "nargs": "?",
            "default": "-",
            "help": "lines of words, or of JSON with `words`; - reads standard input",
        }
    },
    changes={"--output": {"help": "file (default: standard output)"}},
    examples="""
  echo 'he paid three hundred dollars did he' | wfstdec format --smart
  wfstdec format hyp.jsonl --itn en --output readable.txt
""",
)
def format(args: Args) -> None:
    """Format lines of words: numbers in digits, punctuation, capitals.

        wfstdec format --smart < words.txt

    Each line is formatted separately. JSON lines of `decode` and `transcribe` have
    times: pauses are then used, and `shown` is added, with the range of words of each
    display word. The default is --smart.
    """
    if not (args.itn or args.punctuate or args.display_words):
        args.smart = True
    formatter = formatter_of(args)
    lines: Iterable[str] = sys.stdin if args.input == "-" else read_lines(args.input)
    with contextlib.ExitStack() as opened:
        file = None if args.output is None else atomic_write(args.output)
        out = None if file is None else opened.enter_context(file)
        for number, line in enumerate(lines, 1):
            place = f"{args.input}:{number}"
            with reading(place, "line", "words, or JSON with words and times"):
                text = _formatted(line.rstrip("\n"), formatter) + "\n"
            if out is None:
                sys.stdout.write(text)
            else:
                out.write(text.encode())


def _formatted(line: str, formatter: wfstdec.Formatter | None) -> str:
    if formatter is None:
        return line
    if not line.startswith("{"):
        return formatter(line).text
    given = json.loads(line)
    words = [
        Word(one["word"], one["start_s"], one["end_s"], 0, 0, one.get("confidence"))
        for one in given["words"]
    ]
    return json.dumps(
        {**given, "shown": formatter(words).to_dict()}, ensure_ascii=False
    )


@command(
    "--lexicon --g2p --g2p-phones --sentencepiece-model --ignore-case --normalize "
    f"--output --format {SUBTITLES} {RUN} --separator --separator-optional --silence "
    "--silence-prob --unknown --topology --blank --beam --exact --skip-cost "
    "--insert-cost "
    "--insert-frame-cost --frame-shift",
    required="--tokens --logprobs --ref",
    changes={
        "--beam": changed(
            AlignOptions.beam,
            "beam width in nats; widened if the text does not fit "
            f"(default: {AlignOptions.beam:g})",
        )
    },
    common="--tokens --lexicon --separator --logprobs --ref --normalize --output "
    "--resume",
    examples=r"""
  wfstdec align --tokens tokens.txt --lexicon lexicon.txt.gz --separator '<wb>' \
      --logprobs logprobs.npz --ref refs.txt --output words.ctm
""",
)
def align(args: Args) -> None:
    """Align known texts with log-probs, for times of words and tokens.

    Without --lexicon tokens spell the words. With --ignore-case or --normalize words
    missing in the lexicon are looked up by these rules. Words that cannot be spelled,
    such as numbers, match any speech, and are misfits. The format follows from the name
    of the output: .ctm, .jsonl (with tokens and misfits), .srt, .vtt, .TextGrid; the
    last three are for one utterance, or take a folder and --format. An utterance with a
    fault, such as too few frames, is named and skipped, and the exit code is 1.
    Results of an interrupted run are kept, and --resume continues there.
    """
    how, options = run_options(args), made_of(AlignOptions, args)
    if is_done(args, how["restart"]):
        return
    aligner = wfstdec.ForcedAligner(
        **values_of(args, "tokens lexicon separator separator_optional silence"),
        **values_of(args, "silence_prob unknown sentencepiece_model topology blank"),
        g2p=g2p_of(args),
        normalizer=normalizer_of(args),
        options=options,
        frame_shift_s=args.frame_shift,
    )
    summary = align_file(aligner, args.logprobs, args.ref, args.output, **how)
    shown = [] if args.quiet else list(summary.misfits.items())[:_MISFITS_AT_MOST]
    lines = [f"{utterance}: {one}\n" for utterance, misfits in shown for one in misfits]
    if shown and (more := len(summary.misfits) - len(shown)):
        lines.append(f"... and {more} more\n")
    sys.stderr.writelines(lines)
    finish(summary, args)


_OURS = "(default: the search's)"


@command(
    f"--lm --unk-cost --lm-scale --word-insertion --nbest {READING} --output --format "
    f"{RUN} --kaldi --kaldi-words --model --audio --model-weight --model-texts "
    "--language",
    required="--lattices",
    changes={
        "--lattices": GIVEN_LATTICES,
        "--model": {"help": "a transducer or attention model of `wfstdec transcribe`"},
        "--lm-scale": changed(None, f"factor of costs of --lm, or graph {_OURS}"),
        "--word-insertion": changed(
            None, f"cost of each word; above 0 penalises {_OURS}"
        ),
        "--nbest": changed(1, "different texts of each utterance"),
    },
    common="--lattices --lm --lm-scale --word-insertion --nbest --model --audio "
    "--output",
    examples="""
  wfstdec decode --graph graph.npz --logprobs logprobs.npz --lattices x.lat
  wfstdec rescore --lattices x.lat --lm lm.arpa.gz --lm-scale 0.8 --output second.txt
""",
)
def rescore(args: Args) -> None:
    """Rescore lattices with another language model, or with other scales.

    A language model replaces the graph's costs of words. Without one, --lm-scale and
    --word-insertion change the weight of the graph's costs, without a new search.
    Results can also be written as compact lattices for Kaldi's tools. With --model and
    --audio the costs of a transducer or an attention model are added to those of the
    best texts (`wfstdec tune` finds the weight):

        wfstdec rescore --lattices x.lat --model whisper --audio calls/ --output hyp.txt

    A lattice with a fault is named and skipped, and the exit code is 1. Results of an
    interrupted run are kept next to --output, and --resume continues there.
    """
    need(args, "--kaldi-words", "--kaldi")
    need(args, "--audio --model-weight --model-texts --language", "--model")
    need(args, "--model", "--audio")
    reading, restart = reading_of(args, args.nbest), restart_of(args, "kaldi")
    if is_done(args, restart):
        return
    if args.model:
        if args.confidence or args.mbr:
            raise OptionError("--confidence or --mbr with --model, expected neither")
        reading = second_pass_of(args)
    kaldi = None
    if args.kaldi:
        is_text = args.kaldi.endswith(".txt")
        kaldi = KaldiLatticeWriter(args.kaldi, text=is_text, words=args.kaldi_words)
    summary = rescore_file(
        args.lattices,
        args.output,
        **values_of(args, "lm unk_cost lm_scale word_insertion format strict"),
        reading=reading,
        kaldi=kaldi,
        restart=restart,
        progress=not args.quiet,
    )
    finish(summary, args)


def second_pass_of(args: Args) -> Any:
    """Return the second pass by `--model` over the recordings."""
    from wfstdec.batch.second_pass import SecondPass  # needs torch

    recordings = {one.name: one.audio for one in find_recordings(args.audio)}
    model = load_model(args.model, language=args.language)
    how: Any = {"weight": args.model_weight, "num_texts": args.model_texts}
    nbest = getattr(args, "nbest", 1)
    return SecondPass(nbest=nbest, model=model, recordings=recordings, **how)


def make_decoder(args: Args, options: Any) -> Decoder:
    """Return the decoder of the flags, with these options."""
    kind = args.decoder
    given = given_of(args, INPUTS[kind].split())
    if "g2p" in INPUTS[kind]:
        given["g2p"] = g2p_of(args)
        given.pop("g2p_phones", None)
    if "open_vocabulary" in given:
        given["open_vocabulary"] = open_vocabulary_of(args)
    given |= {"options": options, "frame_shift_s": args.frame_shift}
    given |= values_of(args, "backend threads")
    only = getattr(args, "only_phrases", None)
    if only is not None and kind not in ("wfst", "trie"):
        raise OptionError(
            f"--only-phrases with --decoder {kind}, expected wfst or trie"
        )
    if kind not in CTC_DECODERS:
        if hasattr(args, "acoustic_model"):
            return _model_decoder(args, kind, given)
        return open_decoder(kind, **given)
    decoder = getattr(wfstdec, f"{kind.title()}Decoder")(**given)
    if only is None:
        return decoder
    phrases = [line for line in read_lines(only) if line.strip()]
    return wfstdec.WfstDecoder.of_phrases(decoder, phrases)


def _model_decoder(args: Args, kind: str, given: dict[str, Any]) -> Decoder:
    given = {k: v for k, v in given.items() if k not in ("backend", "threads")}
    most = getattr(given["model"].net, "max_symbols", None)
    if most is not None and not hasattr(args, "max_symbols"):
        given["options"] = replace(given["options"], max_symbols=most)
    return getattr(wfstdec, f"{kind.title()}Decoder")(**given)


def load_acoustic_model(args: Args) -> Encoder:
    """Load the model; set its tokens, blank and frame shift for the decoder."""
    given = vars(args)
    model = load_model(
        args.acoustic_model,
        given.get("tokens"),
        given.get("blank"),
        frame_shift_s=given.get("frame_shift"),
        head=given.get("head"),
        **values_of(args, "sample_rate kind logits language"),
    )
    if args.decoder not in CTC_DECODERS:
        args.model = model
    take_spec(args, model.spec)
    return model


def take_spec(args: Args, spec: EncoderSpec) -> None:
    """Set the decoder's tokens and frame shift to those of the model."""
    for name in ("tokens", "blank", "head"):
        vars(args).pop(name, None)
    args.frame_shift = spec.frame_shift_s
    # graphs include a table
    if args.decoder in CTC_DECODERS and "graph" not in vars(args):
        args.tokens = spec.tokens


def choose_decoder(args: Args) -> None:
    """Choose the decoder of the model's family, unless one is named."""
    family = family_of(args.acoustic_model, getattr(args, "head", None))
    fitting = CTC_DECODERS if family == "ctc" else (family,)
    args.decoder = args.decoder or fitting[0]
    if args.decoder not in fitting:
        expected = " or ".join(fitting)
        what = f"--decoder {args.decoder} for a model of the family {family!r}"
        raise OptionError(f"{what}, expected {expected}")


def g2p_of(args: Args) -> G2p | None:
    """Return the object of `--g2p` and `--g2p-phones`."""
    need(args, "--g2p-phones", "--g2p")
    source = getattr(args, "g2p", None)
    return None if source is None else G2p(source, getattr(args, "g2p_phones", None))


def formatter_of(args: Args) -> wfstdec.Formatter | None:
    """Return the formatter of the flags; None for raw words."""
    asked = [args.itn, args.punctuate]
    if args.smart:
        asked = ["en" if one is None else one for one in asked]
    itn, punctuation = (None if one == "off" else one for one in asked)
    display = read_lines(args.display_words) if args.display_words else ()
    if itn is None and punctuation is None and not display:
        return None
    return wfstdec.Formatter(itn, punctuation, display=display)


class Decoding:
    """Parsed flags of decoding.

    Small files are validated before a graph or a model is loaded.
    """

    def __init__(self, args: Args) -> None:
        self.args, self.options = args, search_options(args)
        for flag in ("--lattices", "--mbr"):
            if getattr(args, name_of(flag)) and args.decoder not in ("wfst", "trie"):
                raise OptionError(
                    f"{flag} with --decoder {args.decoder}, expected wfst or trie"
                )
        # Searches without a beam lack the option.
        self.nbest = getattr(self.options, "nbest", None) or 1
        self.reading = reading_of(args, self.nbest)
        need(args, PHRASES, "--phrases")
        self._words = read_boosts(args.boost) if args.boost else None
        self._phrases = read_phrase_weights(args.phrases) if args.phrases else None

    def boosts(self, decoder: Decoder) -> BoostLists:
        """Return the lists for a decoder."""
        args, words, phrases = self.args, self._words, self._phrases
        if phrases is None:
            return BoostLists(words)
        given = _renamed(args, "phrase", _PHRASE_FIELDS)
        # Transducers and attention decoders have one credit for all labels by default.
        usual = PhraseOptions() if "beta" in given else decoder.phrase_options
        own = replace(usual, **given, weights_are_totals=args.phrase_totals)
        compiler = decoder.phrase_compiler(
            own if given or args.phrase_totals else None,
            unit=args.phrase_unit,
            boundary=args.phrase_boundary,
            sentencepiece_model=args.sentencepiece_model,
        )
        return BoostLists(words, phrases, compiler)

    def run_options(self) -> dict[str, Any]:
        """Return arguments of runs, with n-best lists and the file of lattices."""
        how = run_options(self.args, "lattices")
        how["formatter"] = formatter = formatter_of(self.args)
        # It may refuse lists, and readable text.
        result_writer(how["format"], nbest=self.nbest, formatter=formatter)
        lattices = self.args.lattices
        keep = LatticeWriter(lattices) if lattices else None
        return {**how, "nbest": self.nbest, "keep": keep}


def _renamed(args: Args, start: str, fields: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of given flags, by the names of fields."""
    values = {name: getattr(args, f"{start}_{end}") for end, name in fields.items()}
    return {name: value for name, value in values.items() if value is not None}


def reading_of(args: Args, nbest: int) -> LatticeReading | None:
    """Return the reading of lattices of the flags; None for no lattices."""
    if not (args.lattices or args.confidence or args.mbr):
        return None
    if args.mbr and nbest > 1:
        raise OptionError(f"--mbr and --nbest {nbest}, expected one text")
    if args.posterior_scale < 0:
        raise OptionError(
            f"--posterior-scale {args.posterior_scale!r}, expected 0 or more"
        )
    return LatticeReading(nbest, args.confidence, args.mbr, args.posterior_scale)


def restart_of(args: Args, output: str | None = None) -> Restart:
    """Return the treatment of an earlier run, with the settings of this one."""
    settings: dict[str, Any] = {"version of wfstdec": wfstdec.__version__}
    for name, value in vars(args).items():
        if name not in _NO_SETTINGS:
            is_read = isinstance(value, str) and name not in (output, *TEXTS)
            if args.resume and is_read and is_stream(value):
                raise OptionError(
                    f"--resume with {flag_of(name)} from a pipe, expected files: only "
                    "these can be compared with those of the earlier run"
                )
            place = str(path_and_kind(value)[0]) if name == "logprobs" else value
            is_file = is_read and os.path.exists(place)
            settings[name] = digest(place) if is_file else value
    return Restart(
        *(args.resume, args.overwrite, settings),
        called=lambda name: name if " " in name else flag_of(name),
        inputs=_digest_of_inputs(args, output, settings) if args.resume else None,
    )


def _digest_of_inputs(args: Args, output: str | None, settings: Any) -> str | None:
    """Return a digest of settings, and of names, sizes and dates of input files."""
    model = getattr(args, "model", None) or ""
    if model.endswith(".json") or ":" in model:  # its files are unknown here
        return None
    values = [x for n, x in vars(args).items() if n not in ("output", output)]
    lists = [one if isinstance(one, list | tuple) else [one] for one in values]
    paths = [one for some in lists for one in some if isinstance(one, str)]
    files = {Path(one) for one in paths if os.path.isfile(one)}
    made = [Path(f"{args.output}{end}") for end in ("", ".journal", ".partial")]
    found = [one for x in filter(os.path.isdir, paths) for one in Path(x).rglob("*")]
    if os.path.isfile(model):
        found += Path(model).parent.iterdir()  # tokens and similar files
    files.update(one for one in found if not {one, one.parent} & {*made})
    if getattr(args, "logprobs", None):
        path, kind = path_and_kind(args.logprobs)
        files.add(path)
        if kind == ".scp":
            files.update(map(Path, scp_files(path)))
    if getattr(args, "audio", None):
        audio = (one.audio for one in find_recordings(args.audio))
        files.update(Path(one) for one in audio if isinstance(one, str | os.PathLike))
    text = json.dumps(settings_as_json(settings), sort_keys=True)
    seen = hashlib.blake2b(text.encode(), digest_size=16)
    for path in sorted(files):
        if path.is_file():
            about = path.stat()
            seen.update(f"{path}/{about.st_size}/{about.st_mtime_ns}\n".encode())
    return seen.hexdigest()


def is_done(args: Args, restart: Restart) -> bool:
    """Return whether --resume has nothing left to do, and log that."""
    if args.output in (None, STDOUT):
        return False
    path = Path(os.path.realpath(args.output))
    place = path / FOLDER_JOURNAL if path.is_dir() else Path(f"{path}.journal")
    if is_finished(place, restart):
        _log.info("%s is finished, from the same inputs: nothing to do", args.output)
        return True
    return False


def run_options(args: Args, output: str | None = None) -> dict[str, Any]:
    """Return arguments of runs that write results; `output` names another flag."""
    format = format_named(args.format, args.output)
    subtitles = _renamed(args, "subtitle", _SUBTITLE_FIELDS)
    if args.join is not None:
        subtitles["join"] = args.join
    for flag in SUBTITLES.split():
        known = (*SUBTITLE_FORMATS, *(["text"] if flag == "--join" else []))
        if getattr(args, name_of(flag)) is not None and format not in known:
            raise OptionError(
                f"{flag} with format {format}, expected {' or '.join(known)}"
            )
    return {
        "format": format,
        "subtitles": SubtitleOptions(**subtitles) if subtitles else None,
        "strict": args.strict,
        "restart": restart_of(args, output),
        "progress": not args.quiet,
    }


def finish(summary: Tally, args: Args) -> None:
    """Print the summary of a run, unless quiet; raise if utterances were skipped."""
    if not args.quiet:
        print(summary, file=sys.stderr)
    summary.check_all_done()


def run_on_ray(args: Args, rows: Any, make: Callable[[Args], RowWorker]) -> None:
    """Run a job on a cluster; actors `make` their workers from the flags."""
    if args.output is None:
        raise OptionError("--ray without --output, expected a folder for Parquet files")
    for flag in f"--format --strict {READABLE} {SUBTITLES}".split():
        if getattr(args, name_of(flag)):
            raise OptionError(
                f"{flag} with --ray, expected neither: results are Parquet, with "
                "a column error"
            )
    ready = Args(**vars(args))
    # Actors share a node: a thread per processor in each would be too many.
    ready.threads = args.threads or 1
    for name in _FILES:
        value = getattr(args, name, None)
        if isinstance(value, str) and (name == "lattices" or os.path.exists(value)):
            setattr(ready, name, os.path.abspath(value))
    make(ready)  # faults of other flags are raised here, before
    summary = run_rows(
        rows,
        partial(make, ready),
        args.output,
        address=args.ray,
        options=made_of(RayOptions, ready, gpus=args.gpus_per_actor),
        restart=restart_of(ready, "lattices"),
        progress=not args.quiet,
    )
    finish(summary, args)
