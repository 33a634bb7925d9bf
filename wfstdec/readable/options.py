"""Options of punctuation models."""

from dataclasses import dataclass

from wfstdec.errors import OptionError

MAX_VOCABULARY = 64_000
"""Labels have 16 bits; some are events and classes."""


@dataclass(frozen=True)
class BuildOptions:
    """What a model is made of.

    Attributes:
        order: Of the n-gram, words and events counted.
        vocabulary: Words with labels at most.
        ngrams: N-grams of two and more words that stay.
        passes: Over the text, of the network; None: by the size of the text.
    """

    order: int = 4
    vocabulary: int = 60_000
    ngrams: int = 150_000
    passes: int | None = None

    def __post_init__(self) -> None:
        if not 2 <= self.order <= 4:
            raise OptionError(f"order={self.order}, expected 2 to 4")
        if not 1 <= self.vocabulary <= MAX_VOCABULARY:
            expected = f"expected 1 to {MAX_VOCABULARY}"
            raise OptionError(f"vocabulary={self.vocabulary}, {expected}")
