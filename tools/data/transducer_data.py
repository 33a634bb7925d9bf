"""Training data of a small transducer: real utterances, simulated ones of text.

    speech = load_speech(data)                     # aligned, by speaker
    source = Source(speech, sentences, pieces, seed=1)
    for examples in source.batches(frames=6000, pool=400):
        batch = collate(examples, stride=4)        # tensors, and the lattice's band

Nothing of the speakers in `HELD_OUT` is in the training data: not their log-probs, not
what confusions are drawn from, and no sentence that has six words in a row with them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tools.data.speech_units import Pronunciations, Spoken, UnitStore, say, vary
from tools.data.transducer_loss import Lattice
from wfstdec.io.logprobs import open_logprobs
from wfstdec.io.text import read_text
from wfstdec.text.files import read_lines
from wfstdec.text.lexicon import read_lexicon
from wfstdec.text.tokens import TokenTable, read_tokens

HELD_OUT = ("1673", "174", "1993", "2086")
"""LibriSpeech dev's speakers that tables are made of: two women and two men."""
IN_A_ROW = 6
"""Words that a training sentence may not have in common with a held-out one."""
BEHIND, AHEAD = 4, 3
"""Tokens that a cell of the band may lack of the alignment, or have in front of it."""
LONGEST = 36
"""Words of a simulated utterance at most."""

Pieces = Callable[[str], Sequence[int]]
"""The tokens of a word."""


@dataclass(frozen=True)
class Speech:
    """Real speech, split.

    Attributes:
        tokens: Of the acoustic model.
        pronunciations: Of all words that are known.
        references: Words of each utterance, LibriSpeech's and LJ Speech's.
        logprobs: Of each utterance, float16 [T, V].
        training: Utterances to train on, aligned.
        held_out: Utterances of the held-out speakers.
    """

    tokens: TokenTable
    pronunciations: Pronunciations
    references: dict[str, tuple[str, ...]]
    logprobs: dict[str, np.ndarray]
    training: dict[str, Spoken]
    held_out: list[str]


def speaker_of(utterance: str) -> str:
    """LJ Speech has one speaker."""
    return "LJ" if utterance.startswith("LJ") else utterance.split("-")[0]


def load_speech(data: Path) -> Speech:
    """Read the development data, and align what is trained on."""
    tokens = read_tokens(data / "tokens.txt")
    pronunciations = read_pronunciations(data / "lexicon", tokens)
    references: dict[str, tuple[str, ...]] = {}
    logprobs: dict[str, np.ndarray] = {}
    for name in "librispeech_dev", "ljspeech":
        references |= read_text(data / "posteriors" / f"{name}.txt")
        logprobs |= dict(open_logprobs(data / "posteriors" / f"{name}.npz"))
    held_out = [name for name in logprobs if speaker_of(name) in HELD_OUT]
    training = {}
    for name, rows in logprobs.items():
        words = references[name]
        if speaker_of(name) in HELD_OUT or not pronunciations.keys() >= set(words):
            continue
        separator = tokens.index("<wb>")
        blank = tokens.blank
        spoken = say(rows, words, pronunciations, blank=blank, separator=separator)
        if spoken is not None:
            training[name] = spoken
    return Speech(tokens, pronunciations, references, logprobs, training, held_out)


def read_pronunciations(folder: Path, tokens: TokenTable) -> Pronunciations:
    """The lexicon, and the words of CMUdict that it lacks, by the same phones."""
    known: defaultdict[str, list[tuple[int, ...]]] = defaultdict(list)
    lexicon = read_lexicon(folder / "lexicon_ipa.txt", tokens)
    for word, spelt in zip(lexicon.words, lexicon.pronunciations, strict=True):
        known[word].append(spelt)
    larger: defaultdict[str, list[list[str]]] = defaultdict(list)
    for line in read_lines(folder / "cmudict.dict"):
        word, *phones = line.split(" #")[0].split()
        larger[word.split("(")[0]].append(phones)
    pairs: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for word in known.keys() & larger.keys():
        for spelt in known[word]:
            for phones in larger[word]:
                if len(phones) == len(spelt):
                    for phone, token in zip(phones, spelt, strict=True):
                        pairs[phone][token] += 1
    token_of = {phone: own.most_common(1)[0][0] for phone, own in pairs.items()}
    for word, said in larger.items():
        if word not in known and all(p in token_of for own in said for p in own):
            known[word] = [tuple(token_of[phone] for phone in own) for own in said]
    return dict(known)


