"""Search for the best partition of words into copied words and rewritten ranges.

    fst = pack(arrays)                                      # a transducer over bytes
    partition = best_partition(fst, scratch, text, max_words)
    output = whole_output(fst, scratch, text)               # of all words as one range

    best[j] = min(best[j - 1],                                  a copied word
                  min over i of best[i] + cost(i, j) - (j - i)) a rewritten range

cost(i, j) is the cost of the best path of words i..j through the transducer: one pass
over the bytes from each word, with all active states. Of partitions of equal cost the
one wins that has the longer range where they first differ.
"""

from typing import NamedTuple

import numpy as np

from wfstdec.graph.arcs import FstArrays
from wfstdec.jit import jit, read_only
from wfstdec.jit.arrays import twice

SPACE = 32
NO_FINAL = 1 << 30
"""In the place of a number of spaces: no path leads to a final state."""


class Transducer(NamedTuple):
    """A transducer of S states and A arcs over bytes, as the kernels take it."""

    start: int
    splits: np.ndarray  # int64 [S + 1]; state s has the arcs splits[s:s + 2]
    ilabel: np.ndarray  # int32 [A], a byte or 0, increasing in each row
    olabel: np.ndarray  # int32 [A]
    nextstate: np.ndarray  # int32 [A]
    cost: np.ndarray  # float32 [A]
    final_cost: np.ndarray  # float32 [S]
    spaces_left: np.ndarray  # int32 [S], least number of spaces to a final state


class Active(NamedTuple):
    """Active states of two steps; room for all S states."""

    slot: np.ndarray  # int32 [S], 1 + index of a state in the newer step; else 0
    state: np.ndarray  # int32 [2, S]
    cost: np.ndarray  # float64 [2, S]
    node: np.ndarray  # int32 [2, S], its last trace node, -1 without output


def new_active(num_states: int) -> Active:
    """Scratch memory of one thread."""
    both = (2, num_states)
    slot, state = np.zeros(num_states, np.int32), np.empty(both, np.int32)
    return Active(slot, state, np.empty(both), np.empty(both, np.int32))


def pack(fst: FstArrays) -> Transducer:
    """Sort the arcs of each state by input label; count the spaces to a final state."""
    state = fst.arc_state()
    key = state << 32 | fst.ilabel
    columns = [fst.ilabel, fst.olabel, fst.nextstate, fst.cost]
    if (key[1:] < key[:-1]).any():
        order = np.argsort(key, kind="stable")
        columns = [column[order] for column in columns]
    arrays = [fst.state_arc_splits, *columns, fst.final_cost]
    splits, ilabel, olabel, nextstate, cost, final_cost = map(read_only, arrays)
    spaces = read_only(least_spaces(state, ilabel, nextstate, final_cost))
    arcs = splits, ilabel, olabel, nextstate, cost
    return Transducer(fst.start, *arcs, final_cost, spaces)


@jit
def least_spaces(arc_state, ilabel, nextstate, final_cost):
    """The least number of spaces from each state to a final one, int32 [S]."""
    num_states, num_arcs = len(final_cost), len(ilabel)
    # 1. Arcs by the state they enter.
    splits = np.zeros(num_states + 2, np.int64)
    for arc in range(num_arcs):
        splits[nextstate[arc] + 2] += 1
    for state in range(num_states):
        splits[state + 2] += splits[state + 1]
    entering = np.empty(num_arcs, np.int32)
    for arc in range(num_arcs):
        entering[splits[nextstate[arc] + 1]] = arc
        splits[nextstate[arc] + 1] += 1
    # 2. States with 0 spaces left, then with 1, ...: each level is a stack.
    spaces = np.full(num_states, NO_FINAL, np.int32)
    stack, later = np.empty(num_states, np.int32), np.empty(num_arcs, np.int32)
    size, num_later, level = 0, 0, 0
    for state in range(num_states):
        if final_cost[state] < np.inf:
            spaces[state], stack[size], size = 0, state, size + 1
    while size > 0:
        while size > 0:
            size -= 1
            state = stack[size]
            for i in range(splits[state], splits[state + 1]):
                source = arc_state[entering[i]]
                if spaces[source] <= level:
                    continue
                if ilabel[entering[i]] == SPACE:
                    later[num_later], num_later = source, num_later + 1
                else:
                    spaces[source], stack[size], size = level, source, size + 1
        level += 1
        for i in range(num_later):
            if spaces[later[i]] > level:
                spaces[later[i]], stack[size], size = level, later[i], size + 1
        num_later = 0
    return spaces


