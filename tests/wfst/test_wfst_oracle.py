"""Text files to words with times, against an oracle that knows nothing of FSTs."""

import dataclasses

import naive
import naive_cases
import numpy as np
import pytest
from oracle_cases import assert_best, graph_by_files, words_of

import wfstdec

pytestmark = pytest.mark.usefixtures("quiet")
UNBOUNDED = {"beam": np.inf, "max_active": None}


def decode(case, graph, backend="cpu", **options):
    options = wfstdec.WfstOptions(**case.options | UNBOUNDED | options)
    decoder = wfstdec.WfstDecoder(graph, options, backend, threads=1)
    (hyp,) = decoder.decode([case.logprobs], boosts=case.boosts)
    return hyp


HAND = naive_cases.Case(
    tokens=["<blk>", "a", "b"],
    blank="<blk>",
    lexicon="A a\nAA a a\nAB a b\n",
    lexicon_has_probs=False,
    arpa=(
        "\\data\\\nngram 1=5\n\n\\1-grams:\n-99 <s>\n-0.5 </s>\n-1 A\n-1 AA\n-1 AB\n\n"
        "\\end\\\n"
    ),
    logprobs=np.zeros((0, 3), np.float32),
)


def frames(text):
    """Log-probs that allow one token a frame: its index in `text`."""
    x = np.full((len(text), 3), -np.inf, np.float32)
    x[np.arange(len(text)), [int(token) for token in text]] = 0
    return x


TWO_EQUAL_FRAMES = {
    # boosted word -> the word of `a a`
    "normal": {None: "A", "A": "A", "AA": "A"},
    "normal-selfless": {None: None, "A": None, "AA": None},
    "compact": {None: "A", "A": "A A", "AA": "AA"},
    "compact-selfless": {None: "AA", "A": "A A", "AA": "AA"},
    "minimal": {None: "AA", "A": "A A", "AA": "AA"},
}


@pytest.mark.parametrize("topology", naive.TOPOLOGIES)
def test_equal_frames_without_a_blank(topology, tmp_path):
    """A wins without a boost: where one word A is possible, AA costs as much."""
    case = dataclasses.replace(HAND, topology=topology, logprobs=frames("11"))
    graph = graph_by_files(case, tmp_path)
    for word, expected in TWO_EQUAL_FRAMES[topology].items():
        boosts = {} if word is None else {word: 9.0}
        case = dataclasses.replace(case, boosts=boosts)
        best, hyp = naive_cases.solve(case), decode(case, graph)
        assert_best(hyp, best)
        texts = {" ".join(words) for words in best.ties}
        assert (expected in texts) if expected is not None else not texts


@pytest.mark.parametrize("topology", naive.TOPOLOGIES)
@pytest.mark.parametrize(
    ("text", "words"),
    [("101", "AA"), ("01020", "AB"), ("12", "AB"), ("", ""), ("0", "")],
)
def test_frames_that_all_topologies_read_alike(topology, text, words, tmp_path):
    case = dataclasses.replace(HAND, topology=topology, logprobs=frames(text))
    hyp = decode(case, graph_by_files(case, tmp_path))
    assert hyp.text == words
    assert hyp.reached_final
    assert_best(hyp, naive_cases.solve(case))


@pytest.mark.parametrize("topology", naive.TOPOLOGIES)
@pytest.mark.parametrize("fillers", naive_cases.FILLERS)
@pytest.mark.share(keep=6)
def test_random_cases(topology, fillers, tmp_path):
    sentences = 0
    for i in range(25):
        rng = np.random.default_rng([i, len(topology), len(fillers)])
        case = naive_cases.random_case(rng, topology=topology, fillers=fillers)
        best, graph = naive_cases.solve(case), graph_by_files(case, tmp_path)
        hyp = decode(case, graph)
        assert_best(hyp, best)
        sentences += len(hyp.words) > 0
        if i % 4 == 0:
            assert decode(case, graph, "reference") == hyp
    assert sentences > 8


def test_times_of_the_pronunciation_that_was_taken(tmp_path):
    """Three tokens a, two words: probabilities say which of them is `a a`."""
    arpa = HAND.arpa.replace("-1 AB\n", "").replace("1=5", "1=4").replace("AA", "B")
    for lexicon in (
        "A 1.0 a\nA 0.1 a a\nB 0.1 a\nB 1.0 a a\n",
        "A 0.1 a\nA 1.0 a a\nB 1.0 a\nB 0.1 a a\n",
    ):
        case = dataclasses.replace(
            HAND,
            lexicon=lexicon,
            lexicon_has_probs=True,
            arpa=arpa,
            logprobs=frames("10101"),
            boosts={"A": 0.5, "B": 0.5},
            options={"word_insertion": -1.0},
        )
        best = naive_cases.solve(case)
        assert {len(times) for times in best.ties.values()} == {1}
        assert_best(decode(case, graph_by_files(case, tmp_path)), best)


@pytest.mark.share
def test_longer_cases(tmp_path):
    for i in range(3):
        rng = np.random.default_rng(i)
        case = naive_cases.random_case(rng, num_tokens=3, num_frames=8)
        assert_best(
            decode(case, graph_by_files(case, tmp_path)), naive_cases.solve(case)
        )


def test_minimizing_changes_costs_by_its_rounding_only(tmp_path):
    for i in range(40):
        case = naive_cases.random_case(np.random.default_rng(i), plain=True)
        best = naive_cases.solve(case, tolerance=1e-2)
        hyp = decode(case, graph_by_files(case, tmp_path, minimize=True))
        assert hyp.reached_final == (best.cost < np.inf)
        if hyp.reached_final:
            assert hyp.total_cost == pytest.approx(best.cost, abs=5e-3)
            assert words_of(hyp) in best.ties


BOUNDS = [
    {"beam": 0.0},
    {"beam": 1.0},
    {"beam": 4.0},
    {"max_active": 1},
    {"max_active": 3},
    {"beam": 2.0, "max_active": 4, "beam_delta": 0.5},
]


def test_a_bounded_search_finds_nothing_cheaper_than_there_is(tmp_path):
    finished = 0
    for i in range(60):
        case = naive_cases.random_case(np.random.default_rng(i))
        best, graph = naive_cases.solve(case), graph_by_files(case, tmp_path)
        for bounds in BOUNDS:
            hyp = decode(case, graph, **bounds)
            if not hyp.reached_final:
                continue
            finished += 1
            assert hyp.total_cost >= best.cost - 1e-4 - 1e-5 * abs(best.cost)
            least = best.table[words_of(hyp)]
            assert hyp.total_cost >= least - 1e-4 - 1e-5 * abs(least)
    assert finished > 200
