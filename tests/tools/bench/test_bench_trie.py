"""The benchmark of the trie decoder: no speed without right answers."""

import json
import math
from dataclasses import replace
from pathlib import Path

import naive_lm
import naive_search
import pytest
from tiny_sets import ARPA, LEXICON, TOKENS, write_sets

from tools.bench import contestants, trie, trie_checks, trie_report
from tools.bench.cases import Case, Inputs, make_cases
from wfstdec import TrieOptions
from wfstdec.errors import FormatError


@pytest.fixture
def bench(on_tiny_sets, monkeypatch):
    """A function that runs the tool with few settings, and these peers."""
    monkeypatch.setattr(trie, "CHECKED", trie.CHECKED[:2])
    every = contestants.TRIE_WORDS
    few = [*every[:2], *every[8:10], every[-1]]
    monkeypatch.setattr(contestants, "TRIE_WORDS", few)
    fixed = "--cases dev:tiny --repeats 2 --peers"
    return lambda *peers: on_tiny_sets(trie, fixed, *peers)


@pytest.fixture
def case(tmp_path):
    """The tiny case, as the tool makes it."""
    write_sets(tmp_path)
    inputs = Inputs(tmp_path, tmp_path / "cache")
    return next(make_cases(["dev:tiny"], inputs))


@pytest.mark.share
def test_a_run_checks_then_times(bench, capsys):
    status, report = bench()
    assert status == 0 and report["faults"] == 0
    decoders = [row["decoder"] for row in report["rows"]]
    assert decoders == ["trie"] * 5 + ["WFST"] * 5
    for row in report["rows"]:
        assert len(row["cpu_s"]) == 2
        best = row["audio_s"] / min(row["cpu_s"])
        assert row["rtfx"] == pytest.approx(best, rel=0.05)
        assert row["gap"] >= 0 and row["sayable"] == 6
    widest = [row for row in report["rows"] if row["setting"]["beam"] >= 17]
    assert [row["gap"] for row in widest] == [0] * len(widest)
    told = capsys.readouterr().out
    assert "WER at the widest beam" in told
    assert str(Path.home()) not in json.dumps(report)


@pytest.mark.parametrize("wrong", ["backend", "language model", "alignment"])
@pytest.mark.share
def test_no_speed_where_answers_are_wrong(bench, monkeypatch, capsys, wrong):
    if wrong == "backend":
        make = Case.trie_decoder

        def narrow(case, options, threads=1, backend="cpu"):
            decoder = make(case, options, threads, backend)
            return decoder if backend == "cpu" else decoder.with_options(lm_scale=0.7)

        monkeypatch.setattr(Case, "trie_decoder", narrow)
    elif wrong == "language model":
        score = trie_checks.NgramScorer.cost
        dearer = lambda self, words: 1.001 * score(self, words)  # noqa: E731
        monkeypatch.setattr(trie_checks.NgramScorer, "cost", dearer)
    else:
        monkeypatch.setattr(trie_checks.TextCosts, "cost", lambda *given: 1e4)
    status, report = bench()
    assert status == 1 and report["faults"] > 0
    assert not any("cpu_s" in row for row in report["rows"])
    told = capsys.readouterr().out
    assert "ANSWERS ARE WRONG" in told and "RTFx  median" not in told


@pytest.mark.peers
@pytest.mark.share
def test_peers_take_part(bench, capsys):
    pytest.importorskip("flashlight.lib.text.decoder")
    status, report = bench("flashlight", "pyctcdecode", "nemo")
    assert status == 0
    assert any(row["decoder"].startswith("flashlight-text") for row in report["rows"])
    told = capsys.readouterr().out
    assert "without nemo" in told
    assert "flashlight-text" in told.split("RTFx: ")[1]


# ----------------------------------------------------------------------------- costs
def test_costs_of_texts_are_the_oracle_s(case):
    """The best alignment of every text of a few frames, and impossible ones."""
    name = next(iter(case.speech.logprobs))
    rows = case.speech.logprobs[name][:5]
    speech = replace(case.speech.take([name]), logprobs={name: rows})
    case = replace(case, speech=speech)
    oracle = naive_search.Case(
        TOKENS,
        "<blank>",
        rows,
        lexicon=LEXICON,
        arpa=ARPA,
        separator="<wb>",
        options={"lm_scale": 0.8},
    )
    texts = naive_search.best_texts(oracle, "max")
    costs = trie_checks.TextCosts(case, [text.text for text in texts])
    assert len(texts) > 5
    for text in texts:
        found = costs.cost(name, " ".join(text.text))
        assert found == pytest.approx(text.cost, rel=1e-6)
    assert costs.cost(name, "ab ab ab") == math.inf
    assert costs.cost(name, "unheard") == math.inf


