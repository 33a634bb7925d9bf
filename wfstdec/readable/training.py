"""Punctuation models of printed text in any language.

    model = build_punctuation(["a.txt.xz", "b.txt.xz"], tune=["c.txt"])
    model.save("en.punct.npz")

1. Words seen often are labels; the others are classes by how they end.
2. An n-gram of words and events, a network on the words of a window, and log-linear
   models of questions and capitals are estimated.
3. Scales and priors are tuned on text that was held out, for the mean F of events.
"""

import json
import logging
import lzma
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from wfstdec.errors import FormatError
from wfstdec.jit import jit
from wfstdec.lm.ngram import NgramLM
from wfstdec.readable.estimate import estimate
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
    descend,
    log_odds,
    place_costs,
    search_places,
)
from wfstdec.readable.options import BuildOptions
from wfstdec.readable.printed import (
    CLASSES,
    COLON,
    COMMA,
    DASH,
    EVENTS,
    PERIOD,
    QUESTION,
    SEMICOLON,
    SENTENCE_ENDS,
    read_printed,
)
from wfstdec.readable.punctuation import (
    END_BIN,
    PAUSE_EDGES,
    PunctuationModel,
    capitalized,
    enter,
    find_label,
    linear_model,
    make_scales,
    new_search,
)
from wfstdec.text.files import PathLike, read_lines, reading

LEFT, RIGHT = 8, 3
"""Words of the network's window up to the place, and behind it."""
_EMBEDDING, _HIDDEN = 40, 192
_RARE, _OWN_GROUPS, _NUM_ENDINGS, _GROUP_SIZE = 2, 300, 150, 20
"""Words seen as often are unknown; frequent words with a group of their own; classes of
unknown words; words that share an ending at least."""
_BATCH, _CUT, _UNKNOWN, _DROPPED = 512, 0.06, 0.03, 0.15
"""Places of a step; shares without words behind them, of words taken as unknown, and of
hidden values dropped."""
_PAUSE_WEIGHT = 2.0
"""On LJ Speech 1.5 and 2 are as good; with less, ends of utterances become commas."""
_LEVELS = -2.2, -0.85, 0.0, 1.0, 2.0
"""Log-odds between levels of questions."""
_TUNED_WORDS = 60_000
_log = logging.getLogger("wfstdec.readable")


@dataclass
class _Text:
    """Printed text as arrays, [W] each."""

    labels: np.ndarray  # int32
    events: np.ndarray  # int32
    capitals: np.ndarray  # int32, 1 where a form has a capital


