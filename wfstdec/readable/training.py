"""Training of punctuation models on printed text in any language.

    model = build_punctuation(["a.txt.xz", "b.txt.xz"], tune=["c.txt"])
    model.save("en.punct.npz")

1. Frequent words are labels; the others have classes by ending.
2. A network on the words of a window is trained.
3. Priors are tuned on held-out text, for the mean F of events.
"""

import json
import logging
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from wfstdec.errors import FormatError
from wfstdec.jit import jit
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
    class_label,
    find_label,
)
from wfstdec.text.files import PathLike, read_lines, reading

LEFT, RIGHT = 8, 3  # Words of the network's window before the place, and after it
_EMBEDDING, _HIDDEN = 40, (192, 192)
_RARE, _FREQUENT, _NUM_ENDINGS = 2, 300, 150
"""Largest count of unknown words; least count of words that share nothing with their
class; number of classes of unknown words.
"""
_PASSES = 8  # Over large texts
_BATCH, _CUT, _UNKNOWN, _DROPPED = 512, 0.06, 0.03, 0.15
"""Places of a step; shares without words after them, of words treated as unknown, and
of dropped hidden values.
"""
_PAUSE_WEIGHT = 2.0
"""On LJ Speech 1.5 and 2 are equal; with less, ends of utterances become commas."""
_LEVELS = -2.2, -0.85, 0.0, 1.0, 2.0  # Log-odds between levels of questions
_TUNED = COMMA, PERIOD, QUESTION
"""Others keep their probability: recall would cost precision."""
_log = logging.getLogger("wfstdec.readable")


class _Text(NamedTuple):
    labels: np.ndarray  # int32
    events: np.ndarray  # int32
    capitals: np.ndarray  # float32, 1 if the form after a word has a capital
    asks: np.ndarray  # float32, 1 if the words after it are of a question


