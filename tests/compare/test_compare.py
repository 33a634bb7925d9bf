"""Comparisons: their figures against brute force, their files, tables and plots."""

import math
import random
import sys
import xml.etree.ElementTree as ET
from dataclasses import fields, replace

import numpy as np
import pytest
from real_speech import RECIPE, speech_graph

import wfstdec
from wfstdec.compare import (
    Comparison,
    Models,
    Point,
    Speech,
    load_comparison,
    parse_grid,
    plot,
    read_speech,
    run,
    table,
)
from wfstdec.compare.comparison import (
    Outcome,
    PhraseCounter,
    PhraseScore,
    Search,
    SearchFacts,
    label,
    pareto,
)
from wfstdec.compare.models import measure_load
from wfstdec.compare.running import (
    IS_EXACT,
    TOLERANCE,
    Peak,
    describe_machine,
    search_errors,
    unfinished,
)
from wfstdec.compare.tuning import TRIE_GRID, WFST_GRID, WIDTHS, split_grid
from wfstdec.errors import BackendError, FormatError, OptionError, ShapeError
from wfstdec.io import read_text
from wfstdec.metrics import WordErrors

BASE = wfstdec.WfstOptions(lm_scale=0.8)


def test_phrases_by_hand():
    references = {"u1": "new york is not york".split(), "u2": "san jose".split()}
    hypotheses = {"u1": "new york new york".split(), "u3": "san jose".split()}
    score = PhraseCounter(["new york", "york", "san  jose"]).score(
        references, hypotheses
    )
    # u1: "new york" 1 of 1, found twice; "york" 2 of 2; u2: "san jose" missed
    assert score == PhraseScore(hits=3, in_references=4, in_hypotheses=4)
    assert (score.precision, score.recall, score.f_score) == (0.75, 0.75, 0.75)


def test_without_occurrences_there_are_no_shares():
    score = PhraseCounter(["x"]).score({"u": ["a"]}, {"u": ["b"]})
    assert (score.precision, score.recall, score.f_score) == (None, None, None)
    score = PhraseCounter(["a"]).score({"u": ["a"]}, {})
    assert (score.precision, score.recall, score.f_score) == (None, 0.0, 0.0)
    assert len(PhraseCounter(["a b", " a  b ", "", "c"])) == 2


def test_search_errors_by_hand():
    widest = [
        Outcome("", cost, reached)
        for cost, reached in [
            (100.0, True),
            (100.0, True),
            (100.0, True),
            (0.5, True),
            (9.0, False),
        ]
    ]
    found = [
        Outcome("", 100.0 * (1 + TOLERANCE) - 1e-6, True),  # within the tolerance
        Outcome("", 100.0 * (1 + TOLERANCE) + 1e-3, True),  # above it
        Outcome("", 50.0, False),  # cheaper, but unfinished
        Outcome("", 0.5 + 0.9 * TOLERANCE, True),  # relative to 1 nat at least
        Outcome("", 99.0, True),  # the widest has nothing to compare with
    ]
    assert search_errors(found, widest) == 2 / 5
    assert unfinished(found) == 1 / 5
    assert search_errors(widest, widest) == 0.0
    assert search_errors([Outcome("a")], [Outcome("a")]) is None
    assert unfinished([Outcome("a")]) is None


def point(wer=10.0, rtfx=100.0, **changes):
    errors = WordErrors(1, 2, round(100 * wer) - 3, 10_000)
    values = dict(
        search="WFST", boosts=None, setting={"beam": 8.0}, errors=errors, phrases=None,
        cpu_s=(1000 / rtfx, 2000 / rtfx), audio_s=1000.0, search_errors=0.25,
        unfinished=0.0, memory_mb=12.5,
    )  # fmt: skip
    return Point(**{**values, **changes})


def test_the_front_is_what_no_other_point_beats():
    rng = random.Random(5)
    for _ in range(200):
        points = [
            point(rng.randint(1, 6), rng.randint(1, 6))
            for _ in range(rng.randint(1, 9))
        ]
        values = {(one.wer, one.rtfx) for one in points}
        unbeaten = {
            (wer, rtfx)
            for wer, rtfx in values
            if not any(
                w <= wer and r >= rtfx and (w, r) != (wer, rtfx) for w, r in values
            )
        }
        front = pareto(points)
        assert [(one.wer, one.rtfx) for one in front] == sorted(unbeaten, reverse=True)


