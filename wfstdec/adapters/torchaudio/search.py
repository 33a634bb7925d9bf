"""Beam search of flashlight's lexicon and lexicon-free decoders: rules of the engine.

A hypothesis is a history of words (or tokens), a node of the lexicon, the token of its
last frame, and whether that was a blank. In a frame of `row` it may

    enter a node below        + row[n] + lm_weight * (best word below - that before)
    end a word                + row[n] + lm_weight * (word - best below) + word_score
    end an unknown word       the same with unk_score, where no word ends
    stay                      + row[its token]; between words row[sil]; not after blank
    emit blank                + row[blank]

with `sil_score` for each frame of `sil` other than a blank. The best `beam_size` within
`beam_threshold` are kept. Scores are float64, added in the order written here: natural
log for the network's, log10 for the language model's. If alignments are not summed,
candidates that cannot be among the best are dropped early. Ties go to the better
parent, then to the lower token, word and node.
"""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy import float32, float64, int32, int64

from wfstdec.adapters import engine
from wfstdec.adapters.engine import Store, Utterance, slot_of
from wfstdec.adapters.torchaudio.models import Model, log10_of
from wfstdec.errors import LanguageModelError
from wfstdec.jit import inlined, jit, kernel, part
from wfstdec.jit.records import Pool, record
from wfstdec.jit.sorting import best_first
from wfstdec.lm.automaton import Automaton
from wfstdec.lm.kernels import step
from wfstdec.trie.lexicon_trie import LexiconTrie

FIRST_CANDIDATES = 4096  # initial size of arrays, at least
_LOG10_OF_NATS = -1 / math.log(10)
_INF = np.inf
_BISECTIONS = 12
_LABEL, _STATE = int64(32), int64(0xFFFFFFFF)
STATUS, NEXT_CUT, SCORED = engine.OWN, engine.OWN + 1, engine.OWN + 2
"""Positions in counts: of the frame, candidates at which the cut is raised; histories
that the host has scored.
"""
BEST, CUT = range(2)
"""Positions in limits: the best score, and the cut below which nothing is kept."""
CONTINUES, ENDS = 1, 2
"""Bits of `Rules.arc_kind`: longer words pass the node, words end there."""
RECORDS = dict(
    # `history` is a state of the language model.
    beam=record("f8 total", "i4 history node token trace", "? blank", align=True),
    # `token` is 2 * token + blank. `key` is a state, or a state and a label + 1,
    # shifted, whose new state (`lm_state`, `lm_score`) is entered if the candidate is
    # kept. `single` is the score of the best alignment, by `word` and from `parent`,
    # `total` that of all.
    candidate=record(
        "f8 total single",
        "i8 key",
        "i4 node token word parent lm_state",
        "f4 lm_score",
        align=True,
    ),
    # A frame of a path: its token, and the word that ended there or -1.
    trace=record("i4 previous token word"),
    # States of flashlight's language model are histories of labels, however short the
    # model's own memory is: after `symbol` in the state `parent` comes `next`, which is
    # the node itself, or the number of a user's object. `lm_state` is the automaton's.
    history=record("i4 parent symbol next lm_state", "f4 score"),
)


class Rules(NamedTuple):
    """Models and options of a search; N nodes, V tokens, L labels."""

    trie: LexiconTrie  # the lexicon; without one an empty trie
    node_score: np.ndarray  # float32 [N], the best first word below, log10
    arc_kind: np.ndarray  # uint8 [N - 1], of the child of each arc of the trie
    arc_gain: np.ndarray  # float64 [N - 1], bound of the score of a word at the child
    label_gain: np.ndarray  # float64 [L], the same of a label without a lexicon
    automaton: Automaton  # over labels from 1, nats; null if `on_host`
    on_host: bool  # whether a model in Python scores
    has_lexicon: bool
    log_add: bool
    beam_size: int
    beam_size_token: int
    beam_threshold: float
    lm_weight: float
    word_score: float
    unk_score: float  # -inf for no unknown words
    sil_score: float
    blank: int
    sil: int
    unk: int  # label


