"""Prefix beam search of pyctcdecode: rules of the engine, trees and texts.

A beam is (text, part, last token): `history` is a text, a node of a tree of words, and
`node` a part (the incomplete word), a node of a tree of characters. Both trees grow
with the search. Beams are visited token by token in the order of
`logprobs.keep_tokens`, and sorted by their first visit. This order decides ties, and
the frames of merged beams.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy import int32, int64, uint64

from wfstdec.adapters import engine
from wfstdec.adapters.engine import Store, Utterance, enter, slot_of
from wfstdec.adapters.pyctcdecode import alphabet
from wfstdec.adapters.pyctcdecode.alphabet import CLOSED, Tokens, code_points
from wfstdec.jit import inlined, jit, kernel, part, read_only
from wfstdec.jit.arrays import grow_tree
from wfstdec.jit.records import Pool, record
from wfstdec.lm.automaton import Automaton
from wfstdec.lm.kernels import final, step

_MIX, _SEED = uint64(0xFF51AFD7ED558CCD), uint64(0x9E3779B97F4A7C15)
_SHIFT = uint64(29)
_MIN_DIFFERENCE = -37.0  # exp of it is lost in a sum with 1
FORCED, CHOSEN = engine.OWN, engine.OWN + 1
"""Positions in counts: whether a word is forced to begin, and endings."""
_BEAM = "f8 logit total", "i4 history node token trace start end"
RECORDS = dict(
    # `logit` is the log-sum of the alignments, `total` adds all scores; `trace` has the
    # frames of complete words, `start` and `end` are those of the part, -1 for none.
    # `ended` is the text including the part, once it is known.
    beam=record(*_BEAM, "i4 ended", align=True),
    # Frames of the word that ended in this frame, `word_end` -1 for none. `key` is the
    # text, or a hash of its last words.
    candidate=record(*_BEAM, "i4 word_start word_end", "i8 key"),
    trace=record("i4 previous start end"),
    # Score while incomplete; nodes in the trees of known words and of hotwords, -1
    # outside; label in the language model.
    part=record(
        "f8 score",
        "i4 parent symbol length vocabulary hot label",
        "? is_known is_hot is_scored",
    ),
    # Score by the language model, with hotwords, and with the end of the utterance; a
    # hash of the last words; the state after the last word.
    history=record(
        "f8 raw score ended",
        "u8 last_words",
        "i4 parent symbol state hot_words",
        "? is_scored",
    ),
)


class WordTree(NamedTuple):
    """Tree of characters, N nodes, the root first."""

    slots: np.ndarray  # SLOT [2**n > 2 N]
    word: np.ndarray  # int32 [N], the word that ends there, -1 if none
    least: np.ndarray  # int32 [N], length of the shortest listed word below; 0: none


class Search(NamedTuple):
    """Models and options of an utterance; nats, `unk_offset` is log10."""

    tokens: Tokens
    hotwords: WordTree
    automaton: Automaton
    vocabulary: WordTree  # of the language model's words
    is_listed: np.ndarray  # bool: false for `<unk>`
    start_state: int
    beam_width: int
    beam_prune_logp: float
    prunes_history: bool
    history: int  # words by which `prunes_history` compares texts
    hotword_weight: float
    is_bpe: bool
    faithful: bool
    has_lm: bool
    on_host: bool  # whether Python scores texts and parts
    alpha: float = 0.0
    beta: float = 0.0
    unk_offset: float = 0.0
    boundary: bool = False


def store_pool(first_size: int = 2048) -> Pool[Store]:
    """Return a pool of stores for this search."""
    return engine.store_pool(RECORDS, first_size)


def build_tree(words: Sequence[str], listed: np.ndarray | None = None) -> WordTree:
    """Return the tree of sorted, distinct words; `least` counts listed words."""
    splits, chars = code_points(words)
    parent, char, depth, word = grow_tree(chars, splits)
    if listed is None:
        listed = np.ones(len(words), np.bool_)
    slots = np.zeros(1 << (2 * len(parent)).bit_length(), engine.SLOT)
    least = np.zeros(len(parent), np.int32)
    _fill(parent, char, depth, word, listed, slots, least)
    return WordTree(*map(read_only, (slots, word, least)))


@jit
def _fill(parent, char, depth, word, listed, slots, least):
    """Enter nodes into the table, and find the shortest listed words below them."""
    for node in range(len(parent) - 1, 0, -1):
        if word[node] >= 0 and listed[word[node]]:
            least[node] = depth[node]
        above = parent[node]
        if least[node] > 0 and (least[above] == 0 or least[node] < least[above]):
            least[above] = least[node]
        enter(slots, parent[node], char[node], node)


@inlined
def _find_child(tree, node, char):
    child = int64(slot_of(tree.slots, node, char).node) if node >= 0 else int64(0)
    return child if child != 0 else int64(-1)


NO_WORDS = build_tree([])


@kernel
def begin(search, store):
    """Begin an utterance: one beam with an empty text."""
    engine.clear(store)
    root, text = store.parts[0], store.histories[0]
    root.score, root.parent, root.symbol, root.length = 0.0, -1, -1, 0
    root.vocabulary = 0 if search.has_lm and not search.on_host else -1
    root.hot = 0 if len(search.hotwords.word) > 1 else -1
    root.label = len(search.automaton.label_alias)
    root.is_known, root.is_hot, root.is_scored = False, False, True
    text.raw, text.score, text.ended, text.last_words = 0.0, 0.0, 0.0, 0
    text.parent, text.symbol, text.state = -1, 0, search.start_state
    text.hot_words, text.is_scored = 0, True
    beam = store.beam[0]
    beam.logit, beam.total, beam.history, beam.node, beam.token = 0.0, 0.0, 0, 0, -1
    beam.trace, beam.start, beam.end = -1, -1, -1


@inlined
def extend(search, store, part, chars, splits, row):
    """Return the part with a row of characters appended; -1 if there is no room."""
    for at in range(splits[row], splits[row + 1]):
        char = int64(chars[at])
        slot = slot_of(store.part_slots, part, char)
        if slot.node != 0:
            part = int64(slot.node)
        else:
            part = _new_part(search, store, part, char, slot)
            if part < 0:
                break
    return part


@part
def _new_part(search, store, parent, char, slot):
    """Create a part, scored as incomplete and as a word."""
    parts, count = store.parts, store.counts[engine.PARTS]
    if count >= len(parts):
        return int64(-1)
    node = parts[count]
    # A closed part has the characters and the scores of the open one.
    parts[count] = parts[parent]
    node.parent, node.symbol = parent, char
    store.counts[engine.PARTS] = count + 1
    slot.parent, slot.symbol, slot.node = parent, char, count
    if char == CLOSED:
        return count
    vocabulary = _find_child(search.vocabulary, int64(node.vocabulary), char)
    hot = _find_child(search.hotwords, int64(node.hot), char)
    word, least, length = int32(-1), int32(0), int64(node.length) + 1
    if vocabulary >= 0:
        word = search.vocabulary.word[vocabulary]
        least = search.vocabulary.least[vocabulary]
    node.vocabulary, node.hot, node.length = vocabulary, hot, length
    # Labels are words + 1; the last one is `<unk>`.
    node.label = word + 1 if word >= 0 else len(search.automaton.label_alias)
    node.is_known = word >= 0 and search.is_listed[word]
    node.is_hot = hot >= 0 and search.hotwords.word[hot] >= 0
    node.is_scored = hot >= 0 or not search.on_host
    node.score = 0.0
    if hot >= 0:
        node.score = search.hotword_weight * length / search.hotwords.least[hot]
    elif search.has_lm and not search.on_host and least == 0:
        node.score = search.unk_offset
        if length > alphabet.AVG_TOKEN_LEN:
            node.score = search.unk_offset * length / alphabet.AVG_TOKEN_LEN
    return count


@inlined
def text_child(search, store, parent, part):
    """Return the text with one more word; -1 if there is no room."""
    word = int64(part)
    if store.parts[part].symbol == CLOSED:
        word = int64(store.parts[part].parent)
    slot = slot_of(store.history_slots, parent, word)
    if slot.node == 0:
        return _new_text(search, store, parent, word, slot)
    return int64(slot.node)


@part
def _new_text(search, store, parent, word, slot):
    texts, count = store.histories, store.counts[engine.HISTORIES]
    if count >= len(texts):
        return int64(-1)
    before, node, part = texts[parent], texts[count], store.parts[word]
    node.parent, node.symbol = parent, word
    node.hot_words = before.hot_words + int32(part.is_hot)
    node.raw, node.state = before.raw, before.state
    node.is_scored = not search.on_host
    if search.has_lm and not search.on_host:
        score, state = _score_word(search, before.state, part.label, part.is_known)
        node.raw, node.state = before.raw + score, state
    node.score = node.raw + search.hotword_weight * node.hot_words
    store.counts[engine.HISTORIES] = count + 1
    slot.parent, slot.symbol, slot.node = parent, word, count
    node.last_words = _SEED
    above = count
    for _ in range(search.history):
        if above == 0:
            break
        mixed = (node.last_words ^ (uint64(int64(texts[above].symbol)) + _SEED)) * _MIX
        node.last_words = mixed ^ (mixed >> _SHIFT)
        above = int64(texts[above].parent)
    return count


@inlined
def _score_word(search, state, label, is_known):
    """Return the score of a word with its reward, and the next state."""
    cost, after = step(search.automaton, 0, state, label)
    logp = -float(cost)
    if not is_known:
        logp += search.unk_offset * alphabet.LOG_BASE_CHANGE_FACTOR
    return search.alpha * logp + search.beta, after


@inlined
def _score_end(search, state):
    if not search.boundary:
        return 0.0
    return -search.alpha * float(final(search.automaton, state))


@kernel
def advance(search, store, frames, first, stop):
    """Search frames `first` to `stop - 1`; return the status, and the frame reached."""
    counts = store.counts
    for frame in range(first, stop):
        forced = counts[FORCED] != 0
        status, count, forced = _expand(search, store, frames, frame, forced)
        if status == engine.OK:
            status = _score(search, store, count)
        if status != engine.OK:
            return status, frame
        chosen = _choose(search, store, count, search.prunes_history)
        if counts[engine.TRACE] + chosen > len(store.trace):
            return engine.GROW_TRACE, frame
        _keep(store, chosen)
        counts[FORCED] = int64(forced)
        counts[engine.FRAMES] += 1
    return engine.OK, stop


@inlined
def _expand(search, store, frames, index, forced):
    table, counts, count = search.tokens, store.counts, int64(0)
    beams, frame = store.beam[: counts[engine.BEAM]], counts[engine.FRAMES]
    counts[engine.STAMP] += 1
    for i in range(len(beams)):
        beams[i].ended = -1
    for at in range(frames.splits[index], frames.splits[index + 1]):
        token, logp = frames.tokens[at], frames.logps[at]
        kind, alias = table.kind[token], table.alias[token]
        fresh = int64(-1)  # the part that begins with this token
        for i in range(len(beams)):
            beam = beams[i]
            text, part = int64(beam.history), int64(beam.node)
            start, stop, ends = beam.start, beam.end, False
            if kind == alphabet.BLANK:
                pass
            elif beam.token == alias:
                stop = int32(frame + 1)
            elif (
                kind == alphabet.SPACE
                or kind == alphabet.STARTS
                or (search.is_bpe and (forced or store.parts[part].symbol == CLOSED))
            ):
                ends = part != 0
                if ends:  # once for all tokens
                    if beam.ended < 0:
                        beam.ended = text_child(search, store, text, part)
                    text = int64(beam.ended)
                    if text < 0:
                        return engine.GROW_HISTORIES, count, forced
                # The first part is the same for all beams.
                if fresh < 0:
                    chars, splits = table.first_chars, table.first_splits
                    fresh = extend(search, store, int64(0), chars, splits, token)
                    if fresh < 0:
                        return engine.GROW_PARTS, count, forced
                part, forced = fresh, search.faithful and table.closes[token]
                start, stop = int32(frame), int32(frame + 1)
                if part == 0 and not (search.is_bpe and search.faithful):
                    start, stop = int32(-1), int32(-1)
            else:
                chars, splits = table.chars, table.char_splits
                part = extend(search, store, part, chars, splits, token)
                if part < 0:
                    return engine.GROW_PARTS, count, forced
                start = int32(frame) if start < 0 else start
                stop = int32(frame + 1)
            # In pyctcdecode's order of sums: tokens outside, beams inside.
            number = _merge(store, count, text, part, int64(alias), beam.logit + logp)
            if number < 0:
                return engine.GROW_CANDIDATES, count, forced
            c, count = store.candidates[number], max(count, number + 1)
            c.start, c.end, c.trace = start, stop, beam.trace
            c.word_start, c.word_end = beam.start, beam.end if ends else int32(-1)
    return engine.OK, count, forced


@inlined
def _merge(store, count, text, part, token, logit):
    """Return a candidate's number, `count` if it is new, -1 if there is no room."""
    stamp = store.counts[engine.STAMP]
    slot, number = engine.find_candidate(
        store.candidates, store.slots, stamp, text, part, token
    )
    if number >= 0:
        c = store.candidates[number]
        c.logit = log_sum(c.logit, logit)
    elif count < len(store.candidates):
        number, c = count, store.candidates[count]
        c.history, c.node, c.token, c.logit = text, part, token, logit
        c.key = text
        store.slots[slot] = (stamp << 32) | count
    return number


