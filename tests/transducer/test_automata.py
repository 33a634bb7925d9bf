"""Language models and phrases in torch: the bits of the reference, every way."""

import copy
import io
import pickle

import lm_reference
import naive_cases
import numpy as np
import pytest
import torch

from wfstdec import (
    NgramLM,
    PhraseCompiler,
    PhraseOptions,
    TorchNgramLM,
    TorchPhrases,
    token_table,
)
from wfstdec.errors import OptionError
from wfstdec.transducer.automata import flattened

NAMES = ["a", "b", "c", "d", "e"]
TOKENS = token_table([*NAMES, "<blank>"], 5)


def random_lm(seed):
    rng = np.random.default_rng(seed)
    arpa, _ = naive_cases.random_arpa(rng, NAMES)
    unk_cost = (None, 3.0)[seed % 2]
    return NgramLM.from_arpa(io.StringIO(arpa), TOKENS, unk_cost=unk_cost)


def random_phrases(seed):
    rng = np.random.default_rng(seed)
    spelt = {
        str(i): (1 + i % 4, *map(int, rng.integers(0, 5, rng.integers(5))))
        for i in range(rng.integers(1, 9))
    }
    compiler = PhraseCompiler(
        lambda texts: [[spelt[text]] for text in texts],
        TOKENS,
        PhraseOptions(),
        boundary=(None, 0)[seed % 2],
    )
    weights = {text: float(rng.uniform(-1, 3)) for text in spelt}
    return compiler.compile(weights)


def all_queries(module, first, automaton, num_labels):
    states = range(len(automaton.final_cost))
    rows = [lm_reference.row(automaton, 0, state, num_labels) for state in states]
    costs, nextstates = (np.stack(part) for part in zip(*rows, strict=True))
    return torch.arange(len(states)) + first, costs, nextstates + first


def check(module, first, automaton, num_labels=6):
    states, costs, nextstates = all_queries(module, first, automaton, num_labels)
    for rows in (module, module.tables.rows):
        found, there = rows(states)
        assert found.dtype == torch.float32
        np.testing.assert_array_equal(found.numpy(), costs)
        np.testing.assert_array_equal(there.numpy(), nextstates)
    for step in (module.step, module.tables.step):
        for label in range(num_labels):
            found, there = step(states, torch.full_like(states, label))
            np.testing.assert_array_equal(found.numpy(), costs[:, label])
            np.testing.assert_array_equal(there.numpy(), nextstates[:, label])
    np.testing.assert_array_equal(module.final(states).numpy(), automaton.final_cost)


def test_a_copy_neither_needs_its_original_nor_takes_it_away():
    lm = random_lm(0)
    module = TorchNgramLM(lm)
    pickled = pickle.dumps(module)
    copied = copy.deepcopy(module)
    check(copied, 0, lm.automaton)
    del copied
    check(module, 0, lm.automaton)
    del module
    check(pickle.loads(pickled), 0, lm.automaton)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.share(keep=8)
def test_a_language_model_equals_the_reference(seed):
    lm = random_lm(seed)
    module = TorchNgramLM(lm)
    assert int(module.start[0]) == lm.start
    check(module, 0, lm.automaton)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.share(keep=8)
def test_phrases_equal_the_reference_side_by_side(seed):
    lists = [random_phrases(3 * seed + i) for i in range(2)]
    given = [lists[0], None, lists[1], lists[0]]
    for flat in (False, True):
        module = TorchPhrases(given, flat)
        assert module.model_of_list.tolist() == [0, 2, 1, 0]
        first = 0
        for model, one in enumerate(lists):
            assert int(module.start[model]) == first + one.start
            automaton = flattened(one).automaton if flat else one.automaton
            check(module, first, automaton)
            if flat:  # one link, and still what the list itself says
                check(module, first, one.automaton)
                assert module.tables.depth <= 1
            first += one.num_states
        nothing = module.start[module.model_of_list[1:2]]
        costs, there = module(nothing)
        assert not costs.any() and (there == nothing).all()
        assert not module.final(nothing).any()


def test_models_over_other_labels_do_not_go_together():
    other = PhraseCompiler(lambda texts: [[(0,)]], token_table(["a", "<blank>"]))
    with pytest.raises(OptionError, match=r"\[2, 6\] labels, expected one size"):
        TorchPhrases([random_phrases(0), other.compile(["a"])])
