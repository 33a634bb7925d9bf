"""Other scales, other models, posteriors, confidences: against listing all paths."""

import dataclasses
import io
import math

import naive_lattice
import naive_lm
import numpy as np
import pytest
from lattice_cases import paths_of, random_lattice
from naive_rescoring import path_cost, pronunciations_in
from naive_search_cases import easy_arpa
from text_graphs import text_graph
from wfst_searches import UNBOUNDED, decoder_of, log

from wfstdec import NgramLM
from wfstdec.compare.quality import lattice_errors
from wfstdec.errors import LatticeError, OptionError
from wfstdec.graph.arcs import LABEL_MASK, REPEAT
from wfstdec.lattice import (
    minimum_bayes_risk,
    nbest_paths,
    posteriors,
    rescored,
    weighed,
    word_confidences,
)
from wfstdec.lattice.arrays import check_lattice
from wfstdec.text.tokens import token_of


def words_of(lattice, arcs):
    return tuple(lattice.words[w] for w in lattice.word_ids(np.array(arcs, np.int64)))


def least(pairs):
    found = {}
    for words, cost in pairs:
        found[words] = min(cost, found.get(words, math.inf))
    return found


def assert_texts(lattice, expected, n=50):
    check_lattice(lattice)
    best = min(expected.values())
    assert lattice.search_cost == pytest.approx(best, abs=1e-4)
    near = {w: c for w, c in expected.items() if c <= best + lattice.lattice_beam}
    nbest = nbest_paths(lattice, n)
    found = {
        words_of(lattice, arcs): lattice.search_cost + excess
        for arcs, excess in zip(nbest.arcs, nbest.excess, strict=True)
    }
    for words, cost in found.items():
        assert cost == pytest.approx(expected[words], abs=1e-4)
    sure = {w for w, c in near.items() if c < best + lattice.lattice_beam - 1e-3}
    assert sure <= set(found)
    assert words_of(lattice, lattice.best_arcs()) in {
        w for w, c in expected.items() if c < best + 1e-4
    }


def test_other_scales_without_a_new_search():
    for seed in range(80):
        rng, lattice = np.random.default_rng([seed, 1]), random_lattice(seed)
        scales = {
            "acoustic_scale": float(rng.choice([0, 0.5, 2])),
            "lm_scale": float(rng.choice([0, 0.3, 1.7])),
            "word_insertion": float(rng.choice([-0.5, 0, 2])),
        }
        expected = []
        for arcs, _ in paths_of(lattice):
            one = lattice.arcs[list(arcs)]
            end = int(one["nextstate"][-1]) if arcs else 0
            graph = one["graph_cost"].sum() + lattice.states["final_cost"][end]
            boost = one["boost_cost"].sum() + lattice.states["final_boost_cost"][end]
            words = words_of(lattice, arcs)
            total = scales["acoustic_scale"] * one["acoustic_cost"].sum()
            total += scales["lm_scale"] * graph + boost
            expected.append((words, total + scales["word_insertion"] * len(words)))
        assert_texts(weighed(lattice, **scales), least(expected))
    with pytest.raises(OptionError, match="lm_scale=-1.0, expected"):
        weighed(lattice, lm_scale=-1)


def test_rescoring_prices_words_anew():
    """Against a scorer that knows nothing of automata, and all ways to cut tokens."""
    several = 0
    for seed in range(80):
        rng, lattice = np.random.default_rng([seed, 1]), random_lattice(seed)
        arpa = easy_arpa(rng, lattice.words[1:])
        score = naive_lm.exact_scorer(naive_lm.parse_arpa(arpa), 3.0, False)
        lm = NgramLM.from_arpa(io.StringIO(arpa), lattice.words, unk_cost=3.0)
        prons = pronunciations_in(lattice.vocabulary)
        scale, insertion = float(rng.choice([0.5, 1, 2])), float(rng.choice([0, 0.5]))
        expected = []
        for arcs, _ in paths_of(lattice):
            words, one = words_of(lattice, arcs), lattice.arcs[list(arcs)]
            end = int(one["nextstate"][-1]) if arcs else 0
            graph = score(words)
            graph += path_cost(
                begun_in(lattice, one),
                prons if lattice.info.marks_repeats else least_of_each(prons),
                lattice.vocabulary.separators,
                lattice.reached_final,
            )
            total = lattice.scales.acoustic_scale * one["acoustic_cost"].sum()
            total += one["boost_cost"].sum() + lattice.states["final_boost_cost"][end]
            total += scale * graph + insertion * len(words)
            expected.append((words, total))
        new = rescored(
            lattice, lm, lm_scale=scale, word_insertion=insertion, history_beam=np.inf
        )
        assert_texts(new, least(expected))
        assert_texts(rescored(new, lm, history_beam=np.inf), least(expected))
        several += len(least(expected)) > 2
    assert several > 20


def begun_in(lattice, arcs):
    """List the token and the word that begin on each arc, or None."""
    blank = lattice.tokens.blank
    for arc in arcs:
        token = token_of(int(arc["ilabel"]) & LABEL_MASK)
        begins = token not in (token_of(0), blank) and not arc["ilabel"] & REPEAT
        yield token if begins else None, int(arc["olabel"]) or None


def least_of_each(prons):
    """Pronunciations that no path has, of the least cost."""
    return {word: [((-5,), min(c for _, c in ways))] for word, ways in prons.items()}


