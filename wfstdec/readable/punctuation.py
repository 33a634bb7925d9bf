"""Punctuation and capitals of words, by a search over the events between them.

    model = load_punctuation()                           # English; or a path
    shown = model.punctuate("yes said mr bly".split())
    shown.text                                           # "Yes, said Mr. Bly."

    stream = model.stream()
    shown = stream.feed(words, num_settled=4)            # words so far
    shown = stream.end(words)                            # all words

At each place, in order, the event of least cost is chosen:

    -log p(event | words around it) + prior[event] + asks[level, event]
      - weight * log p(pause | event)

where the level is the evidence of a question from the first words of the sentence and
its parts. The network of the first term also predicts the capitals after each event.
"""

import bisect
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from wfstdec.errors import FormatError, ShapeError
from wfstdec.readable.kernels import (
    NUM_EVENTS,
    NUM_LEVELS,
    NUM_OUTPUTS,
    NUM_PAUSES,
    Network,
    Scales,
    choose,
    evidence_of,
)
from wfstdec.readable.printed import (
    CLASSES,
    MARKS,
    NONE,
    PERIOD,
    SENTENCE_ENDS,
    plain,
)
from wfstdec.text.display import join_words
from wfstdec.text.files import PathLike, atomic_write, reading

ENGLISH = Path(__file__).parent / "data" / "en.punct.npz"
PAUSE_EDGES = (0.01, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28)
"""Seconds between the bins of pauses."""
END_BIN = NUM_PAUSES - 1  # Bin of the end of an utterance
Pauses = Sequence[float | None] | None
"""Seconds between each word and the next; None if unknown."""
_FORMAT = {"format": "wfstdec.punctuation", "version": 1}
_FORBIDDEN = 1e4


class Punctuated(NamedTuple):
    """Words with the events after them, and their written forms."""

    events: list[int]  # After each word, indices in `EVENTS`
    forms: list[str]  # Of each word, without its event: `Mr.`, `McDonald`
    num_settled: int  # Number of words whose events and forms cannot change

    @property
    def text(self) -> str:
        """Words with their marks, joined as in their script."""
        pairs = zip(self.forms, self.events, strict=True)
        return join_words(form + MARKS[event] for form, event in pairs)


@dataclass(frozen=True, eq=False, repr=False)
class PunctuationModel:
    """Model of events and capitals in one language; see `load_punctuation`."""

    labels: tuple[str, ...]  # `<eps>`, events, classes of unknown words, words
    network: Network
    left: int  # Words of the network's window before the place
    scales: Scales
    forms: Mapping[str, tuple[str, str]]
    """Written forms of words, without and with a capital, except regular ones."""

    @cached_property
    def index(self) -> dict[str, int]:
        """Label of each name."""
        return {name: label for label, name in enumerate(self.labels)}

    @property
    def right(self) -> int:
        """Words of the network's window after the place."""
        size = self.network.embedding.shape[1]
        return self.network.weight_1.shape[0] // size - self.left

    def written(self, token: str, capital: bool) -> str:
        """Return the written form of a word; that of a class is the token."""
        if token in CLASSES:
            return token
        own = token.lower(), capitalized(token.lower())
        return self.forms.get(plain(token), own)[capital]

    def stream(self) -> "PunctuationStream":
        """Return a stream at the beginning of a sentence."""
        return PunctuationStream(self)

    def punctuate(
        self, tokens: Sequence[str], pauses: Pauses = None, *, last: bool = True
    ) -> Punctuated:
        """Punctuate a file, or an utterance that is not the `last` one."""
        return self.stream().end(tokens, pauses, last=last)

    def save(self, path: PathLike) -> None:
        """Write the model as one file."""
        facts = {"left": self.left, "labels": self.labels, "forms": self.forms}
        header = json.dumps({**_FORMAT, **facts}).encode()
        costs = {**self.network._asdict(), **self.scales._asdict()}
        # Costs are tuned to a few hundredths: half the digits are enough.
        arrays = {name: array.astype(np.float16) for name, array in costs.items()}
        with atomic_write(path) as file:
            header_bytes = np.frombuffer(header, np.uint8)
            np.savez_compressed(file, header=header_bytes, **arrays)


def load_punctuation(path: PathLike = ENGLISH) -> PunctuationModel:
    """Load a model of `wfstdec build-punctuation`, by default the shipped English one.

    Raises:
        FormatError: Not a punctuation model, of another version, or damaged.
    """
    with reading(path, "punctuation model", "what wfstdec build-punctuation writes"):
        with np.load(io.BytesIO(Path(path).read_bytes())) as file:
            arrays = {name: file[name] for name in file.files}
        header = json.loads(arrays["header"].tobytes())
        if (found := {name: header[name] for name in _FORMAT}) != _FORMAT:
            raise FormatError(f"found {found}, expected {_FORMAT}; build it again")
        costs = {name: arrays[name].astype(np.float32) for name in arrays}
        model = PunctuationModel(
            tuple(header["labels"]),
            Network(*(costs[name] for name in Network._fields)),
            header["left"],
            Scales(*(costs[name] for name in Scales._fields)),
            header["forms"],
        )
        _check(model)
        return model


