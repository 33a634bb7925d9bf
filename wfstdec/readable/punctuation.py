"""Punctuation and capitals of words, by a search over the events between them.

    model = load_punctuation()                           # English; or a path
    shown = model.punctuate("yes said mr bly".split())
    shown.text                                           # "Yes, said Mr. Bly."

    stream = model.stream()
    shown = stream.feed(words, num_settled=4)            # words of the utterance so far
    shown = stream.end(words)                            # the next one continues it

The search minimizes the sum over places of

    lm * n-gram + network * -log p(event | words around it)
      + pause * -log p(pause | event) + prior[event] + asks[level, event]

over (n-gram history, level), where the level is how likely the sentence is a question
by the words that began it and its parts. Capitals are decided behind the events.
"""

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from wfstdec.errors import FormatError, OptionError, ShapeError
from wfstdec.lm.automaton import Automaton, frozen
from wfstdec.lm.kernels import walk
from wfstdec.lm.ngram import check_automaton
from wfstdec.readable.kernels import (
    ASKS,
    CASE,
    HASH_BITS,
    MAX_PENDING,
    NUM_EVENTS,
    NUM_LEVELS,
    NUM_PAUSES,
    LinearModel,
    Network,
    Scales,
    Search,
    log_odds,
    place_costs,
    search_places,
)
from wfstdec.readable.printed import (
    CLASSES,
    MARKS,
    NONE,
    PERIOD,
    SENTENCE_ENDS,
    plain,
)
from wfstdec.text.files import PathLike, atomic_write, reading

FORMAT_VERSION = 1
ENGLISH = Path(__file__).parent / "data" / "en.punct.npz"
BEAM, MAX_ACTIVE, MAX_DELAY = 4.0, 64, 3
"""Nats; live states; places after which the best state decides an event.

A beam of 12 gives the same F on 100k words, and settles words one later. Without a
limit of places the F of questions is 1.4 higher, and words settle up to 6 later."""
PAUSE_EDGES = (0.01, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28)
"""Seconds between the bins of pauses."""
_FORBIDDEN = 1e4
END_BIN = NUM_PAUSES - 1
"""The bin of the end of an utterance."""


class Punctuated(NamedTuple):
    """Words with the events behind them, and how they are written."""

    events: tuple[int, ...]
    """The event behind each word, positions in `EVENTS`."""
    forms: tuple[str, ...]
    """The written form of each word, without its event: `Mr.`, `McDonald`, `the`."""
    num_settled: int
    """The first words whose events and forms cannot change."""

    @property
    def text(self) -> str:
        """The words with their marks, between spaces."""
        pairs = zip(self.forms, self.events, strict=True)
        return " ".join(form + MARKS[event] for form, event in pairs)


@dataclass(frozen=True, eq=False, repr=False)
class PunctuationModel:
    """A model of events and capitals in one language; see `load_punctuation`."""

    labels: tuple[str, ...]  # `<eps>`, events, classes of unknown words, words
    groups: np.ndarray  # int32 [L], the word class of each label
    automaton: Automaton
    network: Network
    left: int  # words of the network's window up to the place
    asks: LinearModel
    case: LinearModel
    scales: Scales
    forms: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Written forms of words, without and with a capital, where the rule differs."""
    capital_odds: float = 0.0
    """Log-odds above which a word has a capital."""

    @cached_property
    def index(self) -> dict[str, int]:
        """The label of each name."""
        return {name: label for label, name in enumerate(self.labels)}

    @property
    def right(self) -> int:
        """Words of the network's window behind the place."""
        size = self.network.embedding.shape[1]
        return self.network.weight_1.shape[0] // size - self.left

    def label_of(self, token: str) -> int:
        """The label of a word or of a class such as `NUM`."""
        return find_label(self.index, token)

    def written(self, token: str, capital: bool) -> str:
        """The written form of a word; that of a class is the token."""
        if token in CLASSES:
            return token
        word = plain(token)
        lower, upper = self.forms.get(word, (word, capitalized(word)))
        return upper if capital else lower

    def stream(self) -> "PunctuationStream":
        """Begin a stream, at the beginning of a sentence."""
        return PunctuationStream(self)

    def punctuate(
        self,
        tokens: Sequence[str],
        pauses: Sequence[float | None] | None = None,
        *,
        last: bool = True,
    ) -> Punctuated:
        """Punctuate one utterance, or a file; see `PunctuationStream.end`."""
        return self.stream().end(tokens, pauses, last=last)

    def save(self, path: PathLike) -> None:
        """Write the model as one file."""
        top = np.abs(self.network.embedding).max(0) / 127 + 1e-9
        arrays: dict[str, Any] = {
            "header": _text(json.dumps(self._header())),
            "labels": _text("\n".join(self.labels)),
            "groups": self.groups.astype(np.uint16),
            "forms": _text(
                "\n".join("\t".join((w, *f)) for w, f in self.forms.items())
            ),
            "embedding": np.round(self.network.embedding / top).astype(np.int8),
            "embedding_scale": top.astype(np.float32),
        }
        for name, layer in self.network._asdict().items():
            if name != "embedding":
                arrays[name] = layer.astype(np.float16)
        for name in ("asks", "case"):
            model: LinearModel = getattr(self, name)
            arrays[f"{name}_buckets"] = np.flatnonzero(model.rows).astype(np.uint32)
            arrays[f"{name}_weights"] = model.weights.astype(np.float16)
        for name, array in self.automaton._asdict().items():
            # Costs are tuned to a few hundredths: half the digits are enough.
            kind = np.float16 if array.dtype == np.float32 else array.dtype
            arrays[f"lm_{name}"] = array.astype(kind)
        with atomic_write(path) as file:
            np.savez_compressed(file, **arrays)

    def _header(self) -> dict[str, Any]:
        scales = {
            name: np.asarray(value, np.float64).round(4).tolist()
            for name, value in self.scales._asdict().items()
        }
        facts: dict[str, Any] = {
            "format": "wfstdec.punctuation",
            "version": FORMAT_VERSION,
        }
        facts |= {"left": self.left, "capital_odds": self.capital_odds}
        return {**facts, "scales": scales}


