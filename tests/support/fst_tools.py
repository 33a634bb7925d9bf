"""Small FSTs in plain Python: what a string becomes and costs, with no engine.

outputs_of(fst, (1, 2))          # {(7,): 0.5}: output strings -> least cost
without(fst, labels)             # those input labels turned into epsilons
rows_of(fst)                     # the arcs and finals as lines of text
random_fst(rng)                  # any FST
grammar_of(text, "a b")          # G, and its labels
"""

import heapq
import io
from dataclasses import replace

import numpy as np

from wfstdec import read_arpa, token_table
from wfstdec.fst.arrays import LabelSpace, arcs_of, fst_of
from wfstdec.fst.grammar import build_grammar
from wfstdec.fst.openfst import FstContent, format_text
from wfstdec.text.tokens import EPSILON, EPSILON_WORD


def label_space(tokens="_ a b", words=(), num_disambig=1):
    """Labels over tokens in a string and words."""
    table = token_table(tokens.split())
    return LabelSpace(table, (EPSILON_WORD, *words), num_disambig)


def outputs_of(fst, ilabels, most_outputs=12):
    """All outputs of an input, and their least costs; no epsilon cycle is below 0."""
    best, found = {}, {}
    state = fst.arc_state()
    leaving = [np.flatnonzero(state == s).tolist() for s in range(fst.num_states)]
    queue = [(0.0, fst.start, 0, ())]
    while queue:
        cost, s, position, output = heapq.heappop(queue)
        if best.get((s, position, output), np.inf) <= cost:
            continue
        best[s, position, output] = cost
        if position == len(ilabels) and fst.final_cost[s] < np.inf:
            total = cost + float(fst.final_cost[s])
            found[output] = min(total, found.get(output, np.inf))
        for arc in leaving[s]:
            label, olabel = int(fst.ilabel[arc]), int(fst.olabel[arc])
            longer = output if olabel == EPSILON else (*output, olabel)
            step = int(label != EPSILON)
            fits = label == EPSILON or (
                position < len(ilabels) and ilabels[position] == label
            )
            if fits and len(longer) <= most_outputs:
                total = cost + float(fst.cost[arc])
                nextstate = int(fst.nextstate[arc])
                heapq.heappush(queue, (total, nextstate, position + step, longer))
    return found


def all_pairs(fst, num_labels=3, longest=5):
    """{(input, output): least cost} of a small FST."""
    found, strings = {}, [()]
    for _ in range(longest + 1):
        for string in strings:
            for output, cost in outputs_of(fst, string).items():
                found[string, output] = cost
        strings = [(*s, i) for s in strings for i in range(1, num_labels + 1)]
    return found


def without(fst, ilabels):
    """The FST with some input labels turned into epsilons."""
    gone = np.isin(fst.ilabel, ilabels)
    return replace(fst, ilabel=np.where(gone, EPSILON, fst.ilabel))


def without_arcs(fst, ilabels):
    gone = np.isin(fst.ilabel, ilabels)
    return replace(fst, cost=np.where(gone, np.inf, fst.cost).astype(np.float32))


def rows_of(fst, isymbols=None, osymbols=None):
    """Lines of AT&T text, sorted; fields between single spaces."""
    lines = format_text(FstContent(fst, isymbols, osymbols))
    return sorted(" ".join(line.split()) for line in lines)


def least_cost(graph, logprobs, lm_scale=1.0):
    """Least total of a packed graph on log-probs [T, V], float64, nothing pruned."""
    fst = graph.unpack()
    state = fst.arc_state()
    epsilon, emitting = (np.flatnonzero(m) for m in (fst.ilabel == 0, fst.ilabel > 0))

    def closed(cost):
        while True:
            better = cost.copy()
            through = cost[state[epsilon]] + lm_scale * fst.cost[epsilon]
            np.minimum.at(better, fst.nextstate[epsilon], through)
            if (better >= cost - 1e-12).all():
                return better
            cost = better

    cost = np.full(fst.num_states, np.inf)
    cost[fst.start] = 0.0
    cost = closed(cost)
    for frame in np.asarray(logprobs, np.float64):
        acoustic = np.concatenate([[np.inf], -frame])[fst.ilabel[emitting]]
        through = cost[state[emitting]] + lm_scale * fst.cost[emitting] + acoustic
        cost = np.full(fst.num_states, np.inf)
        np.minimum.at(cost, fst.nextstate[emitting], through)
        cost = closed(cost)
    return float((cost + lm_scale * fst.final_cost).min())


def size(fst):
    return fst.num_states, fst.num_arcs


def random_fst(rng, num_states=6, num_labels=3, epsilons=True, cyclic=False):
    """An FST with parallel arcs and states that lead nowhere."""
    num_arcs = int(rng.integers(2, 5 * num_states))
    state = rng.integers(0, num_states, num_arcs)
    nextstate = rng.integers(0, num_states, num_arcs)
    ilabel = rng.integers(0 if epsilons else 1, num_labels + 1, num_arcs)
    olabel = rng.integers(0, num_labels + 1, num_arcs)
    if not cyclic:
        keep = nextstate > state
        columns = (state, ilabel, olabel, nextstate)
        state, ilabel, olabel, nextstate = (column[keep] for column in columns)
    final = np.where(rng.random(num_states) < 0.4, rng.random(num_states), np.inf)
    arcs = arcs_of(state, ilabel, olabel, nextstate, rng.random(len(state)))
    return fst_of([arcs], int(rng.integers(0, 2)), final)


def grammar_of(text, words="a b", unk_cost=None):
    """G of the text of an ARPA model, and its labels."""
    labels = label_space(words=words.split())
    model = read_arpa(io.BytesIO(text.encode()))
    return build_grammar(model, labels, unk_cost), labels


def sentence_cost(fst, labels, words):
    """Cost of a sentence, back-offs free to take; inf if it is impossible."""
    ids = tuple(labels.words.index(word) for word in words)
    found = outputs_of(without(fst, [labels.backoff_word]), ids, len(ids))
    return found.get(ids, np.inf)