def build_punctuation(
    texts: Sequence[PathLike],
    *,
    tune: Sequence[PathLike] | None = None,
    speech: PathLike | None = None,
    options: BuildOptions | None = None,
) -> PunctuationModel:
    """Build a model from printed text, a paragraph per line, plain or compressed.

    Args:
        texts: Files to train on.
        tune: Files to tune scales on; by default the last twentieth of the text.
        speech: JSON lines with printed `text`, and `words`, [start, end] in seconds of
            each word, for the pauses.
        options: Sizes.
    """
    options = options or BuildOptions()
    printed = [line for path in texts for line in read_lines(path)]
    held_out = [line for path in tune or () for line in read_lines(path)]
    if not held_out:
        cut = len(printed) * 19 // 20
        printed, held_out = printed[:cut], printed[cut:]
    words, events, written = read_printed(printed)
    if len(set(words)) < 2 or not any(events):
        raise FormatError(
            f"{', '.join(map(str, texts))}: {len(words)} words without punctuation, "
            "expected printed text, a paragraph per line"
        )
    labels = _vocabulary(words, options.vocabulary)
    _log.info("%d words, %d labels", len(words), len(labels))
    text = _text_of(labels, words, events, written)
    passes = options.passes or int(np.clip(200_000 // len(words), _PASSES, 20))
    network = _train_network(labels, text, passes)
    pauses = np.zeros((NUM_PAUSES, NUM_EVENTS), np.float32)
    if speech is not None:
        pauses = np.float32(_PAUSE_WEIGHT) * count_pauses(speech)
    priors, levels = np.zeros(NUM_EVENTS, np.float32), np.array(_LEVELS, np.float32)
    scales = Scales(priors, _level_costs(network, levels, text), levels, pauses)
    scales = _tuned(network, scales, _text_of(labels, *read_printed(held_out)))
    forms = _written_forms(words, events, written)
    return PunctuationModel(labels, network, LEFT, scales, forms)


def _vocabulary(words: list[str], most: int) -> tuple[str, ...]:
    """Return labels: events, classes of unknown words, and words by frequency."""
    counts = Counter(words)
    # All words of a small text are known.
    rare = _RARE if len(words) > 100_000 else 0
    known = [w for w, n in counts.most_common(most) if n > rare and w not in CLASSES]
    endings: Counter[str] = Counter()
    frequent = set(known)
    for word in [word for word in counts if word not in frequent]:
        endings.update({word[-3:]: counts[word], word[-2:]: counts[word]})
    classes = [f"<-{end}>" for end, _ in endings.most_common(_NUM_ENDINGS)]
    events = (f"<{event}>" for event in EVENTS[1:])
    return "<eps>", *events, "<other>", *CLASSES, *classes, *known


def _text_of(
    labels: Sequence[str], words: list[str], events: list[int], forms: list[str]
) -> _Text:
    index = {name: label for label, name in enumerate(labels)}
    label_of = {word: find_label(index, word) for word in set(words)}
    capitals = [form != form.lower() for form in [*forms[1:], ""]]
    asks, is_question = np.zeros(len(words), np.float32), False
    for i in reversed(range(len(words))):
        asks[i] = is_question
        if events[i] in SENTENCE_ENDS:
            is_question = events[i] == QUESTION
    numbers = np.array([label_of[word] for word in words], np.int32)
    kinds = np.array(events, np.int32)
    return _Text(numbers, kinds, np.array(capitals, np.float32), asks)


def _written_forms(
    words: list[str], events: list[int], forms: list[str]
) -> dict[str, tuple[str, str]]:
    """Return irregular forms of words without and with a capital."""
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    for i, (word, form) in enumerate(zip(words, forms, strict=True)):
        # Sentences begin with capitals: other places count more.
        seen[word][form] += 1 if i and events[i - 1] in SENTENCE_ENDS else 10
    special = {}
    for word, counts in seen.items():
        ranked = [form for form, _ in counts.most_common()]
        lower = next((form for form in ranked if form == form.lower()), word)
        upper = next((form for form in ranked if form != form.lower()), None)
        upper = upper or capitalized(lower)
        if (lower, upper) != (word, capitalized(word)) and word not in CLASSES:
            special[word] = lower, upper
    return special


def _train_network(labels: tuple[str, ...], text: _Text, passes: int) -> Network:
    """Train layers by Adam, embeddings by Adagrad; rates fall to zero."""
    random = np.random.default_rng(0)
    # The embedding of a word is its own plus that of its class, so that rare words
    # share.
    index = {name: label for label, name in enumerate(labels)}
    first = sum(name[0] == "<" for name in labels) + len(CLASSES) + _FREQUENT
    groups = np.arange(len(labels), dtype=np.int32)
    groups[first:] = [class_label(index, word) for word in labels[first:]]
    width = LEFT + RIGHT
    sizes = [width * _EMBEDDING, *_HIDDEN, NUM_OUTPUTS]
    parts = _normal(random, (len(labels), _EMBEDDING), 0.1)
    layers: list[np.ndarray] = []
    for inputs, outputs in zip(sizes, sizes[1:], strict=False):
        layers.append(_normal(random, (inputs, outputs), 1.4 / inputs**0.5))
        layers.append(np.zeros(outputs, np.float32))
    moments = [(array, np.zeros_like(array), np.zeros_like(array)) for array in layers]
    sums = np.full_like(parts, 1e-3)
    padded = np.pad(text.labels, (LEFT - 1, RIGHT))
    offsets = np.arange(width)
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
        unknown = random.random(window.shape) < _UNKNOWN
        window[unknown] = groups[window[unknown]]
        inputs = (parts[window] + parts[groups[window]]).reshape(batch, -1)
        some = _Text(*(array[places] for array in text))
        loss, slopes, slope = _slopes(layers, inputs, some, random)
        total += loss
        step = 1.5e-3 * rate * (1 - 0.999 ** (number + 1)) ** 0.5
        step /= 1 - 0.9 ** (number + 1)
        for (array, mean, square), change in zip(moments, slopes, strict=True):
            mean += 0.1 * (change - mean)
            square += 0.001 * (change * change - square)
            array -= np.float32(step) * mean / (np.sqrt(square) + np.float32(1e-8))
        slope = slope.reshape(batch, width, -1)
        _scatter(parts, sums, groups, window, slope, np.float32(0.03 * rate + 1e-4))
        if number % steps == steps - 1:
            _log.info("pass %d: cost %.4f", number // steps + 1, total / steps)
    # Few digits are enough, and compress well.
    return Network((parts + parts[groups]).round(2), *layers)


def _normal(random: Any, shape: tuple[int, ...], scale: float) -> np.ndarray:
    return (random.standard_normal(shape) * scale).astype(np.float32)


def _slopes(
    layers: list[np.ndarray], inputs: np.ndarray, text: _Text, random: Any
) -> tuple[float, list[np.ndarray], np.ndarray]:
    """Return the mean cost of events, and its gradients by layers and by inputs."""
    rows = [inputs]
    for i in range(0, len(layers), 2):
        row = rows[-1] @ layers[i] + layers[i + 1]
        if i + 2 < len(layers):
            row = np.maximum(row, 0) * np.float32(1 / (1 - _DROPPED))
            row *= random.random(row.shape, np.float32) >= _DROPPED
        rows.append(row)
    outputs = rows.pop()
    # 1. Events by their softmax; capitals after the event; questions after any event.
    slope, each = np.zeros_like(outputs), np.arange(len(inputs))
    logits = outputs[:, :NUM_EVENTS]
    shares = np.exp(logits - logits.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    loss = -np.log(shares[each, text.events] + 1e-9).mean()
    slope[:, :NUM_EVENTS] = shares
    slope[each, text.events] -= 1
    chosen = each, NUM_EVENTS + text.events
    slope[chosen] = _sigmoid(outputs[chosen]) - text.capitals
    slope[:, -1] = (_sigmoid(outputs[:, -1]) - text.asks) * (text.events > 0)
    # 2. Back through the layers.
    slopes: list[np.ndarray] = []
    for i in range(len(layers) - 2, -1, -2):
        row = rows.pop()
        slopes = [row.T @ slope / len(inputs), slope.mean(0), *slopes]
        slope = slope @ layers[i].T
        if i:
            slope *= (row > 0) * np.float32(1 / (1 - _DROPPED))
    return float(loss), slopes, slope


def _sigmoid(odds: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-odds))


@jit
def _scatter(parts, sums, groups, window, slopes, rate):
    """Update the embeddings of the words of windows by Adagrad."""
    for i in range(window.shape[0]):
        for j in range(window.shape[1]):
            for part in (window[i, j], groups[window[i, j]]):
                for d in range(slopes.shape[2]):
                    slope = slopes[i, j, d]
                    sums[part, d] += slope * slope
                    parts[part, d] -= rate * slope / np.sqrt(sums[part, d])


def count_pauses(path: PathLike) -> np.ndarray:
    """Return -log p(pause | event) from counts on speech, float32 [8, 8]."""
    counts = np.zeros((NUM_PAUSES, NUM_EVENTS))
    for line in read_lines(path):
        with reading(path, "speech file", "JSON lines with text and words"):
            utterance = json.loads(line)
            times = np.array(utterance["words"], float).reshape(-1, 2)
        _, events, _ = read_printed([utterance["text"]])
        if len(events) != len(times):
            _log.warning("%s: words and times differ, left out: %.60s", path, line)
            continue
        pauses = times[1:, 0] - times[:-1, 1]
        bins = np.searchsorted(PAUSE_EDGES, pauses, side="right")
        np.add.at(counts, (bins, events[:-1]), 1)
        counts[END_BIN, events[-1]] += 1
    # Rare events share the pauses of similar ones, bins those of all events.
    each = counts.sum(1, keepdims=True) + 0.5
    counts += 5 * each / each.sum()
    for alike in (list(SENTENCE_ENDS), [COMMA, COLON, SEMICOLON, DASH]):
        shared = counts[:, alike].sum(1, keepdims=True)
        counts[:, alike] += 20 * shared / shared.sum()
    return -np.log(counts / counts.sum(0)).astype(np.float32)


def _level_costs(network: Network, levels: np.ndarray, text: _Text) -> np.ndarray:
    """Return costs of events by level of a question, float32 [6, 8]."""
    *_, asks = evidence_of(network, text.labels, LEFT, 0, len(text.labels))
    each = (asks[:, None] > levels).sum(1)
    counts, level = np.zeros((NUM_LEVELS, NUM_EVENTS)), 0
    for i in np.flatnonzero(text.events):
        if text.events[i] in SENTENCE_ENDS:
            counts[level, text.events[i]] += 1
            level = 0
        level = max(level, each[i])
    ends = list(SENTENCE_ENDS)
    share = counts[:, ends].sum(0) + 1
    share /= share.sum()
    rows = counts[:, ends] + 10 * share
    costs = np.zeros((NUM_LEVELS, NUM_EVENTS), np.float32)
    costs[:, ends] = -np.log(rows / rows.sum(1, keepdims=True) / share)
    return costs


def f_score(reference: np.ndarray, shown: np.ndarray, event: int) -> float:
    """Return F of an event over all places, in percent."""
    both = ((reference == event) & (shown == event)).sum()
    either = (reference == event).sum() + (shown == event).sum()
    return float(200 * both / max(1, either))


def _tuned(network: Network, scales: Scales, text: _Text) -> Scales:
    """Return scales with the best mean F, by coordinate ascent over priors."""
    count = len(text.labels)
    costs, _, asks = evidence_of(network, text.labels, LEFT, 0, count)
    unknown = np.full(count, -1, np.int32)
    tuned = [event for event in _TUNED if (text.events == event).sum() > 5]

    def quality(prior: np.ndarray) -> float:
        given = scales._replace(prior=prior)
        shown, _ = choose(given, costs, asks, unknown, 0, -1)
        return sum(f_score(text.events, shown, event) for event in tuned)

    prior = scales.prior
    for step in (0.5, 0.5, 0.25, 0.25, 0.1, 0.1):
        for event in tuned:
            change = np.float32(step) * np.eye(NUM_EVENTS, dtype=np.float32)[event]
            prior = max(prior, prior - change, prior + change, key=quality)
    _log.info("tuned: %s", prior)
    return scales._replace(prior=prior)
