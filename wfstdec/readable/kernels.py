"""Kernels of punctuation: the network on words, and the choice of events.

Place i is after word i. A network on the words around it has three kinds of outputs:

    costs    -log p(event | words)
    capital  log-odds that the next word has a capital, after each event
    asks     log-odds that the words after an event are part of a question

Labels are those of consecutive words, 0 outside.
"""

from typing import NamedTuple

import numpy as np
from numpy import float32, int32

from wfstdec.jit import inlined, jit
from wfstdec.readable.printed import EXCLAMATION, NONE, PERIOD

NUM_EVENTS, NUM_LEVELS, NUM_PAUSES = 8, 6, 8
NUM_OUTPUTS = 2 * NUM_EVENTS + 1


class Network(NamedTuple):
    """Network with two hidden layers on N words before a place and M words after it."""

    embedding: np.ndarray  # float32 [L, D]
    weight_1: np.ndarray  # float32 [(N + M) * D, H]
    bias_1: np.ndarray  # float32 [H]
    weight_2: np.ndarray  # float32 [H, K]
    bias_2: np.ndarray  # float32 [K]
    weight_3: np.ndarray  # float32 [K, 17]
    bias_3: np.ndarray  # float32 [17]


class Scales(NamedTuple):
    """Tuned values of a model, nats."""

    prior: np.ndarray  # float32 [8], for each event
    asks: np.ndarray  # float32 [6, 8], for each level and event
    levels: np.ndarray  # float32 [5], log-odds between levels
    pauses: np.ndarray  # float32 [8, 8], for each pause bin and event


@inlined
def _layer(inputs, weight, bias, outputs):
    """Compute a layer by adding rows of weights, which vectorises."""
    for h in range(len(outputs)):
        outputs[h] = bias[h]
    for j in range(len(inputs)):
        x = inputs[j]
        if x != 0:
            for h in range(len(outputs)):
                outputs[h] += x * weight[j, h]


@inlined
def _rectify(values):
    for h in range(len(values)):
        values[h] = max(values[h], float32(0))


@jit
def evidence_of(network, labels, left, begin, end):
    """Return costs [N, 8], capital [N, 8] and asks [N] of places `begin` to `end`."""
    count, size = max(0, end - begin), network.embedding.shape[1]
    costs = np.empty((count, NUM_EVENTS), np.float32)
    capital, asks = np.empty_like(costs), np.empty(count, np.float32)
    inputs = np.empty(network.weight_1.shape[0], np.float32)
    hidden_1 = np.empty(network.weight_1.shape[1], np.float32)
    hidden_2 = np.empty(network.weight_2.shape[1], np.float32)
    outputs = np.empty(NUM_OUTPUTS, np.float32)
    for n in range(count):
        for j in range(len(inputs) // size):
            at = begin + n - left + 1 + j
            label = labels[at] if 0 <= at < len(labels) else int32(0)
            for d in range(size):
                inputs[j * size + d] = network.embedding[label, d]
        _layer(inputs, network.weight_1, network.bias_1, hidden_1)
        _rectify(hidden_1)
        _layer(hidden_1, network.weight_2, network.bias_2, hidden_2)
        _rectify(hidden_2)
        _layer(hidden_2, network.weight_3, network.bias_3, outputs)
        top, total = outputs[:NUM_EVENTS].max(), float32(0)
        for e in range(NUM_EVENTS):
            total += np.exp(outputs[e] - top)
        for e in range(NUM_EVENTS):
            costs[n, e] = top + np.log(total) - outputs[e]
            capital[n, e] = outputs[NUM_EVENTS + e]
        asks[n] = outputs[2 * NUM_EVENTS]
    return costs, capital, asks


@jit
def choose(scales, costs, asks, pauses, level, first):
    """Choose events of places in order; return events and levels, int32 [N].

    `pauses` int32 [N]: bins, below 0 if unknown. `level`: evidence of a question from
    the first words of the sentence and its parts. `first`: the event of the first place
    if it is known, else below 0.
    """
    events, levels = np.empty(len(costs), np.int32), np.empty(len(costs), np.int32)
    for n in range(len(costs)):
        total = costs[n] + scales.prior + scales.asks[level]
        if pauses[n] >= 0:
            total += scales.pauses[pauses[n]]
        event = first if n == 0 and first >= 0 else np.argmin(total)
        if event != NONE:
            own = (asks[n] > scales.levels).sum()
            level = own if PERIOD <= event <= EXCLAMATION else max(own, level)
        events[n], levels[n] = event, level
    return events, levels