@jit
def reaches_final_without_output(fst):
    """Whether some path to a final state has no output; class marks are no output."""
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
def _add(fst, active, side, count, trace, num_nodes, arc, cost, node):
    """Recombine the state that an arc enters; last is its index, or -1."""
    state = fst.nextstate[arc]
    if fst.spaces_left[state] == NO_FINAL:
        return count, trace, num_nodes, -1
    cost += np.float64(fst.cost[arc])
    index = active.slot[state] - 1
    if index < 0:
        index, count = count, count + 1
        active.slot[state], active.state[side, index] = index + 1, state
    elif cost >= active.cost[side, index]:
        return count, trace, num_nodes, -1
    if fst.olabel[arc] != 0:
        if num_nodes == len(trace):
            trace = twice(trace)
        trace[num_nodes, 0], trace[num_nodes, 1] = fst.olabel[arc], node
        node, num_nodes = num_nodes, num_nodes + 1
    active.cost[side, index], active.node[side, index] = cost, node
    return count, trace, num_nodes, index


@jit
def _close(fst, active, side, count, trace, num_nodes):
    """Follow the arcs without input, which are the first of each state."""
    k = 0
    while k < count:
        state, lowest = active.state[side, k], k + 1
        for arc in range(fst.splits[state], fst.splits[state + 1]):
            if fst.ilabel[arc] != 0:
                break
            cost, node = active.cost[side, k], active.node[side, k]
            count, trace, num_nodes, index = _add(
                fst, active, side, count, trace, num_nodes, arc, cost, node
            )
            if index >= 0:
                lowest = min(lowest, index)
        k = lowest  # A state whose cost has fallen is expanded again.
    for k in range(count):
        active.slot[active.state[side, k]] = 0
    return count, trace, num_nodes


@jit
def _expand(fst, active, side, count, trace, num_nodes, byte):
    """Follow the arcs of a byte, then those without input, to the other side."""
    num_next = 0
    for k in range(count):
        state = active.state[side, k]
        low, end = fst.splits[state], fst.splits[state + 1]
        high = end
        while low < high:
            middle = (low + high) >> 1
            if fst.ilabel[middle] < byte:
                low = middle + 1
            else:
                high = middle
        while low < end and fst.ilabel[low] == byte:
            cost, node = active.cost[side, k], active.node[side, k]
            num_next, trace, num_nodes, _ = _add(
                fst, active, 1 - side, num_next, trace, num_nodes, low, cost, node
            )
            low += 1
    return _close(fst, active, 1 - side, num_next, trace, num_nodes)


@jit
def _ranges_from(fst, active, text, begin, trace, num_nodes, costs, nodes):
    """Costs and trace nodes of the ranges from a word; (trace, nodes, may grow)."""
    # `begin`: the word's first byte. `costs`, `nodes`: of 1, 2, ... words, filled in.
    side, count, length = 0, 1, 0
    active.state[0, 0], active.cost[0, 0], active.node[0, 0] = fst.start, 0.0, -1
    active.slot[fst.start] = 1
    count, trace, num_nodes = _close(fst, active, side, count, trace, num_nodes)
    for i in range(begin, len(text) + 1):
        at_end = i == len(text) or text[i] == SPACE
        if at_end:
            for k in range(count):
                cost = active.cost[side, k] + fst.final_cost[active.state[side, k]]
                if cost < costs[length]:
                    costs[length], nodes[length] = cost, active.node[side, k]
            length += 1
            if length == len(costs):
                return trace, num_nodes, False
        byte = SPACE if at_end else text[i]
        count, trace, num_nodes = _expand(
            fst, active, side, count, trace, num_nodes, byte
        )
        side = 1 - side
        if count == 0:
            return trace, num_nodes, False
    # A word may follow: is a final state in reach within the longest range?
    for k in range(count):
        if length + 1 + fst.spaces_left[active.state[side, k]] <= len(costs):
            return trace, num_nodes, True
    return trace, num_nodes, False


