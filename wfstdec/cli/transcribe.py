"""The command `transcribe`, and loading an acoustic model, also for `serve`."""

from __future__ import annotations

from functools import partial
from typing import Any

from wfstdec.batch.ray import TranscribeRows, are_rows, recording_rows
from wfstdec.cli.decode import RESULTS, Decoding, finish, make_decoder, run_on_ray
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
    values_of,
)
from wfstdec.models import Encoder, load_model
from wfstdec.transcription.encoding import AudioOptions
from wfstdec.transcription.files import transcribe_files
from wfstdec.transcription.pieces import CutOptions
from wfstdec.transcription.recordings import find_recordings
from wfstdec.transcription.transcriber import Transcriber

_MODELS = "an ONNX file, a folder of a model, hama, module:function, or .json"
MODEL = {"metavar": "MODEL", "help": _MODELS}
_AUDIO = "files, folders, lists of paths (.txt), manifests (.jsonl)"


@command(
    f"--output --format {SUBTITLES} {RUN} {BOOSTS} --lattices {READING} {AUDIO_MODEL} "
    "--channel --max-audio-seconds --allow-cut --whole",
    places={
        "acoustic_model": MODEL,
        "audio": {"metavar": "AUDIO", "nargs": "+", "help": _AUDIO},
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
    sources, asked = find_recordings(args.audio), Decoding(args)
    how = asked.run_options()  # of the flags as they are before the model
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
    """The work of an actor: the model, the decoder, and its lists."""
    args = Args(**vars(args))  # the model changes some
    args.workers = args.workers or args.threads
    asked, model = Decoding(args), load_acoustic_model(args)
    transcriber = partial(_transcriber, asked, model)
    how: Any = {"nbest": asked.nbest, "keep": args.lattices}
    return TranscribeRows(transcriber, asked.boosts, **how)


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
