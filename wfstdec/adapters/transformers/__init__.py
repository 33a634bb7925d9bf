"""Adapters for Hugging Face Transformers: labels, and logits processors of `generate`.

    from wfstdec.adapters.pyctcdecode import build_ctcdecoder
    from wfstdec.adapters.transformers import labels_of

    decoder = build_ctcdecoder(labels_of(processor.tokenizer), "lm.arpa")
    beams = decoder.decode_beams(model(input_values).logits[0])

and for autoregressive models such as Whisper and Moonshine

    from wfstdec.adapters.transformers import PhraseBoostLogitsProcessor

    names = PhraseBoostLogitsProcessor(["new york", "bartley"], processor)
    model.generate(**inputs, logits_processor=[names])

Nothing of Transformers or torch is imported.
"""

from typing import Any

from wfstdec.adapters.transformers.processors import (
    NgramLogitsProcessor,
    PhraseBoostLogitsProcessor,
)
from wfstdec.errors import TokenTableError
from wfstdec.text.tokens import names_of, token_table_of, tokenizer_of

__all__ = [
    "NgramLogitsProcessor",
    "PhraseBoostLogitsProcessor",
    "labels_of",
    "token_table_of",
]


def labels_of(tokenizer: Any, num_labels: int | None = None) -> list[str]:
    """Return the labels of a CTC model's outputs: blank "", delimiter " ".

    Args:
        tokenizer: Such as a `Wav2Vec2CTCTokenizer`. Its padding token is the blank; a
            tokenizer of pieces has no delimiter.
        num_labels: V, the size of the model's output (`model.config.vocab_size`):
            tokens above it are omitted, ids without a token get a unique name. None:
            all tokens of the tokenizer.

    Raises:
        TokenTableError: Two tokens share an id; or an id has no token and `num_labels`
            is None; or the tokenizer has no blank.
    """
    names, tokenizer = names_of(tokenizer), tokenizer_of(tokenizer)
    called = {
        getattr(tokenizer, "word_delimiter_token", None): " ",
        getattr(tokenizer, "pad_token", None): "",
    }
    by_id = {i: called.get(name, name) for i, name in names.items()}
    count = max(by_id, default=-1) + 1 if num_labels is None else num_labels
    missing = [i for i in range(count) if i not in by_id]
    if missing and num_labels is None:
        what = f"{len(missing)} ids have no token, such as {missing[0]}"
        advice = "give num_labels, the size of the model's output"
        raise TokenTableError(f"{what}, expected {count} tokens; {advice}")
    return [by_id.get(i, f"<unused_{i}>") for i in range(count)]
