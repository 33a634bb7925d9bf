"""Small sets made from a seed: tokens, a spelled lexicon, ARPA models, log-probs.

    made = write_set(folder, Size(num_tokens=40, num_words=300), seed=1)
    made.tokens, made.lexicon, made.arpa, made.token_arpa          # files
    made.logprobs, made.references                                 # by utterance

Costs and log-probs are coarse on purpose: many paths cost the same, and which of them
wins is a result too. Nothing of the project is used here, nor its random numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

DISCOUNT = 0.7
BEGIN, END = "<s>", "</s>"
STEP = 1 / 8
"""Log-probs are multiples of it."""
PEAK = 4.5
"""How many nats a token that is said stands above the noise, on average."""

Speech = dict[str, np.ndarray]


@dataclass(frozen=True)
class Size:
    """Size of a set.

    Attributes:
        num_tokens: V, blank included.
        num_words: Different words of the lexicon.
        num_utterances: Utterances.
        sentence: Words of an utterance.
        noise: Standard deviation of what is added to log-probs, nats.
    """

    num_tokens: int
    num_words: int
    num_utterances: int = 12
    sentence: int = 8
    noise: float = 1.6


@dataclass(frozen=True, eq=False)
class SmallSet:
    """Files and utterances of a set."""

    tokens: Path
    lexicon: Path
    arpa: Path
    token_arpa: Path
    logprobs: Speech
    references: dict[str, list[str]]


def write_set(folder: Path, size: Size, seed: int) -> SmallSet:
    """Make a set and write its files; token 0 is the blank.

    Every second token begins with the mark of a word piece.
    """
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    names = [f"{'▁' * (i % 2)}t{i}" for i in range(size.num_tokens)]
    names[0] = "<blank>"
    lexicon = _random_lexicon(rng, size)
    first = dict(reversed(lexicon))
    said = _random_sentences(rng, list(first), 40 * size.num_utterances, size.sentence)
    spelled = [[names[t] for word in words for t in first[word]] for words in said]
    lines = (f"{word}\t{' '.join(names[t] for t in s)}" for word, s in lexicon)
    made = SmallSet(
        tokens=_written(folder / "tokens.txt", names),
        lexicon=_written(folder / "lexicon.txt", lines),
        arpa=folder / "words.arpa",
        token_arpa=folder / "tokens.arpa",
        logprobs={},
        references={},
    )
    made.arpa.write_text(arpa_text(said, 3, list(first)), "utf-8")
    made.token_arpa.write_text(arpa_text(spelled, 3, names[1:]), "utf-8")
    for i, words in enumerate(said[: size.num_utterances]):
        path = [token for word in words for token in first[word]]
        made.logprobs[f"utt{i:02}"] = noisy_logprobs(rng, path, size)
        made.references[f"utt{i:02}"] = words
    return made


def arpa_text(sentences: Iterable[Sequence[str]], order: int, words: list[str]) -> str:
    """An ARPA model of the n-grams of sentences, by absolute discounting.

    It need not be a good one: its probabilities add up to no more than about 1.

    Args:
        sentences: Sequences of words, or of tokens.
        order: The longest n-grams.
        words: All that can be said; each is counted once more.
    """
    counts = [Counter((word,) for word in words)]
    counts += [Counter() for _ in range(order - 1)]
    for sentence in sentences:
        marked = (BEGIN, *sentence, END)
        for n, table in enumerate(counts, 1):
            table.update(marked[i : i + n] for i in range(len(marked) - n + 1))
    total = sum(counts[0].values()) - counts[0][BEGIN,]
    lines = ["\\data\\"]
    lines += [f"ngram {n}={len(table)}" for n, table in enumerate(counts, 1)]
    for n, table in enumerate(counts, 1):
        mass = _left_over(counts[n] if n < order else {})
        lines += ["", f"\\{n}-grams:"]
        for ngram, count in sorted(table.items()):
            part = (count - DISCOUNT) / counts[n - 2][ngram[:-1]] if n > 1 else 0
            prob = np.log10(part if n > 1 else count / total)
            shown = "-99" if ngram == (BEGIN,) else f"{prob:.4f}"
            backoff = f"\t{np.log10(mass[ngram]):.4f}" if ngram in mass else ""
            lines.append(f"{shown}\t{' '.join(ngram)}{backoff}")
    return "\n".join([*lines, "", "\\end\\", ""])


def noisy_logprobs(rng: np.random.Generator, path: list[int], size: Size) -> np.ndarray:
    """Log-probs of an utterance, float32 [T, V]: tokens, blanks, and noise."""
    frames: list[int] = [0]
    for token in path:
        if frames[-1] == token or rng.random() < 0.5:
            frames += [0] * int(rng.integers(1, 3))
        frames += [token] * int(rng.integers(1, 4))
    odds = size.noise * rng.standard_normal((len(frames), size.num_tokens))
    odds[np.arange(len(frames)), frames] += rng.normal(PEAK, 1.5, len(frames))
    odds -= np.logaddexp.reduce(odds, axis=1, keepdims=True)
    return (np.round(odds / STEP) * STEP).astype(np.float32)


def _left_over(longer: dict[tuple[str, ...], int]) -> dict[tuple[str, ...], float]:
    """The share of each history that discounting leaves to what did not follow it."""
    followed, kinds = Counter(), Counter()
    for ngram, count in longer.items():
        followed[ngram[:-1]] += count
        kinds[ngram[:-1]] += 1
    return {h: DISCOUNT * kinds[h] / followed[h] for h in followed}


def _random_lexicon(
    rng: np.random.Generator, size: Size
) -> list[tuple[str, tuple[int, ...]]]:
    """Words and spellings; every fifth word has two, and some sound the same."""
    entries: list[tuple[str, tuple[int, ...]]] = []
    for i in range(size.num_words):
        for _ in range(1 + (i % 5 == 0)):
            spelling = rng.integers(1, size.num_tokens, rng.integers(1, 5)).tolist()
            if i % 11 == 10:
                spelling = entries[int(rng.integers(len(entries)))][1]
            if (entry := (f"w{i}", tuple(spelling))) not in entries:
                entries.append(entry)
    return entries


def _random_sentences(
    rng: np.random.Generator, words: list[str], count: int, length: int
) -> list[list[str]]:
    """Sentences in which some words are frequent, and some follow each other."""
    share = 1 / np.arange(1, len(words) + 1)
    drawn = rng.choice(len(words), (count, length), p=share / share.sum())
    follows = rng.random((count, length)) < 0.4
    for i in range(1, length):
        after = (7 * drawn[:, i - 1] + 3) % len(words)
        drawn[:, i] = np.where(follows[:, i], after, drawn[:, i])
    return [[words[w] for w in row] for row in drawn.tolist()]


def _written(path: Path, lines: Iterable[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return path
