"""Kernels of punctuation: evidence of the words around a place, and the search.

Place i is behind word i. The evidence at a place is the sum of

    a network on the words around it      -log p(event | words)
    the pause behind the word             -log p(pause | event)
    hashed log-linear models              does a question begin here; is the next
                                          word written with a capital

and the search adds an n-gram of words and events. Labels are those of words in a row, 0
where no word is.
"""

from typing import NamedTuple

import numpy as np
from numpy import float32, int32, int64, uint64

from wfstdec.jit import inlined, jit
from wfstdec.jit.arrays import hash_of
from wfstdec.lm.kernels import step

NUM_EVENTS, NUM_LEVELS, NUM_PAUSES = 8, 6, 8
NUM_FEATURES = 12
HASH_BITS = 20
ASKS, CASE = range(2)
"""Kinds of log-linear models: whether the sentence that begins behind a place is a
question; whether the word behind it has a capital."""
MAX_PENDING = 15
"""Events of 4 bits that fit into `Search.past`, less one."""
_LIVE, _PENDING = 0, 1


class Network(NamedTuple):
    """Two hidden layers on N words up to a place and M words behind it."""

    embedding: np.ndarray  # float32 [L, D]
    weight_1: np.ndarray  # float32 [(N + M) * D, H]
    bias_1: np.ndarray  # float32 [H]
    weight_2: np.ndarray  # float32 [H, H]
    bias_2: np.ndarray  # float32 [H]
    weight_3: np.ndarray  # float32 [H, 8]
    bias_3: np.ndarray  # float32 [8]


class LinearModel(NamedTuple):
    """A log-linear model of two classes over hashed features."""

    rows: np.ndarray  # int32 [2**HASH_BITS], the row of each feature; 0 is none
    weights: np.ndarray  # float32 [R]; the first is 0


class Scales(NamedTuple):
    """Tuned values of a model."""

    lm: float
    network: float
    pause: float
    beam: float  # nats
    prior: np.ndarray  # float32 [8], nats for each event
    asks: np.ndarray  # float32 [6, 8], nats for each level and event
    pauses: np.ndarray  # float32 [8, 8], nats for each pause bin and event
    ends: np.ndarray  # bool [8], events that end sentences
    levels: np.ndarray  # float32 [5], log-odds between levels
    max_delay: int


class Search(NamedTuple):
    """S live states of one stream; arrays of the number of states at most."""

    lm_state: np.ndarray  # int32
    level: np.ndarray  # int32, how likely the sentence is a question
    cost: np.ndarray  # float32
    past: np.ndarray  # uint64, 4 bits for each event not decided, the last one lowest
    counts: np.ndarray  # int64 [2]: live states, events not decided


@inlined
def _label(labels, i):
    return labels[i] if 0 <= i < len(labels) else int32(0)


@inlined
def _bucket(template, a, b, c):
    mixed = hash_of(hash_of(template, a, b), c, 7)
    return int32(mixed >> uint64(64 - HASH_BITS))


@inlined
def _fill_features(kind, labels, groups, i, before, buckets):
    """Hash the features of place i; `before` is the event at the place."""
    # int32 [NUM_FEATURES]; `groups`, int32 [L]: the word class of each label.
    a, b = _label(labels, i - 1), _label(labels, i)
    c, d = _label(labels, i + 1), _label(labels, i + 2)
    gb, gc, gd = groups[b], groups[c], groups[d]
    buckets[0] = _bucket(kind, 0, 0, 0)
    if kind == ASKS:
        buckets[1] = _bucket(2, c, 0, 0)
        buckets[2] = _bucket(3, c, d, 0)
        buckets[3] = _bucket(4, gc, gd, 0)
        buckets[4] = _bucket(5, d, 0, 0)
        return 5
    buckets[1] = _bucket(10, c, 0, 0)
    buckets[2] = _bucket(11, c, before, 0)
    buckets[3] = _bucket(12, b, c, 0)
    buckets[4] = _bucket(13, c, d, 0)
    buckets[5] = _bucket(14, b, before, 0)
    buckets[6] = _bucket(15, d, gc, 0)
    buckets[7] = _bucket(16, gb, gc, before)
    buckets[8] = _bucket(17, gb, gc, gd)
    buckets[9] = _bucket(18, before, gc, gd)
    buckets[10] = _bucket(19, b, gc, 0)
    buckets[11] = _bucket(20, a, b, before)
    return 12


