"""Examples to train heads on: frames of Whisper for sentences of books.

    source = Simulator(speech, frames, data, rng)
    frames, logprobs, words, spans = source.example()

Units (`tools.data.speech_units`) are of the training speakers of LibriSpeech and LJ
Speech, for which the data has the log-probs of a phone CTC model, at 50 frames a second
as Whisper's are. Sentences are of books, none with six words in a row that a reference
of the other speakers has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tools.bench.data import read_cmudict
from tools.data.head_data import Utterance
from tools.data.speech_units import Pronunciations, UnitStore, say
from wfstdec.io.logprobs import open_logprobs
from wfstdec.text.files import read_lines
from wfstdec.text.lexicon import read_lexicon
from wfstdec.text.tokens import TokenTable, read_tokens

BOOKS = "standardebooks_9.1Mwords.txt.gz"
IN_A_ROW = 6
"""Words that a sentence may not have in common with a reference."""
LONGEST = 36
"""Words of a simulated utterance at most."""
MOST_SILENCE = 30
"""Frames more of Whisper than of the phone model: half a second is appended."""


def sentences_without(
    references: Iterable[Sequence[str]], lines: Iterable[str]
) -> Iterator[list[str]]:
    """Words of lines that share no `IN_A_ROW` words with a reference."""

    def rows(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
        last = len(words) - IN_A_ROW + 1
        return (tuple(words[i : i + IN_A_ROW]) for i in range(last))

    barred = {row for words in references for row in rows(words)}
    for line in lines:
        words = line.split()
        if words and barred.isdisjoint(rows(words)):
            yield words


def read_pronunciations(folder: Path, tokens: TokenTable) -> Pronunciations:
    """The lexicon, and the words of CMUdict that it lacks, by the same phones."""
    lexicon = read_lexicon(folder / "lexicon_ipa.txt", tokens)
    known = set(lexicon.words)
    found: defaultdict[str, list[tuple[int, ...]]] = defaultdict(list)
    for word, spelt in zip(lexicon.words, lexicon.pronunciations, strict=True):
        found[word].append(spelt)
    for word, phones in read_cmudict(folder / "cmudict.dict"):
        if word not in known:
            found[word].append(tuple(map(tokens.index, phones)))
    return dict(found)


class Simulator:
    """Endless examples, the same for the same seed.

    Args:
        speech: All utterances.
        frames: Of Whisper, by name.
        data: Folder of the development data.
        rng: All that is random.
    """

    def __init__(
        self,
        speech: Sequence[Utterance],
        frames: Mapping[str, np.ndarray],
        data: Path,
        rng: np.random.Generator,
    ) -> None:
        self.rng = rng
        tokens = read_tokens(data / "tokens.txt")
        self.ways = read_pronunciations(data / "lexicon", tokens)
        self.separator = tokens.index("<wb>")
        self.logprobs: dict[str, np.ndarray] = {}
        for name in "librispeech_dev", "ljspeech":
            self.logprobs |= dict(open_logprobs(data / "posteriors" / f"{name}.npz"))
        spoken, speakers = [], []
        for one in speech:
            if one.part != "training" or one.name not in self.logprobs:
                continue
            rows, own = self.logprobs[one.name], frames[one.name]
            is_whole = len(own) - len(rows) <= MOST_SILENCE
            if is_whole and all(word in self.ways for word in one.words):
                words, blank = one.words, tokens.blank
                found = say(
                    *(own, rows, words, self.ways),
                    blank=blank,
                    separator=self.separator,
                )
                if found is not None:
                    spoken.append(found)
                    speakers.append(one.speaker)
        numbers = {name: i for i, name in enumerate(sorted(set(speakers)))}
        self.store = UnitStore(
            spoken, [numbers[name] for name in speakers], len(tokens)
        )
        held_out = (one.words for one in speech if one.part != "training")
        lines = read_lines(data / "text" / BOOKS)
        self.sentences = []
        for words in sentences_without(held_out, lines):
            for start in range(0, len(words), LONGEST):
                part = words[start : start + LONGEST]
                if all(word in self.ways for word in part):
                    self.sentences.append(part)

    def example(self) -> tuple[Any, ...]:
        """Frames [T, D], log-probs [T, V], words, the first frame and end of each."""
        while True:
            words = self.sentences[int(self.rng.integers(len(self.sentences)))]
            items, places = self._items(words)
            if self.store.known[items].all():
                break
        rows, edges = self.store.simulate(items, self.rng)
        spans = [(int(edges[a]), int(edges[b])) for a, b in places]
        return *np.split(rows, [-self.store.num_tokens], axis=1), words, spans

    def _items(self, words: Sequence[str]) -> tuple[np.ndarray, list[tuple[int, int]]]:
        """Phones and separators of words, and where each word's phones are."""
        items, places = [self.store.begin], []
        for i, word in enumerate(words):
            if i:
                items.append(self.separator)
            ways = self.ways[word]
            way = ways[int(self.rng.integers(len(ways)))]
            places.append((len(items), len(items) + len(way)))
            items += way
        return np.array([*items, self.store.end], np.int64), places
