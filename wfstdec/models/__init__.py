"""Acoustic models of any toolkit: audio to log-probs, independent of decoders.

For example:

    model = load_model("model.onnx", tokens="tokens.txt", sample_rate=16000)
    logprobs, = model.encode([waveform])              # float32 [N] -> float32 [T, V]
"""

from wfstdec.lazy import names_of_stub

__getattr__, __dir__, __all__ = names_of_stub(__name__, __file__)