@inlined
def log_sum(a, b):
    """Return ln(exp(a) + exp(b))."""
    if a < b:
        a, b = b, a
    if b - a < _MIN_DIFFERENCE:
        return a
    return a + math.log(1.0 + math.exp(b - a))


@inlined
def _score(search, store, count):
    unscored = False
    for i in range(count):
        c = store.candidates[i]
        text, part = store.histories[c.history], store.parts[c.node]
        if search.has_lm:
            # Added in pyctcdecode's order, to the last bit.
            c.total = c.logit + (text.score + part.score)
        else:
            c.total = (c.logit + text.score) + part.score
        if search.on_host:
            unscored |= not (text.is_scored and part.is_scored)
    store.counts[engine.CANDIDATES] = count
    return engine.ASK if unscored else engine.OK


@inlined
def _choose(search, store, count, prunes_history):
    best, wanted = -np.inf, search.beam_width
    for i in range(count):
        best = max(best, store.candidates[i].total)
    kept = engine.choose(store, count, best + search.beam_prune_logp, wanted)
    kept = min(kept, wanted)
    return _prune_history(store, kept) if prunes_history else kept


@inlined
def _prune_history(store, kept):
    """Drop beams equal to a better one in the last words; return the number kept."""
    store.counts[engine.STAMP] += 1
    stamp, left = store.counts[engine.STAMP], int64(0)
    # In the order of totals, so that the first of equal ones is the best.
    for i in range(kept):
        number = int64(store.order[i])
        c = store.candidates[number]
        c.key = int64(store.histories[c.history].last_words)
        slot, other = engine.find_candidate(
            store.candidates, store.slots, stamp, c.key, c.node, c.token
        )
        if other < 0:
            store.slots[slot] = (stamp << 32) | number
            store.order[left] = number
            left += 1
    return left


