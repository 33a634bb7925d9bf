"""Words that are spelled by tokens, in a graph: by hand, and against the oracle."""

import dataclasses

import naive
import naive_cases
import numpy as np
import pytest
from added_cases import ARPA, boosts_of, frames, small_graph
from naive_open import KINDS, random_open_case, solve_open
from oracle_cases import assert_best, graph_by_files

import wfstdec
from wfstdec import NgramLM, OpenVocabulary, WfstDecoder
from wfstdec.errors import GraphError, LatticeError, LexiconError, OptionError
from wfstdec.graph.checks import check_vocabulary
from wfstdec.lattice import LatticeFile, LatticeWriter, nbest_paths, rescored
from wfstdec.search.paths.lattice import hypotheses_of
from wfstdec.wfst.options import BACKENDS

pytestmark = pytest.mark.usefixtures("quiet")
UNBOUNDED = {"beam": np.inf, "max_active": None}
CAN = [name for name in BACKENDS if name != "cuda"]
UNK = 2 * np.log(10)


def graph_of(opened, folder, **options):
    costs = OpenVocabulary(*opened.costs)
    return graph_by_files(opened.case, folder, open_vocabulary=costs, **options)


@pytest.mark.parametrize("backend", CAN)
@pytest.mark.parametrize("topology", naive.TOPOLOGIES)
def test_a_word_by_hand(topology, backend, tmp_path):
    costs = OpenVocabulary(1.5, 0.25)
    graph = small_graph(tmp_path, topology, "|", open_vocabulary=costs)
    decoder = WfstDecoder(graph, backend=backend)
    (hyp,) = decoder.decode([frames("an|na_b|b")])
    assert hyp.text == "an nab b"
    assert [(w.start_frame, w.end_frame) for w in hyp.words[1:]] == [(3, 7), (8, 9)]
    assert hyp.graph_cost == pytest.approx(
        np.log(10) * 1.5 + 2 * UNK + 2 * 1.5 + 4 * 0.25
    )
    assert hyp.reached_final


def test_without_calls_lists_cannot_add(tmp_path):
    costs = OpenVocabulary(2, 1)
    graph = small_graph(tmp_path, separator="|", open_vocabulary=costs, oov_exits=False)
    assert graph.oov_exits is None
    (hyp,) = WfstDecoder(graph, backend="cpu").decode([frames("an|nab")])
    assert hyp.text == "an nab"


@pytest.mark.parametrize("topology", naive.TOPOLOGIES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.share(keep=2)
def test_random_cases(topology, kind, tmp_path):
    with_open = 0
    for i, fillers in enumerate(naive_cases.FILLERS * 7):
        rng = np.random.default_rng([i, len(topology), len(kind)])
        opened = random_open_case(rng, kind, topology=topology, fillers=fillers)
        graph = graph_of(opened, tmp_path)
        assert graph.vocabulary.open_word.kind == kind
        case, best = opened.case, solve_open(opened)
        options = wfstdec.WfstOptions(**case.options | UNBOUNDED)
        decoder = WfstDecoder(graph, options, "cpu", threads=1)
        compiled = decoder._compiled(boosts_of(case, opened.listed), 1)
        paths = decoder._search([case.logprobs], compiled)
        assert_best(decoder._read(paths, compiled)[0], best)
        with_open += graph.vocabulary.open_word.word in paths[0].tokens.label
    assert with_open > 2


def test_files_keep_open_words(tmp_path):
    costs = OpenVocabulary(2, 1)
    graph = small_graph(tmp_path, separator="|", open_vocabulary=costs)
    graph.save(tmp_path / "graph.npz")
    loaded = wfstdec.load_graph(tmp_path / "graph.npz")
    assert loaded.fingerprint == graph.fingerprint
    assert loaded.vocabulary.open_word == graph.vocabulary.open_word
    (hyp,) = WfstDecoder(loaded, backend="cpu").decode([frames("nab|an")])
    assert hyp.text == "nab an"


def test_lattices_in_files_spell_and_are_rescored(tmp_path):
    graph = small_graph(tmp_path, separator="|", open_vocabulary=OpenVocabulary(2, 1))
    decoder = WfstDecoder(graph, backend="cpu")
    (lattice,) = decoder.decode_lattice([frames("nab|an")])
    with LatticeWriter(tmp_path / "one.lat") as write:
        write("one", lattice)
    read = LatticeFile(tmp_path / "one.lat")["one"]
    (hyp,) = hypotheses_of(read, nbest_paths(read, 1))
    assert hyp.text == "nab an"
    lm = NgramLM.from_arpa(tmp_path / "lm", read.words)
    assert rescored(read, lm).search_cost == pytest.approx(lattice.search_cost)
    unknown = graph.vocabulary.open_word._replace(word_cost=None)
    vocabulary = dataclasses.replace(read.vocabulary, open_word=unknown)
    with pytest.raises(LatticeError, match="open words whose costs are not known"):
        rescored(dataclasses.replace(read, vocabulary=vocabulary), lm)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"word": 1}, "open words have label 1, expected '<open>'"),
        ({"kind": "runes"}, "open words of 'runes', expected one of \\('pieces'"),
        ({"word_cost": np.inf}, "open words cost inf, expected a finite number"),
        ({"token_cost": -1.0}, "tokens of open words cost -1.0, expected 0 or more"),
    ],
)
def test_tables_that_do_not_agree(changed, message, tmp_path):
    graph = small_graph(tmp_path, separator="|", open_vocabulary=OpenVocabulary(2, 1))
    opened = graph.vocabulary.open_word._replace(**changed)
    with pytest.raises(GraphError, match=message):
        check_vocabulary(dataclasses.replace(graph.vocabulary, open_word=opened))


@pytest.mark.parametrize(
    ("texts", "error", "message"),
    [
        ({"lm": ARPA.replace("<unk>", "nan")}, OptionError, "cost of <unk>"),
        ({"lexicon": "an a n\n<open> b\n", "lm": ARPA.replace("ban", "<open>")},
         LexiconError, "has the word '<open>'"),
        ({"tokens": "<blk>\n<a>\n[b]\n|\n", "lexicon": "an <a>\nban [b]\n"},
         GraphError, "no token can begin an open word"),
    ],
)  # fmt: skip
def test_inputs_that_allow_none(texts, error, message, tmp_path):
    small_graph(tmp_path)  # writes files
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    files = {name: tmp_path / name for name in ("tokens", "lexicon", "lm")}
    costs = OpenVocabulary(2, 1)
    with pytest.raises(error, match=message):
        wfstdec.build_graph(
            **files, separator="|", unk_cost=None, open_vocabulary=costs
        )