def find_label(index: Mapping[str, int], token: str) -> int:
    """The label of a word, or of the class of unknown ones with its ending."""
    word = token if token in CLASSES else plain(token)
    if (label := index.get(word)) is not None and word[:1] != "<":
        return label
    ends = (index.get(f"<-{word[-size:]}>") for size in (3, 2))
    return next(filter(None, ends), index["<other>"])


def new_search(automaton: Automaton) -> Search:
    """A search behind a period."""
    search = Search(
        np.zeros(MAX_ACTIVE, np.int32),
        np.zeros(MAX_ACTIVE, np.int32),
        np.zeros(MAX_ACTIVE, np.float32),
        np.zeros(MAX_ACTIVE, np.uint64),
        np.array([1, 0]),
    )
    enter(automaton, search, PERIOD)
    return search


def enter(automaton: Automaton, search: Search, label: int) -> None:
    """Pass the first word of an utterance; all events before it are decided."""
    labels, costs = np.array([label], np.int32), np.zeros(1, np.float32)
    search.lm_state[0] = walk(automaton, 0, search.lm_state[0], labels, costs)


def capitalized(word: str) -> str:
    """The word with a capital at its beginning."""
    return word[:1].upper() + word[1:]


def _text(text: str) -> np.ndarray:
    return np.frombuffer(text.encode(), np.uint8)


def load_punctuation(path: PathLike = ENGLISH) -> PunctuationModel:
    """Load a model that `wfstdec build-punctuation` wrote; the shipped English one.

    Raises:
        FormatError: Not a punctuation model, of another version, or damaged.
    """
    with reading(path, "punctuation model", "what wfstdec build-punctuation writes"):
        with np.load(io.BytesIO(Path(path).read_bytes())) as file:
            arrays = {name: file[name] for name in file.files}
        header = json.loads(arrays["header"].tobytes())
        found = header["format"], header["version"]
        if found != ("wfstdec.punctuation", FORMAT_VERSION):
            expected = f"a punctuation model of version {FORMAT_VERSION}"
            raise FormatError(f"found {found}, expected {expected}; build it again")
        labels = tuple(arrays["labels"].tobytes().decode().split("\n"))
        automaton = frozen(
            Automaton(*(arrays[f"lm_{name}"] for name in Automaton._fields))
        )
        check_automaton(automaton, len(labels))
        embedding = arrays["embedding"] * arrays["embedding_scale"]
        layers = [arrays[name] for name in Network._fields[1:]]
        model = PunctuationModel(
            labels,
            arrays["groups"].astype(np.int32),
            automaton,
            Network(
                *(np.ascontiguousarray(a, np.float32) for a in [embedding, *layers])
            ),
            int(header["left"]),
            linear_model(arrays["asks_buckets"], arrays["asks_weights"]),
            linear_model(arrays["case_buckets"], arrays["case_weights"]),
            make_scales(**header["scales"]),
            {
                word: (lower, upper)
                for line in arrays["forms"].tobytes().decode().split("\n")
                if line
                for word, lower, upper in [line.split("\t")]
            },
            float(header.get("capital_odds", 0)),
        )
        _check(model)
        return model


