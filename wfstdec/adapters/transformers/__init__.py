"""Models of Hugging Face's Transformers: labels, and language models in `generate`.

    from wfstdec.adapters.pyctcdecode import build_ctcdecoder
    from wfstdec.adapters.transformers import labels_of

    decoder = build_ctcdecoder(labels_of(processor.tokenizer), "lm.arpa")
    beams = decoder.decode_beams(model(input_values).logits[0])

and for Whisper, Moonshine and others that write texts token by token

    from wfstdec.adapters.transformers import PhraseBoostLogitsProcessor

    names = PhraseBoostLogitsProcessor(["new york", "bartley"], processor)
    model.generate(**inputs, logits_processor=[names])

Nothing of Transformers or torch is imported.
"""

from wfstdec.adapters.transformers.labels import labels_of
from wfstdec.adapters.transformers.processors import (
    NgramLogitsProcessor,
    PhraseBoostLogitsProcessor,
)
from wfstdec.text.tokens import token_table_of

__all__ = [
    "NgramLogitsProcessor",
    "PhraseBoostLogitsProcessor",
    "labels_of",
    "token_table_of",
]
