"""The oracle of the trie decoder: every text and what it costs, by trying everything.

It shares no code and no idea with the library: no trie, no search, no automaton and no
pruning. The steps are those of `naive`, with `naive_lm`'s exact back-off:

    alignment          one token per frame, blanks included: all V**T of them
      -> tokens        equal neighbours become one, then blanks are left out
      -> words         `naive.segmenter`: all ways to read the tokens as lexicon words;
                       without a lexicon each token is a word
      -> cost          counted over words and tokens in plain text

    total = acoustic_scale * sum(-x) + lm_scale * (LM incl. </s> + pronunciations)
            + word_insertion * words + token_insertion * tokens + boosts

`best_texts` takes for each text the least of all totals (merge "max"), or the negated
log of the sum of exp(-total) over them ("sum"). All costs are float64 nats.
"""

import functools
import itertools
import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import naive
import naive_lm
import numpy as np
from naive_lm import INF, Words
from naive_phrases import Phrases

PIECE_START = "\u2581"


@dataclass(frozen=True)
class Case:
    """All that a decoding needs, as plain data and file text.

    Without a lexicon the model is one of tokens. boosts is word -> nats off for each
    occurrence, and a key of several words is worth that wherever they are in a row.
    """

    tokens: list[str]
    blank: str
    logprobs: np.ndarray  # float32 [T, V]
    lexicon: str | None = None
    lexicon_has_probs: bool = False
    arpa: str | None = None
    unk_cost: float | None = None
    separator: str | None = None
    separator_optional: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    boosts: dict[str, float] = field(default_factory=dict)
    phrases: Phrases | None = None

    @property
    def entries(self):
        """The lexicon, parsed; empty where there is none."""
        return naive.parse_lexicon(self.lexicon or "", self.lexicon_has_probs)

    @property
    def fillers(self):
        """Tokens that may be between words."""
        return naive.Fillers(self.separator, self.separator_optional)


class Options(NamedTuple):
    """The options of the decoder that change a total; none that prunes."""

    acoustic_scale: float = 1.0
    lm_scale: float = 1.0
    word_insertion: float = 0.0
    token_insertion: float = 0.0
    blank_penalty: float = 0.0
    blank_skip_threshold: float | None = None


def collapse(alignment, blank):
    """The tokens of an alignment."""
    return tuple(token for token, _ in itertools.groupby(alignment) if token != blank)


def spans(alignment, blank):
    found, start = [], 0
    for token, group in itertools.groupby(alignment):
        end = start + len(list(group))
        if token != blank:
            found.append(naive.Span(token, start, end))
        start = end
    return tuple(found)


def frame_costs(case):
    """Acoustic cost float64 [T, V] before its scale; inf is impossible at any scale.

    At a frame whose blank posterior, before the penalty, is at least the threshold,
    only blank is possible.
    """
    options, blank = Options(**case.options), case.tokens.index(case.blank)
    cost = -np.array(case.logprobs, np.float64)
    if options.blank_skip_threshold is not None:
        skipped = np.exp(-cost[:, blank]) >= options.blank_skip_threshold
        others = np.arange(cost.shape[1]) != blank
        cost[np.ix_(skipped, others)] = INF
    cost[:, blank] += options.blank_penalty
    return cost


def alignment_cost(case, alignment):
    costs = frame_costs(case)
    return math.fsum(costs[t, token] for t, token in enumerate(alignment))


@functools.cache
def _all_alignments(num_tokens, num_frames, blank):
    """All V**T alignments, and what each collapses to."""
    rows = list(itertools.product(range(num_tokens), repeat=num_frames))
    table = np.array(rows, np.int64).reshape(len(rows), num_frames)
    return table, [collapse(row, blank) for row in rows]


def acoustic_costs(case):
    """Tokens, by name -> the acoustic costs of all their possible alignments."""
    num_frames, num_tokens = case.logprobs.shape
    assert num_tokens**num_frames <= 100_000
    blank = case.tokens.index(case.blank)
    rows, collapsed = _all_alignments(num_tokens, num_frames, blank)
    costs = frame_costs(case)[np.arange(num_frames), rows].sum(axis=1)
    by_tokens: dict[tuple[int, ...], list[float]] = defaultdict(list)
    for tokens, cost in zip(collapsed, costs.tolist(), strict=True):
        if cost < INF:
            by_tokens[tokens].append(cost)
    return {
        tuple(case.tokens[token] for token in tokens): found
        for tokens, found in by_tokens.items()
    }