def store_pool(beam_size: int, num_tokens: int) -> Pool[Store]:
    """Return a pool of stores for this search."""
    return engine.store_pool(RECORDS, max(FIRST_CANDIDATES, 2 * beam_size, num_tokens))


class History:
    """States that a user's model returned in one utterance; 0 is the start."""

    def __init__(self, custom: Any) -> None:
        self._custom = custom
        self._states: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._number(custom.start(False))

    def answer(self, store: Store) -> None:
        """Score the labels that the kernels requested."""
        counts = store.counts
        new = store.histories[counts[SCORED] : counts[engine.HISTORIES]]
        asked = zip(new["parent"].tolist(), new["symbol"].tolist(), strict=True)
        new["next"], new["score"] = _as_answers(
            self._checked("score", self._custom.score(self._states[state], label))
            for state, label in asked
        )
        counts[SCORED] = counts[engine.HISTORIES]

    def finish(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return states after the end of the utterance, int32, and scores, float32."""
        ends = {
            state: self._checked("finish", self._custom.finish(self._states[state]))
            for state in dict.fromkeys(states.tolist())
        }
        return _as_answers(ends[state] for state in states.tolist())

    def _checked(self, method: str, answer: Any) -> tuple[int, float]:
        try:
            state, score = answer
            score = float(score)
        except (TypeError, ValueError):
            state, score = None, math.nan
        if not score < math.inf:  # also NaN
            raise LanguageModelError(
                f"{type(self._custom).__name__}.{method} gave {answer!r}, expected a "
                "state and a score"
            )
        return self._number(state), score

    def _number(self, state: Any) -> int:
        """Return the number of a state, by object identity."""
        if id(state) not in self._numbers:
            self._numbers[id(state)] = len(self._states)
            self._states.append(state)
        return self._numbers[id(state)]


def _as_answers(
    answers: Iterable[tuple[int, float]],
) -> tuple[np.ndarray, np.ndarray]:
    states, scores = zip(*answers, strict=True)
    return np.array(states, np.int32), np.array(scores, np.float32)


def begin(rules: Rules, model: Model, store: Store) -> Utterance:
    """Return an utterance with the start state of the model."""
    _begin(rules, store)
    history = None if model.custom is None else History(model.custom)
    return Utterance(advance, rules, store, history)


def end(utterance: Utterance) -> None:
    """Replace the beam by the utterance's hypotheses, best first."""
    rules: Rules = utterance.search
    while utterance.store.counts[engine.TRACE] + rules.beam_size > len(
        utterance.store.trace
    ):
        utterance.provide(engine.GROW_TRACE)
    store = utterance.store
    states = store.beam["history"][: store.counts[engine.BEAM]].copy()
    if utterance.model is None:
        costs = rules.automaton.final_cost[store.histories["lm_state"][states]]
        ends = states, log10_of(costs)
    else:
        ends = utterance.model.finish(states)
    _end(rules, store, *ends)


def paths(store: Store, count: int) -> list[tuple[float, np.ndarray, np.ndarray]]:
    """Return scores of the best paths, with token and word (or -1) of each frame."""
    result, length = [], int(store.counts[engine.FRAMES]) + 1
    for hypothesis in store.beam[: store.counts[engine.BEAM]][:count]:
        tokens, words = np.empty(length, np.int32), np.empty(length, np.int32)
        _trace_back(store.trace, hypothesis["trace"], tokens, words)
        result.append((float(hypothesis["total"]), tokens, words))
    return result


@kernel
def _begin(rules, store):
    """Begin with a silence before the first frame."""
    engine.clear(store)
    h, root, trace = store.beam[0], store.histories[0], store.trace[0]
    h.total, h.history, h.node, h.token, h.trace = 0.0, 0, 0, rules.sil, 0
    h.blank = False
    root.parent, root.symbol, root.next, root.score = -1, -1, 0, 0.0
    root.lm_state = rules.automaton.model_start[0]
    trace.previous, trace.token, trace.word = -1, rules.sil, -1
    store.counts[engine.TRACE] = store.counts[SCORED] = 1


@kernel
def advance(rules, store, emissions, first, stop):
    """Search frames `first` to `stop - 1`; return the status, and the frame reached."""
    for t in range(first, stop):
        _begin_frame(rules, store)
        _expand(rules, store, emissions[t])
        if store.counts[STATUS] != engine.OK:
            return store.counts[STATUS], t
        _keep(rules, store)
    return int64(engine.OK), stop


@kernel
def _end(rules, store, finish_state, finish_score):
    """Keep hypotheses between words, if any; states int32, log10 float32."""
    _begin_frame(rules, store)
    count, whole = store.counts[engine.BEAM], False
    for i in range(count):
        whole = whole or store.beam[i].node == 0
    for i in range(count):
        h = store.beam[i]
        if h.node == 0 or not whole:
            score = h.total + rules.lm_weight * float64(finish_score[i])
            to = int64(finish_state[i]), h.node, 2 * rules.sil
            _add(rules, store, score, to, -1, i)
    _keep(rules, store)


@kernel
def _trace_back(trace, index, tokens, words):
    for position in range(len(tokens) - 1, -1, -1):
        tokens[position], words[position] = trace[index].token, trace[index].word
        index = trace[index].previous


@part
def _begin_frame(rules, store):
    counts, limits = store.counts, store.limits
    counts[engine.CANDIDATES], counts[STATUS] = 0, engine.OK
    counts[NEXT_CUT] = 2 * rules.beam_size
    counts[engine.STAMP] += 1
    limits[BEST] = limits[CUT] = -_INF


@inlined
def _expand(rules, store, row):
    counts, beam = store.counts, store.beam
    # Reserve room for the whole frame before it begins.
    if counts[engine.TRACE] + rules.beam_size > len(store.trace):
        counts[STATUS] = engine.GROW_TRACE
        return
    if counts[engine.HISTORIES] + rules.beam_size > len(store.histories):
        counts[STATUS] = engine.GROW_HISTORIES
        return
    _allow(rules, store, row)
    for i in range(counts[engine.BEAM]):
        _stay(rules, store, beam[i], i, row)
    _raise_cut(rules, store)
    count = 0
    if not rules.has_lexicon:
        # Tokens that can extend the best hypothesis: others cannot be extended by more.
        for n in range(len(row)):
            bound = beam[0].total + float64(row[n]) + max(rules.sil_score, 0.0)
            bound += rules.label_gain[n]
            is_allowed = store.flags[n] and n != rules.blank
            if is_allowed and not bound < store.limits[CUT]:
                store.order[count] = n
                count += 1
    for i in range(counts[engine.BEAM]):
        if rules.has_lexicon:
            _extend_in_lexicon(rules, store, i, row)
        else:
            _extend_by_tokens(rules, store, i, row, count)
        if counts[STATUS] == engine.GROW_CANDIDATES:
            return
    # The model scores all new histories of a frame at once.
    if rules.on_host and counts[SCORED] < counts[engine.HISTORIES]:
        counts[STATUS] = engine.ASK


@inlined
def _allow(rules, store, row):
    """Flag the `beam_size_token` best tokens; ties go to the lower."""
    allowed, most = store.flags, rules.beam_size_token
    for n in range(len(row)):
        allowed[n] = most >= len(row)
    if most < len(row):
        for n in range(len(row)):
            store.keys[n], store.order[n] = engine.sort_key(float64(row[n])), n
        best_first(store.keys, store.order, len(row), most, store.stack)
        for rank in range(most):
            allowed[store.order[rank]] = True


@inlined
def _stay(rules, store, h, i, row):
    """Repeat the token, or the silence between words; or emit a blank."""
    # Without a lexicon only allowed ones.
    between = rules.has_lexicon and h.node == 0
    held = int64(rules.sil) if between else int64(h.token)
    for blank in (False, True):
        n = int64(rules.blank) if blank else held
        if rules.has_lexicon:
            # After a blank the token would begin again.
            stays = blank or between or not h.blank
            silent = not blank and n == rules.sil
        else:
            stays = blank or not (h.blank or n == rules.blank)
            stays = stays and store.flags[n]
            silent = n == rules.sil
        if stays:
            score = h.total + float64(row[n])
            if silent:
                score += rules.sil_score
            _add(rules, store, score, (int64(h.history), h.node, 2 * n + blank), -1, i)


@inlined
def _extend_in_lexicon(rules, store, i, row):
    """Enter the nodes below that of hypothesis `i`, and end the words there."""
    h, trie, limits = store.beam[i], rules.trie, store.limits
    node = int64(h.node)
    above = float32(0) if node == 0 else rules.node_score[node]
    unknowns = rules.unk_score > -_INF
    weight, inner_gain = rules.lm_weight, _INF
    if weight >= 0:
        # Look-ahead gains nothing inside a word: no word below a node scores more than
        # the best one under its parent.
        inner_gain = weight * float64(rules.node_score[0]) if node == 0 else 0.0
    paid = weight * float64(above)
    for arc in range(trie.node_child_splits[node], trie.node_child_splits[node + 1]):
        n, kind = int64(trie.child_token[arc]), rules.arc_kind[arc]
        if not store.flags[n]:
            continue
        score = h.total + float64(row[n])
        if n == rules.sil:
            score += rules.sil_score
        repeats = n == h.token
        continues = kind & CONTINUES and (h.blank or not repeats)
        if continues and not score + inner_gain < limits[CUT]:
            child = int64(trie.child_node[arc])
            total = score + weight * float64(rules.node_score[child] - above)
            _add(rules, store, total, (int64(h.history), child, 2 * n), -1, i)
        known = kind & ENDS
        # No word that ends here can gain enough: the model is not needed.
        if score + rules.arc_gain[arc] - paid < limits[CUT]:
            continue
        bonus = rules.word_score if known else rules.unk_score
        first, last = int64(-1), int64(0)
        if known:
            child = int64(trie.child_node[arc])
            first, last = trie.node_pron_splits[child], trie.node_pron_splits[child + 1]
        if (known and (node > 0 or not repeats)) or (unknowns and not known):
            for pron in range(first, last):
                word = int64(trie.pron_word[pron]) if known else int64(rules.unk)
                _end_label(rules, store, i, (score, bonus), above, word, n, word)


@inlined
def _extend_by_tokens(rules, store, i, row, count):
    h = store.beam[i]
    for at in range(count):
        n = int64(store.order[at])
        score = h.total + float64(row[n])
        if n == rules.sil:
            score += rules.sil_score
        if n != h.token and not score + rules.label_gain[n] < store.limits[CUT]:
            _end_label(rules, store, i, (score, 0.0), float32(0), n, n, -1)


@inlined
def _end_label(rules, store, i, score, above, label, n, word):
    """Score a label by the language model, and return to the root."""
    counts, h = store.counts, store.beam[i]
    slot = slot_of(store.history_slots, h.history, label)
    history = int64(h.history)
    if slot.node != 0:
        known = store.histories[slot.node]
        lm_score, lm_state, history = known.score, known.next, int64(known.next)
    elif rules.on_host:
        lm_score, lm_state, history = float32(0), int32(-1), int64(-1)
        if counts[engine.HISTORIES] == len(store.histories):
            counts[STATUS] = engine.GROW_HISTORIES
        else:
            _new_history(store, slot, h.history, label, float32(0), int32(-1))
    else:
        state = store.histories[h.history].lm_state
        cost, lm_state = step(rules.automaton, 0, state, label + 1)
        lm_score = float32(float64(cost) * _LOG10_OF_NATS)
        # Entered when the candidate is kept: most are not.
        history |= (label + 1) << _LABEL
    if history < 0:  # not scored yet
        return
    total = score[0] + rules.lm_weight * float64(lm_score - above) + score[1]
    at = _add(rules, store, total, (history, 0, 2 * n), word, i)
    if at >= 0:
        c = store.candidates[at]
        c.lm_score, c.lm_state = lm_score, lm_state


@inlined
def _new_history(store, slot, state, label, score, after):
    number = store.counts[engine.HISTORIES]
    store.counts[engine.HISTORIES] = number + 1
    slot.parent, slot.symbol, slot.node = state, label, number
    node = store.histories[number]
    node.parent, node.symbol, node.score, node.next = state, label, score, after
    return number


@inlined
def _add(rules, store, score, to, word, parent):
    """Add a candidate (history, node, 2 * token + blank); return its number or -1."""
    limits, counts = store.limits, store.counts
    if not (score >= limits[CUT] and score > -_INF):
        return int64(-1)
    i = counts[engine.CANDIDATES]
    if i == len(store.candidates):
        counts[STATUS] = engine.GROW_CANDIDATES
        return int64(-1)
    # The cut only rises: a candidate below it would be dropped at the end.
    if score > limits[BEST]:
        limits[BEST] = score
        limits[CUT] = max(limits[CUT], score - rules.beam_threshold)
    c = store.candidates[i]
    c.total = c.single = score
    c.key, c.node, c.token = to
    c.word, c.parent = word, parent
    if rules.log_add:  # the threshold is known only at the end
        counts[engine.CANDIDATES] = i + 1
        return i
    at = _merge(store.candidates, store.slots, counts[engine.STAMP], i, False)
    if at == i:
        counts[engine.CANDIDATES] = i + 1
        if i + 1 >= counts[NEXT_CUT]:
            counts[NEXT_CUT] = 2 * (i + 1)
            _raise_cut(rules, store)
    return at


@part
def _merge(candidates, slots, stamp, i, log_add):
    """Merge candidate `i`, the last, with its equal; return its number or -1."""
    c = candidates[i]
    slot, j = engine.find_candidate(candidates, slots, stamp, c.key, c.node, c.token)
    if j < 0:
        slots[slot] = (stamp << 32) | i
        return i
    other = candidates[j]
    low, high = min(c.total, other.total), max(c.total, other.total)
    other.total = high + math.log1p(math.exp(low - high)) if log_add else high
    better = c.single > other.single
    if c.single == other.single:
        better = c.parent < other.parent or (
            c.parent == other.parent and c.word < other.word
        )
    if not better:
        return int64(-1)
    other.single, other.word, other.parent = c.single, c.word, c.parent
    return j


@part
def _raise_cut(rules, store):
    """Raise the cut to about the `beam_size`th best candidate, or below it."""
    count, limits = store.counts[engine.CANDIDATES], store.limits
    if count < rules.beam_size or rules.log_add:
        return
    totals, low, high = store.keys.view(np.float64), limits[BEST], limits[BEST]
    for i in range(count):
        totals[i] = store.candidates[i].total
        low = min(low, totals[i])
    low = max(low, limits[CUT])
    # Bisection by counts, which are vectorised: the cut need not be exact.
    for _ in range(_BISECTIONS):
        middle, above = 0.5 * (low + high), int64(0)
        for i in range(count):
            above += int64(totals[i] >= middle)
        if above >= rules.beam_size:
            low = middle
        else:
            high = middle
    limits[CUT] = low


@part
def _keep(rules, store):
    kept, counts = _choose(rules, store), store.counts
    for rank in range(kept):
        c = store.candidates[store.order[rank]]
        label = c.key >> _LABEL
        if label > 0:
            state = c.key & _STATE
            slot = slot_of(store.history_slots, state, label - 1)
            number = int64(slot.node)
            if number == 0:
                after = int32(counts[engine.HISTORIES])
                number = _new_history(store, slot, state, label - 1, c.lm_score, after)
                store.histories[number].lm_state = c.lm_state
            c.key = number
        entry = store.trace[counts[engine.TRACE] + rank]
        entry.previous = store.beam[c.parent].trace
        entry.token, entry.word = c.token >> 1, c.word
    # Only now: candidates name parents in the old beam.
    for rank in range(kept):
        c, h = store.candidates[store.order[rank]], store.beam[rank]
        h.total, h.history, h.node = c.total, c.key, c.node
        h.token, h.blank = c.token >> 1, (c.token & 1) != 0
        h.trace = counts[engine.TRACE] + rank
    counts[engine.TRACE] += kept
    counts[engine.BEAM] = kept
    counts[engine.FRAMES] += 1


@inlined
def _choose(rules, store):
    candidates, cut = store.candidates, store.limits[CUT]
    count = store.counts[engine.CANDIDATES]
    if rules.log_add:
        # Merge candidates within the threshold, in order of creation.
        total, count = count, int64(0)
        for i in range(total):
            if candidates[i].total >= cut:
                if count < i:
                    candidates[count] = candidates[i]
                at = _merge(
                    candidates, store.slots, store.counts[engine.STAMP], count, True
                )
                count += int64(at == count)
    size, order = rules.beam_size, store.order
    kept = engine.choose(store, count, cut, size)
    chosen = min(kept, size)
    # Ties at the last place are ordered by parent, token, word and node, which are
    # unique.
    for i in range(size, kept):
        if store.keys[i] == store.keys[size - 1]:
            order[chosen] = order[i]
            chosen += 1
    for i in range(1, chosen):
        one, j = order[i], i
        while j > 0 and _goes_before(candidates[one], candidates[order[j - 1]]):
            order[j] = order[j - 1]
            j -= 1
        order[j] = one
    return min(chosen, size)


@inlined
def _goes_before(a, b):
    """Return whether `a` precedes `b` at equal scores."""
    if a.total != b.total:
        return False
    if a.parent != b.parent:
        return a.parent < b.parent
    if a.token >> 1 != b.token >> 1:
        return a.token < b.token
    if a.word != b.word:
        return a.word < b.word
    if a.node != b.node:
        return a.node < b.node
    return a.token < b.token


@jit
def smear(pron_splits, parent, scores):
    """Return the best pronunciation's score below each node, float32 [N]."""
    # Homophones are summed as if log10 were natural, as in flashlight.
    best = np.full(len(parent), -np.inf, np.float32)
    for node in range(len(parent)):
        for pron in range(pron_splits[node], pron_splits[node + 1]):
            low = float(min(best[node], scores[pron]))
            high = float(max(best[node], scores[pron]))
            if low > -np.inf:
                high += math.log1p(math.exp(low - high))
            best[node] = high
    for node in range(len(parent) - 1, 0, -1):
        best[parent[node]] = max(best[parent[node]], best[node])
    return best


def arc_gains(trie: LexiconTrie, word_gain: np.ndarray, unk_gain: float) -> np.ndarray:
    """Return bounds of the gain of a word at the child of each arc, float64 [N - 1]."""
    prons = np.diff(trie.node_pron_splits)
    gains = np.where(prons > 0, -np.inf, unk_gain)
    nodes = np.repeat(np.arange(trie.num_nodes), prons)
    np.maximum.at(gains, nodes, word_gain[trie.pron_word])
    return gains[trie.child_node]


def arc_kinds(trie: LexiconTrie) -> np.ndarray:
    """Return kinds of the child of each arc, `CONTINUES` and `ENDS`, uint8 [N - 1]."""
    continues = np.diff(trie.node_child_splits)[trie.child_node] > 0
    ends = np.diff(trie.node_pron_splits)[trie.child_node] > 0
    return (CONTINUES * continues + ENDS * ends).astype(np.uint8)
