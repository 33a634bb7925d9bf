"""Data of benchmarks: sets, and graphs that are built again when they must be."""

import ast
from pathlib import Path

import numpy as np
import pytest
from tiny_sets import write_sets

import wfstdec
from tools.bench import data
from wfstdec.errors import FormatError


def test_flattened_frames_are_distributions():
    x = np.log(np.random.default_rng(3).dirichlet(np.ones(9), 5)).astype(np.float32)
    flat = data.flatten(x)
    assert flat.dtype == np.float32
    np.testing.assert_allclose(np.exp(flat).sum(1), 1, rtol=1e-5)
    np.testing.assert_allclose(flat[:, 0] - flat[:, 1], 0.4 * (x[:, 0] - x[:, 1]), 1e-4)


def test_a_set_and_parts_of_it(tmp_path):
    write_sets(tmp_path)
    speech = data.load_set("dev", tmp_path, limit=2)
    assert list(speech.logprobs) == list(speech.references) == ["utt1", "utt4"]
    assert list(speech.take(["utt4"]).references) == ["utt4"]
    hard = data.load_set("hard", tmp_path, limit=2)
    assert (hard.name, hard.references) == ("hard", speech.references)
    np.testing.assert_array_equal(
        hard.logprobs["utt1"], data.flatten(speech.logprobs["utt1"])
    )
    with pytest.raises(FormatError, match="set 'loud', expected 'dev', 'ljspeech'"):
        data.load_set("loud", tmp_path)


def test_utterances_become_long_recordings():
    speech = data.SpeechSet(
        {f"u{i}": np.full((10 + i, 2), i, np.float32) for i in range(7)},
        {f"u{i}": (f"w{i}",) for i in range(7)},
        0.1,
        name="dev",
        recipe=None,
    )
    long = data.lengthen(speech, 3.3, 2)
    assert {name: len(x) for name, x in long.logprobs.items()} == {"u0": 33, "u3": 42}
    assert long.references == {"u0": ("w0", "w1", "w2"), "u3": ("w3", "w4", "w5")}
    assert list(data.lengthen(speech, 1.2, 1).logprobs) == ["u0"]
    with pytest.raises(FormatError, match="has no 999 s"):
        data.lengthen(speech, 999, 1)


def test_a_graph_is_built_again_when_a_nested_source_changes(tmp_path, monkeypatch):
    package = tmp_path / "wfstdec"
    nested = package / "fst" / "deeper" / "compose.py"
    nested.parent.mkdir(parents=True)
    for source in (package / "__init__.py", package / "search.py", nested):
        source.write_text("a = 1\n")
    monkeypatch.setattr(wfstdec, "__file__", str(package / "__init__.py"))
    before = data.graph_key([])
    (package / "search.py").write_text("a = 2\n")
    assert data.graph_key([]) == before
    nested.write_text("a = 2\n")
    changed = data.graph_key([])
    assert changed != before
    (package / "fst" / "more.py").write_text("a = 2\n")
    assert data.graph_key([]) not in (before, changed)
    assert data.graph_key([nested]) != data.graph_key([])


def test_the_graph_key_covers_every_room_that_building_imports():
    package = Path(wfstdec.__file__).parent
    imported = {
        node.module.split(".")[1]
        for room in data.BUILDERS
        for source in package.glob(f"{room}/**/*.py")
        for node in ast.walk(ast.parse(source.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module.startswith("wfstdec.")
    }
    assert "lm" in imported
    assert imported <= {*data.BUILDERS, "errors"}