@jit
def _meet(back, a, b):
    """Where two paths of the trellis part; (position, next of a, next of b)."""
    next_a, next_b = a, b
    while a != b:
        if a > b:
            next_a, a = a, back[a]
        else:
            next_b, b = b, back[b]
    return a, next_a, next_b


@jit
def _labels_of(trace, node):
    """The output labels up to a trace node."""
    size, last = 0, node
    while node >= 0:
        node, size = trace[node, 1], size + 1
    labels, node = np.empty(size, np.int32), last
    while node >= 0:
        size -= 1
        labels[size], node = trace[node, 0], trace[node, 1]
    return labels


@jit
def best_partition(fst, active, text, max_words):
    """The best partition of the words of a text with one space between words.

    Returns `ends` int64 [K], behind the last word of each range; `output_splits` int64
    [K + 1]; `output` int32, the output labels of all ranges, none for copied words; and
    the number of words whose ranges no further word can change.
    """
    # 1. Costs of all ranges.
    begins = [0]
    for i in range(len(text)):
        if text[i] == SPACE:
            begins.append(i + 1)
    num_words = len(begins)
    costs = np.full((num_words, max_words), np.inf)
    nodes = np.full((num_words, max_words), -1, np.int32)
    grows = np.zeros(num_words, np.bool_)
    trace, num_nodes = np.empty((256, 2), np.int32), 0
    for i in range(num_words):
        trace, num_nodes, grows[i] = _ranges_from(
            fst, active, text, begins[i], trace, num_nodes, costs[i], nodes[i]
        )
    # 2. Best partition of the first j words.
    best, back = np.zeros(num_words + 1), np.full(num_words + 1, -1, np.int64)
    rewritten = np.zeros(num_words + 1, np.bool_)
    for j in range(1, num_words + 1):
        best[j], back[j] = best[j - 1], j - 1
        for i in range(j - 1, max(0, j - max_words) - 1, -1):
            cost = best[i] + costs[i, j - i - 1] - (j - i)
            if cost == best[j] and i != back[j]:
                # Both end at j, so that the step to j counts where they meet there.
                meet, next_old, next_new = _meet(back, back[j], i)
                next_old = j if meet == back[j] else next_old
                better = (j if meet == i else next_new) > next_old
            else:
                better = cost <= best[j] and cost < np.inf
            if better:
                best[j], back[j], rewritten[j] = cost, i, True
    # 3. Every continuation ends in the last word or in a range that grows; what their
    # paths share is settled.
    settled = num_words
    for i in range(num_words):
        if grows[i]:
            settled = _meet(back, settled, i)[0]
    # 4. Read the path back.
    count, j = 0, num_words
    while j > 0:
        count, j = count + 1, back[j]
    ends, splits = np.empty(count, np.int64), np.zeros(count + 1, np.int64)
    parts = [np.empty(0, np.int32) for _ in range(count)]
    j = num_words
    for k in range(count - 1, -1, -1):
        ends[k] = j
        if rewritten[j]:
            parts[k] = _labels_of(trace, nodes[back[j], j - back[j] - 1])
        j = back[j]
    for k in range(count):
        splits[k + 1] = splits[k] + len(parts[k])
    output = np.empty(splits[count], np.int32)
    for k in range(count):
        output[splits[k] : splits[k + 1]] = parts[k]
    return ends, splits, output, settled


@jit
def whole_output(fst, active, text):
    """Output labels of the best path of all words, or None where there is no path."""
    num_words = 1
    for byte in text:
        num_words += byte == SPACE
    costs = np.full(num_words, np.inf)
    nodes = np.full(num_words, -1, np.int32)
    trace, _, _ = _ranges_from(
        fst, active, text, 0, np.empty((256, 2), np.int32), 0, costs, nodes
    )
    return _labels_of(trace, nodes[-1]) if costs[-1] < np.inf else None