def training_sentences(
    lines: Iterable[str], speech: Speech, max_words: int = LONGEST
) -> list[list[str]]:
    """Sentences whose words are known, in parts if long; none said by who is held out.

    Args:
        lines: Text.
        speech: Pronunciations, and the held-out references.
        max_words: Longer sentences are cut.
    """
    taken = {row for name in speech.held_out for row in _rows(speech.references[name])}
    sentences = []
    for line in lines:
        words = line.split()
        if not taken.isdisjoint(_rows(words)):
            continue
        for start in range(0, len(words), max_words):
            part = words[start : start + max_words]
            if all(word in speech.pronunciations for word in part):
                sentences.append(part)
    return sentences


def _rows(words: Sequence[str]) -> Iterable[tuple[str, ...]]:
    """All `IN_A_ROW` words in a row."""
    return (tuple(words[i : i + IN_A_ROW]) for i in range(len(words) - IN_A_ROW + 1))


@dataclass(frozen=True)
class Example:
    """An utterance to train on.

    Attributes:
        logprobs: [T, V] float32.
        targets: Output tokens.
        ends: The frame at which each of them is over.
    """

    logprobs: np.ndarray
    targets: list[int]
    ends: list[float]

    @classmethod
    def of_words(
        cls,
        logprobs: np.ndarray,
        words: Sequence[str],
        places: Sequence[tuple[int, int]],
        pieces: Pieces,
    ) -> Example:
        """Frames of words: the first of each, and the one after its last."""
        targets: list[int] = []
        ends: list[float] = []
        for word, (start, stop) in zip(words, places, strict=True):
            own = pieces(word)
            targets += own
            steps = (np.arange(len(own)) + 1.0) / len(own)
            ends += (start + (stop - start) * steps).tolist()
        return cls(logprobs, targets, ends)


