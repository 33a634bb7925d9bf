"""Audio files of any rate as one validated float32 channel at a model's rate.

For example:

    audio = read_audio("call.mp3", 16000)             # waveform [N], duration_s, notes
    with open_audio("hour.flac", 16000) as reader:  # or in blocks, in constant memory
        for block in reader: ...                      # float32 [n]
"""

from wfstdec.lazy import names_of_stub

__getattr__, __dir__, __all__ = names_of_stub(__name__, __file__)