def _check(model: PunctuationModel) -> None:
    """Raise unless the arrays are consistent: kernels do not check."""
    net = model.network
    (window, first), second, size = net.weight_1.shape, len(net.bias_2), len(net[0].T)
    embedding, biases = (len(model.labels), size), [(first,), (second,), (NUM_OUTPUTS,)]
    weights = [(window, first), (first, second), (second, NUM_OUTPUTS)]
    scales = [(NUM_EVENTS,), (NUM_LEVELS, NUM_EVENTS), (NUM_LEVELS - 1,)]
    scales += [(NUM_PAUSES, NUM_EVENTS)]
    if (
        [array.shape for array in net[::2]] != [embedding, *biases]
        or [array.shape for array in net[1::2]] != weights
        or [array.shape for array in model.scales] != scales
        or window % size
        or not model.left >= 1 <= model.right
        or "<other>" not in model.index
    ):
        raise FormatError("arrays of other sizes than expected; build it again")


def find_label(index: Mapping[str, int], token: str) -> int:
    """Return the label of a word, or of the class of unknown words with its ending."""
    word = token if token in CLASSES else plain(token)
    if (label := index.get(word)) is not None and word[:1] != "<":
        return label
    return class_label(index, word)


def class_label(index: Mapping[str, int], word: str) -> int:
    """Return the label of unknown words with the ending of a word."""
    ends = (index.get(f"<-{word[-size:]}>") for size in (3, 2))
    return next(filter(None, ends), index["<other>"])


def capitalized(word: str) -> str:
    """Return the word with an initial capital."""
    return word[:1].upper() + word[1:]


class _Passed(NamedTuple):
    """Places of an utterance with their events; the first is before it."""

    events: list[int]
    forms: list[str]  # Of the words after the places
    levels: list[int]  # After the places


class PunctuationStream:
    """Stream of utterances, each of which arrives in parts."""

    def __init__(self, model: PunctuationModel) -> None:
        self._model = model
        # The last words of previous utterances precede those of this one, as input of
        # the network. The first is no word, after a period.
        self._context, self._behind = [0], PERIOD
        self._level = 0
        self._begin()

    def _begin(self) -> None:
        self._labels: list[int] = []  # of settled words
        self._passed = _Passed([], [], [])

    def feed(
        self,
        tokens: Sequence[str],
        pauses: Pauses = None,
        num_settled: int | None = None,
    ) -> Punctuated:
        """Punctuate the words so far, as in `FormatStream.feed`.

        Tokens are words, or classes such as `NUM`; settled ones come first.
        """
        count = len(tokens) if num_settled is None else num_settled
        labels = self._labels_of(tokens)
        self._labels = labels[:count]
        shown = self._pass(tokens, labels, pauses, len(tokens))
        # The network sees all words that it needs of earlier places.
        until = max(0, count - self._model.right)
        if until:
            end = until + 1
            self._passed = _Passed(
                shown.events[:end], shown.forms[:end], shown.levels[:end]
            )
        events = [*shown.events[1:-1], NONE][: len(tokens)]  # More words may come.
        return Punctuated(events, shown.forms, until)

    def end(
        self, tokens: Sequence[str], pauses: Pauses = None, *, last: bool = False
    ) -> Punctuated:
        """Punctuate the complete utterance, as in `FormatStream.end`."""
        labels = self._labels_of(tokens)
        if pauses and pauses[-1] is None:
            pauses = [*pauses[:-1], PAUSE_EDGES[-1]]
        passed = self._pass(tokens, labels, pauses, len(tokens), last=last)
        if tokens:
            self._context = (self._context + labels)[-self._model.left :]
            self._behind, self._level = passed.events[-1], passed.levels[-1]
            self._begin()
        return Punctuated(passed.events[1:], passed.forms, len(tokens))

    def _labels_of(self, tokens: Sequence[str]) -> list[int]:
        known, index = self._labels, self._model.index
        return known + [find_label(index, token) for token in tokens[len(known) :]]

    def _pass(
        self,
        tokens: Sequence[str],
        labels: list[int],
        pauses: Pauses,
        until: int,
        *,
        last: bool = False,
    ) -> _Passed:
        """Choose the events after the first `until` words."""
        model, passed = self._model, self._passed
        known = len(passed.events)
        row = np.array(self._context + labels, np.int32)
        first = len(self._context) - 1  # the place before the utterance
        costs, capital, asks = evidence_of(
            model.network, row, model.left, first + known, first + until + 1
        )
        if last:
            costs[-1, ~np.isin(np.arange(NUM_EVENTS), SENTENCE_ENDS)] += _FORBIDDEN
        bins = _pause_bins(pauses, len(tokens))[known : until + 1]
        decided = -1 if known else self._behind
        level = passed.levels[-1] if known else self._level
        events, levels = choose(model.scales, costs, asks, bins, level, decided)
        odds = capital[np.arange(len(events)), events]
        capitals = ((odds > 0) | (events == PERIOD)).tolist()
        forms = map(model.written, tokens[known:], capitals)
        return _Passed(
            passed.events + events.tolist(),
            [*passed.forms, *forms],
            passed.levels + levels.tolist(),
        )


def _pause_bins(pauses: Pauses, count: int) -> np.ndarray:
    """Return bins of pauses, int32 [W + 1], the first before all words, -1 unknown."""
    if pauses is None:
        return np.full(count + 1, -1, np.int32)
    if len(pauses) != count:
        raise ShapeError(f"{len(pauses)} pauses, expected {count}, one for each word")
    bins = [-1 if p is None else bisect.bisect(PAUSE_EDGES, p) for p in pauses]
    return np.array([-1, *bins], np.int32)