def test_a_grid_is_a_product_and_what_is_no_width_makes_searches():
    texts = ["beam-size=32,8", "merge=max,sum", "beam=inf,5.5", "token_top_k=None"]
    known = [*vars(wfstdec.TrieOptions())]
    grid = parse_grid(texts, known)
    assert grid == {
        "beam_size": [32, 8],
        "merge": ["max", "sum"],
        "beam": [math.inf, 5.5],
        "token_top_k": [None],
    }
    parts = split_grid(grid)
    assert [part.label for part in parts] == ["merge max", "merge sum"]
    assert parts[1].options == {"merge": "sum", "token_top_k": None}
    settings = [(8, 5.5), (8, math.inf), (32, 5.5), (32, math.inf)]
    expected = [{"beam_size": size, "beam": beam} for size, beam in settings]
    assert parts[0].settings == parts[1].settings == expected
    assert label(expected[3]) == "beam_size 32, beam inf"


def test_every_option_is_a_width_or_part_of_what_is_made_least():
    objective = {
        "acoustic_scale", "lm_scale", "word_insertion", "token_insertion",
        "blank_penalty", "boost_scale", "merge", "nbest", "lookahead",
        "lattice_beam",
    }  # fmt: skip
    kinds = wfstdec.WfstOptions, wfstdec.TrieOptions
    options = {field.name for kind in kinds for field in fields(kind)}
    assert set(WIDTHS) == options - objective
    assert {field.name for field in fields(wfstdec.GreedyOptions)} <= objective


def test_options_that_go_together_are_settings_of_their_own():
    known = [*vars(wfstdec.TrieOptions())]
    grid = parse_grid(["beam:beam-size=8:32,6:16,inf:none", "merge=max,sum"], known)
    assert grid == {
        ("beam", "beam_size"): [(8, 32), (6, 16), (math.inf, None)],
        "merge": ["max", "sum"],
    }
    parts = split_grid(grid)
    assert [part.options for part in parts] == [{"merge": "max"}, {"merge": "sum"}]
    assert parts[0].settings == parts[1].settings == [
        {"beam": 6, "beam_size": 16},
        {"beam": 8, "beam_size": 32},
        {"beam": math.inf, "beam_size": None},
    ]  # fmt: skip
    [part] = split_grid({("beam", "beam_size"): [(6, 16)], "token_top_k": [5, 9]})
    assert part.options == {"beam": 6, "beam_size": 16}
    assert part.settings == [{"token_top_k": 5}, {"token_top_k": 9}]
    parts = split_grid({("beam", "lm_scale"): [(6, 0.5), (9, 0.8)]})
    assert [part.label for part in parts] == [
        "beam 6, lm_scale 0.5", "beam 9, lm_scale 0.8",
    ]  # fmt: skip
    assert [part.settings for part in parts] == [[{}], [{}]]


def test_the_grids_that_are_tried_by_default():
    for texts, options in (
        (WFST_GRID, wfstdec.WfstOptions()),
        (TRIE_GRID, wfstdec.TrieOptions()),
    ):
        [part] = split_grid(parse_grid(texts, [*vars(options)]))
        assert len(part.settings) > 3 and not part.options and not part.label
        for setting in part.settings:
            replace(options, **setting)
    assert part.settings[1] == {"beam": 6, "beam_size": 16}


def test_no_limit_is_the_widest():
    [part] = split_grid({"max_active": [None, 10], "beam": [3]})
    assert part.settings == [{"max_active": 10}, {"max_active": None}]
    assert part.options == {"beam": 3} and part.label == ""
    [part] = split_grid({"beam": [8]})
    assert part.settings == [{"beam": 8}]


@pytest.mark.parametrize(
    "texts, message",
    [
        (["beam"], "grid 'beam', expected 'name=value,value'"),
        (["beam="], "grid 'beam='"),
        (["bean=1"], "grid 'bean=1', expected one of beam, merge"),
        (["beam=1", "beam=2"], "beam a second time, expected once"),
        (["beam=1", "beam:merge=1:max"], "beam a second time, expected once"),
        (["beam:merge=1:max,2"], "found '2', expected 2 values joined by ':'"),
        (["beam=1:2"], "found '1:2', expected 1 values"),
    ],
)
def test_faulty_grids(texts, message):
    with pytest.raises(OptionError, match=message):
        parse_grid(texts, ["beam", "merge"])


def test_values_of_grids_are_checked_before_anything_runs():
    searches = Models(graph=speech_graph("normal")).wfst_searches
    with pytest.raises(OptionError, match="beam=-1"):
        searches(BASE, {"beam": [8, -1]})
    with pytest.raises(OptionError, match="width 'wide', expected a number"):
        searches(BASE, {"beam": ["wide"]})
    with pytest.raises(OptionError, match=r"grid of beam:max_active: \(8,\), expected"):
        searches(BASE, {("beam", "max_active"): [(8,)]})