def linear_model(buckets: np.ndarray, weights: np.ndarray) -> LinearModel:
    """A model that has rows for these features alone, in order."""
    rows = np.zeros(1 << HASH_BITS, np.int32)
    rows[buckets] = np.arange(1, len(buckets) + 1)
    if len(weights) != len(buckets) + 1:
        raise FormatError("features and weights differ in number; build it again")
    return LinearModel(rows, weights.astype(np.float32))


def make_scales(**given: Any) -> Scales:
    """Scales of any numbers, with neutral ones for those not given."""
    shapes: dict[str, Any] = {"prior": NUM_EVENTS, "asks": (NUM_LEVELS, NUM_EVENTS)}
    shapes |= {"pauses": (NUM_PAUSES, NUM_EVENTS), "levels": NUM_LEVELS - 1}
    values: dict[str, Any] = {"lm": 1.0, "network": 1.0, "pause": 1.0, "beam": BEAM}
    values |= {name: given.get(name, number) for name, number in values.items()}
    values = {name: float(number) for name, number in values.items()}
    for name, shape in shapes.items():
        array = given.get(name, np.zeros(shape))
        values[name] = np.ascontiguousarray(array, np.float32)
    ends = given.get("ends", np.isin(np.arange(NUM_EVENTS), SENTENCE_ENDS))
    values["ends"] = np.ascontiguousarray(ends, bool)
    return Scales(**values, max_delay=int(given.get("max_delay", MAX_DELAY)))


def _check(model: PunctuationModel) -> None:
    """Raise unless the arrays fit each other: kernels do not check."""
    size, net, scales = len(model.labels), model.network, model.scales
    hidden = len(net.bias_1), len(net.bias_2)
    fits = (
        model.groups.shape == (size,)
        and net.embedding.ndim == 2
        and len(net.embedding) == size
        and net.weight_1.shape[0] % net.embedding.shape[1] == 0
        and net.weight_1.shape[1] == hidden[0]
        and net.weight_2.shape == hidden
        and net.weight_3.shape == (hidden[1], NUM_EVENTS)
        and net.bias_3.shape == scales.prior.shape == scales.ends.shape == (NUM_EVENTS,)
        and scales.asks.shape == (NUM_LEVELS, NUM_EVENTS)
        and scales.pauses.shape == (NUM_PAUSES, NUM_EVENTS)
        and scales.levels.shape == (NUM_LEVELS - 1,)
        and 0 <= scales.max_delay < MAX_PENDING
        and model.left >= 1 <= model.right
        and "<other>" in model.index
    )
    if not fits:
        raise FormatError("arrays of other sizes than expected; build it again")


