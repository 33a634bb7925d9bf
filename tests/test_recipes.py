"""The shipped recipe is found; graphs of recipes are built once, and again in time."""

import logging
from pathlib import Path

import pytest
from cli_files import TOKENS, recipe_of, write_files

from wfstdec import recipes
from wfstdec.errors import FormatError


@pytest.fixture
def recipe(tmp_path):
    return recipe_of(write_files(tmp_path))


def kept(recipe):
    return sorted(path.name for path in recipe.glob("graph_*.npz"))


def test_the_shipped_recipe_is_found():
    names = {path.name for path in recipes.find_recipe().iterdir()}
    assert {"logprobs.npz", "refs.txt", "boosts.txt", "README.md"} <= names


def test_a_graph_is_built_once_for_each_topology(recipe, caplog):
    caplog.set_level(logging.INFO, "wfstdec")
    graph = recipes.build_or_load(recipe)
    [name] = kept(recipe)
    assert name.startswith("graph_normal_") and "built before" not in caplog.text
    again = recipes.build_or_load(recipe, "normal")
    assert again.fingerprint == graph.fingerprint
    assert f"built before: {name}" in caplog.text
    assert recipes.build_or_load(recipe, "compact").topology == "compact"
    assert len(kept(recipe)) == 2 and name in kept(recipe)


def test_other_inputs_make_another_graph(recipe):
    recipes.build_or_load(recipe)
    before = kept(recipe)
    (recipe / "tokens.txt").write_text("".join(f"{t}\n" for t in [*TOKENS, "d"]))
    assert len(recipes.build_or_load(recipe).tokens) == len(TOKENS) + 1
    assert len(kept(recipe)) == 1 and kept(recipe) != before


@pytest.mark.parametrize("change", ["written", "moved", "added"])
def test_no_change_of_the_package_leaves_a_stale_graph(recipe, monkeypatch, change):
    """Wherever in it, and also if nothing but the place of a file is another."""
    package = recipe / "package"
    (package / "fst").mkdir(parents=True)
    (package / "fst" / "tlg.py").write_text("x = 1\n")
    monkeypatch.setattr(recipes, "_PACKAGE", package)
    recipes.build_or_load(recipe)
    before = kept(recipe)
    if change == "written":
        (package / "fst" / "tlg.py").write_text("x = 2\n")
    elif change == "moved":
        (package / "fst" / "tlg.py").rename(package / "tlg.py")
    else:
        (package / "lm.py").write_text("")
    recipes.build_or_load(recipe)
    assert len(kept(recipe)) == 1 and kept(recipe) != before


def test_a_folder_that_takes_no_graph(recipe, caplog, monkeypatch):
    def refuse(self, path):
        raise FormatError(f"{Path(path).name}: cannot write: Permission denied")

    monkeypatch.setattr(recipes.PackedGraph, "save", refuse)
    assert recipes.build_or_load(recipe).num_arcs
    assert "the graph is not kept: graph_normal_" in caplog.text and not kept(recipe)