def booster(case):
    typed = {text: bonus for text, bonus in case.boosts.items() if " " in text}
    lists = [Phrases(typed, "word", {"weights_are_totals": True})]
    lists += [] if case.phrases is None else [case.phrases]
    costers = [one.coster(case.entries, case.fillers) for one in lists]

    def boost_cost(words, tokens):
        singles = -sum(case.boosts.get(word, 0.0) for word in words)
        return singles + sum(cost(words, tokens) for cost in costers)

    return boost_cost


class Reading(NamedTuple):
    """Tokens read as words, None for a separator, with the number of tokens; costs."""

    words: Words
    graph: float
    insertion: float
    boost: float
    pieces: tuple[tuple[str | None, int], ...]


def reader(case):
    """A function token names -> all readings; without a lexicon tokens are words."""
    options, score = Options(**case.options), sentence_scorer(case)
    segment, boost = naive.segmenter(case.entries, case.fillers), booster(case)

    def read(tokens):
        if case.lexicon is None:
            pieces = tuple((token, 1) for token in tokens)
            found = [naive.Segmentation(pieces, 0.0)]
        else:
            found = segment(tokens)
        token_insertion = options.token_insertion * len(tokens)
        readings = []
        for one in found:
            words = one.words
            num_words = 0 if case.lexicon is None else len(words)
            insertion = options.word_insertion * num_words + token_insertion
            graph, boosts = one.cost + score(words), boost(words, tokens)
            readings.append(Reading(words, graph, insertion, boosts, one.pieces))
        return [reading for reading in readings if reading.graph < INF]

    return read


def sentence_scorer(case):
    """The LM's cost of a text; without a lexicon unknown tokens are `<unk>`."""
    if case.arpa is None:
        return lambda words: 0.0
    map_unknown = case.lexicon is None and case.unk_cost is None
    ngrams = naive_lm.parse_arpa(case.arpa)
    return functools.cache(naive_lm.exact_scorer(ngrams, case.unk_cost, map_unknown))


def joined(case, tokens):
    if case.separator is not None:
        groups = itertools.groupby(tokens, lambda token: token == case.separator)
        return tuple(
            "".join(group) for is_separator, group in groups if not is_separator
        )
    if any(PIECE_START in token for token in case.tokens):
        return tuple("".join(tokens).replace(PIECE_START, " ").split())
    return tokens


class Parts(NamedTuple):
    """Parts of a total; acoustic and graph before their scales."""

    acoustic: float
    graph: float
    insertion: float
    boost: float


class Text(NamedTuple):
    """A text and its cost; with merge "max" also how it came about.

    text: words; without a lexicon the tokens.
    """

    text: Words
    cost: float
    tokens: Words | None = None
    parts: Parts | None = None


def total(case, parts):
    options = Options(**case.options)
    scaled = options.acoustic_scale * parts.acoustic + options.lm_scale * parts.graph
    return scaled + parts.insertion + parts.boost


def log_sum(costs):
    """-log(sum of exp(-cost)), of finite costs."""
    least = min(costs)
    return least - math.log(math.fsum(math.exp(least - cost) for cost in costs))


def best_texts(case, merge, read=None):
    """All possible texts, the cheapest first.

    merge "max": the least total over all alignments and readings of the text;
    "sum": the negated log of the sum of exp(-total) over them. read: another reader.
    """
    read, scale = read or reader(case), Options(**case.options).acoustic_scale
    sums: dict[Words, list[float]] = defaultdict(list)
    least: dict[Words, Text] = {}
    for tokens, costs in acoustic_costs(case).items():
        acoustic, summed = min(costs), log_sum([scale * cost for cost in costs])
        for reading in read(tokens):
            words = reading.words
            rest = Parts(0.0, reading.graph, reading.insertion, reading.boost)
            sums[words].append(summed + total(case, rest))
            parts = rest._replace(acoustic=acoustic)
            text = Text(words, total(case, parts), tokens, parts)
            if words not in least or text.cost < least[words].cost:
                least[words] = text
    if merge == "max":
        texts = list(least.values())
    else:
        texts = [Text(words, log_sum(costs)) for words, costs in sums.items()]
    return sorted(texts, key=lambda text: (text.cost, text.text))
