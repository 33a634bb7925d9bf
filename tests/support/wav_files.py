"""WAV files by the standard library: nothing of what is tested wrote them.

Others by FFmpeg.
"""

import io
import wave

import numpy as np
import pytest


def wav_bytes(sound, width=2, rate=16000):
    """Bytes of a WAV of samples [n] or [n, C] in [-1, 1], `width` bytes each."""
    full = 2 ** (8 * width - 1)
    whole = np.clip(np.rint(sound * float(full)), -full, full - 1).astype("<i8")
    if width == 1:
        whole += 128
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1 if sound.ndim == 1 else sound.shape[1])
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(whole.reshape(-1, 1).view(np.uint8)[:, :width].tobytes())
    return out.getvalue()


def av_bytes(sound, form, codec, rate=16000, **options):
    """Bytes of a container of samples [n] or [n, 2], float32, which FFmpeg writes."""
    av = pytest.importorskip("av")
    out = io.BytesIO()
    with av.open(out, "w", format=form, options=options) as container:
        stream = container.add_stream(codec, rate=48000 if "opus" in codec else rate)
        layout = stream.layout = "mono" if sound.ndim == 1 else "stereo"
        resampler = av.AudioResampler(
            *(stream.format, layout, stream.rate), frame_size=stream.frame_size or None
        )
        planes = np.ascontiguousarray(np.atleast_2d(sound.T))
        frame = av.AudioFrame.from_ndarray(planes, "fltp", layout)
        frame.rate = rate
        for given in (frame, None):
            for piece in resampler.resample(given):
                container.mux(stream.encode(piece))
        container.mux(stream.encode(None))
    return out.getvalue()