@inlined
def _log_odds(model, buckets, count):
    total = float32(0)
    for j in range(count):
        total += model.weights[model.rows[buckets[j]]]
    return total


@jit
def log_odds(kind, labels, groups, events, model, begin, end, result):
    """Fill in the log-odds of places `begin` to `end` - 1, float32."""
    buckets = np.empty(NUM_FEATURES, np.int32)
    for i in range(begin, end):
        before = events[i] if i >= 0 else int32(0)
        count = _fill_features(kind, labels, groups, i, before, buckets)
        result[i - begin] = _log_odds(model, buckets, count)


@jit
def descend(kind, labels, groups, events, targets, places, model, sums, rate):
    """Pass once over places by Adagrad; `sums`: float32 [R], of squared gradients."""
    buckets = np.empty(NUM_FEATURES, np.int32)
    for i in places:
        count = _fill_features(kind, labels, groups, i, events[i], buckets)
        odds = _log_odds(model, buckets, count)
        slope = float32(1) / (float32(1) + np.exp(-odds)) - targets[i]
        for j in range(count):
            row = model.rows[buckets[j]]
            if row > 0:
                sums[row] += slope * slope
                model.weights[row] -= rate * slope / np.sqrt(sums[row])


@inlined
def _layer(inputs, weight, bias, outputs):
    """A layer; rows of weights are added, which vectorises without fast maths."""
    for h in range(len(outputs)):
        outputs[h] = bias[h]
    for j in range(len(inputs)):
        x = inputs[j]
        if x != 0:
            for h in range(len(outputs)):
                outputs[h] += x * weight[j, h]