def test_a_model_that_allows_no_path_and_one_over_other_words():
    lattice = random_lattice(3)
    arpa = "\\data\\\nngram 1=3\n\n\\1-grams:\n-99 <s>\n-1 </s>\n-1 zzz\n\n\\end\\\n"
    lm = NgramLM.from_arpa(io.StringIO(arpa), lattice.words)
    with pytest.raises(OptionError, match="expected one over the"):
        rescored(lattice, NgramLM.from_arpa(io.StringIO(arpa), ["<eps>", "zzz"]))
    if not any(
        words == () for words in (words_of(lattice, a) for a, _ in paths_of(lattice))
    ):
        with pytest.raises(LatticeError, match="no path is left"):
            rescored(lattice, lm)


@pytest.mark.parametrize("scale", [0.0, 0.3, 1.0, 4.0])
def test_posteriors_are_those_of_all_paths(scale):
    for seed in range(60):
        lattice = random_lattice(seed)
        found = posteriors(lattice, scale)
        paths = list(paths_of(lattice))
        weights = np.array([math.exp(-scale * excess) for _, excess in paths])
        weights /= weights.sum()
        expected = np.zeros(lattice.num_arcs)
        for (arcs, _), weight in zip(paths, weights, strict=True):
            expected[list(arcs)] += weight
        assert found.arc == pytest.approx(expected, abs=1e-9)
        assert found.end.sum() == pytest.approx(1, abs=1e-12)
        emitting = ~lattice.is_epsilon
        frames = lattice.states["frame"][lattice.arcs["nextstate"][emitting]]
        sums = np.bincount(frames, found.arc[emitting], lattice.num_frames + 1)[1:]
        assert sums == pytest.approx(np.ones(lattice.num_frames), abs=1e-6)
    with pytest.raises(OptionError, match="scale=-1"):
        posteriors(lattice, -1)


def test_oracle_errors_are_the_least_of_all_paths():
    for seed in range(60):
        rng, lattice = np.random.default_rng([seed, 1]), random_lattice(seed)
        names = [*lattice.words[1:], "unheard"]
        reference = rng.choice(names, int(rng.integers(0, 4))).tolist()
        texts = {words_of(lattice, arcs) for arcs, _ in paths_of(lattice)}
        expected = min(naive_lattice.edit_distance(text, reference) for text in texts)
        assert lattice_errors(lattice, reference) == expected


def text_weights(lattice, scale=1.0):
    """The probability of each text, by adding up all paths."""
    weights = {}
    for arcs, excess in paths_of(lattice):
        words = words_of(lattice, arcs)
        weights[words] = weights.get(words, 0.0) + math.exp(-scale * excess)
    total = sum(weights.values())
    return {words: weight / total for words, weight in weights.items()}


def test_expected_errors_are_bounded_by_those_of_the_definition():
    """Alignments that meet are joined, so what is found is no less; often the same."""
    same = 0
    for seed in range(80):
        lattice = random_lattice(seed)
        weights, found = text_weights(lattice), word_confidences(lattice)
        words = tuple(lattice.words[w] for w in found.words)
        assert words == words_of(lattice, lattice.best_arcs())
        exact = sum(
            weight * naive_lattice.edit_distance(text, words)
            for text, weight in weights.items()
        )
        assert found.expected_errors >= exact - 1e-9
        same += found.expected_errors == pytest.approx(exact, abs=1e-3)
        assert all(0 <= c <= 1 for c in found.confidences)
    assert same > 40


def test_a_word_is_as_sure_as_the_texts_that_have_it():
    """A planted fault that lost texts without the next words was not found."""
    rng = np.random.default_rng(3)
    for _ in range(5):
        costs, left_out = rng.uniform(0, 1, 4), rng.uniform(1, 3, 4)
        lines = [f"{i} {i + 1} a {word} {costs[i]}" for i, word in enumerate("ABCD")]
        lines += [f"{i} {i + 1} a - {cost}" for i, cost in enumerate(left_out)]
        graph = text_graph("\n".join([*lines, "4 0"]))
        options = dataclasses.replace(UNBOUNDED, lattice_beam=20.0)
        decoder = decoder_of("reference", graph, options)
        (lattice,) = decoder.decode_lattice([log([[0, 1, 0]] * 4)])
        weights, found = text_weights(lattice), word_confidences(lattice)
        assert len(weights) == 2**4
        assert [lattice.words[word] for word in found.words] == list("ABCD")
        expected = [sum(w for text, w in weights.items() if x in text) for x in "ABCD"]
        assert found.confidences == pytest.approx(expected, abs=1e-9)
        errors = sum(weight * (4 - len(text)) for text, weight in weights.items())
        assert found.expected_errors == pytest.approx(errors, abs=1e-9)


@pytest.mark.parametrize("scale", [0.3, 1.0])
def test_the_least_expected_errors_are_those_of_the_definition(scale):
    other = 0
    for seed in range(80):
        lattice = random_lattice(seed)
        excess = least((words_of(lattice, a), cost) for a, cost in paths_of(lattice))
        near = {w: math.exp(-scale * c) for w, c in excess.items() if c <= 4.0}
        whole = sum(near.values())
        risks = {
            words: sum(
                weight / whole * naive_lattice.edit_distance(words, text)
                for text, weight in near.items()
            )
            for words in near
        }
        found = minimum_bayes_risk(lattice, scale)
        expected = min(risks.values())
        assert found.expected_errors == pytest.approx(expected, abs=1e-6)
        assert risks[words_of(lattice, found.arcs)] == pytest.approx(expected, abs=1e-6)
        other += words_of(lattice, found.arcs) != words_of(lattice, lattice.best_arcs())
    assert other > 0
