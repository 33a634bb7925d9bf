"""The oracle itself, checked by examples small enough to work out by hand."""

import itertools
import math
from dataclasses import replace

import naive
import naive_cases
import naive_lm
import numpy as np
import pytest

LN10 = math.log(10)

# (a b) is a bigram without back-off; </s> after (a) is dearer than backing off.
ARPA = r"""
\data\
ngram 1=4
ngram 2=3
ngram 3=1

\1-grams:
-99	<s>	-0.5
-1	a	-0.25
-2	b
-0.75	</s>

\2-grams:
-0.25	<s> a	-0.125
-3	a b
-1.5	a </s>

\3-grams:
-1.5	<s> a b

\end\
"""

# The bigram (a b), suffix of the trigram, was pruned; (b c) was not.
PRUNED_SUFFIX = r"""
\data\
ngram 1=5
ngram 2=2
ngram 3=1

\1-grams:
-99	<s>	-4
-1	a	-4
-2	b	-4
-3	c
-1	</s>

\2-grams:
-0.5	<s> a	-8
-0.125	b c

\3-grams:
-0.25	<s> a b

\end\
"""


def log10_cost(scorer, sentence):
    return scorer(tuple(sentence.split())) / LN10


# ---------------------------------------------------------------- language model
@pytest.mark.parametrize(
    ("sentence", "cost"),
    [
        ("", 0.5 + 0.75),
        ("a", 0.25 + (0.125 + 1.5)),
        ("a b", 0.25 + 1.5 + (0 + 0 + 0.75)),  # back-offs of (a b) and (b): missing
        ("b", (0.5 + 2) + 0.75),
        ("b a", (0.5 + 2) + 1 + 1.5),
        ("a a", 0.25 + (0.125 + 0.25 + 1) + 1.5),
    ],
)
def test_exact_backoff_takes_the_longest_ngram(sentence, cost):
    scorer = naive_lm.exact_scorer(naive_lm.parse_arpa(ARPA))
    assert log10_cost(scorer, sentence) == pytest.approx(cost)


@pytest.mark.parametrize(
    ("sentence", "cost"),
    [
        ("", 0.5 + 0.75),
        ("a", 0.25 + 0.125 + (0.25 + 0.75)),  # around `a </s>`
        ("a b", 0.25 + 1.5 + 0.75),
        ("b", 0.5 + 2 + 0.75),
        ("b a", 0.5 + 2 + 1 + (0.25 + 0.75)),
        ("b a b", 0.5 + 2 + 1 + (0.25 + 2) + 0.75),  # around `a b`, at 3
    ],
)
def test_epsilon_backoff_may_go_around_an_explicit_ngram(sentence, cost):
    scorer = naive_lm.epsilon_scorer(naive_lm.parse_arpa(ARPA))
    assert log10_cost(scorer, sentence) == pytest.approx(cost)


def test_history_falls_back_to_the_longest_existing_suffix():
    lm = naive_lm.parse_arpa(PRUNED_SUFFIX)
    cost = 0.5 + 0.25 + 0.125 + 1  # <s> a | <s> a b, then history b | b c | </s>
    for scorer in (naive_lm.exact_scorer(lm), naive_lm.epsilon_scorer(lm)):
        assert log10_cost(scorer, "a b c") == pytest.approx(cost)


def test_backing_off_early_avoids_a_history_that_is_dear_to_leave():
    lm = naive_lm.parse_arpa(PRUNED_SUFFIX)
    exact, epsilon = naive_lm.exact_scorer(lm), naive_lm.epsilon_scorer(lm)
    assert log10_cost(exact, "a") == pytest.approx(0.5 + (8 + 4 + 1))
    assert log10_cost(epsilon, "a") == pytest.approx((4 + 1) + (4 + 1))


@pytest.mark.parametrize("make", [naive_lm.exact_scorer, naive_lm.epsilon_scorer])
def test_words_outside_the_model(make):
    lm = naive_lm.parse_arpa(ARPA)
    assert make(lm)(("x",)) == math.inf
    assert make(lm)(("a", "</s>")) == make(lm)(("<s>",)) == math.inf
    expected = (0.25 + 0.125 + 0.25) * LN10 + 7 + 0.75 * LN10  # from (<s> a) to ()
    assert make(lm, unk_cost=7.0)(("a", "x")) == pytest.approx(expected)


