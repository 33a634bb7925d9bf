"""Nothing pruned, the search equals the enumeration of texts; pruned, a plain beam."""

import naive_attention
import numpy as np
import pytest
import torch
from attention_cases import Case, JointCase


def cases(first, *counts):
    """Values of seeds: of attention alone, and of CTC with it."""
    kinds = zip((Case, JointCase), counts, strict=True)
    return [(kind, seed) for kind, n in kinds for seed in range(first, first + n)]


@pytest.mark.parametrize(("kind", "seed"), cases(0, 200, 60))
@pytest.mark.share(keep=60)
def test_all_texts_have_the_totals_of_the_enumeration(kind, seed):
    case = kind(seed)
    stop = ("bound", "full", "never")[seed % 3]
    [found] = case.found(beam_size=400, stop=stop)  # more than there are texts
    expected = naive_attention.totals(**case.definition())
    assert found == pytest.approx(expected, abs=case.tolerance)
    ranks = [case.rank(total, len(text)) for text, total in found.items()]
    assert ranks == sorted(ranks, reverse=True)


@pytest.mark.parametrize(("kind", "seed"), cases(1000, 120, 60))
@pytest.mark.share(keep=44)
def test_a_narrow_beam_is_the_plain_one(kind, seed):
    """With CTC only the best `pre_beam` tokens of a text by all else are asked."""
    case = kind(seed)
    width = 1 + seed % 4
    given = {"pre_beam": case.pre_beam} if kind is JointCase else {}
    for stop in ("full", "never"):
        plain = "full" if width == 1 else stop
        [found] = case.found(beam_size=width, stop=stop, **given)
        expected = naive_attention.beam(
            **case.definition(), width=width, stop=plain, rank=case.rank, cut=False
        )
        assert list(found) == list(expected)
        assert found == pytest.approx(expected, abs=case.tolerance)


@pytest.mark.parametrize("seed", range(20))
def test_equal_totals_stand_by_parent_and_token(seed):
    """Log-probs are few multiples of 1/1024 nat: many totals are the same bits."""
    case = Case(seed)
    case.phrases, case.arpas, case.weights = {}, [], []
    case.options = {"length_norm": "none", "token_insertion": 0.0}
    case.options |= {"end_rule": "none", "boost_scale": 1.0, "lm_scale": 1.0}
    rng, size = np.random.default_rng(seed), len(case.model.tokens)
    powers = [*range(1, size), size - 1]
    for node in range(case.model.table.shape[1]):
        row = np.round(-np.log(2.0) * 1024) * rng.permutation(powers) / 1024
        case.model.table[0, node] = torch.from_numpy(row)
    for width in (1, 2, 3):
        [found] = case.found(beam_size=width, stop="full")
        expected = naive_attention.beam(
            **case.definition(), width=width, stop="full", cut=False
        )
        assert list(found) == list(expected)


@pytest.mark.parametrize(("kind", "seed"), cases(2000, 80, 20))
@pytest.mark.share(keep=26)
def test_the_bound_loses_nothing(kind, seed):
    """With CTC, Psi falls with every token: a live text bounds what it ends with."""
    case = kind(seed)
    case.options["end_rule"] = "none"
    if seed % 2 or kind is JointCase:
        case.phrases = {}
    else:  # as long as a text: no other may come behind it
        letters = list(case.letters.values())
        longest = case.model.longest
        case.phrases = {(letters * longest)[:longest][0] * longest: 2.0}
    given = {"pre_beam": 9} if kind is JointCase else {}
    for width in (2, 3):
        [found] = case.found(beam_size=width, stop="bound", **given)
        [never] = case.found(beam_size=width, stop="never", **given)
        assert found == never


@pytest.mark.parametrize(("kind", "seed"), cases(4000, 30, 10))
@pytest.mark.share(keep=14)
def test_costs_are_kept_apart(kind, seed):
    """Costs of hypotheses are each as defined, and add up."""
    case = kind(seed)
    decoder, boosts = case.decoder(beam_size=5)
    frames = [case.model.frames(0, case.model.longest + 2)]
    given = {"boosts": boosts} | ({"ctc": case.ctc} if kind is JointCase else {})
    (hyps,) = decoder.decode_nbest(frames, **given)
    (texts,) = decoder.texts(frames, **given)
    definition, weight = case.definition(), case.options.get("ctc_weight", 0.0)
    rows = definition["rows"]
    for hyp, text in zip(hyps, texts, strict=True):
        whole = (*text.token_ids, case.model.eos)
        spoken = [t for t in text.token_ids if t in case.letters]
        model = -sum(rows[whole[:i]][t] for i, t in enumerate(whole))
        assert hyp.token_ids == tuple(spoken)
        assert text.attention_cost == pytest.approx(model, abs=1e-5)
        emitted = (1 - weight) * text.attention_cost
        if weight and text.reached_final:
            ctc = -definition["ctc"].whole(text.token_ids)
            assert text.ctc_cost == pytest.approx(ctc, abs=1e-4)
            emitted += weight * ctc
        if text.reached_final:
            assert hyp.acoustic_cost == pytest.approx(emitted, abs=2e-3)
        assert hyp.total_cost == text.total_cost
        assert hyp.boost_cost == pytest.approx(text.boost_cost, abs=1e-6)
        insertion = case.options["token_insertion"] * len(spoken)
        assert hyp.insertion_cost == pytest.approx(insertion)
        parts = hyp.acoustic_cost + decoder.options.lm_scale * hyp.graph_cost
        parts += hyp.insertion_cost + hyp.boost_cost
        assert hyp.total_cost == pytest.approx(parts, abs=1e-6)
