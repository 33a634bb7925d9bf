"""OOV exits of a graph: built, kept in files, checked."""

import dataclasses

import naive_cases
import numpy as np
import pytest
from oracle_cases import graph_by_files

import wfstdec
from wfstdec.errors import GraphError
from wfstdec.graph.checks import check_exits

pytestmark = pytest.mark.usefixtures("quiet")
TOPOLOGIES = ("normal", "compact", "minimal", "normal-selfless")


def graph_of(folder, seed=3, topology="normal", fillers="separator", **options):
    rng = np.random.default_rng(seed)
    case = naive_cases.random_case(
        rng, topology=topology, fillers=fillers, num_tokens=4
    )
    case = dataclasses.replace(case, unk_cost=4.0)
    return case, graph_by_files(case, folder, **options)


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("fillers", naive_cases.FILLERS)
@pytest.mark.share(keep=8)
def test_searches_without_added_words_find_the_same(topology, fillers, tmp_path):
    """OOV exits add a few states behind words, and no word."""
    for seed in range(12):
        case, graph = graph_of(tmp_path, seed, topology, fillers)
        _, plain = graph_of(tmp_path, seed, topology, fillers, oov_exits=False)
        assert graph.oov_exits is not None and plain.oov_exits is None
        assert plain.num_states <= graph.num_states
        assert graph.num_states <= plain.num_states + 3 * len(graph.tokens)
        options = wfstdec.WfstOptions(**case.options, beam=np.inf, max_active=None)
        hyps = [
            wfstdec.WfstDecoder(one, options, "cpu").decode([case.logprobs])[0]
            for one in (graph, plain)
        ]
        assert hyps[0].total_cost == pytest.approx(hyps[1].total_cost, abs=1e-4)
        assert hyps[0].reached_final == hyps[1].reached_final


def test_a_call_for_each_place_where_a_word_begins(tmp_path):
    """With a separator: at the start, behind it, behind a blank; without, any token."""
    _, graph = graph_of(tmp_path, fillers="separator")
    names = ["", *graph.tokens.names]
    assert sorted(names[i] for i in graph.oov_exits.last) in (
        ["", ""],
        ["", "", "<wb>"],
    )
    _, graph = graph_of(tmp_path, fillers="none")
    last = {names[i] for i in graph.oov_exits.last} - {""}
    assert last and graph.tokens.names[graph.tokens.blank] not in last
    assert (graph.oov_exits.cost == np.float32(graph.oov_exits.word_cost)).all()


def test_every_token_has_a_state_to_return_to(tmp_path):
    _, graph = graph_of(tmp_path)
    without = np.flatnonzero(graph.oov_exits.return_state < 0)
    assert without.tolist() == sorted([0, graph.tokens.blank + 1])


def test_what_a_word_costs_that_is_added(tmp_path):
    """`<unk>` of the model, else `unk_cost`, else there are no OOV exits."""
    case, _ = graph_of(tmp_path)
    arpa = "\\data\\\nngram 1=4\n\n\\1-grams:\n-99 <s>\n-0.5 </s>\n-1 ann\n{}\\end\\\n"
    unk = "-3 <unk>\n"
    for text, cost, wanted in (
        (unk, None, 3 * np.log(10)),
        (unk, 4.0, 3 * np.log(10)),
        ("-3 zed\n", 4.0, 4.0),
        ("-3 zed\n", None, None),
    ):
        one = dataclasses.replace(
            case, lexicon="ann a b\n", lexicon_has_probs=False,
            arpa=arpa.format(text), unk_cost=cost,
        )  # fmt: skip
        oov_exits = graph_by_files(one, tmp_path).oov_exits
        found = None if oov_exits is None else oov_exits.word_cost
        assert found == (None if wanted is None else pytest.approx(wanted))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("state", -1, "state with an OOV exit -1, expected 0 to"),
        ("last", 99, "label before an OOV exit 99, expected 0 to 4"),
        ("cost", np.nan, "costs of OOV exits .*, expected finite numbers"),
        ("return_state", 10**6, "state to return to 1000000, expected -1 to"),
    ],
)
def test_exits_that_do_not_fit(name, value, message, tmp_path):
    _, graph = graph_of(tmp_path)
    array = getattr(graph.oov_exits, name).copy()
    array[0] = value
    oov_exits = dataclasses.replace(graph.oov_exits, **{name: array})
    with pytest.raises(GraphError, match=message):
        check_exits(oov_exits, graph.num_states, len(graph.tokens))
    with pytest.raises(GraphError, match="OOV exits with .* expected"):
        short = dataclasses.replace(graph.oov_exits, return_state=array[:1])
        check_exits(short, graph.num_states, len(graph.tokens))
