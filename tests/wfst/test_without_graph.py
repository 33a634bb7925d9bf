"""A decoder of tokens, lexicon and language model, without a graph or its file."""

import numpy as np
import pytest
from added_cases import frames, small_graph

import wfstdec
from wfstdec import BoostEntry, WfstDecoder, WfstOptions, recipes
from wfstdec.errors import FormatError, OptionError


def test_a_newcomer_decodes_speech_as_with_a_graph():
    recipe = recipes.find_recipe()
    names = {"tokens": "tokens.txt", "lexicon": "lexicon.txt.gz", "lm": "lm.arpa.gz"}
    files = {part: recipe / name for part, name in names.items()}
    with np.load(recipe / "logprobs.npz") as file:
        batch = [file[name].astype(np.float32) for name in file.files[::10]]
    decoder = WfstDecoder(**files, separator="<wb>", options=recipes.OPTIONS)
    graph = wfstdec.build_graph(**files, separator="<wb>")
    found = decoder.decode(batch)
    expected = WfstDecoder(graph, recipes.OPTIONS).decode(batch)
    assert [hyp.text for hyp in found] == [hyp.text for hyp in expected]
    costs = [hyp.total_cost for hyp in expected]
    assert [hyp.total_cost for hyp in found] == pytest.approx(costs, abs=1e-3)
    assert "arcs" not in vars(decoder.graph)  # rows of LG are enough


@pytest.fixture
def parts(tmp_path):
    small_graph(tmp_path)
    return {name: tmp_path / name for name in ("tokens", "lexicon", "lm")}


def test_a_graph_that_was_made_can_be_kept(parts, tmp_path):
    made = WfstDecoder(**parts, topology="compact")
    made.graph.save(tmp_path / "graph.npz")
    read = WfstDecoder(tmp_path / "graph.npz")
    assert read.graph.fingerprint == made.graph.fingerprint
    assert read.graph.topology == "compact"
    assert read.decode([frames("ban")]) == made.decode([frames("ban")])


def test_parts_are_objects_too(parts):
    tokens = wfstdec.read_tokens(parts["tokens"])
    lexicon = wfstdec.read_lexicon(parts["lexicon"], tokens)
    lm = wfstdec.read_arpa(parts["lm"])
    objects = WfstDecoder(tokens=tokens.names, lexicon=lexicon, lm=lm)
    assert objects.graph.fingerprint == WfstDecoder(**parts).graph.fingerprint


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ("", "nothing given, expected a graph, or tokens, lexicon and lm"),
        ("lexicon lm", "lexicon and lm given, expected a graph, or tokens, lexicon"),
        ("tokens lm", "tokens and lm given, expected a graph"),
        ("tokens lexicon", "neither lm nor grammar is given"),
        ("graph lm", "a graph and lm given, expected the graph alone"),
        ("graph separator", "a graph and separator given, expected the graph alone"),
    ],
)
def test_a_graph_or_all_of_its_parts_are_needed(parts, given, error, tmp_path):
    parts |= {"graph": small_graph(tmp_path), "separator": "|"}
    with pytest.raises(OptionError, match=error):
        WfstDecoder(**{name: parts[name] for name in given.split()})


def test_a_misspelled_argument_is_an_error(parts):
    with pytest.raises(TypeError, match="frameshift_s"):
        WfstDecoder(**parts, frameshift_s=0.04)
    with pytest.raises(FormatError, match="nowhere"):
        WfstDecoder(**parts | {"lm": "nowhere.arpa"})


def test_a_word_added_at_no_bonus_is_as_in_the_lexicon(parts):
    """Lists with other bonuses may join it: no decoder is made again."""
    options = WfstOptions(beam=np.inf, max_active=None)
    decoder = WfstDecoder(**parts, options=options)
    unk_cost = decoder.graph.oov_exits.word_cost
    with parts["lexicon"].open("a") as file:
        file.write("nab n a b\nnaan n a a n\n")
    rebuilt = WfstDecoder(**parts, options=options, unk_cost=unk_cost)
    added = [BoostEntry("nab", ["n a b"], 0.0), BoostEntry("naan", ["n a a n"], 0.0)]
    batch = [frames("nab_ban_an"), frames("na_an_nab")]
    assert not any(hyp.reached_final for hyp in decoder.decode(batch))
    found, expected = decoder.decode(batch, boosts=added), rebuilt.decode(batch)
    assert [hyp.text for hyp in found] == ["nab ban an", "naan nab"]
    assert [hyp.text for hyp in expected] == ["nab ban an", "naan nab"]
    costs = [hyp.total_cost for hyp in expected]
    assert [hyp.total_cost for hyp in found] == pytest.approx(costs, abs=1e-5)
    assert [hyp.boost_cost for hyp in found] == [0.0] * 2
