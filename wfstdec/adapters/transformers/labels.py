"""Labels of a CTC model's outputs, by its tokenizer.

labels_of(processor.tokenizer)      # the blank as "", the delimiter as " "
"""

from __future__ import annotations

from typing import Any

from wfstdec.errors import TokenTableError
from wfstdec.text.tokens import names_of, tokenizer_of


def labels_of(tokenizer: Any, num_labels: int | None = None) -> list[str]:
    """The labels of a CTC model's outputs: the blank as "", the delimiter as " ".

    Args:
        tokenizer: Such as a `Wav2Vec2CTCTokenizer`, of which the padding token is the
            blank; one of pieces has no delimiter.
        num_labels: V, the size of the model's output (`model.config.vocab_size`):
            tokens behind it are left out, ids without a token get a name of their own.
            None: all tokens of the tokenizer.

    Raises:
        TokenTableError: Two tokens have one id; or an id has none and `num_labels` is
            None; or nothing of the kind is known of the tokenizer.
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
