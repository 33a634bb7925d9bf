"""Options of punctuation models."""

from dataclasses import dataclass


@dataclass(frozen=True)
class BuildOptions:
    """What a model is made of."""

    vocabulary: int = 60_000  # Words with labels at most
    passes: int | None = None  # Of the network over the text; None: by its size
