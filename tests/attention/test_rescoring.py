"""A second pass: the totals are the oracle's for given texts."""

import itertools
import math

import naive_joint
import numpy as np
import pytest
import torch
from table_attention import TableAttention
from table_transducers import TableTransducer

from wfstdec import (
    AttentionDecoder,
    AttentionOptions,
    TransducerDecoder,
    TrieDecoder,
    TrieOptions,
    lattice_hypotheses,
    rescore,
    rescore_texts,
    reweighed,
    text_log_probs,
    token_table,
)
from wfstdec.attention.rescoring import text_costs
from wfstdec.attention.torch_model import AttentionNet, AttentionSizes, TorchAttention
from wfstdec.errors import OptionError, ShapeError


def spell(text):
    return [ord(word) - ord("a") for word in text.split()]


def first_pass(seed):
    model = TableTransducer(np.random.default_rng(seed), 2, num_utterances=2, longest=3)
    frames = [model.frames(i) for i in range(2)]
    return TransducerDecoder(model).decode_nbest(frames)


def two_passes(seed, num_frames):
    model = TableAttention(np.random.default_rng(seed), 2, num_utterances=2)
    return first_pass(seed), model, [model.frames(i, num_frames) for i in range(2)]


@pytest.mark.parametrize("seed", range(8))
def test_totals_are_those_of_the_definition(seed):
    lists, model, frames = two_passes(seed, 5)
    found = rescore(model, frames, lists, weight=0.7, spell=spell, first_weight=0.5)
    for i, (before, after) in enumerate(zip(lists, found, strict=True)):
        rows = model.rows(i)
        assert {id(one.hypothesis) for one in after} == set(map(id, before))
        for one in after:
            ends = (*spell(one.hypothesis.text), model.eos)
            cost = -sum(rows[ends[:n]][token] for n, token in enumerate(ends))
            assert one.attention_cost == pytest.approx(cost, abs=1e-5)
            total = 0.5 * one.hypothesis.total_cost + 0.7 * cost
            assert one.total_cost == pytest.approx(total, abs=1e-5)
        totals = [one.total_cost for one in after]
        assert totals == sorted(totals)


def test_without_spell_texts_are_cut_by_the_models_tokenizer():
    lists, model, frames = two_passes(1, 5)
    with pytest.raises(OptionError, match="no tokenizer that cuts text.*spell="):
        rescore(model, frames, lists, weight=0.7)
    with pytest.raises(OptionError, match="no tokenizer that cuts text.*spell="):
        text_log_probs(model, frames[0])
    texts = [hyp.text for hyp in lists[0]]
    model.tokenizer = lambda text: [model.tokens[token] for token in spell(text)]
    found = rescore(model, frames, lists, weight=0.7)
    assert found == rescore(model, frames, lists, weight=0.7, spell=spell)
    known = text_log_probs(model, frames[0], spell)(texts)
    assert text_log_probs(model, frames[0])(texts) == known
    model.tokenizer = lambda text: [*text.split(), "none of the model's"]
    (last, *_), _ = rescore(model, frames, lists, weight=0.7)
    assert last.attention_cost == math.inf


def test_with_weight_0_the_order_stays_and_without_a_spelling_a_text_is_last():
    lists, model, frames = two_passes(0, 5)
    same = rescore(model, frames, lists, weight=0.0, spell=spell)
    assert [[one.hypothesis for one in some] for some in same] == lists
    best = lists[0][0].text
    found = rescore(
        model,
        frames,
        lists,
        weight=0.1,
        spell=lambda text: None if text == best else spell(text),
    )
    assert found[0][-1].hypothesis.text == best
    assert found[0][-1].attention_cost == math.inf


def test_a_model_that_reads_from_right_to_left():
    model = TableAttention(np.random.default_rng(1), 2)
    frames = [model.frames(0, 5)]
    lists = [first_pass(1)[0]]
    found = rescore(model, frames, lists, weight=1.0, spell=spell, reverse=True)
    for one in found[0]:
        turned = [spell(one.hypothesis.text)[::-1]]
        assert one.attention_cost == text_costs(model, frames[0], turned)[0]


def test_the_search_rescored_by_its_own_model_says_the_same():
    """Teacher forcing in one call, or step by step."""
    torch.manual_seed(0)
    net = AttentionNet(AttentionSizes(6, 16, 5, heads=2, layers=2, positions=12))
    model = TorchAttention(net, [*"abcde", "</s>"], 5)
    frames = torch.randn(6, 5)
    (texts,) = AttentionDecoder(
        model, options=AttentionOptions(beam_size=9, token_insertion=-0.5)
    ).texts([frames])
    spelt = [text.token_ids for text in texts]
    expected = pytest.approx([text.attention_cost for text in texts], abs=1e-4)
    assert text_costs(model, frames, spelt) == expected
    model.score = None
    assert text_costs(model, frames, spelt) == expected
    assert len({len(text) for text in spelt}) > 1