@pytest.mark.skipif(not IS_EXACT, reason="the peak cannot be reset here")
def test_the_peak_is_that_of_the_block_whatever_was_before():
    def fill(megabytes):
        return np.ones(megabytes * 1_000_000, np.int8).sum()

    with Peak() as first:
        fill(150)
    with Peak() as second:
        fill(50)
    with Peak() as third:
        pass
    assert first.growth_mb == pytest.approx(150, abs=10)
    assert second.growth_mb == pytest.approx(50, abs=10)
    assert third.growth_mb < 10


def test_what_is_kept_is_resident():
    loaded = measure_load(lambda: np.ones(50_000_000, np.int8))
    assert loaded.item.nbytes == 50_000_000
    assert 40 < loaded.load_mb < 70 and loaded.load_s > 0


def few_utterances(limit):
    return read_speech(RECIPE / "logprobs.npz", RECIPE / "refs.txt", limit=limit)


def test_utterances_are_spread_and_have_references():
    speech = few_utterances(4)
    names = list(read_text(RECIPE / "refs.txt"))
    assert list(speech.logprobs) == [names[i] for i in (5, 15, 25, 35)]
    assert all(x.dtype == np.float32 for x in speech.logprobs.values())
    assert speech.audio_s == pytest.approx(
        0.02 * sum(map(len, speech.logprobs.values()))
    )
    slow = read_speech(
        RECIPE / "logprobs.npz", RECIPE / "refs.txt", limit=4, frame_shift_s=0.5
    )
    assert slow.audio_s == pytest.approx(speech.audio_s * 25)
    assert speech.fingerprint == few_utterances(4).fingerprint
    assert speech.fingerprint != few_utterances(3).fingerprint


def test_only_utterances_on_both_sides_count(tmp_path, caplog):
    np.savez(tmp_path / "x.npz", a=np.zeros((2, 3)), b=np.zeros((1, 3)))
    (tmp_path / "ref.txt").write_text("c x\nb y z\n")
    speech = read_speech(tmp_path / "x.npz", tmp_path / "ref.txt")
    assert speech.references == {"b": ("y", "z")}
    assert "1 utterances of ref.txt are not in x.npz: c; 1 utt" in caplog.text
    (tmp_path / "ref.txt").write_text("c x\n")
    with pytest.raises(FormatError, match="no utterance of ref.txt is in x.npz, "):
        read_speech(tmp_path / "x.npz", tmp_path / "ref.txt")
    with pytest.raises(OptionError, match="limit=0, expected 1 or more"):
        read_speech(tmp_path / "x.npz", tmp_path / "ref.txt", limit=0)


def test_utterances_without_references_are_an_error():
    with pytest.raises(ShapeError, match="on one side only: 'b'"):
        Speech({"a": np.zeros((1, 2))}, {"a": ["x"], "b": ["y"]})
    with pytest.raises(ShapeError, match="of 0 utterances"):
        Speech({}, {})


class Scripted(Search):
    """A search with given answers that notes who asks."""

    def __init__(self, name, outcomes, takes_boosts=True):
        self.name, self.outcomes, self.takes_boosts = name, outcomes, takes_boosts
        self.settings = [{"beam": beam} for beam in outcomes]
        self.facts = SearchFacts({"beam": 0}, 1.5, 20.0, {"file": "abc"})
        self.requests = []

    def compile_boosts(self, boosts):
        return [("made of", one) for one in boosts]

    def prepare(self, setting):
        def decode(utterances, boosts):
            self.requests.append((setting["beam"], list(map(len, utterances)), boosts))
            return self.outcomes[setting["beam"]][: len(utterances)]

        return decode


SPEECH = Speech(
    {u: np.zeros((n, 2), np.float32) for u, n in (("u", 40), ("v", 60), ("w", 50))},
    {"w": ("c", "c"), "v": ("b",), "u": ("a",)},  # another order on purpose
)


