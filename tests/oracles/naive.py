"""The oracle: what the best sentence is and what it costs, by trying everything.

It shares no code and no idea with the library: there is no FST, no search and no
pruning. A sentence of the decoder's language is understood in four plain steps:

    alignment          one token per frame, blanks included: all V**T of them
      -> tokens        `readings`: what a topology makes of an alignment
      -> words         `segmenter`: the ways to read tokens as lexicon words
      -> cost          `naive_lm`: the ARPA model, exact or with epsilon back-off

    total = acoustic_scale * sum(-x) + lm_scale * (lexicon + LM incl. </s>)
            + word_insertion * words - boosts (of words; of phrases: `naive_phrases`)

and `best` takes the least total over all of them. All costs are float64 nats.
"""

import functools
import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from naive_lm import INF, Words


class Span(NamedTuple):
    """A token occurrence and its frames start..end-1."""

    token: int
    start: int
    end: int


def _one(token, start, end):
    return [(Span(token, start, end),)]


def _one_if_short(token, start, end):
    return _one(token, start, end) if end - start == 1 else []


def _one_per_frame(token, start, end):
    return [tuple(Span(token, t, t + 1) for t in range(start, end))]


def _any_cut(token, start, end):
    ways = []
    for cuts in itertools.product((False, True), repeat=end - start - 1):
        inner = [start + 1 + i for i, cut in enumerate(cuts) if cut]
        bounds = itertools.pairwise([start, *inner, end])
        ways.append(tuple(Span(token, s, e) for s, e in bounds))
    return ways


RUN_RULES: dict[str, Callable[[int, int, int], list[tuple[Span, ...]]]] = {
    "normal": _one,  # a run of equal frames is one token
    "normal-selfless": _one_if_short,  # ... and may not be longer than a frame
    "compact": _any_cut,  # a run of n frames is 1 to n tokens
    "compact-selfless": _one_per_frame,  # a run of n frames is n tokens
    "minimal": _one_per_frame,
}
TOPOLOGIES = tuple(RUN_RULES)


def readings(topology, alignment, blank):
    """All token sequences, with their frames, that an alignment has.

    Blanks have no token; each longest run of one other token is read by the
    topology's rule, apart from all other runs. The empty set: not accepted.
    """
    runs, start = [], 0
    for token, group in itertools.groupby(alignment):
        end = start + len(list(group))
        if token != blank:
            runs.append(RUN_RULES[topology](token, start, end))
        start = end
    return {tuple(itertools.chain(*choice)) for choice in itertools.product(*runs)}


class Entry(NamedTuple):
    """Pronunciation of a word; cost in nats."""

    word: str
    tokens: tuple[str, ...]
    cost: float = 0.0


class Fillers(NamedTuple):
    """Tokens between words: a separator, or optional silence, or nothing.

    With a separator s a sentence is `s* (w s+)* [w]`, or `s* (w s*)*` if it is
    optional. With silence, at the start and after every word there is one silence
    token at cost -ln(p), or none at -ln(1-p).
    """

    separator: str | None = None
    separator_optional: bool = False
    silence: str | None = None
    silence_prob: float = 0.5


class Segmentation(NamedTuple):
    """Pieces (word, number of tokens) from left to right; word None is a filler."""

    pieces: tuple[tuple[str | None, int], ...]
    cost: float

    @property
    def words(self):
        return tuple(word for word, _ in self.pieces if word is not None)

    def after(self, word, length, cost):
        """Put one more piece in front (length 0: cost only)."""
        front = ((word, length),) if length else ()
        return Segmentation(front + self.pieces, cost + self.cost)


def parse_lexicon(text, has_probs=False):
    """Read lines `word [probability] token...`; a probability p costs -ln(p)."""
    entries = []
    for fields in filter(None, map(str.split, text.splitlines())):
        first = 2 if has_probs else 1
        cost = -math.log(float(fields[1])) if has_probs else 0.0
        entries.append(Entry(fields[0], tuple(fields[first:]), cost))
    return entries


def segmenter(lexicon, fillers=None):
    """A function token names -> all ways to read them as words and fillers."""
    fillers = fillers or Fillers()
    if fillers.separator is not None and fillers.silence is not None:
        raise ValueError("a separator and a silence together have no meaning here")
    separated = fillers.separator is not None and not fillers.separator_optional

    @functools.cache
    def parse(tokens, after_word):
        """Read on, directly after a word, or else where a word may start."""
        found = [] if tokens else [Segmentation((), 0.0)]
        if tokens and tokens[0] == fillers.separator:
            found += [s.after(None, 1, 0.0) for s in parse(tokens[1:], False)]
        if after_word and separated:
            return found
        return found + words_first(tokens, lambda rest: parse(rest, True))

    @functools.cache
    def parse_place(tokens):
        """Read on from a place for silence: the start, or directly after a word."""
        p, found = fillers.silence_prob, []
        if p < 1:
            found += [s.after(None, 0, -math.log(1 - p)) for s in parse_word(tokens)]
        if p > 0 and tokens and tokens[0] == fillers.silence:
            found += [s.after(None, 1, -math.log(p)) for s in parse_word(tokens[1:])]
        return found

    @functools.cache
    def parse_word(tokens):
        if not tokens:
            return [Segmentation((), 0.0)]
        return words_first(tokens, parse_place)

    def words_first(tokens, parse_rest):
        return [
            s.after(entry.word, len(entry.tokens), entry.cost)
            for entry in lexicon
            if entry.tokens == tokens[: len(entry.tokens)]
            for s in parse_rest(tokens[len(entry.tokens) :])
        ]

    if fillers.silence is not None:
        return parse_place
    return lambda tokens: parse(tokens, False)