@pytest.mark.parametrize("seed", range(4))
def test_ctc_counts_in_place_of_attention(seed):
    lists, model, frames = two_passes(seed, 4)
    rng = np.random.default_rng(seed)
    ctc = torch.from_numpy(rng.normal(size=(2, 4, 3))).log_softmax(-1)
    given = {"spell": spell, "ctc": ctc, "first_weight": 0.5}
    found = rescore(model, frames, lists, weight=0.7, ctc_weight=0.4, **given)
    for i, after in enumerate(found):
        naive = naive_joint.Joint(ctc[i].numpy(), 2, 0.4)
        for one in after:
            cost = -naive.whole(spell(one.hypothesis.text))
            assert one.ctc_cost == pytest.approx(cost, abs=1e-4)
            emitted = 0.6 * one.attention_cost + 0.4 * cost
            total = 0.5 * one.hypothesis.total_cost + 0.7 * emitted
            assert one.total_cost == pytest.approx(total, abs=1e-4)
    again = rescore(model, frames, lists, weight=0.2, ctc_weight=0.9, **given)
    other = reweighed(found, weight=0.2, ctc_weight=0.9, first_weight=0.5)
    assert other == again and other != found
    with pytest.raises(OptionError, match="without CTC log-probs"):
        rescore(model, frames, lists, weight=0.7, ctc_weight=0.4, spell=spell)
    with pytest.raises(OptionError, match="ctc_weight=1.5, expected 0 to 1"):
        rescore(model, frames, lists, weight=0.7, ctc_weight=1.5, **given)
    with pytest.raises(ShapeError, match="of 1 utterances, expected 2 as lists"):
        given["ctc"] = ctc[:1]
        rescore(model, frames, lists, weight=0.7, ctc_weight=0.4, **given)


@pytest.mark.parametrize("seed", range(6))
def test_a_lattice_rescored_is_the_best_of_all_texts(seed):
    """By enumeration: the best alignment of each text, and what attention gives it."""
    rng = np.random.default_rng(seed)
    table = token_table(["a", "b", "<blank>"], 2)
    rows = torch.from_numpy(rng.normal(size=(4, 3))).log_softmax(-1).numpy()
    options = TrieOptions(beam=50, lattice_beam=50, beam_size=1000)
    decoder = TrieDecoder(tokens=table, options=options)
    (lattice,) = decoder.decode_lattice([rows.astype(np.float32)])
    hyps = lattice_hypotheses(lattice, 100)
    assert hyps.is_exact
    model = TableAttention(np.random.default_rng(seed), 2, longest=4)
    frames, weight = model.frames(0, 6), 0.8
    first = {}
    for alignment in itertools.product(range(3), repeat=4):
        text = tuple(t for t, _ in itertools.groupby(alignment) if t != 2)
        cost = -sum(rows[t, token] for t, token in enumerate(alignment))
        first[text] = min(cost, first.get(text, math.inf))
    attention = model.rows(0)
    totals = {}
    for text, cost in first.items():
        ends = (*text, model.eos)
        emitted = -sum(attention[ends[:n]][token] for n, token in enumerate(ends))
        totals[text] = cost + weight * emitted
    order = sorted(totals, key=totals.get)

    def letters(text):
        return [ord(letter) - ord("a") for letter in text.replace(" ", "")]

    (again,) = rescore(model, [frames], [hyps], weight=weight, spell=letters)
    assert [tuple(letters(one.hypothesis.text)) for one in again] == order
    expected = pytest.approx([totals[text] for text in order], abs=1e-4)
    assert [one.total_cost for one in again] == expected
    log_probs = text_log_probs(model, frames, letters)
    (texts,) = rescore_texts([hyps], log_probs, lm_scale=weight)
    assert [tuple(letters(hyp.text)) for hyp in texts] == order
    assert [hyp.total_cost for hyp in texts] == expected
    assert text_log_probs(model, frames, lambda text: None)(["a"]) == [-math.inf]


def test_what_does_not_fit_is_refused():
    model = TableAttention(np.random.default_rng(0), 2)
    with pytest.raises(OptionError, match="weight=nan"):
        rescore(model, [], [], weight=math.nan, spell=spell)
    with pytest.raises(ShapeError, match="0 utterances, expected 1 as lists"):
        rescore(model, [], [[]], weight=1.0, spell=spell)
    with pytest.raises(ShapeError, match="token 9, expected 0 to 2"):
        text_costs(model, model.frames(), [[9]])
    assert text_costs(model, model.frames(), []) == []


def test_costs_of_texts_build_no_graph_of_gradients():
    """A net with parameters must not keep what a backward pass would need."""
    torch.manual_seed(0)
    net = AttentionNet(AttentionSizes(4, 16, 5, heads=2, layers=1))
    model = TorchAttention(net, [*"abc", "</s>"], 3)
    seen = []
    score = model.score

    def watched(*given):
        seen.append(torch.is_grad_enabled())
        return score(*given)

    model.score = watched
    text_costs(model, torch.randn(6, 5), [(0, 1)])
    assert seen == [False]