@inlined
def _keep(store, chosen):
    counts = store.counts
    for i in range(chosen):
        c, beam = store.candidates[store.order[i]], store.beam[i]
        trace = c.trace
        if c.word_end >= 0:  # a word ended here, with its frames
            trace = int32(counts[engine.TRACE])
            entry = store.trace[trace]
            entry.previous, entry.start, entry.end = c.trace, c.word_start, c.word_end
            counts[engine.TRACE] += 1
        beam.logit, beam.total = c.logit, c.total
        beam.history, beam.node, beam.token = c.history, c.node, c.token
        beam.trace, beam.start, beam.end = trace, c.start, c.end
    counts[engine.BEAM] = chosen


@kernel
def _finish(search, store, is_scored):
    """End the utterance: the endings are the candidates in `order`, best first."""
    # `start` and `end` of an ending are the frames of the word that ended with it,
    # `end` is -1 if none did; `word_end` is the part of the last beam merged.
    counts, texts, count = store.counts, store.histories, int64(0)
    counts[engine.STAMP] += 1
    for i in range(counts[engine.BEAM]):
        beam = store.beam[i]
        text, part = int64(beam.history), int64(beam.node)
        if part != 0:
            text = text_child(search, store, text, part)
            if text < 0:
                return engine.GROW_HISTORIES
        number = _merge(store, count, text, int64(0), int64(-1), beam.logit)
        if number < 0:
            return engine.GROW_CANDIDATES
        c, count = store.candidates[number], max(count, number + 1)
        c.trace, c.start, c.word_end = beam.trace, beam.start, part
        c.end = beam.end if part != 0 else int32(-1)
    counts[engine.CANDIDATES] = count
    if search.on_host and not is_scored:
        return engine.ASK
    for i in range(count):
        c = store.candidates[i]
        text = texts[c.history]
        if search.has_lm and not search.on_host:
            score = 0.0
            # As if the utterance ended in an unknown word without a letter.
            if search.faithful and c.word_end == 0:
                unknown = int64(len(search.automaton.label_alias))
                score, text.state = _score_word(search, text.state, unknown, False)
            text.ended = text.raw + score + _score_end(search, text.state)
        ended = text.score
        if search.has_lm:
            ended = text.ended + search.hotword_weight * text.hot_words
        c.total = c.logit + ended
    counts[CHOSEN] = _choose(search, store, count, False)
    return engine.OK