def test_the_scorer_is_the_oracle_s(tmp_path):
    path = tmp_path / "lm.arpa"
    path.write_text(ARPA)
    sentences = [(), ("ab",), ("ab", "c"), ("c", "c", "ab"), ("cab", "unheard")]
    scorer = trie_checks.NgramScorer(str(path), sentences)
    expected = naive_lm.exact_scorer(naive_lm.parse_arpa(ARPA))
    for sentence in sentences:
        assert scorer.cost(sentence) == pytest.approx(expected(sentence), rel=1e-9)


def test_a_wrong_hypothesis_is_found(case):
    decoder = case.trie_decoder(TrieOptions(lm_scale=case.lm_scale))
    names = list(case.speech.logprobs)
    found = dict(zip(names, decoder.decode(case.utterances), strict=True))
    sentences = [trie_checks.sentence_of(case, hyp) for hyp in found.values()]
    costs = trie_checks.TextCosts(case, sentences)
    assert trie_checks.check_hypotheses(case, costs, found, best=True) == []
    hyp = found[names[1]]
    *before, last = hyp.token_ids
    for change in (
        {"total_cost": hyp.total_cost + 0.01},
        {"graph_cost": hyp.graph_cost - 0.01},
        {"token_ids": (*before, 1 if last != 1 else 2)},
    ):
        wrong = found | {names[1]: replace(hyp, **change)}
        faults = trie_checks.check_hypotheses(case, costs, wrong, best=True)
        assert faults and all(fault.startswith(names[1]) for fault in faults)


def test_unknown_cases_are_named(tmp_path):
    write_sets(tmp_path)
    inputs = Inputs(tmp_path, tmp_path)
    for name in ("dev", "nobody:tiny", "dev:nothing", "dev:pieces"):
        with pytest.raises(FormatError):
            next(make_cases([name], inputs))


# ------------------------------------------------------------------------- verdicts
def row(decoder, wer, rtfx, **fields):
    values = {"case": "x", "decoder": decoder, "setting": {"beam": rtfx}, "wer": wer}
    speed = {"rtfx": rtfx, "rtfx_median": rtfx / 2, "cpu_s": [1 / rtfx, 2 / rtfx]}
    none = dict.fromkeys(("wer_known", "gap", "own_cost"))
    return values | speed | none | fields


def test_the_fastest_point_that_is_no_worse_is_taken():
    tries = [row("trie", 10.0, 900.0), row("trie", 9.0, 300.0), row("trie", 9.0, 60.0)]
    name = "flashlight-text 1"
    peers = [row(name, 10.0, 100.0), row(name, 9.5, 50.0)]
    found = trie_report.verdicts([*tries, row("WFST", 1.0, 1e6), *peers])
    assert [one["ratio"] for one in found] == [9.0, 6.0]
    (line,) = trie_report.verdict_lines(found)
    assert line.endswith("trie 6.0 to 9.0 times as fast (medians 6.0 to 9.0)")
    found = trie_report.verdicts([*tries, *peers, row(name, 8.0, 1.0)])
    (line,) = trie_report.verdict_lines(found)
    assert line.endswith("; 1 of 3 points NOT matched, 8.000 by 9.000")


def test_points_that_a_peer_s_own_one_beats_are_left_out():
    tries = [row("trie", 9.0, 300.0)]
    slow = [row("peer 1", 9.0, 1.0), row("peer 1", 9.5, 50.0), row("peer 2", 9.5, 2.0)]
    found = trie_report.verdicts([*tries, *slow, row("peer 1", 9.0, 100.0)])
    assert [(one["peer"], one["ratio"]) for one in found] == [
        ("peer 1", 3.0),
        ("peer 2", 150.0),
    ]


def test_costs_decide_where_errors_do_by_chance():
    tries = [
        row("trie", 9.0, 900.0, own_cost=101.0),
        row("trie", 9.0, 50.0, own_cost=99.0),
    ]
    peer = row("nemo-toolkit 1", 9.0, 10.0, own_cost=100.0)
    found = trie_report.verdicts([*tries, peer])
    assert [(one["by"], one["ratio"]) for one in found] == [
        ("wer", 90.0),
        ("own_cost", 5.0),
    ]