def build_punctuation(
    texts: Sequence[PathLike],
    *,
    tune: Sequence[PathLike] | None = None,
    speech: PathLike | None = None,
    options: BuildOptions | None = None,
) -> PunctuationModel:
    """Build a model of printed text, a paragraph a line; plain, .gz or .xz.

    Args:
        texts: Files to train on.
        tune: Files to tune scales on; without any, the last twentieth of the text.
        speech: JSON lines with `text`, as printed, and `words`, [start, end] in seconds
            of each word: for the pauses.
        options: Sizes.
    """
    options = options or BuildOptions()
    printed = [line for path in texts for line in _paragraphs(path)]
    held_out = [line for path in tune or () for line in _paragraphs(path)]
    if not held_out:
        cut = max(1, len(printed) - max(1, len(printed) // 20))
        printed, held_out = printed[:cut], printed[cut:]
    words, events, forms = read_printed(printed)
    if len(set(words)) < 2 or not any(events):
        raise FormatError(
            f"{', '.join(map(str, texts))}: {len(words)} words without punctuation, "
            "expected printed text, a paragraph a line"
        )
    labels, groups = _vocabulary(words, options.vocabulary)
    _log.info("%d words, %d labels", len(words), len(labels))
    text = _text_of(labels, words, events, forms)
    lm = NgramLM.from_arpa(
        estimate(_row(text), labels, order=options.order, most=options.ngrams), labels
    )
    passes = options.passes or int(np.clip(200_000 // len(words), 5, 20))
    network = _train_network(labels, groups, text, passes)
    asks, capital = _linear_models(text, groups)
    written = _written_forms(words, events, forms)
    model = PunctuationModel(
        labels,
        groups,
        lm.automaton,
        network,
        LEFT,
        asks,
        capital,
        make_scales(),
        written,
    )
    given = {"pauses": np.zeros((NUM_PAUSES, NUM_EVENTS))}
    if speech is not None:
        given |= {"pauses": count_pauses(speech), "pause": np.array(_PAUSE_WEIGHT)}
    given |= _levels(model, text)
    return _tuned(model, _text_of(labels, *read_printed(held_out)), given)


def _paragraphs(path: PathLike) -> list[str]:
    if str(path).endswith(".xz"):
        with reading(path, "xz file"), lzma.open(path, "rt", encoding="utf-8") as file:
            return file.read().split("\n")
    return read_lines(path)


def _vocabulary(words: list[str], most: int) -> tuple[tuple[str, ...], np.ndarray]:
    """Labels, and the word class of each: of words by frequency and ending."""
    counts = Counter(words)
    # Of a small text all words are known.
    rare = _RARE if len(words) > 100_000 else 0
    known = [w for w, n in counts.most_common(most) if n > rare and w not in CLASSES]
    endings: Counter[str] = Counter()
    for word in counts.keys() - known:
        endings.update({word[-3:]: counts[word], word[-2:]: counts[word]})
    classes = [f"<-{end}>" for end, _ in endings.most_common(_NUM_ENDINGS)]
    special = ["<eps>", *(f"<{e}>" for e in EVENTS[1:]), "<other>", *CLASSES, *classes]
    shared: Counter[str] = Counter()
    for word in known:
        shared.update((word[-3:], word[-2:]))
    numbers: dict[str, int] = {}
    groups = []
    for rank, name in enumerate([*special, *known], start=-len(special)):
        end = name.strip("<->") if name.startswith("<-") else name
        by_end = end[-3:] if shared[end[-3:]] >= _GROUP_SIZE else end[-2:]
        is_own = rank < _OWN_GROUPS and not name.startswith("<-")
        group = name if is_own else f"-{by_end}"
        groups.append(numbers.setdefault(group, len(numbers)))
    return tuple([*special, *known]), np.array(groups, np.int32)


def _text_of(
    labels: Sequence[str], words: list[str], events: list[int], forms: list[str]
) -> _Text:
    index = {name: label for label, name in enumerate(labels)}
    label_of = {word: find_label(index, word) for word in set(words)}
    return _Text(
        np.array([label_of[word] for word in words], np.int32),
        np.array(events, np.int32),
        np.array([form != form.lower() for form in forms], np.int32),
    )


def _row(text: _Text) -> np.ndarray:
    """Words and events in a row, behind a period; none is not written."""
    row = np.zeros(2 * len(text.labels) + 1, np.int32)
    row[0], row[1::2], row[2::2] = PERIOD, text.labels, text.events
    return row[row > 0]


def _written_forms(
    words: list[str], events: list[int], forms: list[str]
) -> dict[str, tuple[str, str]]:
    """Forms of words with and without a capital, where they are not by the rule."""
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    for i, (word, form) in enumerate(zip(words, forms, strict=True)):
        # Sentences begin with capitals: other places count more.
        seen[word][form] += 1 if i and events[i - 1] in SENTENCE_ENDS else 10
    special = {}
    for word, counts in seen.items():
        capital = Counter({f: n for f, n in counts.items() if f != f.lower()})
        plain = Counter({f: n for f, n in counts.items() if f == f.lower()})
        lower = plain.most_common(1)[0][0] if plain else word
        rule = capitalized(lower)
        upper = capital.most_common(1)[0][0] if capital else rule
        if (lower, upper) != (word, capitalized(word)) and word not in CLASSES:
            special[word] = lower, upper
    return special


def _linear_models(text: _Text, groups: np.ndarray) -> tuple[LinearModel, LinearModel]:
    """Models of questions and of capitals."""
    ends = np.flatnonzero(np.isin(text.events, SENTENCE_ENDS))
    is_question = np.zeros(len(text.events), np.float32)
    is_question[ends[:-1]] = text.events[ends[1:]] == QUESTION
    next_capital = np.append(text.capitals[1:], 0).astype(np.float32)
    places = np.arange(len(text.events) - 1)
    return (
        _linear_model(ASKS, text, groups, is_question, ends[:-1], 20_000),
        _linear_model(CASE, text, groups, next_capital, places, 100_000),
    )


def _linear_model(
    kind: int,
    text: _Text,
    groups: np.ndarray,
    targets: np.ndarray,
    places: np.ndarray,
    most: int,
) -> LinearModel:
    """Train all features, then again those that stay."""
    random = np.random.default_rng(0)

    def passes(model: LinearModel, sums: np.ndarray, rate: float) -> None:
        for _ in range(2):
            order = random.permutation(places)
            descend(
                *(kind, text.labels, groups, text.events, targets, order),
                *(model, sums, np.float32(rate)),
            )

    size = 1 << HASH_BITS
    every = linear_model(np.arange(1, size), np.zeros(size, np.float32))
    sums = np.ones(size, np.float32)
    passes(every, sums, 0.2)
    weight = np.abs(every.weights) * np.sqrt(sums - 1)
    kept = np.sort(np.argsort(-weight)[:most])
    kept = kept[weight[kept] > 0]
    model = linear_model(kept, np.append(np.float32(0), every.weights[kept]))
    passes(model, np.append(np.float32(1), sums[kept]), 0.1)
    return model


def _train_network(
    labels: Sequence[str], groups: np.ndarray, text: _Text, passes: int
) -> Network:
    """Train by Adam, embeddings by Adagrad; rates fall to zero."""
    random = np.random.default_rng(0)
    width = LEFT + RIGHT
    sizes = [width * _EMBEDDING, _HIDDEN, _HIDDEN, NUM_EVENTS]
    shape = len(labels), _EMBEDDING
    words = _normal(random, shape, 0.1)
    classes = _normal(random, (groups.max() + 1, _EMBEDDING), 0.1)
    word_sums, class_sums = np.full_like(words, 1e-3), np.full_like(classes, 1e-3)
    layers: list[np.ndarray] = []
    for inputs, outputs in zip(sizes, sizes[1:], strict=False):
        layers.append(_normal(random, (inputs, outputs), 1.4 / inputs**0.5))
        layers.append(np.zeros(outputs, np.float32))
    adam = _Adam(layers)
    padded = np.pad(text.labels, (LEFT - 1, RIGHT))
    offsets, other = np.arange(width), labels.index("<other>")
    batch = int(np.clip(len(text.labels) // 200, min(16, len(text.labels)), _BATCH))
    steps = len(text.labels) // batch
    for number in range(passes * steps):
        if number % steps == 0:
            order, total = random.permutation(len(text.labels)), 0.0
        rate = 1 - number / (passes * steps)
        at = number % steps * batch
        places = order[at : at + batch]
        window = padded[places[:, None] + offsets]
        window[random.random(batch) < _CUT, LEFT:] = 0
        window[random.random(window.shape) < _UNKNOWN] = other
        inputs = (words[window] + classes[groups[window]]).reshape(batch, -1)
        loss, slopes, slope = _slopes(layers, inputs, text.events[places], random)
        total += loss
        adam.step(slopes, 1.5e-3 * rate + 1e-5)
        slope = slope.reshape(batch, width, -1)
        scatter = words, word_sums, classes, class_sums, groups, window, slope
        _scatter(*scatter, np.float32(0.03 * rate + 1e-4))
        if number % steps == steps - 1:
            _log.info("pass %d: cost %.4f", number // steps + 1, total / steps)
    return Network(words + classes[groups], *layers)


def _normal(random: Any, shape: tuple[int, ...], scale: float) -> np.ndarray:
    return (random.standard_normal(shape) * scale).astype(np.float32)


def _slopes(
    layers: list[np.ndarray], inputs: np.ndarray, events: np.ndarray, random: Any
) -> tuple[float, list[np.ndarray], np.ndarray]:
    """The mean cost, and its slopes by the layers and by the inputs."""
    rows = [inputs]
    for i in range(0, len(layers), 2):
        row = rows[-1] @ layers[i] + layers[i + 1]
        if i + 2 < len(layers):
            row = np.maximum(row, 0) * np.float32(1 / (1 - _DROPPED))
            row *= random.random(row.shape, np.float32) >= _DROPPED
        rows.append(row)
    logits = rows.pop()
    logits -= logits.max(1, keepdims=True)
    slope = np.exp(logits)
    slope /= slope.sum(1, keepdims=True)
    each = np.arange(len(events))
    loss = -np.log(slope[each, events] + 1e-9).mean()
    slope[each, events] -= 1
    slopes: list[np.ndarray] = []
    for i in range(len(layers) - 2, -1, -2):
        row = rows.pop()
        slopes = [row.T @ slope / len(events), slope.mean(0), *slopes]
        slope = slope @ layers[i].T
        if i:
            slope *= (row > 0) * np.float32(1 / (1 - _DROPPED))
    return float(loss), slopes, slope


class _Adam:
    """Adam's moments of some arrays, changed in place."""

    def __init__(self, arrays: list[np.ndarray]) -> None:
        self._arrays, self._count = arrays, 0
        self._means = [np.zeros_like(a) for a in arrays]
        self._squares = [np.zeros_like(a) for a in arrays]

    def step(self, slopes: list[np.ndarray], rate: float) -> None:
        self._count += 1
        step = rate * (1 - 0.999**self._count) ** 0.5 / (1 - 0.9**self._count)
        moments = zip(self._arrays, slopes, self._means, self._squares, strict=True)
        for array, slope, mean, square in moments:
            mean += 0.1 * (slope - mean)
            square += 0.001 * (slope * slope - square)
            array -= np.float32(step) * mean / (np.sqrt(square) + np.float32(1e-8))


@jit
def _scatter(words, word_sums, classes, class_sums, groups, window, slopes, rate):
    """Change the embeddings of the words of windows."""
    for i in range(window.shape[0]):
        for j in range(window.shape[1]):
            word = window[i, j]
            group = groups[word]
            for d in range(slopes.shape[2]):
                slope = slopes[i, j, d]
                word_sums[word, d] += slope * slope
                words[word, d] -= rate * slope / np.sqrt(word_sums[word, d])
                class_sums[group, d] += slope * slope
                classes[group, d] -= rate * slope / np.sqrt(class_sums[group, d])


def count_pauses(path: PathLike) -> np.ndarray:
    """-log p(pause | event) counted on speech, float32 [8, 8]."""
    counts = np.zeros((NUM_PAUSES, NUM_EVENTS))
    for line in read_lines(path):
        with reading(path, "speech file", "JSON lines with text and words"):
            utterance = json.loads(line)
            times = np.array(utterance["words"], float).reshape(-1, 2)
        _, events, _ = read_printed([utterance["text"]])
        if len(events) != len(times):
            _log.warning(
                "%s: %d words, times of %d; left out: %.40s",
                *(path, len(events), len(times), utterance["text"]),
            )
            continue
        pauses = times[1:, 0] - times[:-1, 1]
        bins = np.searchsorted(PAUSE_EDGES, pauses, side="right")
        np.add.at(counts, (bins, events[:-1]), 1)
        counts[END_BIN, events[-1]] += 1
    # Events seen seldom have the pauses of others like them, bins those of all events.
    each = counts.sum(1, keepdims=True) + 0.5
    counts += 5 * each / each.sum()
    for alike in (list(SENTENCE_ENDS), [COMMA, COLON, SEMICOLON, DASH]):
        shared = counts[:, alike].sum(1, keepdims=True)
        counts[:, alike] += 20 * shared / shared.sum()
    return -np.log(counts / counts.sum(0)).astype(np.float32)


def _levels(model: PunctuationModel, text: _Text) -> dict[str, np.ndarray]:
    """Levels of log-odds that a sentence is a question, and what they cost."""
    odds = np.zeros(len(text.labels), np.float32)
    log_odds(
        *(ASKS, text.labels, model.groups, text.events, model.asks),
        *(0, len(odds), odds),
    )
    levels = np.array(_LEVELS, np.float32)
    each = (odds[:, None] > levels).sum(1)
    counts, level = np.zeros((NUM_LEVELS, NUM_EVENTS)), 0
    for i in np.flatnonzero(text.events):
        event = text.events[i]
        if event in SENTENCE_ENDS:
            counts[level, event] += 1
            level = each[i]
        else:
            level = max(level, each[i])
    ends = list(SENTENCE_ENDS)
    share = counts[:, ends].sum(0) + 1
    share /= share.sum()
    rows = counts[:, ends] + 10 * share
    asks = np.zeros((NUM_LEVELS, NUM_EVENTS))
    asks[:, ends] = -np.log(rows / rows.sum(1, keepdims=True) / share)
    return {"levels": levels, "asks": asks}


def decode(
    model: PunctuationModel, labels: np.ndarray, costs: np.ndarray
) -> np.ndarray:
    """Events of a whole text, given the network's costs; for tuning."""
    odds = np.zeros(len(labels), np.float32)
    log_odds(ASKS, labels, model.groups, labels, model.asks, 0, len(labels), odds)
    search = new_search(model.automaton)
    enter(model.automaton, search, labels[0])
    decided = np.zeros(len(labels) + MAX_PENDING, np.int32)
    pauses = np.full(len(labels), -1, np.int32)
    search_places(
        *(model.automaton, model.scales, search, labels, 0, costs, odds, pauses),
        *(True, decided),
    )
    return decided[: len(labels)]


def f_score(reference: np.ndarray, shown: np.ndarray, event: int) -> float:
    """F of an event, place by place, in per cent."""
    both = ((reference == event) & (shown == event)).sum()
    return float(
        200 * both / max(1, (reference == event).sum() + (shown == event).sum())
    )


def _tuned(
    model: PunctuationModel, text: _Text, given: dict[str, np.ndarray]
) -> PunctuationModel:
    """Climb by one value after the other, to the best F on average."""
    # Blocks from all of the text, whose authors differ.
    blocks = np.arange(len(text.labels)) // 2000
    apart = max(1, len(text.labels) // _TUNED_WORDS)
    labels, events, capitals = (
        a[blocks % apart == 0] for a in (text.labels, text.events, text.capitals)
    )
    values: dict[str, Any] = {**given, "lm": 0.3, "asks_scale": 1.0}
    values["prior"] = np.zeros(NUM_EVENTS)
    if len(labels) < 2:
        return _with(model, values)
    costs = place_costs(model.network, labels, LEFT, 0, len(labels))
    # Others stay as likely as they are: recall would be paid with precision.
    tuned = [e for e in (COMMA, PERIOD, QUESTION) if (events == e).sum() > 5]

    def quality() -> float:
        shown = decode(_with(model, values), labels, costs)
        return sum(f_score(events, shown, event) for event in tuned)

    best = quality()
    for step in (0.5, 0.25):
        best = _climb(values, "lm", step / 5, best, quality)
        best = _climb(values, "asks_scale", step / 2, best, quality)
        for event in tuned:
            best = _climb(values["prior"], event, step, best, quality)
    _log.info("tuned: lm %.2f, prior %s", values["lm"], values["prior"])
    model = _with(model, values)
    shown = decode(model, labels, costs).astype(np.int32)
    odds = np.zeros(len(labels) - 1, np.float32)
    log_odds(CASE, labels, model.groups, shown, model.case, 0, len(odds), odds)
    bounds = sorted(np.arange(-0.75, 0.76, 0.25), key=abs)
    best_bound = max(bounds, key=lambda x: f_score(capitals[1:], odds > x, True))
    return replace(model, capital_odds=float(best_bound))


def _climb(
    table: Any, key: Any, step: float, best: float, quality: Callable[[], float]
) -> float:
    """Move one value for as long as it helps; the quality reached."""
    for signed in (step, -step):
        moved = False
        while True:
            before = table[key]
            table[key] = before + signed
            reached = quality() if not isinstance(key, str) or table[key] >= 0 else -1.0
            if reached <= best:
                table[key] = before
                break
            best, moved = reached, True
        if moved:
            break
    return best


def _with(model: PunctuationModel, values: dict[str, Any]) -> PunctuationModel:
    kept = {name: value for name, value in values.items() if name != "asks_scale"}
    kept["asks"] = values["asks"] * values["asks_scale"]
    return replace(model, scales=make_scales(**kept))
