"""The flags of acoustic models and audio; `flags.FLAGS` takes them in."""

from __future__ import annotations

from wfstdec.audio.reading import MAX_SECONDS
from wfstdec.cli.kinds import Flag, one_of, switch, takes
from wfstdec.transcription.pieces import CutOptions

MODEL_KINDS = (
    "encoder mapped hama transformers streaming-onnx onnx-asr onnx nemo torchaudio "
    "function"
).split()

AUDIO_FLAGS: dict[str, Flag] = {
    "--kind": one_of(
        MODEL_KINDS, "what kind of model it is, where its files leave that open"
    ),
    "--sample-rate": takes(
        "HZ", "samples a second that the model hears, where it does not say", int
    ),
    "--logits": switch(
        "the model's outputs are still to be normalised (log_softmax)", default=None
    ),
    "--workers": takes(
        "N",
        "pieces of audio encoded side by side (default: one for each core)",
        int,
        default=None,
    ),
    "--channel": takes(
        "N", "the channel of the audio to take, from 0 (default: all, mixed)", int
    ),
    "--max-audio-seconds": takes(
        "S", "longer recordings are refused", float, default=MAX_SECONDS
    ),
    "--allow-cut": switch("take what is there of files that were cut short"),
    "--whole": takes(
        "S",
        "longer recordings are cut where nobody speaks (default: %(default)g seconds)",
        float,
        default=CutOptions.whole_s,
    ),
}
