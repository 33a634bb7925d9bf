"""T o LG as a product, made without its arcs, is that of the composition."""

import io
import random
from dataclasses import fields

import numpy as np
import pytest
from random_models import TOKENS, random_arpa, random_fillers, random_lexicon

import wfstdec
from wfstdec import read_arpa, recipes
from wfstdec.fst import tlg


def both(monkeypatch, **given):
    """The graph by way of a product, and the one that is composed."""
    found = wfstdec.build_graph(**given)
    monkeypatch.setattr(tlg, "PRODUCTS", ())
    return found, wfstdec.build_graph(**given)


def assert_same(found, expected):
    """Compare all arrays, and what is derived of them."""
    assert "arcs" not in vars(found)
    assert found.num_arcs == expected.num_arcs
    made, inferred = found.product, expected.product
    for name in inferred._fields[:-1]:
        assert np.array_equal(getattr(made, name), getattr(inferred, name)), name
        assert getattr(made, name).dtype == getattr(inferred, name).dtype, name
    for name in ("state_arc_splits", "state_num_epsilons", "final_cost"):
        assert np.array_equal(getattr(found, name), getattr(expected, name)), name
    assert np.array_equal(found.epsilon_rank, expected.epsilon_rank)
    exits = found.oov_exits, expected.oov_exits
    assert (exits[0] is None) == (exits[1] is None)
    if exits[0] is not None:
        for field in fields(exits[0]):
            one, other = (getattr(x, field.name) for x in exits)
            assert np.array_equal(one, other), field.name
            assert np.asarray(one).dtype == np.asarray(other).dtype
    assert found.fingerprint == expected.fingerprint
    assert found.arcs.tobytes() == expected.arcs.tobytes()


@pytest.mark.parametrize("topology", ["normal", "compact"])
@pytest.mark.parametrize("seed", range(24))
def test_the_graph_is_that_of_the_composition(seed, topology, monkeypatch):
    rng = random.Random(seed)
    lexicon, fillers = random_lexicon(rng), random_fillers(rng)
    arpa = random_arpa(rng, sorted(set(lexicon.words)))
    named = {None: None} | dict(enumerate(TOKENS.names))
    found, expected = both(
        monkeypatch,
        tokens=TOKENS,
        lexicon=lexicon,
        lm=read_arpa(io.BytesIO(arpa.encode())),
        topology=topology,
        separator=named[fillers.separator],
        separator_optional=fillers.separator_optional,
        silence=named[fillers.silence],
        silence_prob=fillers.silence_prob,
        unk_cost=rng.choice([None, 4.5]),
        oov_exits=rng.random() < 0.8,
        minimize=rng.random() < 0.5,
    )
    assert_same(found, expected)


@pytest.mark.parametrize("topology", ["normal", "compact"])
def test_the_graph_of_a_grammar_is_that_of_the_composition(
    topology, monkeypatch, tmp_path
):
    """An engine made its LG; epsilons lead on from the start, and to a word's end."""
    text = "0 1 <eps> 1\n0 2 x 0.5\n1 1 y 2\n1 2 x\n2 0.25\n2 0 z 1\n1 3\n"
    (tmp_path / "g.txt").write_text(text)
    (tmp_path / "lexicon.txt").write_text("x a b\ny a b\nz a\nz b b\n")
    for separator in (None, "s"):
        found, expected = both(
            monkeypatch,
            tokens=TOKENS,
            lexicon=tmp_path / "lexicon.txt",
            grammar=tmp_path / "g.txt",
            topology=topology,
            separator=separator,
        )
        assert_same(found, expected)
        monkeypatch.undo()


def test_the_graph_of_the_demo_is_that_of_the_composition(monkeypatch, tmp_path):
    recipe = recipes.find_recipe()
    found, expected = both(
        monkeypatch,
        tokens=recipe / "tokens.txt",
        lexicon=recipe / "lexicon.txt.gz",
        lm=recipe / "lm.arpa.gz",
        separator=recipes.SEPARATOR,
    )
    assert_same(found, expected)
    found.save(tmp_path / "one.npz")
    expected.save(tmp_path / "two.npz")
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()
