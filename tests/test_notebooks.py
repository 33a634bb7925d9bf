"""The notebooks are those of their sources, and they run."""

import json
from pathlib import Path

import pytest

from tools import make_notebook

ROOT = Path(__file__).parent.parent

SOURCES = sorted((ROOT / "notebooks").glob("*.py"))


def cells(notebook):
    return [(c["cell_type"], "".join(c["source"])) for c in notebook["cells"]]


def test_a_source_becomes_cells(tmp_path):
    source = tmp_path / "x.py"
    source.write_text("# %% [markdown]\n# # Head\n#\n# text\n\n# %%\na = 1\n\nb = a\n")
    found = make_notebook.read_source(source)
    assert cells(found) == [("markdown", "# Head\n\ntext"), ("code", "a = 1\n\nb = a")]


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_the_notebook_is_made_of_its_source(source):
    kept = json.loads(source.with_suffix(".ipynb").read_text("utf-8"))
    made = make_notebook.read_source(source)
    assert cells(kept) == cells(made), "run python -m tools.make_notebook --execute"
    assert source.with_suffix(".ipynb").stat().st_size < 300_000


@pytest.mark.notebook
@pytest.mark.share
@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_the_notebook_runs(source):
    for module in ("nbclient", "nbformat", "ipykernel", "matplotlib"):
        pytest.importorskip(module)
    done = make_notebook.execute(make_notebook.read_source(source))
    outputs = [output for c in done["cells"] for output in c.get("outputs", ())]
    printed = "".join(t for o in outputs for t in o.get("text", ()))
    assert "trie, merge sum" in printed and "WFST + names" in printed
    assert any("image/png" in output.get("data", {}) for output in outputs)