class HostModel:
    """Language model in Python for one utterance: scores texts and parts."""

    def __init__(self, model: Any, start_state: Any, search: Search) -> None:
        self._model, self._search = model, search
        self.states = [start_state]

    def answer(self, store: Store) -> None:
        """Score texts and parts of candidates."""
        candidates = store.candidates[: store.counts[engine.CANDIDATES]]
        self.score(store, candidates["history"], candidates["node"])

    def score(self, store: Store, texts: np.ndarray, parts: np.ndarray) -> None:
        """Score texts and parts without a score, each once."""
        for node in _unscored(store.parts, parts):
            score = self._model.score_partial_token(text_of(store, node))
            store.parts["score"][node], store.parts["is_scored"][node] = score, True
        for node in _unscored(store.histories, texts):
            text = store.histories[node]
            before = store.histories[text["parent"]]
            word, state = text_of(store, text["symbol"]), self.states[before["state"]]
            score, after = self._model.score(state, word, is_last_word=False)
            text["raw"] = before["raw"] + score
            hot = self._search.hotword_weight * int(text["hot_words"])
            text["score"] = text["raw"] + hot
            text["state"], text["is_scored"] = len(self.states), True
            self.states.append(after)

    def score_endings(self, store: Store) -> None:
        """Score texts of whole utterances."""
        self.answer(store)
        endings = store.candidates[: store.counts[engine.CANDIDATES]]
        nodes, parts = endings["history"].tolist(), endings["word_end"].tolist()
        ended = [
            self._end(store, store.histories[node], self._search.faithful and part == 0)
            for node, part in zip(nodes, parts, strict=True)
        ]
        for node, (score, state) in zip(nodes, ended, strict=True):
            text = store.histories[node]
            text["ended"], text["state"] = text["raw"] + score, state

    def _end(self, store: Store, text: np.void, empty_word: bool) -> tuple[float, int]:
        """Return the score of the end, and the number of the state after it."""
        number, model = int(text["state"]), self._model
        if empty_word:
            score, after = model.score(self.states[number], "", is_last_word=True)
            self.states.append(after)
            return score, len(self.states) - 1
        if hasattr(model, "score_end"):
            return model.score_end(self.states[number]), number
        # The change of the last word's score.
        before = self.states[store.histories[max(int(text["parent"]), 0)]["state"]]
        word = text_of(store, text["symbol"])
        ended = model.score(before, word, is_last_word=True)[0]
        return ended - model.score(before, word, is_last_word=False)[0], number