def test_a_comparison_of_scripted_searches():
    narrow = [
        Outcome("a", 5.0, True),
        Outcome("x", 7.0, True),
        Outcome("c", 9.0, False),
    ]
    wide = [Outcome("a", 5.0, True), Outcome("b", 6.0, True), Outcome("c c", 9.5, True)]
    search = Scripted("S", {1: narrow, 2: wide})
    plain = Scripted(
        "T", {1: [Outcome("a"), Outcome("b"), Outcome("")]}, takes_boosts=False
    )
    boosts = {"names": {"v": {"b": 1.0}, "u": {"c": 2.0}}}
    found = run(SPEECH, [search, plain], boosts=boosts, phrases=["c c", "b"], repeats=2)

    series = [(one.series, one.label) for one in found.points]
    assert series == [
        ("S", "beam 1"),
        ("S", "beam 2"),
        ("S + names", "beam 1"),
        ("S + names", "beam 2"),
        ("T", "beam 1"),
    ]
    first, second, *_, last = found.points
    assert first.errors == WordErrors(0, 1, 1, 4)
    assert first.phrases == PhraseScore(0, 2, 0)
    assert (first.search_errors, first.unfinished) == (2 / 3, 1 / 3)
    assert second.errors.total == 0 and second.phrases == PhraseScore(2, 2, 2)
    assert (second.search_errors, second.unfinished) == (0.0, 0.0)
    assert (last.search_errors, last.unfinished) == (None, None)
    assert all(len(one.cpu_s) == 2 and one.audio_s == 3.0 for one in found.points)
    assert found.searches == {
        "S": search.facts, "T": replace(plain.facts, takes_boosts=False)
    }  # fmt: skip
    assert found.lists == [None, "names"]
    # Whole passes: both settings in order, then back; boosts in the utterances' order.
    whole = [(beam, given) for beam, sizes, given in search.requests if len(sizes) == 3]
    some = [("made of", one) for one in ({"c": 2.0}, {"b": 1.0}, None)]
    assert whole == [(1, None), (2, None), (1, some), (2, some)] + [
        (2, some), (1, some), (2, None), (1, None),
    ]  # fmt: skip
    # Before each of them the two longest, with their own boosts, untimed.
    few = [(sizes, given) for _, sizes, given in search.requests if len(sizes) < 3]
    assert len(few) == 12 and all(sizes == [60, 50] for sizes, _ in few)
    assert all(given in (None, some[1:]) for _, given in few)
    assert [beam for beam, *_ in search.requests[:2]] == [2, 1]  # compiled by another


def test_search_errors_are_counted_with_the_same_list():
    class Cheaper(Scripted):
        def prepare(self, setting):
            def decode(utterances, boosts):
                return [Outcome("a", 10.0 - bool(boosts), True)] * len(utterances)

            return decode

    boosts = {"names": {"v": {"b": 1.0}}}
    found = run(SPEECH, [Cheaper("S", {1: [], 2: []})], boosts=boosts, repeats=1)
    assert [one.search_errors for one in found.points] == [0.0] * 4


@pytest.mark.parametrize(
    "searches, repeats, message",
    [
        ([], 1, "0 searches, expected at least one"),
        ([Scripted("S", {})], 1, "1 searches, expected at least one, each with"),
        ([Scripted("S", {1: []})] * 2, 1, "two searches called 'S'"),
        ([Scripted("S", {1: []})], 0, "repeats=0, expected 1 or more"),
    ],
)
def test_faulty_comparisons(searches, repeats, message):
    with pytest.raises(OptionError, match=message):
        run(SPEECH, searches, repeats=repeats)


def small_comparison():
    scored = PhraseScore(1, 2, 3)
    points = (
        point(14.0, 900.0, setting={"beam": 4.0}, phrases=scored),
        point(12.0, 800.0, setting={"beam": math.inf}, phrases=scored),
        point(10.0, 700.0, boosts="names", phrases=scored),
        point(13.0, 90.0, search="peer", search_errors=None, unfinished=None),
    )
    machine = describe_machine()
    facts = {"machine": machine, "date": "2020-02-02", "utterances": 3,
             "audio_s": 1000.0, "reference_words": 10_000, "repeats": 2}  # fmt: skip
    searches = {
        "WFST": SearchFacts({"beam": math.inf, "max_active": None}, 1.5, 20.0),
        "peer": SearchFacts(takes_boosts=False),
    }
    return Comparison(points, searches, facts)


def test_a_file_gives_back_what_was_saved(tmp_path):
    comparison = small_comparison()
    comparison.save(tmp_path / "c.json")
    assert load_comparison(tmp_path / "c.json") == comparison
    assert "Infinity" not in (tmp_path / "c.json").read_text()


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"format": "x", "version": 1}', "damaged"]
)
def test_other_files_are_refused(tmp_path, text):
    path = tmp_path / "c.json"
    small_comparison().save(path)
    good = path.read_text()
    path.write_text(good.replace('"cpu_s"', '"cpu"') if text == "damaged" else text)
    with pytest.raises(FormatError, match="c.json: not a readable comparison .* what"):
        load_comparison(path)
    with pytest.raises(FormatError, match="no.json: cannot read"):
        load_comparison(tmp_path / "no.json")


