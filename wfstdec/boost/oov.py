"""Words that a decoder does not have, added for an utterance with how they are said.

said = Pronouncer(tokens, lexicon, separators, g2p).say(words)    # boost.pronouncer
added = oov_words(said, bonuses, word_ids, num_known)             # OovWords
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from wfstdec.boost.spelling import Spelling
from wfstdec.text.display import few


@dataclass(frozen=True, eq=False)
class OovWords:
    """Words that a decoder does not have, and more ways to say those that it has.

    The same whatever the order of the list: sorted by (word id, tokens).

    Attributes:
        words: The texts of the ids `num_known` and on: what the decoder's table lacks,
            sorted.
        num_known: W, the size of the decoder's word table; ids below it are its words.
        word: int32 [P], the word id of each pronunciation.
        splits: int32 [P + 1], where each pronunciation's tokens stand.
        tokens: int32, token ids; never the blank, at least one for each.
        bonus: float32 [P], nats for each time the word is said this way, above 0
            favours; 0 for words of the decoder, which `CompiledBoosts.words` has.
    """

    words: tuple[str, ...]
    num_known: int
    word: np.ndarray
    splits: np.ndarray
    tokens: np.ndarray
    bonus: np.ndarray

    def __len__(self) -> int:
        return len(self.word)

    def __repr__(self) -> str:
        """Show the number of pronunciations and the first few words."""
        words = f": {few(self.words)}" if self.words else ""
        return f"OovWords({len(self)} pronunciations, {len(self.words)} words{words})"

    def total(self, words: Sequence[int]) -> float:
        """The bonuses of some word ids together, each as often as it is there, nats."""
        bonus = dict(zip(self.word.tolist(), self.bonus.tolist(), strict=True))
        return sum(bonus.get(int(word), 0.0) for word in words)


def oov_words(
    said: Mapping[str, Sequence[Spelling]],
    bonuses: Mapping[str, float],
    word_ids: Mapping[str, int],
    num_known: int,
) -> OovWords | None:
    """The words and pronunciations of a list; None where there is nothing to add.

    Args:
        said: Word to pronunciations that the decoder does not have.
        bonuses: Nats, of words that the decoder does not have; 0 for others.
        word_ids: The decoder's words.
        num_known: The size of its word table.
    """
    # Sorted: ids, and with them ties of the search, must not depend on the list's
    # order.
    words = tuple(sorted(word for word in said if word not in word_ids))
    ids = {word: num_known + i for i, word in enumerate(words)}
    rows = sorted(
        (ids.get(word, -1) if word in ids else word_ids[word], one, word)
        for word, ways in said.items()
        for one in {tuple(way) for way in ways}
    )
    if not rows:
        return None
    lengths = [len(one) for _, one, _ in rows]
    return OovWords(
        words=words,
        num_known=num_known,
        word=np.array([row[0] for row in rows], np.int32),
        splits=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32),
        tokens=np.fromiter(
            itertools.chain.from_iterable(row[1] for row in rows),
            np.int32,
            sum(lengths),
        ),
        # Further pronunciations of known words have no bonus here: it comes by the id.
        bonus=np.array(
            [bonuses.get(row[2], 0.0) if row[2] in ids else 0.0 for row in rows],
            np.float32,
        ),
    )