class Source:
    """Endless examples, the same for the same seed.

    Args:
        speech: Real speech.
        sentences: Of known words; taken in a random order, again and again.
        pieces: The tokens of a word.
        seed: Of everything random.
        real: Share of the examples that are real utterances.
    """

    def __init__(
        self,
        speech: Speech,
        sentences: Sequence[Sequence[str]],
        pieces: Pieces,
        *,
        seed: int,
        real: float = 0.08,
    ) -> None:
        self.speech, self.sentences, self.pieces = speech, sentences, pieces
        self.real = real
        self.names = list(speech.training)
        speakers = [speaker_of(name) for name in self.names]
        numbers = {name: i for i, name in enumerate(sorted(set(speakers)))}
        spoken = [speech.training[name] for name in self.names]
        numbered = [numbers[name] for name in speakers]
        self.store = UnitStore(
            spoken, numbered, len(speech.tokens), speech.tokens.blank
        )
        self.separator = speech.tokens.index("<wb>")
        edges = [(one.units[1][0], one.units[-2][0]) for one in spoken]
        self.at_ends = np.mean(np.array(edges) == self.separator, axis=0)
        self.chances = self._chances(spoken)
        self.rng = np.random.default_rng(seed)
        self.queue: list[int] = []

    def _chances(self, spoken: Sequence[Spoken]) -> dict[str, np.ndarray]:
        """How often each pronunciation of the words that are said is said."""
        counts: defaultdict[str, Counter[tuple[int, ...]]] = defaultdict(Counter)
        for name, one in zip(self.names, spoken, strict=True):
            words = self.speech.references[name]
            for word, said in zip(words, one.said, strict=True):
                counts[word][said] += 1
        chances = {}
        for word, own in counts.items():
            ways = self.speech.pronunciations[word]
            shares = np.array([own[way] + 0.3 for way in ways])
            chances[word] = shares / shares.sum()
        return chances

    def example(self) -> Example:
        """The next one: simulated, or real and varied."""
        if self.rng.random() < self.real:
            name = self.names[self.rng.integers(len(self.names))]
            spoken = self.speech.training[name]
            rows = vary(spoken.logprobs.astype(np.float32), self.rng)
            words = self.speech.references[name]
            return Example.of_words(rows, words, spoken.words, self.pieces)
        while True:
            if not self.queue:
                self.queue = self.rng.permutation(len(self.sentences)).tolist()
            words = self.sentences[self.queue.pop()]
            items, places = self.items(words)
            if self.store.known[items].all():
                break
        rows, edges = self.store.simulate(items, self.rng)
        frames = [(int(edges[a]), int(edges[b])) for a, b in places]
        return Example.of_words(rows, words, frames, self.pieces)

    def items(self, words: Sequence[str]) -> tuple[np.ndarray, list[tuple[int, int]]]:
        """Phones and separators of words, and where each word's phones are."""
        items = [self.store.begin]
        places = []
        leading, trailing = self.rng.random(2) < self.at_ends
        if leading:
            items.append(self.separator)
        for i, word in enumerate(words):
            if i:
                items.append(self.separator)
            ways = self.speech.pronunciations[word]
            way = 0
            if len(ways) > 1:
                chances = self.chances.get(word)
                way = int(self.rng.choice(len(ways), p=chances))
            places.append((len(items), len(items) + len(ways[way])))
            items += ways[way]
        if trailing:
            items.append(self.separator)
        return np.array([*items, self.store.end], np.int64), places

    def batches(self, frames: int, pool: int) -> Iterable[list[Example]]:
        """Endless batches of examples of similar lengths.

        Args:
            frames: Of a batch, padding counted.
            pool: Examples that are sorted by length at a time.
        """
        while True:
            examples = sorted(
                (self.example() for _ in range(pool)), key=lambda e: len(e.logprobs)
            )
            batches: list[list[Example]] = [[]]
            for one in examples:
                if (len(batches[-1]) + 1) * len(one.logprobs) > frames and batches[-1]:
                    batches.append([])
                batches[-1].append(one)
            for chosen in self.rng.permutation(len(batches)):
                yield batches[chosen]


@dataclass(frozen=True)
class Batch:
    """Features [B, T, V], lengths [B], targets [B, U], the lattice, the band's S."""

    features: Tensor
    lengths: Tensor
    targets: Tensor
    lattice: Lattice
    band: int = BEHIND + AHEAD + 1


def collate(examples: Sequence[Example], stride: int) -> Batch:
    """Pad examples; the band is `BEHIND` and `AHEAD` tokens around their alignment."""
    lengths = np.array([len(one.logprobs) for one in examples])
    sizes = np.array([len(one.targets) for one in examples])
    num_tokens = examples[0].logprobs.shape[1]
    features = np.full((len(examples), lengths.max(), num_tokens), -24.0, np.float32)
    targets = np.zeros((len(examples), max(1, sizes.max())), np.int64)
    frames = -(-lengths // stride)
    width = Batch.band
    starts = np.zeros((len(examples), frames.max()), np.int64)
    for b, one in enumerate(examples):
        features[b, : lengths[b]] = one.logprobs
        targets[b, : sizes[b]] = one.targets
        over = np.searchsorted(one.ends, stride * np.arange(frames[b]), "right")
        last = max(0, sizes[b] + 1 - width)
        starts[b, : frames[b]] = np.clip(over - BEHIND, 0, last)
        starts[b, frames[b] - 1 :] = last
    tensors = map(torch.from_numpy, (features, lengths, targets, frames, sizes, starts))
    features_, lengths_, targets_, frames_, sizes_, starts_ = tensors
    return Batch(features_, lengths_, targets_, Lattice(frames_, sizes_, starts_))


def by_speaker(names: Iterable[str]) -> Mapping[str, list[str]]:
    """Utterances of each speaker."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for name in names:
        found[speaker_of(name)].append(name)
    return found