def test_the_table_has_every_point_and_marks_the_fronts():
    comparison = small_comparison()
    lines = table(comparison).splitlines()
    assert lines[0].startswith("3 utterances, 16.7 min of audio, 10,000 words; ")
    cells = {tuple(line.split()[:3]): line.split() for line in lines[2:]}
    assert cells["beam", "4", "*"][3:] == [
        "14.00", "-", "1/2/1397", "900", "25.0", "0.0", "12", "33.3", "50.0", "40.0",
    ]  # fmt: skip
    assert ("beam", "inf", "*") in cells
    assert ("WFST", "+", "names") in cells and ("beam", "8", "*") in cells
    # Neither on a front nor with costs or phrases.
    peer = lines.index("peer (takes no boosts)")
    assert lines[peer + 1].split()[2:] == [
        "13.00", "-", "1/2/1297", "90", "-", "-", "12", "-", "-", "-",
    ]  # fmt: skip
    assert lines[-1] == "Loaded before: WFST 20 MB in 1.5 s."
    ends = [line.split(", ")[-1] for line in lines]
    assert any(end.startswith("best of 2 alternated runs") for end in ends)


def test_a_plot_in_both_formats_says_what_is_what(tmp_path):
    """Axes, fronts of each list, dashes for boosts, both ends of each curve named."""
    pytest.importorskip("matplotlib")
    comparison = small_comparison()
    [axes] = plot(comparison, tmp_path / "c.png").axes
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    assert axes.get_xscale() == "log" and axes.get_xlabel().startswith("RTFx")
    assert axes.get_ylabel() == "WER %"
    assert axes.get_title().startswith("3 utterances, 16.7 min; ")
    drawn = {line.get_label(): line.get_xydata().tolist() for line in axes.lines}
    assert drawn["WFST"] == drawn["Pareto front"] == [[900.0, 14.0], [800.0, 12.0]]
    assert drawn["WFST + names"] == [[700.0, 10.0]]
    legend = [text.get_text() for text in axes.get_legend().get_texts()]
    assert legend == ["WFST", "WFST + names", "peer (takes no boosts)", "Pareto front"]
    styles = {line.get_label(): line.get_linestyle() for line in axes.lines}
    assert (styles["WFST"], styles["WFST + names"]) == ("-", "--")
    named = {(text.get_text(), *text.xy) for text in axes.texts}
    assert named == {
        ("beam 4", 900.0, 14.0), ("beam inf", 800.0, 12.0),
        ("beam 8", 700.0, 10.0), ("beam 8", 90.0, 13.0),
    }  # fmt: skip
    plot(comparison, tmp_path / "c.svg")
    text = " ".join(ET.parse(tmp_path / "c.svg").getroot().itertext())
    for expected in ("WFST + names", "WER %", "beam inf", "peer (takes no boosts)"):
        assert expected in text
    first = (tmp_path / "c.svg").read_bytes()
    plot(comparison, tmp_path / "c.svg")
    assert (tmp_path / "c.svg").read_bytes() == first


def test_points_of_two_widths_are_joined_from_fast_to_slow():
    pytest.importorskip("matplotlib")
    settings = [{"beam": x, "max_active": y} for x in (5, 9) for y in (10, 20)]
    points = [
        point(20 - speed, speed, setting=setting)
        for setting, speed in zip(settings, (9, 4, 7, 2), strict=True)
    ]
    [axes] = plot(replace(small_comparison(), points=tuple(points))).axes
    [line] = [line for line in axes.lines if line.get_label() == "WFST"]
    assert line.get_xdata().tolist() == pytest.approx([9, 7, 4, 2])
    assert [text.get_text() for text in axes.texts] == [
        "beam 5, max_active 10", "beam 9, max_active 20",
    ]  # fmt: skip


def test_plots_that_cannot_be(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    with pytest.raises(OptionError, match=r"plot 'c.pdf', expected .png or .svg"):
        plot(small_comparison(), tmp_path / "c.pdf")
    with pytest.raises(FormatError, match="no such folder"):
        plot(small_comparison(), tmp_path / "no" / "c.png")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(BackendError, match="pip install matplotlib"):
        plot(small_comparison(), tmp_path / "c.png")