def test_unigrams_only():
    lm = naive_lm.parse_arpa("\\1-grams:\n-1 a\n-0.5 </s>\n-99 <s>\n\\end\\\n")
    for scorer in (naive_lm.exact_scorer(lm), naive_lm.epsilon_scorer(lm)):
        assert log10_cost(scorer, "a a") == pytest.approx(2.5)


@pytest.mark.parametrize("pruned_suffixes", [False, True])
def test_exact_backoff_equals_kenlm_and_epsilon_is_never_dearer(
    tmp_path, pruned_suffixes
):
    kenlm = pytest.importorskip("kenlm")
    rng = np.random.default_rng(5)
    compared = cheaper = 0
    for _ in range(60):
        text, known = naive_cases.random_arpa(
            rng, ["a", "b", "c"], order=3, pruned_suffixes=pruned_suffixes
        )
        (tmp_path / "lm.arpa").write_text(text, encoding="utf-8")
        try:
            model = kenlm.Model(str(tmp_path / "lm.arpa"))
        except OSError:  # it refuses unigrams alone and many pruned suffixes
            continue
        lm = naive_lm.parse_arpa(text)
        for n in range(5):
            sentence = tuple(rng.choice(sorted(known), size=n))
            exact = naive_lm.exact_scorer(lm)(sentence)
            assert -model.score(" ".join(sentence)) * LN10 == pytest.approx(exact, 1e-5)
            epsilon = naive_lm.epsilon_scorer(lm)(sentence)
            assert epsilon <= exact + 1e-9
            compared += 1
            cheaper += epsilon < exact - 1e-9
    assert compared > 100 and cheaper > 5


# -------------------------------------------------------------------- topologies
def token_strings(topology, alignment):
    """Strings that an alignment like 'aa-b' stands for, without the frames."""
    ways = naive.readings(topology, alignment, blank="-")
    return {"".join(span.token for span in way) for way in ways}


@pytest.mark.parametrize(
    ("alignment", "normal", "normal_selfless", "compact", "minimal"),
    [
        ("", {""}, {""}, {""}, {""}),
        ("--", {""}, {""}, {""}, {""}),
        ("a", {"a"}, {"a"}, {"a"}, {"a"}),
        ("aa", {"a"}, set(), {"a", "aa"}, {"aa"}),
        ("ab", {"ab"}, {"ab"}, {"ab"}, {"ab"}),
        ("a-a", {"aa"}, {"aa"}, {"aa"}, {"aa"}),
        ("-aab", {"ab"}, set(), {"ab", "aab"}, {"aab"}),
        ("aa-a", {"aa"}, set(), {"aa", "aaa"}, {"aaa"}),
        ("aaa", {"a"}, set(), {"a", "aa", "aaa"}, {"aaa"}),
    ],
)
def test_topologies_read_an_alignment(
    alignment, normal, normal_selfless, compact, minimal
):
    assert token_strings("normal", alignment) == normal
    assert token_strings("normal-selfless", alignment) == normal_selfless
    assert token_strings("compact", alignment) == compact
    assert token_strings("eesen", alignment) == compact
    assert token_strings("minimal", alignment) == minimal
    assert token_strings("compact-selfless", alignment) == minimal


def test_readings_carry_frames():
    assert naive.readings("normal", [0, 2, 2, 0, 1], blank=0) == {
        (naive.Span(2, 1, 3), naive.Span(1, 4, 5))
    }
    assert naive.readings("compact", [1, 1, 1], blank=0) == {
        (naive.Span(1, 0, 3),),
        (naive.Span(1, 0, 1), naive.Span(1, 1, 3)),
        (naive.Span(1, 0, 2), naive.Span(1, 2, 3)),
        (naive.Span(1, 0, 1), naive.Span(1, 1, 2), naive.Span(1, 2, 3)),
    }


