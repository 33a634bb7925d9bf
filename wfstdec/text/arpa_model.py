"""N-gram models as arrays, whatever file they come from; see `arpa.py`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

MAX_ORDER = 6


@dataclass(frozen=True, eq=False)
class NgramTable:
    """The N n-grams of one order, in the order of the file.

    Attributes:
        words: int32 [N, n], positions in `ArpaModel.words`, the predicted word last.
        cost: float32 [N], -ln p(last word | those before it), inf for `-inf`; >= 0,
            but for n-grams that KenLM adds where back-off weights are above 1.
        backoff: float32 [N], -ln of the back-off weight, any sign; 0 where the file
            has none, and in the highest order.
    """

    words: np.ndarray
    cost: np.ndarray
    backoff: np.ndarray

    def __len__(self) -> int:
        """N."""
        return len(self.cost)


@dataclass(frozen=True, eq=False)
class ArpaModel:
    """An ARPA file as arrays; nothing is added, dropped or sorted.

    Attributes:
        words: The unigrams, `<s>`, `</s>` and `<unk>` included where the file has them.
        ngrams: One table per order; `ngrams[n - 1]` has the n-grams.
    """

    words: tuple[str, ...]
    ngrams: tuple[NgramTable, ...]

    def __repr__(self) -> str:
        """Show its order, and how many n-grams there are of each."""
        sizes = ", ".join(f"{len(table):,}" for table in self.ngrams)
        return f"ArpaModel(order={self.order}, n-grams: {sizes})"

    @property
    def order(self) -> int:
        """The highest n."""
        return len(self.ngrams)

    @cached_property
    def index(self) -> dict[str, int]:
        """Position of each word in `words`."""
        return {word: position for position, word in enumerate(self.words)}

    @property
    def bos(self) -> int | None:
        """The word `<s>`, if there."""
        return self.index.get("<s>")

    @property
    def eos(self) -> int | None:
        """The word `</s>`, if there."""
        return self.index.get("</s>")

    @property
    def unk(self) -> int | None:
        """The word `<unk>` (or `<UNK>`), if there."""
        return self.index.get("<unk>", self.index.get("<UNK>"))