def _unscored(nodes: np.ndarray, numbers: np.ndarray) -> list[int]:
    return list(dict.fromkeys(numbers[~nodes["is_scored"][numbers]].tolist()))


def end(utterance: Utterance) -> None:
    """End an utterance; the endings are in the store."""
    is_scored = False
    while status := _finish(utterance.search, utterance.store, is_scored):
        if status == engine.ASK:
            utterance.model.score_endings(utterance.store)
            is_scored = True
        else:
            utterance.provide(status)


Frames = tuple[int, int]  # the first frame of a word, and the one after its last


class Ending(NamedTuple):
    """Text of a whole utterance."""

    words: list[str]
    frames: list[Frames]  # of each word
    state: int  # of the language model after the last word
    logit_score: float  # log-sum of its alignments, nats
    total: float  # with language model and hotwords

    @property
    def text(self) -> str:
        """Words with spaces."""
        return " ".join(self.words)

    @property
    def timed(self) -> list[tuple[str, Frames]]:
        """Return each word with its frames."""
        return list(zip(self.words, self.frames, strict=False))


def read_endings(store: Store, count: int | None = None) -> list[Ending]:
    """Return at most `count` endings, best first."""
    endings = store.candidates[store.order[: store.counts[CHOSEN]][:count]]
    states = store.histories["state"][endings["history"]].tolist()
    scores = endings["logit"].tolist(), endings["total"].tolist()
    return list(map(Ending, *read_texts(store, endings, True), states, *scores))


