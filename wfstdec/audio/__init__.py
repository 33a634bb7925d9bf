"""Audio in: files of any rate as one float32 channel at a model's rate, checked.

audio = read_audio("call.mp3", 16000)             # waveform [N], duration_s, notes
with open_audio("hour.flac", 16000) as reader:    # or in blocks: memory does not grow
    for block in reader: ...                      # float32 [n]
"""

from wfstdec.audio.reading import Audio, AudioReader, open_audio, read_audio
from wfstdec.audio.samples import AudioNote, ResampleStream

__all__ = [
    "Audio",
    "AudioNote",
    "AudioReader",
    "ResampleStream",
    "open_audio",
    "read_audio",
]
