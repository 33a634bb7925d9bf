"""The flags of acoustic models and audio; `flags.FLAGS` takes them in."""

from __future__ import annotations

import argparse
from typing import Any

from wfstdec.audio.reading import MAX_SECONDS
from wfstdec.transcription.encoding import AudioOptions
from wfstdec.transcription.pieces import CutOptions

MODEL_KINDS = (
    "encoder mapped hama transformers streaming-onnx onnx-asr onnx nemo torchaudio "
    "function"
).split()

AUDIO_FLAGS: dict[str, dict[str, Any]] = {
    "--kind": {
        "choices": MODEL_KINDS,
        "help": "what kind of model it is, where its files leave that open",
    },
    "--sample-rate": {
        "type": int,
        "metavar": "HZ",
        "help": "samples a second that the model hears, where it does not say",
    },
    "--logits": {
        "action": "store_true",
        "default": None,
        "help": "the model's outputs are still to be normalised (log_softmax)",
    },
    "--workers": {
        "type": int,
        "default": None,
        "metavar": "N",
        "help": "pieces of audio encoded side by side (default: one for each core)",
    },
    "--channel": {
        "type": int,
        "metavar": "N",
        "help": "the channel of the audio to take, from 0 (default: all, mixed)",
    },
    "--max-audio-seconds": {
        "type": float,
        "default": MAX_SECONDS,
        "metavar": "S",
        "help": "longer recordings are refused (default: %(default)g)",
    },
    "--allow-cut": {
        "action": "store_true",
        "help": "take what is there of files that were cut short",
    },
    "--whole": {
        "type": float,
        "default": CutOptions.whole_s,
        "metavar": "S",
        "help": "longer recordings are cut where nobody speaks (default: %(default)g "
        "seconds)",
    },
}


def audio_options(args: argparse.Namespace) -> AudioOptions:
    """Options of reading audio, as a command line has them."""
    return AudioOptions(args.channel, args.max_audio_seconds, args.allow_cut)
