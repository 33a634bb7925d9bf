"""Rescoring of real lattices against an oracle that decodes with the other model."""

import dataclasses
import io

import naive
import naive_cases
import naive_words
import numpy as np
import pytest
from added_cases import boosts_of
from naive_added import random_added_case
from naive_open import random_open_case, spellings
from naive_rescoring import OPEN, solve_rescored, table_of
from oracle_cases import boosts_of_case, graph_by_files

import wfstdec
from wfstdec import (
    NgramLM,
    OpenVocabulary,
    TrieDecoder,
    TrieOptions,
    WfstDecoder,
    read_arpa,
)
from wfstdec.lattice import nbest_paths, open_lattices, rescored, save_lattices
from wfstdec.lattice.arrays import check_lattice

pytestmark = pytest.mark.usefixtures("quiet")
ALL = {"beam": np.inf, "max_active": None, "lattice_beam": 1e6}


def other_model(rng, words):
    """ARPA text over some of the words, and what the others cost."""
    arpa, _ = naive_cases.random_arpa(rng, list(words))
    return arpa, float(rng.choice([0.5, 4.0])) if rng.random() < 0.5 else None


def lattice_of(case, graph, boosts):
    options = wfstdec.WfstOptions(**case.options | ALL)
    decoder = WfstDecoder(graph, options, "cpu", threads=1)
    (lattice,) = decoder.decode_lattice([case.logprobs], boosts=boosts)
    return lattice


def texts_of(lattice):
    found = nbest_paths(lattice, 20000)
    assert found.is_exact and len(found.arcs) < 20000
    return {
        tuple(lattice.words[w] for w in lattice.word_ids(arcs)): (
            lattice.search_cost + excess
        )
        for arcs, excess in zip(found.arcs, found.excess, strict=True)
    }


def assert_rescored(rng, case, lattice, listed=(), opened=()):
    """A lattice has what the oracle says; how many texts. 0 where none is possible."""
    arpa, unk_cost = other_model(rng, table_of(case))
    scales = {"lm_scale": float(rng.choice([0.6, 1, 2]))}
    scales["word_insertion"] = float(rng.choice([0, -0.5]))
    best = solve_rescored(case, arpa, unk_cost, scales, listed, opened)
    model = read_arpa(io.BytesIO(arpa.encode()))
    lm = NgramLM.from_arpa(model, lattice.vocabulary.own.words, unk_cost=unk_cost)
    if not (best.cost < np.inf and lattice.reached_final):
        return 0
    new = rescored(lattice, lm, lattice_beam=1e6, history_beam=np.inf, **scales)
    check_lattice(new)
    found = texts_of(new)
    assert found.keys() == best.table.keys()
    for words, cost in found.items():
        assert cost == pytest.approx(best.table[words], rel=1e-5, abs=1e-4), words
    return len(found)


def with_costs(rng, case):
    """The case with probabilities of pronunciations, and more of them."""
    entries = naive.parse_lexicon(case.lexicon, case.lexicon_has_probs)
    pairs = {(entry.word, entry.tokens) for entry in entries}
    letters = sorted({token for _, tokens in pairs for token in tokens})
    for word, tokens in sorted(pairs):
        if rng.random() < 0.5:
            pairs.add((word, (*tokens, str(rng.choice(letters)))))
            pairs.add((word, (str(rng.choice(letters)), *tokens[1:])))
    lines = [
        f"{word} {rng.choice([1.0, 0.5, 0.1]):g} {' '.join(tokens)}\n"
        for word, tokens in sorted(pairs)
    ]
    return dataclasses.replace(case, lexicon="".join(lines), lexicon_has_probs=True)


@pytest.mark.parametrize("fillers", naive_cases.FILLERS)
@pytest.mark.share(keep=2)
def test_words_cost_the_model_and_how_they_are_said(fillers, tmp_path):
    """Pronunciations of different costs, silences, boosts: those of the path itself."""
    texts = 0
    for i in range(36):
        rng = np.random.default_rng([3, i, len(fillers)])
        case = naive_cases.random_case(
            rng, fillers=fillers, topology=naive.TOPOLOGIES[i % 5]
        )
        case = with_costs(rng, case)
        graph = graph_by_files(case, tmp_path)
        texts += assert_rescored(rng, case, lattice_of(case, graph, case.boosts))
    assert texts > 100


