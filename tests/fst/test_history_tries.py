"""Tries of histories against L o G, which needs no determinization: every sentence."""

import collections
import random

import numpy as np
import pytest
from random_models import machines, random_arpa, random_fillers, random_lexicon

import wfstdec
from wfstdec import read_arpa, recipes, token_table
from wfstdec.fst.engine import from_kaldifst, to_kaldifst
from wfstdec.fst.lexicon_fst import Fillers
from wfstdec.fst.operations import minimize
from wfstdec.text.lexicon import load_lexicon


def relation(fst, labels, longest):
    """{(tokens, words): least cost}; the class of OOV words is a token and a word."""
    rows = list(zip(fst.ilabel, fst.olabel, fst.nextstate, fst.cost, strict=True))
    rows = [tuple(x.item() for x in row) for row in rows]
    splits, found = fst.state_arc_splits.tolist(), {}
    now = {(fst.start, (), ()): 0.0}
    for _ in range(longest + 1):
        queue, after = collections.deque(now), {}
        while queue:
            key = queue.popleft()
            (state, tokens, words), cost = key, now[key]
            pair, total = (tokens, words), cost + float(fst.final_cost[state])
            if total < found.get(pair, np.inf):
                found[pair] = total
            for ilabel, olabel, to, more in rows[splits[state] : splits[state + 1]]:
                emits = 0 < ilabel <= labels.class_token
                longer = (*tokens, ilabel) if emits else tokens
                new = to, longer, (*words, olabel) if olabel else words
                into = after if emits else now
                if cost + more < into.get(new, np.inf) and len(longer) <= longest:
                    into[new] = cost + more
                    if not emits:
                        queue.append(new)
        now = after
    return found


@pytest.mark.parametrize("seed", range(40))
def test_the_sentences_and_costs_are_those_of_l_o_g(seed):
    rng = random.Random(seed)
    lexicon, fillers = random_lexicon(rng), random_fillers(rng)
    arpa = random_arpa(rng, sorted(set(lexicon.words)))
    unk_cost = rng.choice([None, 4.5])
    log, tries, labels = machines(lexicon, arpa, fillers, unk_cost=unk_cost)
    expected = relation(log, labels, 5)
    for fst in (tries, minimize(tries)):
        found = relation(fst, labels, 5)
        assert found.keys() == expected.keys()
        assert found == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("seed", range(8))
def test_kaldifst_makes_the_same_sentences(seed):
    """Its costs are less exact: within 1/1024 they count as equal."""
    kaldifst = pytest.importorskip("kaldifst")
    rng = random.Random(seed)
    lexicon, fillers = random_lexicon(rng), random_fillers(rng)
    arpa = random_arpa(rng, sorted(set(lexicon.words)))
    log, tries, labels = machines(lexicon, arpa, fillers)
    made = to_kaldifst(log)
    kaldifst.determinize_star(made, max_states=10_000, use_log=True)
    made = relation(from_kaldifst(made), labels, 4)
    assert relation(tries, labels, 4) == pytest.approx(made, abs=5e-3)


def cost_in(fst, labels, tokens, words):
    """The least cost of input labels with words; symbols are free."""
    end = len(tokens), len(words)
    costs, best = {(fst.start, 0, 0): 0.0}, np.inf
    queue = collections.deque(costs)
    while queue:
        key = queue.popleft()
        state, t, w = key
        if (t, w) == end:
            best = min(best, costs[key] + float(fst.final_cost[state]))
        first, last = fst.state_arc_splits[state : state + 2]
        ilabel, olabel = fst.ilabel[first:last], fst.olabel[first:last]
        silent = (ilabel == 0) | (ilabel >= labels.class_token)
        fits = silent | (ilabel == (tokens[t] if t < end[0] else -1))
        fits &= (olabel == 0) | (olabel == (words[w] if w < end[1] else -1))
        for i in np.flatnonzero(fits):
            new = int(fst.nextstate[first + i]), t + int(not silent[i])
            new = (*new, w + int(olabel[i] > 0))
            cost = costs[key] + float(fst.cost[first + i])
            if cost < costs.get(new, np.inf):
                costs[new] = cost
                queue.append(new)
    return best


@pytest.mark.parametrize("kind", ["separator", "silence"])
def test_costs_of_recognized_speech_are_those_of_l_o_g(kind):
    recipe = recipes.find_recipe()
    tokens = token_table(recipe / "tokens.txt")
    between = tokens.index(recipes.SEPARATOR)
    separated = kind == "separator"
    lexicon = load_lexicon(
        recipe / "lexicon.txt.gz", tokens, between if separated else None
    )
    model = read_arpa(recipe / "lm.arpa.gz")
    log, _, labels = machines(lexicon, model, Fillers(**{kind: between}), tokens)
    given = {"separator": None, kind: recipes.SEPARATOR}
    graph = wfstdec.build_graph(tokens=tokens, lexicon=lexicon, lm=model, **given)
    with np.load(recipe / "logprobs.npz") as file:
        batch = [file[name].astype(np.float32) for name in file.files[::5]]
    options = wfstdec.WfstOptions(beam=15.0, lm_scale=0.8)
    ids = {word: i for i, word in enumerate(labels.words)}
    for found in wfstdec.WfstDecoder(graph, options).decode(batch):
        ilabels = [token + 1 for token in found.token_ids]
        cost = cost_in(log, labels, ilabels, [ids[w] for w in found.text.split()])
        assert found.graph_cost == pytest.approx(cost, abs=1e-5)
    assert "arcs" not in vars(graph)  # rows of LG are enough to search
