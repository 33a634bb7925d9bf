"""Audio to words: a model's log-probs, a decoder's words, recordings of any length."""

from wfstdec.transcription.encoding import AudioOptions, Recording
from wfstdec.transcription.files import find_recordings, transcribe_files
from wfstdec.transcription.pieces import CutOptions
from wfstdec.transcription.transcriber import (
    STREAM_CUTS,
    Final,
    Stream,
    Transcriber,
    Transcript,
)

__all__ = [
    "STREAM_CUTS",
    "AudioOptions",
    "CutOptions",
    "Final",
    "Recording",
    "Stream",
    "Transcriber",
    "Transcript",
    "find_recordings",
    "transcribe_files",
]
