"""The tables of attention, two utterances of the demo."""

import json
from pathlib import Path

import pytest
from arpa_texts import arpa_of

torch = pytest.importorskip("torch")
pytest.importorskip("sentencepiece")

from tools.bench import attention_tables as tables  # noqa: E402
from wfstdec import load_attention  # noqa: E402

pytestmark = pytest.mark.share


@pytest.fixture(autouse=True)
def gradients():
    """The tool turns them off for its process; other tests train."""
    yield
    torch.set_grad_enabled(True)


SPEECH = Path(__file__).parents[3] / "graphs" / "transducer_demo"
ROWS = {
    # WFST; with and without a model: two CTC, two RNN-T, K x CTC, a norm; K x batches
    "searches": 1 + 2 * (2 + 2 + 2 * 2 + 1) + 2 * 2,
    # both parts: no list, and a list with and without words that nobody says
    "phrases": 2 * ((4 + 2) + 2 * (4 + 2 * 3)),
    # both parts, both first passes: one alone, two as they are and in two orders
    "rescoring": 2 * 2 * (1 + 3),
}


@pytest.mark.parametrize("table", sorted(ROWS))
def test_tables_have_a_row_for_each_setting(table, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(tables.importlib.util, "find_spec", lambda name: None)  # NeMo
    arpa, text = tmp_path / "lm.arpa", tmp_path / "text.txt"
    pieces = load_attention(tables.DEMO / "model.npz").tokens[:-1]
    known = [f"-2.4 {piece}" for piece in (*pieces, "</s>")]
    arpa.write_text(arpa_of("; ".join(["-99 <s>", *known])), "utf-8")
    text.write_text("strawberry blueberry gooseberry blackberry\n")
    flags = ["--table", table, "--profile", "small", "--lm", str(arpa)]
    flags += ["--logprobs", str(SPEECH / "logprobs.npz")]
    flags += ["--ref", str(SPEECH / "refs.txt"), "--text", str(text)]
    run = tmp_path / "run.json"
    assert tables.main([*flags, "--output", str(run)]) == 0
    rows = json.loads(run.read_text())["rows"]
    assert len(rows) == ROWS[table]
    for row in rows:
        assert 0 <= row["wer"] < 50 and row["hung_on"] < 5
        assert row["words"] == rows[0]["words"] or row["part"] != rows[0]["part"]
        assert ("f_score" in row) == (table == "phrases")
        if table == "rescoring":
            assert row["oracle_wer"] <= row["wer"]
    assert "hung on" in capsys.readouterr().out


def test_words_hung_on_are_those_behind_the_last_of_the_reference():
    said = "a b c".split()
    assert tables.hung_on(said, said) == 0
    assert tables.hung_on(said, "a b c d e".split()) == 2
    assert tables.hung_on(said, "x a b c".split()) == 0
    assert tables.hung_on(said, "a b".split()) == 0
    assert tables.hung_on([], ["a"]) == 1
