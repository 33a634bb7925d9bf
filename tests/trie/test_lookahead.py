"""The look-ahead: by hand, its definition, what it promises of words, the errors."""

import io

import naive_trie
import numpy as np
import pytest
from arpa_texts import TRIGRAMS
from compiled import compiled

from wfstdec import NgramLM, token_table
from wfstdec.errors import OptionError
from wfstdec.trie.lexicon_trie import build_trie, parents_of
from wfstdec.trie.lookahead import (
    ABSENT,
    ANYWHERE,
    AT_ROOT,
    Rows,
    build_lookahead,
    potential,
    potential_below,
)

potential, potential_below = compiled(potential), compiled(potential_below)

LN10 = np.log(10)
INF = float("inf")
KINDS = ("ngram", "unigram", "none")
SEEDS = range(40)


def bits(values):
    return np.asarray(values, np.float32).view(np.uint32).tolist()


def bits_of_all(lookahead, lm, trie):
    """phi of all states and nodes, to be compared bit for bit."""
    return [
        [bits(potential(lookahead, state, node)) for node in range(trie.num_nodes)]
        for state in range(lm.num_states)
    ]


class Case:
    def __init__(self, seed, kind="ngram"):
        rng = np.random.default_rng(seed)
        entries, self.ids, self.lm, self.text, self.unk_cost = naive_trie.random_case(
            rng
        )
        self.spoken = naive_trie.pronunciations(entries, self.ids)
        self.nodes = naive_trie.nodes(self.spoken)
        self.trie = build_trie(naive_trie.lexicon_of(entries), self.ids)
        self.lookahead = build_lookahead(self.lm, self.trie, kind)

    def phi(self, state, node):
        return potential(self.lookahead, state, node)


def test_a_look_ahead_by_hand():
    # Of TRIGRAMS: the -0.75 (back-off -0.25), cat -1, sat -1.5, <unk> -3.5;
    # the cat -0.5 (-0.75), the <unk> -2, cat sat -0.125.
    words = ("<eps>", "the", "cat", "sat", "cad")
    lm = NgramLM.from_arpa(io.StringIO(TRIGRAMS), words)
    ids = {word: i for i, word in enumerate(words)}
    entries = [("the", (1,), 0.0), ("cat", (2, 3), 0.5 * LN10), ("cad", (2, 3), 0.0)]
    entries += [("sat", (2,), 0.0)]
    trie = build_trie(naive_trie.lexicon_of(entries), ids)  # 1 -> 1, 2 -> 2, 2 3 -> 3
    lookahead = build_lookahead(lm, trie, "ngram")
    the = lm.step(0, 1)[1]
    the_cat = lm.step(the, 2)[1]
    assert lookahead.unigram_cost / LN10 == pytest.approx([0.75, 0.75, 1.5, 1.5])
    row = slice(*lookahead.row_splits[the : the + 2])
    assert lookahead.rows["node"][row].tolist() == [0, 2, 3]
    found = lookahead.rows["cost"][row] / LN10
    assert found == pytest.approx([1.0, 1.0, 1.0])  # the cat
    found = [potential(lookahead, the, node) / LN10 for node in range(4)]
    assert found == pytest.approx([1.0, 0.25 + 0.75, 1.0, 1.0])
    found = [potential(lookahead, the_cat, node) / LN10 for node in range(4)]
    # back-off 0.75 to `cat` (-0.0625), where `sat` costs 0.125, and to the empty one
    expected = [0.875, 0.6875 + 0.75, 0.875, 0.6875 + 1.5]
    assert found == pytest.approx(expected)
    assert lookahead.state_cost[the_cat] / LN10 == pytest.approx(0.875)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.share(keep=10)
def test_potentials_are_what_the_definition_says(seed):
    case = Case(seed)
    automaton = case.lm.automaton
    expected = [
        [naive_trie.phi(automaton, case.spoken, state, node) for node in case.nodes]
        for state in range(case.lm.num_states)
    ]
    assert bits_of_all(case.lookahead, case.lm, case.trie) == bits(expected)
    assert bits(case.lookahead.unigram_cost) == bits(expected[0])
    ends = automaton.final_cost
    begins = np.array(expected)[:, 0]
    assert bits(case.lookahead.state_cost) == bits(np.minimum(begins, ends))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.share(keep=6)
def test_unigrams_forget_the_history(seed):
    case = Case(seed, "unigram")
    automaton = case.lm.automaton
    costs = [naive_trie.unigram_cost(automaton, case.spoken, n) for n in case.nodes]
    most = max((cost for cost in costs if cost < INF), default=0)
    costs = [min(cost, most) for cost in costs]  # a longer history may have the word
    rows = [bits(costs)] * case.lm.num_states
    assert bits_of_all(case.lookahead, case.lm, case.trie) == rows
    assert bits(case.lookahead.state_cost) == [bits(costs[0])] * case.lm.num_states


@pytest.mark.parametrize("kind", KINDS)
def test_going_down_the_trie_gives_the_same_bits(kind):
    """Whatever is known of the parent's rows, or nothing is."""
    present = 0
    for seed in SEEDS[:8]:
        case = Case(seed, kind)
        parent = parents_of(case.trie).tolist()
        expected = bits_of_all(case.lookahead, case.lm, case.trie)
        for state in range(case.lm.num_states):
            rows = [Rows(AT_ROOT, AT_ROOT)]
            for node in range(1, case.trie.num_nodes):
                at = case.lm.automaton, case.lookahead, state, node
                cost, found = potential_below(*at, rows[parent[node]])
                again, same = potential_below(*at, Rows(ANYWHERE, ANYWHERE))
                assert bits(cost) == bits(again) == expected[state][node]
                assert tuple(found) == tuple(same)
                rows.append(Rows(*found))
                present += rows[-1].own != ABSENT
    assert (present > 0) == (kind == "ngram")


@pytest.mark.parametrize("kind", KINDS)
def test_where_nothing_can_be_said(kind):
    lm = NgramLM.from_arpa(io.StringIO(TRIGRAMS), ("<eps>", "the"))
    trie = build_trie(naive_trie.lexicon_of([]), {})
    lookahead = build_lookahead(lm, trie, kind)
    expected = INF if kind == "ngram" else 0.0
    assert potential(lookahead, lm.start, 0) == expected
    ends = lm.automaton.final_cost.tolist()
    assert lookahead.state_cost.tolist() == (
        ends if kind == "ngram" else [expected] * len(ends)
    )


def test_words_that_the_model_lacks_cost_inf():
    text = TRIGRAMS.replace("<unk>", "unkn")
    lm = NgramLM.from_arpa(io.StringIO(text), ("<eps>", "the", "emu"))
    entries = [("the", (1,), 0.0), ("emu", (2,), 0.0)]
    trie = build_trie(naive_trie.lexicon_of(entries), {"the": 1, "emu": 2})
    lookahead = build_lookahead(lm, trie, "ngram")
    assert potential(lookahead, lm.start, 2) == INF
    assert potential(lookahead, lm.start, 0) == pytest.approx(0.25 * LN10)


def test_a_model_over_tokens():
    tokens = token_table(["<blank>", "the", "cat"])
    lm = NgramLM.from_arpa(io.StringIO(TRIGRAMS), tokens)
    trie = build_trie(naive_trie.lexicon_of([]), {})
    with pytest.raises(OptionError, match="over tokens, expected one over words"):
        build_lookahead(lm, trie, "ngram")


def test_an_unknown_kind():
    case = Case(0)
    with pytest.raises(OptionError, match="'trigram', expected 'ngram', 'unigram'"):
        build_lookahead(case.lm, case.trie, "trigram")
