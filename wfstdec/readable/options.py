"""Options of punctuation models."""

from dataclasses import dataclass


@dataclass(frozen=True)
class BuildOptions:
    """Sizes of a punctuation model."""

    vocabulary: int = 60_000  # Number of words with labels, at most
    passes: int | None = None  # Passes over the text; None: by its size