def test_number_of_ctc_alignments():
    """U different tokens have C(T + U, T - U) CTC alignments in T frames."""
    for num_frames, target in itertools.product(range(6), ["", "a", "ab", "aba"]):
        found = sum(
            token_strings("normal", alignment) == {target}
            for alignment in itertools.product("-ab", repeat=num_frames)
        )
        short = num_frames - len(target)
        assert found == (
            math.comb(num_frames + len(target), short) if short >= 0 else 0
        )


# ----------------------------------------------------------------------- lexicon
LEXICON = naive.parse_lexicon("A a\nA2 a\nAB a b\nB\tb\nAA a a\n")


def sentences(tokens, fillers=None, lexicon=LEXICON):
    segment = naive.segmenter(lexicon, fillers)
    return sorted(" ".join(s.words) for s in segment(tuple(tokens)))


def test_segmentation_without_fillers():
    assert sentences("") == [""]
    assert sentences("ab") == ["A B", "A2 B", "AB"]
    assert sentences("aa") == ["A A", "A A2", "A2 A", "A2 A2", "AA"]
    assert sentences("c") == []


@pytest.mark.parametrize(
    ("tokens", "required", "optional"),
    [
        ("", [""], [""]),
        ("||", [""], [""]),
        ("|b", ["B"], ["B"]),
        ("b||b", ["B B"], ["B B"]),
        ("b|", ["B"], ["B"]),
        ("bb", [], ["B B"]),
        ("a|b||", ["A B", "A2 B"], ["A B", "A2 B"]),
        ("ab", ["AB"], ["A B", "A2 B", "AB"]),
    ],
)
def test_separator(tokens, required, optional):
    assert sentences(tokens, naive.Fillers("|")) == required
    assert sentences(tokens, naive.Fillers("|", separator_optional=True)) == optional


@pytest.mark.parametrize(
    ("tokens", "words", "silences", "places"),
    [
        ("", "", 0, 1),
        ("#", "", 1, 1),
        ("b", "B", 0, 2),
        ("#b", "B", 1, 2),
        ("#b#", "B", 2, 2),
        ("b#b", "B B", 1, 3),
        ("##b", None, 0, 0),  # one silence token to a place
    ],
)
def test_optional_silence(tokens, words, silences, places):
    fillers = naive.Fillers(silence="#", silence_prob=0.2)
    found = naive.segmenter(LEXICON, fillers)(tuple(tokens))
    assert [" ".join(s.words) for s in found] == ([] if words is None else [words])
    cost = -silences * math.log(0.2) - (places - silences) * math.log(0.8)
    assert all(s.cost == pytest.approx(cost) for s in found)


def test_pronunciation_probabilities():
    lexicon = naive.parse_lexicon("A 0.5 a\nA 0.25 a b\nB 1.0 b\n", has_probs=True)
    found = {s.words: s.cost for s in naive.segmenter(lexicon)(("a", "b"))}
    assert found == {("A", "B"): math.log(2), ("A",): math.log(4)}


# ---------------------------------------------------------------------- the best
def solve(posteriors, lexicon="A a\n", tokens="-a", lm=lambda words: 0.0, **options):
    with np.errstate(divide="ignore"):
        logprobs = np.log(np.array(posteriors, np.float32).reshape(-1, len(tokens)))
    names = {"topology", "boosts", "fillers"}
    return naive.best(
        logprobs,
        tokens=list(tokens),
        blank="-",
        lexicon=naive.parse_lexicon(lexicon),
        sentence_cost=lm,
        options=naive.Options(**{k: v for k, v in options.items() if k not in names}),
        **{k: v for k, v in options.items() if k in names},
    )


def test_two_frames():
    """P(aa) = 0.3, P(a-) = 0.3, P(-a) = 0.2, P(--) = 0.2."""
    found = solve([[0.4, 0.6], [0.5, 0.5]])
    assert found.cost == pytest.approx(-math.log(0.3))
    assert found.ties == {("A",): {((0, 2),), ((0, 1),)}}
    assert found.table == pytest.approx({(): -math.log(0.2), ("A",): -math.log(0.3)})


