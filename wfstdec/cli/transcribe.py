r"""Transcribe audio: recordings of any length to words with times, or subtitles.

    wfstdec transcribe model.onnx talk.mp3 --graph graph.npz --lm-scale 0.8
    wfstdec transcribe model.onnx calls/ --tokens tokens.txt --blank '<blank>' \
        --sample-rate 16000 --graph graph.npz --output calls.jsonl
    wfstdec transcribe model.onnx hour.flac --decoder trie --lexicon ... --lm ... \
        --output hour.srt

MODEL is an ONNX file, a folder of a model, 'hama', 'module:function', or a .json file
that says what the tokens of one of these are called in the graph. AUDIO are files,
folders, lists of paths (.txt), Kaldi's .scp, or manifests (.jsonl, as NeMo has them).
The graph, or --lexicon, has to be over the model's tokens. What is long is cut where
nobody speaks, and each piece is then encoded whole. A recording with a fault is named
and left out, and the exit code is 1. What is done when a run is stopped stays beside
--output, and --resume goes on from there.

On a Ray cluster (--ray) AUDIO may also be rows: Parquet, or shards of WebDataset;
--output is a folder of Parquet.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from wfstdec.batch.ray import TranscribeRows, are_rows, recording_rows
from wfstdec.cli.audio_flags import AUDIO_FLAGS
from wfstdec.cli.boost_flags import BOOST_FLAGS, boosts_for, read_lists
from wfstdec.cli.decoders import add_decoder_flags, make_decoder, search_options
from wfstdec.cli.flags import add_flags
from wfstdec.cli.kinds import values_of
from wfstdec.cli.lattice_flags import READING_FLAGS, reading_of
from wfstdec.cli.ray_flags import (
    RAY_FLAGS,
    ready_for_ray,
    refuse_flags_of_ray,
    run_on_ray,
)
from wfstdec.cli.result_flags import RUN_FLAGS, SUBTITLE_FLAGS, run_options, tell
from wfstdec.io.results import result_writer
from wfstdec.lattice.file import LatticeWriter
from wfstdec.models import Encoder, load_model
from wfstdec.transcription.encoding import AudioOptions
from wfstdec.transcription.files import transcribe_files
from wfstdec.transcription.pieces import CutOptions
from wfstdec.transcription.recordings import find_recordings
from wfstdec.transcription.transcriber import Transcriber
from wfstdec.trie.options import TrieOptions
from wfstdec.wfst.options import WfstOptions

COMMON_FLAGS = {
    "MODEL": "an ONNX file, a folder of a model, hama, module:function, or .json",
    "AUDIO": "files, folders, lists of paths (.txt), manifests (.jsonl)",
    "--graph FILE": "what `wfstdec build` wrote, over the model's tokens",
    "--decoder NAME": "wfst (on a graph, the default), trie or greedy",
    "--output FILE": "what to write: .txt, .jsonl, .ctm, .srt, .vtt or .TextGrid",
    "--tokens FILE": "the model's token table, where it does not say",
    "--blank BLANK": "its blank: a name or an index, -1 for the last",
    "--sample-rate HZ": "samples a second that it hears, where it does not say",
    "--lm-scale X": "weight of the language model; `wfstdec tune` finds it",
    "--beam NATS": "wider is slower and misses less (default: "
    f"{WfstOptions.beam:g} for wfst, {TrieOptions.beam:g} for trie)",
    "--boost FILE": "words and phrases to favour, one a line",
    "--resume": "go on with the results of a run that was stopped",
}
"""Flags that `--help` shows, and what it says of them; `--help-all` has all."""
EXAMPLES = r"""
  wfstdec transcribe model.json audio --graph graph.npz --output words.jsonl
  wfstdec transcribe model.json audio/1462-170142-0030.mp3 --graph graph.npz \
      --lm-scale 0.8 --boost boosts.txt --output words.srt
"""
"""They run in `graphs/librispeech_demo`, once a graph is there."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the command its flags."""
    parser.add_argument("acoustic_model", metavar="MODEL", help="what makes log-probs")
    parser.add_argument(
        "audio", nargs="+", metavar="AUDIO", help="files, folders, lists, manifests"
    )
    add_flags(parser, "--output", "--format", *SUBTITLE_FLAGS, *RUN_FLAGS)
    add_flags(parser, *BOOST_FLAGS, "--lattices", *READING_FLAGS, *AUDIO_FLAGS)
    add_decoder_flags(parser, of_audio=True)
    add_flags(parser.add_argument_group("for --ray"), *RAY_FLAGS)


def run(args: argparse.Namespace) -> None:
    """Transcribe all recordings and write their results."""
    if args.ray is not None:
        args = ready_for_ray(args)
        args.workers, rows = args.workers or args.threads, args.audio
        if not are_rows(rows):
            rows = list(recording_rows(find_recordings(rows)))
        transcribe_rows(args)  # what is wrong with the flags is said before
        run_on_ray(args, rows, partial(transcribe_rows, args))
        return
    refuse_flags_of_ray(args)
    sources, how = find_recordings(args.audio), run_options(args, makes="lattices")
    words, phrases = read_lists(args)
    model = load_acoustic_model(args)
    options = search_options(args, of_audio=True)
    nbest = getattr(options, "nbest", None) or 1
    result_writer(how["format"], nbest=nbest)  # refused before the graph is loaded
    transcriber = _transcriber(args, model, options, nbest)
    summary = transcribe_files(
        transcriber,
        sources,
        args.output,
        boosts=boosts_for(transcriber.decoder, args, words, phrases),
        nbest=nbest,
        keep=LatticeWriter(args.lattices) if args.lattices else None,
        **how,
    )
    tell(summary, args)


def _transcriber(
    args: argparse.Namespace, model: Encoder, options: Any, nbest: int
) -> Transcriber:
    return Transcriber(
        model,
        make_decoder(args, options),
        cuts=CutOptions(whole_s=args.whole),
        audio=AudioOptions(args.channel, args.max_audio_seconds, args.allow_cut),
        workers=args.workers,
        nbest=nbest > 1,
        lattices=reading_of(args, nbest),
    )


def transcribe_rows(args: argparse.Namespace) -> TranscribeRows:
    """Make what an actor does: the model, the decoder, and its lists."""
    args = argparse.Namespace(**vars(args))  # the model changes some
    words, phrases = read_lists(args)
    model = load_acoustic_model(args)
    options = search_options(args, of_audio=True)
    nbest = getattr(options, "nbest", None) or 1
    return TranscribeRows(
        lambda: _transcriber(args, model, options, nbest),
        lambda decoder: boosts_for(decoder, args, words, phrases),
        nbest=nbest,
        keep=args.lattices,
    )


def load_acoustic_model(args: argparse.Namespace) -> Encoder:
    """Load the model; its tokens, blank and frame shift become those of the decoder."""
    given = vars(args)
    model = load_model(
        args.acoustic_model,
        given.pop("tokens", None),
        given.pop("blank", None),
        frame_shift_s=given.get("frame_shift"),
        **values_of(args, "sample_rate kind logits"),
    )
    args.frame_shift = model.spec.frame_shift_s
    if args.decoder != "wfst":  # whose graph has a table
        args.tokens = model.spec.tokens
    return model
