"""Models of any toolkit: audio to log-probs; independent of decoders.

model = load_model("model.onnx", tokens="tokens.txt", sample_rate=16000)
logprobs, = model.encode([waveform])              # float32 [N] -> float32 [T, V]
"""

from typing import TYPE_CHECKING, Any

from wfstdec.models.encoder import (
    Encoder,
    EncoderSpec,
    StreamingEncoder,
    Windowed,
)
from wfstdec.models.loading import KINDS, MappedTokens, load_model

if TYPE_CHECKING:
    from wfstdec.models.attention import HfAttentionModel as HfAttentionModel

__all__ = [
    "KINDS",
    "Encoder",
    "EncoderSpec",
    "HfAttentionModel",
    "MappedTokens",
    "StreamingEncoder",
    "Windowed",
    "load_model",
]


def __getattr__(name: str) -> Any:
    """Import what needs torch when it is asked for."""
    if name != "HfAttentionModel":
        raise AttributeError(f"module 'wfstdec.models' has no attribute {name!r}")
    from wfstdec.models.attention import HfAttentionModel

    return HfAttentionModel
