"""Search for the best partition of words into copied words and rewritten ranges.

    fst = pack(arrays)                                      # a transducer over bytes
    ends, outputs, settled = best_partition(fst, scratch, text, max_words, known)
    labels = whole_output(fst, scratch, text)               # of all words as one range

    best[i] = min over j > i of cost(i, j) + best[j]

cost(i, j) is that of the best path of words i..j through the transducer, less 1 per
word; that of copying a word is 0. One pass over the bytes from each word, with all
active states, yields the costs of all ranges that begin there.
"""

from typing import NamedTuple

import numpy as np

from wfstdec.fst.operations import trimmed
from wfstdec.graph.arcs import FstArrays
from wfstdec.jit import jit, read_only

SPACE = 32


class Transducer(NamedTuple):
    """Transducer of S states and A arcs over bytes, for kernels."""

    start: int
    splits: np.ndarray  # int64 [S + 1]; state s has the arcs splits[s:s + 2]
    ilabel: np.ndarray  # int32 [A], a byte or 0, increasing in each row
    olabel: np.ndarray  # int32 [A]
    nextstate: np.ndarray  # int32 [A]
    cost: np.ndarray  # float32 [A]
    final_cost: np.ndarray  # float32 [S]


class Active(NamedTuple):
    """Active states of two steps; room for all S states."""

    slot: np.ndarray  # int32 [S], 1 + index of a state in the newer step; else 0
    state: np.ndarray  # int32 [2, S]
    cost: np.ndarray  # float64 [2, S]
    node: np.ndarray  # int64 [2, S], its last trace node, 0 without output


def new_active(num_states: int) -> Active:
    """Return scratch memory of one thread."""
    both = (2, num_states)
    slot, state = np.zeros(num_states, np.int32), np.empty(both, np.int32)
    return Active(slot, state, np.empty(both), np.empty(both, np.int64))


def pack(fst: FstArrays) -> Transducer:
    """Trim a transducer, and sort the arcs of each state by input label."""
    fst = trimmed(fst)
    order = np.lexsort((fst.ilabel, fst.arc_state()))
    columns = (a[order] for a in (fst.ilabel, fst.olabel, fst.nextstate, fst.cost))
    arrays = fst.state_arc_splits, *columns, fst.final_cost
    return Transducer(fst.start, *map(read_only, arrays))


@jit
def reaches_final_without_output(fst):
    """Return whether a path to a final state has no output except class marks."""
    seen = np.zeros(len(fst.final_cost), np.bool_)
    stack, size = np.empty(len(seen), np.int32), 1
    seen[fst.start], stack[0] = True, fst.start
    while size > 0:
        size -= 1
        state = stack[size]
        if fst.final_cost[state] < np.inf:
            return True
        for arc in range(fst.splits[state], fst.splits[state + 1]):
            nextstate = fst.nextstate[arc]
            if not 0 < fst.olabel[arc] < 256 and not seen[nextstate]:
                seen[nextstate], stack[size], size = True, nextstate, size + 1
    return False


@jit
def _add(fst, active, side, count, trace, arc, cost, node):
    """Recombine the state that an arc enters; return the count, and its index or -1."""
    state = fst.nextstate[arc]
    cost += np.float64(fst.cost[arc])
    index = active.slot[state] - 1
    if index < 0:
        index, count = count, count + 1
        active.slot[state], active.state[side, index] = index + 1, state
    elif cost >= active.cost[side, index]:
        return count, -1
    if fst.olabel[arc] != 0:
        trace.append((fst.olabel[arc], node))
        node = len(trace) - 1
    active.cost[side, index], active.node[side, index] = cost, node
    return count, index


@jit
def _close(fst, active, side, count, trace):
    """Close over arcs without input, which are the first of each state."""
    k = 0
    while k < count:
        state, lowest = active.state[side, k], k + 1
        for arc in range(fst.splits[state], fst.splits[state + 1]):
            if fst.ilabel[arc] != 0:
                break
            cost, node = active.cost[side, k], active.node[side, k]
            count, index = _add(fst, active, side, count, trace, arc, cost, node)
            if index >= 0:
                lowest = min(lowest, index)
        k = lowest  # A state with a lower cost is expanded again.
    for k in range(count):
        active.slot[active.state[side, k]] = 0
    return count