@inlined
def _network_costs(network, labels, i, left, inputs, hidden_1, hidden_2, costs):
    """Fill in -log p of each event at place i, float32 [8]."""
    size = network.embedding.shape[1]
    for j in range(len(inputs) // size):
        label = _label(labels, i - left + 1 + j)
        for d in range(size):
            inputs[j * size + d] = network.embedding[label, d]
    _layer(inputs, network.weight_1, network.bias_1, hidden_1)
    for h in range(len(hidden_1)):
        hidden_1[h] = max(hidden_1[h], float32(0))
    _layer(hidden_1, network.weight_2, network.bias_2, hidden_2)
    for h in range(len(hidden_2)):
        hidden_2[h] = max(hidden_2[h], float32(0))
    _layer(hidden_2, network.weight_3, network.bias_3, costs)
    top = costs[0]
    for e in range(1, NUM_EVENTS):
        top = max(top, costs[e])
    total = float32(0)
    for e in range(NUM_EVENTS):
        total += np.exp(costs[e] - top)
    top += np.log(total)
    for e in range(NUM_EVENTS):
        costs[e] = top - costs[e]


@jit
def place_costs(network, labels, left, begin, end):
    """The network's costs of places `begin` to `end` - 1, float32 [N, 8]."""
    result = np.empty((max(0, end - begin), NUM_EVENTS), np.float32)
    inputs = np.empty(network.weight_1.shape[0], np.float32)
    hidden_1 = np.empty(network.weight_1.shape[1], np.float32)
    hidden_2 = np.empty(network.weight_2.shape[1], np.float32)
    for i in range(begin, end):
        row = result[i - begin]
        _network_costs(network, labels, i, left, inputs, hidden_1, hidden_2, row)
    return result


@jit
def search_places(
    automaton, scales, search, labels, begin, costs, odds, pauses, ends, decided
):
    """Pass places from `begin` on; returns the number of events decided.

    `costs` float32 [N, 8] and `odds` float32 [N] are the evidence of the places,
    `pauses` int32 [N] the bins, below 0 where unknown. `ends`: the last place ends the
    utterance. `decided` int32 [N + MAX_PENDING] receives the events.
    """
    size = len(search.cost) * NUM_EVENTS
    lm_state, levels = np.empty(size, np.int32), np.empty(size, np.int32)
    cost, past = np.empty(size, np.float32), np.empty(size, np.uint64)
    done = 0
    for n in range(len(costs)):
        is_end = ends and n == len(costs) - 1
        word = -1 if is_end else labels[begin + n + 1]
        level = 0
        for bound in scales.levels:
            level += int64(odds[n] > bound)
        # 1. Expand: each event behind the last word, then the next word.
        count, best = 0, float32(np.inf)
        for s in range(search.counts[_LIVE]):
            for e in range(NUM_EVENTS):
                state, total = search.lm_state[s], float32(0)
                asked = int64(search.level[s])
                local = costs[n, e] * scales.network + scales.prior[e]
                local += scales.asks[asked, e]
                if pauses[n] >= 0:
                    local += scales.pause * scales.pauses[pauses[n], e]
                local += search.cost[s]
                if local > best + scales.beam:  # n-gram costs are not below 0
                    continue
                if e > 0:
                    total, state = step(automaton, 0, state, e)
                    asked = level if scales.ends[e] else max(level, asked)
                elif word < 0:
                    total = _cost_of_none(automaton, state)
                if word >= 0:
                    added, state = step(automaton, 0, state, word)
                    total += added
                local += total * scales.lm
                lm_state[count], levels[count], cost[count] = state, asked, local
                past[count] = (search.past[s] << uint64(4)) | uint64(e)
                best = min(best, local)
                count += 1
        # 2. Recombine those within the beam.
        _keep_best(search, lm_state, levels, cost, past, count, best, scales.beam)
        search.counts[_PENDING] += 1
        # 3. Decide the oldest events.
        delay = 0 if is_end else scales.max_delay
        done += _decide(search, delay, decided[done:])
    return done


@inlined
def _cost_of_none(automaton, state):
    """The cost of a word of any kind behind a state."""
    rest = float32(1)
    for e in range(1, NUM_EVENTS):
        rest -= np.exp(-step(automaton, 0, state, e)[0])
    return -np.log(max(rest, float32(1e-6)))


@inlined
def _keep_best(search, lm_state, levels, cost, past, count, best, beam):
    """Fill in the live states; if there are too many, the best stay."""
    live, most = 0, len(search.cost)
    for i in range(count):
        if cost[i] > best + beam:
            continue
        slot = 0
        while slot < live and (
            search.lm_state[slot] != lm_state[i] or search.level[slot] != levels[i]
        ):
            slot += 1
        if slot == most:
            slot = 0
            for s in range(1, most):
                if search.cost[s] > search.cost[slot]:
                    slot = s
        elif slot == live:
            live += 1
            search.cost[slot] = float32(np.inf)
        if cost[i] - best < search.cost[slot]:
            search.lm_state[slot], search.level[slot] = lm_state[i], levels[i]
            search.cost[slot], search.past[slot] = cost[i] - best, past[i]
    search.counts[_LIVE] = live


@inlined
def _decide(search, max_delay, decided):
    """Write the oldest events that all states agree on; the best decides late ones."""
    done = 0
    while search.counts[_PENDING] > 0:
        shift = uint64(4 * (search.counts[_PENDING] - 1))
        live, winner = search.counts[_LIVE], 0
        for s in range(1, live):
            if search.cost[s] < search.cost[winner]:
                winner = s
        event = (search.past[winner] >> shift) & uint64(15)
        agreeing = 0
        for s in range(live):
            agreeing += int64((search.past[s] >> shift) & uint64(15) == event)
        if agreeing < live and search.counts[_PENDING] <= max_delay:
            break
        kept = 0
        for s in range(live):
            if (search.past[s] >> shift) & uint64(15) == event:
                search.lm_state[kept] = search.lm_state[s]
                search.level[kept] = search.level[s]
                search.cost[kept], search.past[kept] = search.cost[s], search.past[s]
                kept += 1
        search.counts[_LIVE] = kept
        decided[done] = int32(event)
        done += 1
        search.counts[_PENDING] -= 1
    return done
