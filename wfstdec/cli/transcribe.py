"""The command `transcribe`, and loading an acoustic model, also for `serve`."""

from __future__ import annotations

from typing import Any

from wfstdec.batch.ray import TranscribeRows, are_rows, recording_rows
from wfstdec.cli.decode import (
    RESULTS,
    boosts_for,
    finish,
    make_decoder,
    nbest_of,
    nbest_options,
    read_lists,
    reading_of,
    run_on_ray,
)
from wfstdec.cli.flags import (
    AUDIO_MODEL,
    BOOSTS,
    CTC_DECODERS,
    RAY_OPTIONS,
    READING,
    RUN,
    SUBTITLES,
    Args,
    command,
    need,
    search_options,
    values_of,
)
from wfstdec.models import Encoder, load_model
from wfstdec.transcription.encoding import AudioOptions
from wfstdec.transcription.files import find_recordings, transcribe_files
from wfstdec.transcription.pieces import CutOptions
from wfstdec.transcription.transcriber import Transcriber

MODEL = {
    "metavar": "MODEL",
    "help": "an ONNX file, a folder of a model, hama, module:function, or .json",
}


@command(
    f"--output --format {SUBTITLES} {RUN} {BOOSTS} --lattices {READING} {AUDIO_MODEL} "
    "--channel --max-audio-seconds --allow-cut --whole",
    places={
        "acoustic_model": MODEL,
        "audio": {
            "metavar": "AUDIO",
            "nargs": "+",
            "help": "files, folders, lists of paths (.txt), manifests (.jsonl)",
        },
    },
    decoders=CTC_DECODERS,
    groups={"for --ray": f"--ray {RAY_OPTIONS}"},
    changes={"--output": RESULTS},
    common="--graph --decoder --output --tokens --blank --sample-rate --lm-scale "
    "--beam --boost --resume",
    # They run in `graphs/librispeech_demo`, once a graph is there.
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
    file that names the model's tokens as the graph does. AUDIO are files, folders,
    lists of paths (.txt), Kaldi's .scp, or manifests (.jsonl, as NeMo has them). The
    graph, or --lexicon, has to be over the model's tokens. Long recordings are cut
    where nobody speaks, and each piece is then encoded whole. A recording with a fault
    is named and left out, and the exit code is 1. Results of a run that was stopped
    stay next to --output, and --resume continues from there.

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
    sources, lists = find_recordings(args.audio), read_lists(args)
    options = search_options(args)
    how = nbest_options(args, options)  # of the flags as they are before the model
    transcriber = _transcriber(args, load_acoustic_model(args), options)
    how["boosts"] = boosts_for(transcriber.decoder, args, lists)
    finish(transcribe_files(transcriber, sources, args.output, **how), args)


def _transcriber(args: Args, model: Encoder, options: Any) -> Transcriber:
    nbest = nbest_of(options)
    return Transcriber(
        model,
        make_decoder(args, options),
        cuts=CutOptions(whole_s=args.whole),
        audio=AudioOptions(args.channel, args.max_audio_seconds, args.allow_cut),
        workers=args.workers,
        nbest=nbest > 1,
        lattices=reading_of(args, nbest),
    )


def _transcribe_rows(args: Args) -> TranscribeRows:
    """The work of an actor: the model, the decoder, and its lists."""
    args = Args(**vars(args))  # the model changes some
    args.workers = args.workers or args.threads
    options, lists = search_options(args), read_lists(args)
    model = load_acoustic_model(args)
    return TranscribeRows(
        lambda: _transcriber(args, model, options),
        lambda decoder: boosts_for(decoder, args, lists),
        nbest=nbest_of(options),
        keep=args.lattices,
    )


def load_acoustic_model(args: Args) -> Encoder:
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