@jit
def _expand(fst, active, side, count, trace, byte):
    """Expand the arcs of a byte, then those without input, to the other side."""
    num_next = 0
    for k in range(count):
        state = active.state[side, k]
        arc, end = fst.splits[state], fst.splits[state + 1]
        arc += np.searchsorted(fst.ilabel[arc:end], byte)
        while arc < end and fst.ilabel[arc] == byte:
            cost, node = active.cost[side, k], active.node[side, k]
            num_next, _ = _add(fst, active, 1 - side, num_next, trace, arc, cost, node)
            arc += 1
    return _close(fst, active, 1 - side, num_next, trace)


@jit
def _ranges_from(fst, active, text, begin, border, trace, costs, nodes):
    """Write costs and nodes of the ranges from a word; return whether one may cross."""
    # `begin`: the word's first byte. `border`: the byte after a word, where a range
    # from here may end. `costs`, `nodes`: of 1, 2, ... words.
    side, count, length, crosses = 0, 1, 0, False
    active.state[0, 0], active.cost[0, 0], active.node[0, 0] = fst.start, 0.0, 0
    active.slot[fst.start] = 1
    count = _close(fst, active, side, count, trace)
    for i in range(begin, len(text) + 1):
        at_end = i == len(text) or text[i] == SPACE
        if at_end:
            for k in range(count):
                cost = active.cost[side, k] + fst.final_cost[active.state[side, k]]
                if cost < costs[length]:
                    costs[length], nodes[length] = cost, active.node[side, k]
            length += 1
            if length == len(costs):
                break
        byte = SPACE if at_end else text[i]
        count, side = _expand(fst, active, side, count, trace, byte), 1 - side
        if count == 0:
            break
        crosses |= i == border
    return crosses


@jit
def _labels_of(trace, node):
    labels = [np.int32(0) for _ in range(0)]
    while node > 0:
        label, node = trace[node]
        labels.append(label)
    return np.array(labels[::-1], np.int32)


@jit
def _best_ends(costs, num_words):
    """Return the end of the range from each of the first words, int64 [num_words]."""
    best, ends = np.zeros(num_words + 1), np.empty(num_words, np.int64)
    for i in range(num_words - 1, -1, -1):
        best[i] = np.inf
        for j in range(i + 1, min(num_words, i + costs.shape[1]) + 1):
            cost = costs[i, j - i - 1] + best[j]
            if cost <= best[i]:  # Ties go to the longer one.
                best[i], ends[i] = cost, j
    return ends


@jit
def best_partition(fst, active, text, max_words, num_known):
    """Return the best partition of the words of a text, separated by one space.

    Returns the end of each range; their output labels, none for copied words; and the
    number of words whose ranges do not depend on words after the first `num_known`.
    Ties go to the partition with the longer range at the first difference.
    """
    # 1. Costs of all ranges.
    begins = [0]
    for i in range(len(text)):
        if text[i] == SPACE:
            begins.append(i + 1)
    num_words = len(begins)
    begins.append(len(text) + 1)
    border, trace = begins[num_known] - 1, [(np.int32(0), 0)]
    costs = np.full((num_words, max_words), np.inf)
    nodes = np.zeros((num_words, max_words), np.int64)
    crosses = np.zeros(num_words, np.bool_)
    for i in range(num_words):
        given = fst, active, text, begins[i], border, trace
        crosses[i] = _ranges_from(*given, costs[i], nodes[i])
        for size in range(max_words):
            costs[i, size] -= size + 1
        if costs[i, 0] > 0:
            costs[i, 0], nodes[i, 0] = 0.0, 0
    # 2. Best partition.
    next_end = _best_ends(costs, num_words)
    ends, i = [0], 0
    outputs = [np.empty(0, np.int32) for _ in range(0)]
    while i < num_words:
        outputs.append(_labels_of(trace, nodes[i, next_end[i] - i - 1]))
        i = next_end[i]
        ends.append(i)
    # 3. Later words continue the best partition of the known words, or of those up to
    # a range that may cross: the common part of these is settled.
    settled = num_known
    for head in range(num_known + 1):
        if head == num_known or crosses[head]:
            other, i = _best_ends(costs, head), 0
            while i < min(head, settled) and other[i] == next_end[i]:
                i = other[i]
            settled = min(i, settled)
    return ends[1:], outputs, settled


@jit
def whole_output(fst, active, text):
    """Return output labels of the best path of all words, or None."""
    num_words = 1
    for byte in text:
        num_words += byte == SPACE
    costs, nodes = np.full(num_words, np.inf), np.zeros(num_words, np.int64)
    trace = [(np.int32(0), 0)]
    _ranges_from(fst, active, text, 0, -1, trace, costs, nodes)
    return _labels_of(trace, nodes[-1]) if costs[-1] < np.inf else None
