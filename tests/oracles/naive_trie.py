"""The oracle of the trie and its look-ahead: by the definitions, over token strings.

`random_case(rng)` draws entries and a model; `pronunciations` are the entries that
count; a node of the trie is the tuple of tokens that leads there.
"""

import io

import lm_reference
import naive_cases
import numpy as np

from wfstdec import Lexicon, NgramLM, read_arpa

NUM_TOKENS = 4
F = np.float32


def random_entries(rng, words):
    """Word, tokens, cost; many alike, prefixes of others or with equal tokens."""
    entries = []
    for _ in range(rng.integers(1, 4 * len(words))):
        spelt = tuple(rng.integers(0, NUM_TOKENS, rng.integers(1, 4)).tolist())
        if entries and rng.random() < 0.5:
            base = entries[rng.integers(len(entries))][1]
            spelt = (base, base + spelt, base[:1])[rng.integers(3)]
        cost = float(rng.choice([0.0, 0.25, rng.exponential()]))
        entries.append((str(rng.choice(words)), spelt, cost))
    return entries


def lexicon_of(entries):
    words, spellings, costs = zip(*entries, strict=True) if entries else ((), (), ())
    return Lexicon(words, spellings, np.array(costs, np.float32))


def random_case(rng):
    """Entries, ids, model, its text, cost of unknown words; both sides lack some."""
    words = [*naive_cases.WORD_NAMES[: rng.integers(1, 7)], "oov", "<unk>"]
    text, _ = naive_cases.random_arpa(rng, words[:-2], ties=rng.random() < 0.3)
    unk_cost = float(rng.choice([0.5, 4.0])) if rng.random() < 0.4 else None
    table = ("<eps>", *words)
    lm = NgramLM.from_arpa(read_arpa(io.StringIO(text)), table, unk_cost=unk_cost)
    ids = {word: i for i, word in enumerate(table)}
    return random_entries(rng, [*words, "elsewhere"]), ids, lm, text, unk_cost


def pronunciations(entries, word_ids):
    """(tokens, word id) -> the least cost."""
    found = {}
    for word, spelt, cost in entries:
        if word in word_ids:
            key = spelt, word_ids[word]
            found[key] = min(F(cost), found.get(key, F(np.inf)))
    return found


def nodes(spoken):
    """The strings that begin a pronunciation, sorted: this is preorder."""
    return sorted({()} | {s[:n] for s, _ in spoken for n in range(1, len(s) + 1)})


def below(spoken, node):
    """Word and cost of the pronunciations at a node or below it."""
    return [
        (word, cost)
        for (spelt, word), cost in spoken.items()
        if spelt[: len(node)] == node
    ]


def row_cost(automaton, spoken, state, node):
    """The least cost of a word below that has an arc in the state; None without one."""
    begin, end = automaton.state_arc_splits[state : state + 2]
    labels = automaton.arc_label[begin:end].tolist()
    arcs = dict(zip(labels, automaton.arc_cost[begin:end], strict=True))
    alias = automaton.label_alias.tolist()
    costs = [
        arcs[alias[word]] + cost
        for word, cost in below(spoken, node)
        if alias[word] in arcs
    ]
    return min(costs, default=None)


def phi(automaton, spoken, state, node):
    """The bound of a node in a state, float32, added in the order of the definition."""
    total, best = F(0), F(np.inf)
    while state > 0:
        cost = row_cost(automaton, spoken, state, node)
        best = best if cost is None else min(best, total + cost)
        total += automaton.backoff_cost[state]
        state = automaton.backoff_state[state]
    return min(best, total + unigram_cost(automaton, spoken, node))


def unigram_cost(automaton, spoken, node):
    """The least cost of a word below, in the empty history."""
    costs = [
        lm_reference.step(automaton, 0, 0, word)[0] + cost
        for word, cost in below(spoken, node)
    ]
    return min(costs, default=F(np.inf))