def read_texts(store: Store, rows: np.ndarray, is_end: bool) -> tuple[list, list]:
    """Return words of beams (of endings if `is_end`), and their frames."""
    size, begin = 256 * len(rows), -1
    splits = np.zeros(len(rows) + 1, np.int64)
    while begin < 0:
        chars, frames = np.zeros(size, np.int32), np.zeros((size, 2), np.int32)
        begin = _write(store, rows, is_end, chars, frames, splits)
        size *= 2
    joined = chars[begin:].tobytes().decode("utf-32-le", "surrogatepass")
    words = [text.split() for text in joined.split("\0")[:-1]]
    spans = list(map(tuple, frames[splits[0] :].tolist()))
    bounds = (splits - splits[0]).tolist()
    return words, [spans[first:last] for first, last in pairwise(bounds)]


def text_of(store: Store, node: int) -> str:
    """Return a word, or the beginning of one."""
    chars, parents, text = store.parts["symbol"], store.parts["parent"], ""
    while node > 0:
        text = chr(chars[node]) + text if chars[node] != CLOSED else text
        node = parents[node]
    return text


@kernel
def _write(store, rows, is_end, chars, frames, splits):
    """Write texts and frames backwards; return their starts, -1 if there is no room."""
    # Traces lead from the end to the beginning, so the output reads forwards. Every
    # word has a space after it, and every text a 0.
    end, last = len(chars), len(frames)
    for n in range(len(rows) - 1, -1, -1):
        splits[n + 1] = last
        node, at = int64(rows[n].history), int64(rows[n].trace)
        if end == 0 or last == 0:
            return int64(-1)
        end -= 1
        chars[end] = 0
        if is_end and rows[n].end >= 0:
            last -= 1
            frames[last, 0], frames[last, 1] = rows[n].start, rows[n].end
        while at >= 0:
            if last == 0:
                return int64(-1)
            last -= 1
            entry = store.trace[at]
            frames[last, 0], frames[last, 1] = entry.start, entry.end
            at = int64(entry.previous)
        while node > 0:
            part = int64(store.histories[node].symbol)
            if end <= store.parts[part].length:
                return int64(-1)
            end -= 1
            chars[end] = 32
            while part > 0:
                end -= 1
                chars[end] = store.parts[part].symbol
                part = int64(store.parts[part].parent)
            node = int64(store.histories[node].parent)
    splits[0] = last
    return end