class PunctuationStream:
    """Utterances that follow each other, each of which arrives in parts."""

    # The last words of the utterances before are in front of those of this one: the
    # network and capitals rely on them. The first is no word, behind a period.

    def __init__(self, model: PunctuationModel) -> None:
        self._model = model
        self._search = new_search(model.automaton)
        self._context, self._behind = [0], PERIOD
        self._begin()

    def _begin(self) -> None:
        self._tokens: list[str] = []  # those settled
        self._labels: list[int] = []
        self._events: list[int] = []
        self._forms: list[str] = []
        self._num_passed = 0

    @property
    def sentence_is_open(self) -> bool:
        """Whether the last utterance ended in mid-sentence."""
        return self._behind not in SENTENCE_ENDS

    def feed(
        self,
        tokens: Sequence[str],
        pauses: Sequence[float | None] | None = None,
        num_settled: int | None = None,
    ) -> Punctuated:
        """Punctuate the words of the utterance so far.

        Args:
            tokens: Words, or classes such as `NUM`; those settled before must be first.
            pauses: Seconds between each word and the next; None where unknown.
            num_settled: The first words that will not change; None: all.
        """
        count = len(tokens) if num_settled is None else num_settled
        if not len(self._tokens) <= count <= len(tokens):
            raise OptionError(
                f"num_settled={count}, expected {len(self._tokens)} to {len(tokens)}"
            )
        self._settle(tokens, count)
        bins = _pause_bins(pauses, len(tokens))
        self._pass(count - self._model.right, bins)
        shown, events, forms = self._rest(tokens, bins)
        events[-1:] = [NONE] * len(events[-1:])  # more words may come
        return Punctuated(tuple(events), tuple(forms), shown)

    def end(
        self,
        tokens: Sequence[str],
        pauses: Sequence[float | None] | None = None,
        *,
        last: bool = False,
    ) -> Punctuated:
        """Punctuate the whole utterance, and begin the next one.

        Args:
            tokens: As for `feed`; all are settled.
            pauses: As for `feed`; that behind the last word is long where unknown.
            last: The end of a file: one of the events that end a sentence is chosen. At
                the end of any other utterance a sentence may be open.
        """
        self._settle(tokens, len(tokens))
        bins = _pause_bins(pauses, len(tokens))
        if pauses is not None and len(tokens) and bins[-1] < 0:
            bins[-1] = END_BIN
        _, events, forms = self._rest(tokens, bins, last=last, keep=True)
        if tokens:
            kept = self._model.left + 2
            self._context = (self._context + self._labels)[-kept:]
            self._behind = events[-1]
        self._begin()
        return Punctuated(tuple(events), tuple(forms), len(tokens))

    def _settle(self, tokens: Sequence[str], count: int) -> None:
        known = len(self._tokens)
        if list(tokens[:known]) != self._tokens:
            raise OptionError(
                f"the first {known} tokens differ from those settled before, expected "
                "the same"
            )
        self._tokens += tokens[known:count]
        self._labels += map(self._model.label_of, tokens[known:count])

    def _pass(self, until: int, bins: np.ndarray) -> None:
        """Pass the places before `until`, whose words are all settled."""
        if until <= self._num_passed:
            return
        labels = np.array(self._context + self._labels, np.int32)
        begin = self._num_passed
        self._events += self._decided(
            self._search, labels, begin, until, bins, is_end=False
        )
        self._num_passed = until
        known = self._forms_of(labels, self._events, len(self._forms), self._tokens)
        self._forms += known

    def _rest(
        self,
        tokens: Sequence[str],
        bins: np.ndarray,
        *,
        last: bool = False,
        keep: bool = False,
    ) -> tuple[int, list[int], list[str]]:
        """The number of events that are decided; the events and forms of all words."""
        if not tokens:
            return 0, [], []
        search = self._search
        if not keep:
            search = Search(*(array.copy() for array in search))
        own = self._labels + list(
            map(self._model.label_of, tokens[len(self._tokens) :])
        )
        labels = np.array(self._context + own, np.int32)
        begin = self._num_passed
        events = self._events + self._decided(
            search, labels, begin, len(tokens), bins, is_end=True, last=last
        )
        forms = self._forms_of(labels, events, len(self._forms), tokens)
        return len(self._forms), events, self._forms + forms

    def _decided(
        self,
        search: Search,
        labels: np.ndarray,
        begin: int,
        until: int,
        bins: np.ndarray,
        *,
        is_end: bool,
        last: bool = False,
    ) -> list[int]:
        """Pass places; the events that were decided."""
        model, base = self._model, len(self._context)
        costs = place_costs(
            model.network, labels, model.left, base + begin, base + until
        )
        if last:
            costs[-1, ~model.scales.ends] += _FORBIDDEN
        odds = np.zeros(until - begin + 1, np.float32)
        at = base + begin
        given = ASKS, labels, model.groups, labels, model.asks
        log_odds(*given, at - 1, base + until, odds)
        if begin == 0:
            enter(model.automaton, search, labels[base])
            # Words that begin an utterance raise or set the level as behind any event.
            own = (odds[0] > model.scales.levels).sum()
            if self._behind in SENTENCE_ENDS:
                search.level[0] = own
            elif self._behind != NONE:
                search.level[0] = max(own, search.level[0])
        decided = np.zeros(until - begin + MAX_PENDING, np.int32)
        count = search_places(
            *(model.automaton, model.scales, search, labels, at, costs, odds[1:]),
            *(bins[begin:until], is_end, decided),
        )
        return decided[:count].tolist()

    def _forms_of(
        self, labels: np.ndarray, events: list[int], begin: int, tokens: Sequence[str]
    ) -> list[str]:
        """Written forms of the words from `begin` on whose events are decided."""
        model, base, end = self._model, len(self._context), len(events)
        before = np.array([NONE] * (base - 1) + [self._behind, *events], np.int32)
        odds = np.zeros(max(0, end - begin), np.float32)
        at = base - 1 + begin
        log_odds(
            CASE, labels, model.groups, before, model.case, at, base - 1 + end, odds
        )
        odds[before[at : base - 1 + end] == PERIOD] = np.inf
        return [
            model.written(token, bool(capital))
            for token, capital in zip(
                tokens[begin:end], odds > model.capital_odds, strict=True
            )
        ]


def _pause_bins(pauses: Sequence[float | None] | None, count: int) -> np.ndarray:
    """Bins of pauses, int32 [W]; -1 where one is unknown."""
    if pauses is None:
        return np.full(count, -1, np.int32)
    if len(pauses) != count:
        raise ShapeError(f"{len(pauses)} pauses, expected {count}, one for each word")
    seconds = np.array([np.nan if p is None else p for p in pauses], np.float64)
    bins = np.searchsorted(PAUSE_EDGES, seconds, side="right")
    return np.where(np.isnan(seconds), -1, bins).astype(np.int32)
