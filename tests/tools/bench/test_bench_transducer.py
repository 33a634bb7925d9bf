"""The benchmark of transducers, on a small net and a few frames."""

import json

import numpy as np
import pytest
from arpa_texts import arpa_of

torch = pytest.importorskip("torch")

from tools.bench import transducer as bench  # noqa: E402
from wfstdec.transducer.torch_model import (  # noqa: E402
    HeadConfig,
    TransducerConfig,
    TransducerNet,
)

pytestmark = pytest.mark.share


@pytest.fixture
def given(tmp_path):
    torch.manual_seed(3)
    sizes = {"input_dim": 5, "width": 16, "dim": 16, "layers": 1}
    heads = (HeadConfig("rnnt"), HeadConfig("tdt", "lstm", (0, 1, 2)))
    pieces = ("\u2581a", "\u2581b", "c")
    TransducerNet(TransducerConfig(pieces, heads, **sizes)).save(tmp_path / "m.npz")
    rng = np.random.default_rng(0)
    arrays = {f"u{i}": rng.normal(size=(40, 5)).astype(np.float32) for i in range(4)}
    np.savez(tmp_path / "x.npz", **arrays)
    refs = "".join(f"{name} a bc\n" for name in arrays)
    (tmp_path / "x.txt").write_text(refs)
    (tmp_path / "phrases.txt").write_text("bc\n")
    grams = "-99 <s>; -0.5 </s>; -0.5 \u2581a; -0.5 \u2581b; -0.5 c", "-0.2 \u2581b c"
    (tmp_path / "lm.arpa").write_text(arpa_of(*grams), "utf-8")
    flags = ["--model", "m.npz", "--logprobs", "x.npz", "--ref", "x.txt"]
    flags += ["--phrases", "phrases.txt", "--output", "run.json"]
    paths = [flag if flag.startswith("-") else str(tmp_path / flag) for flag in flags]
    return [*paths, "--lm", f"in={tmp_path / 'lm.arpa'}", "--profile", "small"]


def test_all_settings_are_in_the_file(given, tmp_path, capsys):
    assert bench.main(given) == 0
    run = json.loads((tmp_path / "run.json").read_text())
    rows = run["rows"]
    # greedy, and alsd and aes: once without a model, twice with; with phrases too
    assert len(rows) == 2 * (3 + 1 + 2 * 2)
    assert {row["lm"] for row in rows} == {"-", "in 0.3"}
    for row in rows:
        assert 0 < row["rtfx"] < row["search_rtfx"]
        assert row["words"] == 8
    assert [row["per"] for row in run["steps"]] == ["step", "frame"]
    assert all(row["us"] > 0 for row in run["steps"])
    assert "search alone" in capsys.readouterr().out