class Options(NamedTuple):
    """The options of the decoder that change a total; none that prunes."""

    acoustic_scale: float = 1.0
    lm_scale: float = 1.0
    word_insertion: float = 0.0
    blank_penalty: float = 0.0
    blank_skip_threshold: float | None = None


WordFrames = tuple[tuple[int, int], ...]


class Best(NamedTuple):
    """Result of `best`.

    cost: the least total; inf if no sentence is possible.
    ties: every word sequence within the tolerance of the least total -> all word
        times within it: a set of ((start, end), ...), in frames, end exclusive.
    table: every possible word sequence -> its least total.
    """

    cost: float
    ties: dict[Words, set[WordFrames]]
    table: dict[Words, float]


class _Alignments(NamedTuple):
    """All pairs of an alignment and a token sequence that it has."""

    frames: np.ndarray  # [R, T] token of each frame
    sequence: np.ndarray  # [R] index into sequences
    sequences: list[tuple[int, ...]]


@functools.cache
def _all_alignments(topology, num_tokens, num_frames):
    """All V**T alignments, where token 0 is the blank."""
    index: dict[tuple[int, ...], int] = {}
    frames, sequence = [], []
    for alignment in itertools.product(range(num_tokens), repeat=num_frames):
        ways = readings(topology, alignment, blank=0)
        for tokens in {tuple(span.token for span in way) for way in ways}:
            frames.append(alignment)
            sequence.append(index.setdefault(tokens, len(index)))
    table = np.array(frames, np.int64).reshape(len(frames), num_frames)
    return _Alignments(table, np.array(sequence, np.int64), list(index))


def frame_costs(logprobs, blank, options):
    """Scaled acoustic cost float64 [T, V] of each token at each frame.

    A log-prob of -inf is impossible whatever the scale. At a frame whose blank
    posterior, before the penalty, is at least the threshold, only blank is possible.
    """
    x = np.array(logprobs, np.float64)
    impossible = np.isneginf(x)
    if options.blank_skip_threshold is not None:
        skipped = np.exp(x[:, blank]) >= options.blank_skip_threshold
        impossible |= skipped[:, None] & (np.arange(x.shape[1]) != blank)
    x[:, blank] -= options.blank_penalty
    x[impossible] = 0.0  # not -inf, which a scale of 0 would turn into NaN
    return np.where(impossible, INF, options.acoustic_scale * -x)


def word_frames(segmentation, spans):
    """Frames of each word: its first token's first to its last token's last."""
    frames, position = [], 0
    for word, length in segmentation.pieces:
        if word is not None:
            last = spans[position + length - 1]
            frames.append((spans[position].start, last.end))
        position += length
    return tuple(frames)


def best(
    logprobs,
    *,
    tokens,
    blank,
    lexicon,
    sentence_cost,
    topology="normal",
    fillers=None,
    options=None,
    boosts=None,
    phrase_cost=None,
    tolerance=1e-4,
):
    """The least total over all alignments, readings and segmentations.

    logprobs: [T, V]; V**T must stay small. sentence_cost: words -> LM cost with the
    final cost. boosts: word -> nats off for each occurrence. phrase_cost: words,
    tokens -> nats to add. Totals within the tolerance of the least one are ties.
    """
    options, boosts = options or Options(), boosts or {}
    assert options.lm_scale >= 0 and len(tokens) ** len(logprobs) <= 100_000
    # In here the blank is token 0, so that the table of alignments can be reused.
    blank_index = list(tokens).index(blank)
    order = [blank_index] + [v for v in range(len(tokens)) if v != blank_index]
    names = [tokens[v] for v in order]
    cost = frame_costs(logprobs, blank_index, options)[:, order]

    alignments = _all_alignments(topology, len(tokens), len(logprobs))
    row_cost = cost[np.arange(len(logprobs)), alignments.frames].sum(axis=1)
    least_acoustic = np.full(len(alignments.sequences), INF)
    np.minimum.at(least_acoustic, alignments.sequence, row_cost)

    segment = segmenter(lexicon, fillers)
    candidates = []  # (total, the part of it that is not acoustic, sequence, ...)
    for i in np.flatnonzero(np.isfinite(least_acoustic)).tolist():
        tokens_here = tuple(names[v] for v in alignments.sequences[i])
        for seg in segment(tokens_here):
            rest = _language_cost(seg, sentence_cost, options, boosts)
            rest += phrase_cost(seg.words, tokens_here) if phrase_cost else 0.0
            if rest < INF:
                candidates.append((least_acoustic[i] + rest, rest, i, seg))

    table: dict[Words, float] = {}
    for total, _, _, seg in candidates:
        table[seg.words] = min(table.get(seg.words, INF), float(total))
    least = min(table.values(), default=INF)
    ties: dict[Words, set[WordFrames]] = {}
    for total, rest, i, seg in candidates:
        if total <= least + tolerance:
            rows = alignments.sequence == i
            rows &= row_cost + rest <= least + tolerance
            times = ties.setdefault(seg.words, set())
            for spans in _spans_of(topology, alignments, i, np.flatnonzero(rows)):
                times.add(word_frames(seg, spans))
    return Best(least, ties, table)


def _language_cost(seg, sentence_cost, options, boosts):
    """All of a total that does not depend on the log-probs."""
    words = seg.words
    graph = seg.cost + sentence_cost(words)
    if graph == INF:
        return INF
    boost = sum(boosts.get(word, 0.0) for word in words)
    return options.lm_scale * graph + options.word_insertion * len(words) - boost


def _spans_of(topology, alignments, sequence, rows):
    """The readings of these rows that give this token sequence."""
    wanted = alignments.sequences[sequence]
    for row in rows:
        for spans in readings(topology, alignments.frames[row].tolist(), blank=0):
            if tuple(span.token for span in spans) == wanted:
                yield spans
