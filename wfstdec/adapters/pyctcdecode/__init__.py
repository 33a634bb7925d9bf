"""pyctcdecode 0.5.0's interface: change the import, keep the rest.

from wfstdec.adapters.pyctcdecode import build_ctcdecoder

decoder = build_ctcdecoder(labels, "lm.arpa", unigrams)
decoder.decode(logits)
"""

from wfstdec.adapters.pyctcdecode.alphabet import Alphabet
from wfstdec.adapters.pyctcdecode.decoder import (
    BeamSearchDecoderCTC,
    build_ctcdecoder,
)
from wfstdec.adapters.pyctcdecode.language_model import (
    AbstractLanguageModel,
    LanguageModel,
    MultiLanguageModel,
)
from wfstdec.adapters.pyctcdecode.shim import install_shim, remove_shim
from wfstdec.adapters.pyctcdecode.word_tree import HotwordScorer

__all__ = [
    "AbstractLanguageModel",
    "Alphabet",
    "BeamSearchDecoderCTC",
    "HotwordScorer",
    "LanguageModel",
    "MultiLanguageModel",
    "build_ctcdecoder",
    "install_shim",
    "remove_shim",
]