@pytest.mark.parametrize("unit", ["word", "token"])
def test_phrases_stay_what_they_are(unit, tmp_path):
    texts = 0
    for i in range(30):
        rng = np.random.default_rng([4, i, len(unit)])
        case = naive_cases.random_case(rng, topology="normal")
        words = sorted(case.usable_words)
        phrases = naive_cases.random_phrases(rng, words, unit)
        case = with_costs(rng, dataclasses.replace(case, phrases=phrases))
        graph = graph_by_files(case, tmp_path)
        boosts = boosts_of_case(case, graph, tmp_path)
        texts += assert_rescored(rng, case, lattice_of(case, graph, boosts))
    assert texts > 50


def test_added_words_cost_unk_and_keep_their_bonus(tmp_path):
    """Files hold the added words of each utterance too."""
    texts, oov = 0, set()
    drawn = {}
    for i in range(60):
        rng = np.random.default_rng([5, i])
        drawn = {"num_frames": 1 + i % 5, "topology": naive.TOPOLOGIES[i % 5]}
        case, listed = random_added_case(rng, **drawn)
        graph = graph_by_files(case, tmp_path)
        lattice = lattice_of(case, graph, [boosts_of(case, listed)])
        save_lattices(tmp_path / "x.lat", {"one": lattice, "two": lattice})
        (_, read) = open_lattices(tmp_path / "x.lat").values()
        assert read.words == lattice.words
        assert read.vocabulary.own.words == graph.words
        texts += assert_rescored(rng, case, read, listed)
        oov.add(len(read.words) - len(graph.words))
    assert texts > 100 and oov >= {0, 1, 2}


@pytest.mark.parametrize("kind", ["phones", "letters", "pieces"])
def test_open_words_cost_unk_and_their_spelling(kind, tmp_path):
    texts = spelled = 0
    for i in range(18):
        rng = np.random.default_rng([6, i, len(kind)])
        drawn = {"num_frames": 1 + i % 4, "topology": naive.TOPOLOGIES[i % 5]}
        opened = random_open_case(rng, kind, **drawn)
        case, costs = opened.case, OpenVocabulary(*opened.costs)
        graph = graph_by_files(case, tmp_path, open_vocabulary=costs)
        boosts = [boosts_of(case, opened.listed)]
        lattice = lattice_of(case, graph, boosts)
        texts += assert_rescored(rng, case, lattice, opened.listed, spellings(opened))
        spelled += OPEN in {lattice.words[w] for w in lattice.arcs["olabel"]}
    assert texts > 30 and spelled > 8


@pytest.mark.filterwarnings("ignore::wfstdec.errors.BoostWarning")
@pytest.mark.parametrize("tokens", naive_words.TOKENS)
def test_the_same_model_changes_nothing_in_lattices_of_the_trie(tokens):
    """Totals of the trie are exact and stay, with added and open words too."""
    texts = opened = 0
    for i in range(60):
        made = naive_words.random_case(np.random.default_rng([7, i]), tokens=tokens)
        if made.case.arpa is None:
            continue
        options = {"beam_size": 50_000, "lattice_beam": 5.0, "beam": np.inf}
        decoder = TrieDecoder(
            **naive_words.decoder_arguments(made),
            options=TrieOptions(**made.case.options | options),
            backend="cpu",
            threads=1,
        )
        boosts = naive_words.decoder_boosts(made)
        (lattice,) = decoder.decode_lattice([made.case.logprobs], boosts=boosts)
        if not (lattice.reached_final and lattice.num_frames):
            continue
        arpa = read_arpa(io.StringIO(made.case.arpa))
        words = lattice.vocabulary.own.words
        lm = NgramLM.from_arpa(arpa, words, unk_cost=made.case.unk_cost)
        new = rescored(lattice, lm, history_beam=np.inf)
        assert new.search_cost == pytest.approx(lattice.search_cost, abs=1e-3)
        before, after = texts_of(lattice), texts_of(new)
        best = min(before.values())
        for text, cost in before.items():
            if cost < best + 4.9:
                assert after[text] == pytest.approx(cost, abs=1e-3)
        texts += len(before)
        opened += OPEN in {lattice.words[w] for w in lattice.arcs["olabel"]}
    assert texts > 60 and opened > 5
