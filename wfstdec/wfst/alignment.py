"""From the arcs of a best path to tokens and words with their frames.

A word's label may sit anywhere in the word, or behind it, since determinization moves
labels. So words are found by matching the tokens of the path, fillers skipped, with
the pronunciations that the graph carries:

    tokens   <wb> h ə l oʊ <wb> w ɝ l d        words   hello world
    spans         |------|      |-----|
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy import uint32

from wfstdec.graph.arcs import CARRIES_WORD, LABEL_MASK, REPEAT
from wfstdec.graph.packed import PackedGraph
from wfstdec.jit import jit
from wfstdec.text.symbols import ilabel_of, token_of


class PathTokens(NamedTuple):
    """The tokens of a path, blanks left out, and its word labels.

    Attributes:
        token: int32 [N].
        start, end: int32 [N], first frame, one behind the last frame.
        word: int32 [W], word ids.
        word_token: int32 [W], how many tokens had started when the label came.
        word_frame: int32 [W], how many frames had passed then.
        graph_cost, acoustic_cost: float64 sums over the arcs.
    """

    token: np.ndarray
    start: np.ndarray
    end: np.ndarray
    word: np.ndarray
    word_token: np.ndarray
    word_frame: np.ndarray
    graph_cost: float
    acoustic_cost: float


class Aligner:
    """Reads paths of one graph.

    Where the graph has no pronunciations (it came from elsewhere), or the path does
    not match them, a word spans the tokens between the label before and its own.
    """

    def __init__(self, graph: PackedGraph) -> None:
        self._graph = graph
        self._blank = uint32(ilabel_of(graph.tokens.blank))
        self._filler = np.zeros(len(graph.tokens), np.bool_)
        self._filler[list(graph.tables.fillers)] = True

    def tokens(self, arcs: np.ndarray, acoustic: np.ndarray) -> PathTokens:
        """Read the arcs of a path, int64 [N], and their acoustic costs."""
        read = _read_tokens(
            self._graph.arcs,
            arcs,
            acoustic,
            self._blank,
            self._graph.tables.marks_repeats,
        )
        return PathTokens(token_of(read[0]), *read[1:])

    def word_frames(self, path: PathTokens, complete: bool) -> np.ndarray:
        """The frames of each word, int32 [W, 2]: first, one behind the last.

        Args:
            path: What `tokens` returned.
            complete: Whether the last word must be whole.
        """
        said = self._graph.tables.pronunciations
        spans = np.zeros((len(path.word), 2), np.int32)
        found = len(said) > 0 and _match(
            path.token,
            path.word,
            said.word_splits,
            said.splits,
            said.tokens,
            said.cost,
            self._filler,
            complete,
            spans,
        )
        if not found:
            _spans_by_label(path.token, path.word_token, self._filler, spans)
        return _frames_of(spans, path.start, path.end, path.word_frame)


@jit
def _read_tokens(graph_arcs, arcs, acoustic, blank, marks_repeats):
    """`PathTokens`, but ilabels; without repeat marks it collapses as CTC does."""
    top = len(arcs)
    ilabel, start = np.empty(top, np.int32), np.empty(top, np.int32)
    end, word = np.empty(top, np.int32), np.empty(top, np.int32)
    word_token, word_frame = np.empty(top, np.int32), np.empty(top, np.int32)
    tokens, words, frame = 0, 0, 0
    graph_cost, acoustic_cost = 0.0, 0.0
    before = blank
    for i in range(top):
        arc = graph_arcs[arcs[i]]
        graph_cost += np.float64(arc.cost)
        acoustic_cost += np.float64(acoustic[i])
        label = arc.ilabel & uint32(LABEL_MASK)
        if label != 0:
            frame += 1
            if marks_repeats:
                repeats = arc.ilabel & uint32(REPEAT) != 0
            else:
                repeats = label == before
            if label != blank and not (repeats and tokens > 0):
                ilabel[tokens] = label
                start[tokens] = frame - 1
                tokens += 1
            if label != blank:
                end[tokens - 1] = frame
            before = label
        if arc.ilabel & uint32(CARRIES_WORD):
            word[words] = arc.olabel
            word_token[words] = tokens
            word_frame[words] = frame
            words += 1
    return (
        ilabel[:tokens],
        start[:tokens],
        end[:tokens],
        word[:words],
        word_token[:words],
        word_frame[:words],
        graph_cost,
        acoustic_cost,
    )


@jit
def _match(token, word, word_splits, splits, said, cost, filler, complete, spans):
    """Cut the tokens into the words' pronunciations; fill `spans` with token positions.

    Keeps the cheapest way to cut the words so far for each end position; they are few.
    Returns whether the tokens match.
    """
    num_words, num_tokens = len(word), len(token)
    # A way: [position behind the word, its first token, the way before], and its cost.
    ways = np.zeros((64 + 8 * num_words, 3), np.int64)
    costs = np.zeros(len(ways), np.float64)
    ways[0, 2] = -1
    first, last = 0, 1
    for w in range(num_words):
        if word[w] + 1 >= len(word_splits):
            return False
        begin = last
        for way in range(first, begin):
            at = ways[way, 0]
            while at <= num_tokens:
                for p in range(word_splits[word[w]], word_splits[word[w] + 1]):
                    behind = _says(token, at, said[splits[p] : splits[p + 1]])
                    if behind < 0 and not complete and w == num_words - 1:
                        behind = _breaks_off(token, at, said[splits[p] : splits[p + 1]])
                    if behind < 0:
                        continue
                    other = begin
                    while other < last and ways[other, 0] != behind:
                        other += 1
                    total = costs[way] + np.float64(cost[p])
                    if other == last:
                        if last == len(ways):
                            ways, costs = _longer(ways), _longer(costs)
                        last += 1
                    elif costs[other] <= total:
                        continue
                    ways[other, 0], ways[other, 1], ways[other, 2] = behind, at, way
                    costs[other] = total
                if at == num_tokens or not filler[token[at]]:
                    break
                at += 1
        first = begin
    best = -1
    for way in range(first, last):
        rest = ways[way, 0]
        while rest < num_tokens and filler[token[rest]]:
            rest += 1
        ends_well = rest == num_tokens or not complete
        if ends_well and (best < 0 or costs[way] < costs[best]):
            best = way
    found = best >= 0
    for w in range(num_words if found else 0):
        spans[num_words - 1 - w, 0] = ways[best, 1]
        spans[num_words - 1 - w, 1] = ways[best, 0]
        best = ways[best, 2]
    return found


@jit
def _longer(rows):
    """Twice as many rows, the new ones of zeros."""
    return np.concatenate((rows, np.zeros_like(rows)))


@jit
def _says(token, at, said):
    """The position behind `said` if it stands at `at`, else -1."""
    if at + len(said) > len(token):
        return -1
    for i in range(len(said)):
        if token[at + i] != said[i]:
            return -1
    return at + len(said)


@jit
def _breaks_off(token, at, said):
    """The end of the tokens if they break off within `said`, else -1."""
    if at + len(said) <= len(token):
        return -1
    for i in range(len(token) - at):
        if token[at + i] != said[i]:
            return -1
    return len(token)


@jit
def _spans_by_label(token, word_token, filler, spans):
    """Fill `spans` with the tokens between one label and the next."""
    begin = 0
    for w in range(len(word_token)):
        end = word_token[w]
        while begin < end and filler[token[begin]]:
            begin += 1
        spans[w, 0] = begin
        begin = end
        while end > spans[w, 0] and filler[token[end - 1]]:
            end -= 1
        spans[w, 1] = end


@jit
def _frames_of(spans, start, end, word_frame):
    """Token positions to frames; a word with no token stands where its label does."""
    frames = np.empty(spans.shape, np.int32)
    for w in range(len(spans)):
        if spans[w, 0] < spans[w, 1]:
            frames[w, 0] = start[spans[w, 0]]
            frames[w, 1] = end[spans[w, 1] - 1]
        else:
            frames[w, 0] = frames[w, 1] = word_frame[w]
    return frames
