"""Real utterances, and boosts for them, straight from the data's files.

    speech = read_speech(data, "librispeech_dev", every=13)
    lexicon = read_pronunciations(data, tokens)      # what `by_lexicon` needs of one
    boosts = own_words(speech, vocabulary)           # a list for each utterance
    phrases = said_phrases(speech, vocabulary)       # one list for all

Nothing of the project reads these files, so that two checkouts get the same.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

ARPA = "lm/lm_books.3g_pruned.arpa.gz"
LEXICON = "lexicon/lexicon_ipa.txt"
TOKENS = "tokens.txt"
SEPARATOR = "<wb>"
RARE_LETTERS = 6
"""Words at least this long are taken for rare ones."""


@dataclass(frozen=True, eq=False)
class Speech:
    """Utterances.

    Attributes:
        logprobs: float32 [T, V] of each.
        references: The words of each.
    """

    logprobs: dict[str, np.ndarray]
    references: dict[str, list[str]]

    def some(self, count: int) -> Speech:
        """The first utterances."""
        kept = list(self.logprobs)[:count]
        return Speech(
            {name: self.logprobs[name] for name in kept},
            {name: self.references[name] for name in kept},
        )


def read_speech(data: Path, stem: str, every: int) -> Speech:
    """Each `every`-th utterance of a set, in the order of its file."""
    lines = (data / f"posteriors/{stem}.txt").read_text("utf-8").splitlines()
    references = {name: words for name, *words in map(str.split, lines)}
    with np.load(data / f"posteriors/{stem}.npz") as file:
        logprobs = {
            name: np.ascontiguousarray(file[name], np.float32)
            for name in file.files[::every]
        }
    return Speech(logprobs, {name: references[name] for name in logprobs})


def read_references(data: Path, stem: str) -> list[list[str]]:
    """The words of all utterances of a set."""
    lines = (data / f"posteriors/{stem}.txt").read_text("utf-8").splitlines()
    return [line.split()[1:] for line in lines]


def read_lexicon(data: Path) -> list[tuple[str, list[str]]]:
    """Words and the names of their tokens, an entry for each line."""
    lines = (data / LEXICON).read_text("utf-8").splitlines()
    return [(word, said) for word, *said in map(str.split, lines)]


def read_pronunciations(data: Path, tokens: Any) -> Any:
    """Read pronunciations, as `by_lexicon` takes `words` and `pronunciations`."""
    entries = read_lexicon(data)
    return SimpleNamespace(
        words=[word for word, _ in entries],
        pronunciations=[tuple(tokens.ids[t] for t in said) for _, said in entries],
    )


def own_words(
    speech: Speech, vocabulary: Collection[str], distractors: int = 6
) -> list[dict[str, float] | None]:
    """For each utterance some of its words and others; every fifth has no list.

    Weights are multiples of half a nat, below 0 too. The vocabulary has an order.
    """
    rng, known = np.random.default_rng(3), list(vocabulary)
    lists: list[dict[str, float] | None] = []
    for i, words in enumerate(speech.references.values()):
        said = [word for word in words if word in vocabulary][::3]
        other = [known[j] for j in rng.integers(1, len(known), distractors)]
        weights = rng.integers(-4, 10, len(said) + len(other)) / 2
        boosts = dict(zip([*said, *other], weights.tolist(), strict=True))
        lists.append(boosts if i % 5 else None)
    return lists


def own_pairs(
    speech: Speech, vocabulary: Collection[str]
) -> list[dict[str, float] | None]:
    """For each utterance keys of one word and of two or three."""
    lists = own_words(speech, vocabulary, 2)
    for boosts, words in zip(lists, speech.references.values(), strict=True):
        if boosts is not None:
            for i in range(0, len(words) - 3, 4):
                key = words[i : i + 2 + i % 8 // 4]
                if all(word in vocabulary for word in key):
                    boosts[" ".join(key)] = 1.5 + i / 4
    return lists


def said_phrases(speech: Speech, vocabulary: Collection[str]) -> dict[str, float]:
    """Single words, pairs and triples that are said somewhere; some are penalties."""
    phrases: dict[str, float] = {}
    for words in speech.references.values():
        for i in range(0, len(words) - 3, 3):
            phrase = words[i : i + 1 + i % 9 // 3]
            if len(phrase) == 1 and len(phrase[0]) < RARE_LETTERS:
                continue
            if all(word in vocabulary for word in phrase):
                weight = 1.0 if len(phrases) % 7 else -0.75
                phrases[" ".join(phrase)] = weight
    return phrases