def test_two_frames_compact_accepts_a_repeat_without_a_blank():
    found = solve([[0.4, 0.6], [0.5, 0.5]], topology="compact")
    assert found.ties == {
        ("A",): {((0, 2),), ((0, 1),)},
        ("A", "A"): {((0, 1), (1, 2))},
    }
    assert ("A", "A") not in solve([[0.4, 0.6], [0.5, 0.5]]).table


def test_scales_penalties_and_boosts():
    costs = {(): 1.0, ("A",): 5.0}
    posteriors = [[0.25, 0.75], [0.5, 0.5]]  # least: -- 1/8, aa or a- 3/8
    found = solve(
        posteriors,
        lm=lambda words: costs[words],
        acoustic_scale=0.5,
        lm_scale=2.0,
        word_insertion=0.75,
        blank_penalty=0.125,
        boosts={"A": 4.0},
    )
    assert found.table == pytest.approx(
        {
            (): 0.5 * (math.log(8) + 2 * 0.125) + 2 * 1.0,
            ("A",): 0.5 * math.log(8 / 3) + 2 * 5.0 + 0.75 - 4.0,  # aa: no blank
        }
    )
    assert found.ties == {(): {()}}


def test_blank_skipping_leaves_only_blank():
    posteriors = [[0.1, 0.9], [0.75, 0.25], [0.1, 0.9]]
    free = solve(posteriors)
    assert free.table[("A",)] == pytest.approx(-math.log(0.9 * 0.25 * 0.9))
    skipped = solve(posteriors, blank_skip_threshold=0.74)
    assert skipped.ties == {("A", "A"): {((0, 1), (2, 3))}}
    assert skipped.table[("A",)] == pytest.approx(-math.log(0.9 * 0.75 * 0.1))
    assert solve(posteriors, blank_skip_threshold=0.76) == free


def test_minus_infinity_is_impossible_at_any_scale():
    for scale in (1.0, 0.0):
        found = solve([[1.0, 0.0], [0.5, 0.5]], acoustic_scale=scale)
        assert set(found.table) == {(), ("A",)}
        assert found.table[("A",)] == pytest.approx(scale * math.log(2))
        dead = solve([[0.0, 0.0]], acoustic_scale=scale)
        assert dead == (math.inf, {}, {})


def test_no_frames_is_the_empty_sentence():
    found = solve([], lm=lambda words: 3.0)
    assert found == (3.0, {(): {()}}, {(): 3.0})


def test_impossible_sentences_stay_impossible_at_lm_scale_zero():
    found = solve([[0.5, 0.5]], lm=lambda w: math.inf if w else 0.0, lm_scale=0.0)
    assert set(found.table) == {()}


def test_word_frames_leave_out_separators_and_blanks():
    best_path = "|ab-|a"
    posteriors = [[0.97 if c == p else 0.01 for c in "-ab|"] for p in best_path]
    found = solve(
        posteriors, "A a\nAB a b\n", "-ab|", fillers=naive.Fillers(separator="|")
    )
    assert found.ties == {("AB", "A"): {((1, 3), (5, 6))}}


def test_homophones_tie():
    found = solve([[0.1, 0.9]], "A a\nA2 a\n")
    assert found.ties == {("A",): {((0, 1),)}, ("A2",): {((0, 1),)}}


# ------------------------------------------------------------------ random cases
def test_random_cases_are_reproducible_and_varied():
    answers, topologies = [], set()
    for seed in range(60):
        case = naive_cases.random_case(np.random.default_rng(seed))
        again = naive_cases.random_case(np.random.default_rng(seed))
        assert repr(case) == repr(again)
        answers.append(naive_cases.solve(case))
        topologies.add(case.topology)
    assert topologies == set(naive.TOPOLOGIES)
    assert sum(any(answer.ties) for answer in answers) > 20  # some word is best
    assert all(math.isclose(a.cost, min(a.table.values())) for a in answers if a.table)


def test_compact_languages_contain_the_normal_one():
    """Every sentence of normal is one of compact, and costs no more there."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        case = naive_cases.random_case(rng, topology="normal", num_tokens=3)
        normal = naive_cases.solve(case).table
        compact = naive_cases.solve(replace(case, topology="compact")).table
        assert all(compact[words] <= cost + 1e-9 for words, cost in normal.items())
