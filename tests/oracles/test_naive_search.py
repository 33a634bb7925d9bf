"""The oracle of the trie decoder, checked by hand and by facts that do not need it."""

import itertools
import math
from dataclasses import replace

import naive
import naive_lm
import naive_search
import naive_search_cases
import numpy as np
import pytest
from naive_phrases import Phrases
from naive_search import Case
from naive_search_cases import LEXICON, hand

import wfstdec

pytestmark = pytest.mark.filterwarnings("ignore::wfstdec.errors.BoostWarning")

LN10 = math.log(10)
ARPA = r"""
\data\
ngram 1=4
ngram 2=1

\1-grams:
-99	<s>	-0.5
-1	sea	-0.25
-2	see
-0.75	</s>

\2-grams:
-0.25	<s> sea

\end\
"""


def costs(case, merge="max"):
    """Text, joined, to cost."""
    texts = naive_search.best_texts(case, merge)
    return {" ".join(text.text): text.cost for text in texts}


# ---------------------------------------------------------------------------- by hand
def test_two_frames():
    """P(aa) = 0.3, P(a-) = 0.3, P(-a) = 0.2, P(--) = 0.2."""
    x = np.log(np.array([[0.4, 0.6], [0.5, 0.5]], np.float32))
    case = Case(["-", "a"], "-", x)
    assert costs(case) == pytest.approx({"a": -math.log(0.3), "": -math.log(0.2)})
    expected = {"a": -math.log(0.8), "": -math.log(0.2)}
    assert costs(case, "sum") == pytest.approx(expected)


def test_a_repeated_token_needs_its_blank():
    """A public decoder takes `s e e` for `see`, at 0.091; it can only be `sea`."""
    case = hand("see", lexicon=LEXICON)
    found = costs(case)
    assert list(found) == ["sea", ""]
    assert found["sea"] == pytest.approx(5.177, abs=1e-3)
    found = costs(hand("se-e", lexicon=LEXICON))
    assert next(iter(found)) == "see"
    assert found["see"] == pytest.approx(-4 * math.log(0.97), abs=1e-6)


def test_the_last_token_of_a_word_may_be_held():
    """A public decoder finds 10.323."""
    found = costs(hand("seaaa", lexicon=LEXICON))
    assert next(iter(found)) == "sea"
    assert found["sea"] == pytest.approx(-5 * math.log(0.97), abs=1e-6)


def test_the_last_word_needs_no_separator():
    for text in ("sea", "sea|", "|sea", "|sea|"):
        found = costs(hand(text, "-sea|", lexicon=LEXICON, separator="|"))
        assert next(iter(found)) == "sea"


def test_separators_between_words():
    case = hand("a|e", "-ae|", lexicon="A a\nE e\nAE a e\n", separator="|")
    assert next(iter(costs(case))) == "A E"
    assert set(costs(replace(case, logprobs=case.logprobs[::2]))) == {
        "AE",
        "A",
        "E",
        "",
    }
    case = replace(case, logprobs=case.logprobs[::2], separator_optional=True)
    both = costs(case)["AE"]
    assert costs(case)["A E"] == costs(case)["AE"] == both


def test_all_costs_of_one_text():
    """All scales and penalties; one pronunciation, of probability 1/2."""
    options = {
        "acoustic_scale": 0.5,
        "lm_scale": 2.0,
        "word_insertion": 0.75,
        "token_insertion": 0.125,
        "blank_penalty": 0.25,
    }
    case = hand("-sea|", "-sea|", options=options, separator="|", arpa=ARPA)
    case = replace(case, lexicon="sea 0.5 s e a\n", lexicon_has_probs=True)
    texts = {text.text: text for text in naive_search.best_texts(case, "max")}
    acoustic = -5 * math.log(0.97) + 0.25
    graph = math.log(2) + LN10 * (0.25 + 0.25 + 0.75)
    text = texts[("sea",)]
    assert text.tokens == ("s", "e", "a", "|")
    assert text.parts == pytest.approx((acoustic, graph, 0.75 + 4 * 0.125, 0.0))
    assert text.cost == pytest.approx(0.5 * acoustic + 2 * graph + 1.25)
    assert texts[()].parts.graph == pytest.approx(LN10 * (0.5 + 0.75))
    assert text.cost == naive_search.total(case, text.parts)


def test_sums_go_over_pronunciations_and_readings():
    x = np.log(np.array([[0.2, 0.8], [0.2, 0.8], [0.2, 0.8]], np.float32))
    lexicon = "A 0.5 a\nA 0.25 a a\n"
    case = Case(["-", "a"], "-", x, lexicon, lexicon_has_probs=True)
    once = 1 - 0.2**3 - 0.8 * 0.2 * 0.8  # a; otherwise nothing or `a - a`
    twice = 0.8 * 0.2 * 0.8
    probs = {"": 0.2**3, "A": 0.5 * once + 0.25 * twice, "A A": 0.25 * twice}
    expected = {text: -math.log(prob) for text, prob in probs.items()}
    assert costs(case, "sum") == pytest.approx(expected)
    least = {"": 0.2**3, "A": 0.5 * 0.8**3, "A A": 0.25 * twice}
    expected = {text: -math.log(prob) for text, prob in least.items()}
    assert costs(case) == pytest.approx(expected)


def test_words_that_the_model_lacks():
    case = hand("sx", lexicon="sea s\nsax s x\n", arpa=ARPA)
    assert "sax" not in costs(case) and "sea" in costs(case)
    found = costs(replace(case, unk_cost=3.0))
    acoustic, start = -2 * math.log(0.97), LN10 * 0.5
    assert found["sax"] == pytest.approx(acoustic + start + 3.0 + LN10 * 0.75, abs=1e-5)
    # Without a lexicon a token that the model lacks is its `<unk>`, if it has that.
    arpa = ARPA.replace("sea", "s").replace("see", "e")
    case = hand("x", "-sex", arpa=arpa)
    assert set(costs(case)) == {"", "s", "e"}
    assert set(costs(replace(case, unk_cost=1.0))) == {"", "s", "e", "x"}
    case = replace(case, arpa=arpa.replace("\n-2\te", "\n-2\te\n-1.5\t<unk>"))
    assert costs(case)["x"] == pytest.approx(-math.log(0.97) + LN10 * 2.75, abs=1e-5)


def test_what_is_impossible():
    case = hand("sea", lexicon=LEXICON)
    x = np.full_like(case.logprobs, -np.inf)
    x[:, 1] = 0.0
    assert naive_search.best_texts(replace(case, logprobs=x), "sum") == []
    free = {"acoustic_scale": 0.0}
    assert costs(replace(case, logprobs=x, options=free)) == {}
    none = replace(case, logprobs=case.logprobs[:0], arpa=ARPA)
    for merge in ("max", "sum"):
        assert costs(none, merge) == pytest.approx({"": LN10 * 1.25})


def test_blank_skipping_leaves_only_blank():
    case = hand("s-s", "-s", lexicon="s s\n", options={"blank_skip_threshold": 0.9})
    assert costs(case) == pytest.approx(
        {
            "s s": -3 * math.log(0.97),
            "s": -2 * math.log(0.97) - math.log(0.03),
            "": -math.log(0.97) - 2 * math.log(0.03),
        },
        abs=1e-5,
    )


def test_words_of_tokens():
    case = Case(["-", "a", "|", "b"], "-", np.zeros((0, 4)))
    assert naive_search.joined(case, ("a", "|", "b")) == ("a", "|", "b")
    case = replace(case, separator="|")
    assert naive_search.joined(case, tuple("||ab|b|")) == ("ab", "b")
    case = Case(["-", "\u2581a", "b", "\u2581"], "-", np.zeros((0, 4)))
    tokens = ("b", "\u2581a", "b", "\u2581", "\u2581", "b")
    assert naive_search.joined(case, tokens) == ("b", "ab", "b")


# ----------------------------------------------------------------------------- boosts
def phrase_cost(phrases, text, options=None, boundary=None):
    spellings = {p: [tuple(s) for s in p.split("/")] for p in phrases}
    made = Phrases(phrases, "token", options or {}, spellings, boundary)
    return made.coster((), naive.Fillers())((), tuple(text))


@pytest.mark.parametrize(
    ("phrases", "text", "credit"),
    [
        ({"ABC": 1}, "ABCX", 1 + (2 + math.log(2)) + (2 + math.log(3))),
        ({"ABC": 1, "BCD": 1}, "ABCX", 6.7918),
        ({"AB": 1, "ABCD": 1}, "ABCX", 3.6931),
        ({"ABCD": 1}, "ABC", 0.0),
        ({"AA": 1}, "AAA", 2 * 3.69315),
        ({"A": -1.5, "B": 2}, "ABBC", 2.5),
        ({"ABC/D": 1}, "DABC", 2 * 6.79176),  # a short spelling is worth as much
        ({"AB/CABC": 1}, "CABC", 3.6931),  # what contains another does not count
    ],
)
def test_phrases_are_counted(phrases, text, credit):
    assert phrase_cost(phrases, text) == pytest.approx(-credit, abs=1e-4)


def test_amounts_of_phrases():
    assert phrase_cost({"AB": 2}, "AB", {"uniform": True, "c0": 0.5}) == -2
    assert phrase_cost({"AB": 1}, "AB", {"c0": 0.5, "beta": 0}) == pytest.approx(
        -0.5 - math.log(2), abs=1e-4
    )
    assert phrase_cost({"AB": 2}, "ABAB", {"weights_are_totals": True}) == -4
    # X, and the second B; the first A begins a phrase, E is one.
    options = {"outside_cost": 0.25, "uniform": True}
    assert phrase_cost({"AB": 1, "E": 1}, "ABBXAE", options) == 2 * 0.25 - 2 - 1


def test_whole_words_only():
    for text, count in {"HEART": 0, "ART": 1, "X|ART|ART": 2, "ART|": 1}.items():
        assert phrase_cost({"ART": 1}, text, {"uniform": True}, "|") == -3 * count


def test_boosts_of_words():
    case = hand("aaa", "-a", boosts={"A": 0.5, "B": -1.0, "A A": 2.0, "A B": 1.0})
    for words, cost in {"A B": 1 - 0.5 - 1, "A A A": -5.5, "B A": 0.5}.items():
        assert naive_search.booster(case)(tuple(words.split()), ()) == cost


@pytest.mark.parametrize("kind", ["word_phrases", "token_phrases"])
def test_compiled_phrases_are_worth_what_is_counted(kind):
    """The case and what the library is given of it are one."""
    compared = 0
    for i in range(60):
        rng = np.random.default_rng([i, len(kind)])
        case = naive_search_cases.random_case(rng, boosts=kind, num_frames=0)
        words = naive_search_cases.word_table(case)
        boosts = naive_search_cases.decoder_boosts(case, words)
        count = case.phrases.coster(case.entries, case.fillers)
        boosts = getattr(boosts, "phrases", boosts)
        names = words if case.phrases.unit == "word" else case.tokens
        skipped = 0 if case.phrases.unit == "word" else case.tokens.index(case.blank)
        labels = [label for label in range(len(names)) if label != skipped]
        for _ in range(20):
            text = rng.choice(labels, size=rng.integers(0, 8))
            said = tuple(names[label] for label in text)
            expected = count(said, said)
            assert boosts.total(text.tolist()) == pytest.approx(expected, abs=1e-9)
            compared += expected != 0
    assert compared > 300


# ------------------------------------------------------------------- probabilities
def forward_cost(logprobs, tokens, blank):
    """CTC's forward algorithm: -log of the sum over all alignments of tokens."""
    states = [blank, *itertools.chain(*((token, blank) for token in tokens))]
    probs = np.exp(logprobs.astype(np.float64))
    alpha = np.zeros(len(states))
    alpha[0] = 1.0  # before the first frame: only the first two states can follow
    for frame in range(len(probs)):
        before, alpha = alpha, np.zeros(len(states))
        for s, token in enumerate(states):
            alpha[s] = before[s] + (before[s - 1] if s else 0.0)
            if s > 1 and token != blank and token != states[s - 2]:
                alpha[s] += before[s - 2]
            if frame == 0:
                alpha[s] = float(s < 2)
            alpha[s] *= probs[frame, token]
    with np.errstate(divide="ignore"):
        return float(-np.log(alpha[-2:].sum()))


def test_all_texts_together_have_probability_one():
    compared = 0
    for i in range(40):
        rng = np.random.default_rng(i)
        case = naive_search_cases.random_case(
            rng, kind="tokens", boosts="no", plain=True
        )
        x = rng.normal(scale=2, size=case.logprobs.shape)
        x -= np.log(np.exp(x).sum(axis=1, keepdims=True))
        case = replace(case, logprobs=x, arpa=None)
        texts, blank = (
            naive_search.best_texts(case, "sum"),
            case.tokens.index(case.blank),
        )
        assert math.fsum(math.exp(-text.cost) for text in texts) == pytest.approx(1)
        for text in texts[::7]:
            tokens = [case.tokens.index(token) for token in text.text]
            assert text.cost == pytest.approx(forward_cost(x, tokens, blank))
            compared += 1
        # A lexicon that reads each string of tokens in just one way takes nothing off.
        letters = [token for token in case.tokens if token != case.blank]
        lexicon = "".join(f"w{token} {token}\n" for token in letters)
        spoken = naive_search.best_texts(replace(case, lexicon=lexicon), "sum")
        assert [t.cost for t in spoken] == pytest.approx([t.cost for t in texts])
    assert compared > 500


def test_a_sum_is_between_the_least_and_all_alike():
    for i in range(40):
        case = naive_search_cases.random_case(np.random.default_rng(i))
        least = {text.text: text for text in naive_search.best_texts(case, "max")}
        summed = {text.text: text for text in naive_search.best_texts(case, "sum")}
        assert least.keys() == summed.keys()
        for words, text in least.items():
            assert summed[words].cost <= text.cost + 1e-9
            assert text.cost == naive_search.total(case, text.parts)


# --------------------------------------------------------------------- other decoders
def lexicon_cases(count, **fixed):
    """Cases without what only the trie decoder has."""
    for i in range(count):
        rng = np.random.default_rng([i, len(fixed)])
        kind = naive_search_cases.WITH_LEXICON[i % 3]
        case = naive_search_cases.random_case(rng, kind=kind, **fixed)
        case.options.pop("token_insertion", None)
        yield case


def test_the_oracle_of_the_wfst_decoder_agrees():
    texts = 0
    for case in lexicon_cases(60):
        other = naive.best(
            case.logprobs,
            tokens=case.tokens,
            blank=case.blank,
            lexicon=case.entries,
            sentence_cost=naive_search.sentence_scorer(case),
            fillers=case.fillers,
            options=naive.Options(**case.options),
            phrase_cost=naive_search.booster(case),
        )
        found = {t.text: t.cost for t in naive_search.best_texts(case, "max")}
        assert found == pytest.approx(other.table)
        texts += len(found)
    assert texts > 500


def is_easy(case, texts):
    """Tell whether back-off as a choice makes none of the texts cheaper."""
    ngrams = naive_lm.parse_arpa(case.arpa)
    exact = naive_lm.exact_scorer(ngrams, case.unk_cost)
    epsilon = naive_lm.epsilon_scorer(ngrams, case.unk_cost)
    return all(math.isclose(exact(t.text), epsilon(t.text)) for t in texts)


@pytest.mark.parametrize("easy", [False, True])
@pytest.mark.share(keep=1)
def test_the_wfst_decoder_costs_as_much_or_less(easy):
    equal = 0
    for case in lexicon_cases(60, easy_lm=easy):
        if case.arpa is None:
            continue
        texts = naive_search.best_texts(case, "max")
        arguments = naive_search_cases.graph_arguments(case)
        graph = wfstdec.build_graph(**arguments, topology="normal", minimize=False)
        unbounded = {"beam": np.inf, "max_active": None}
        options = wfstdec.WfstOptions(**case.options | unbounded)
        decoder = wfstdec.WfstDecoder(graph, options, "reference", threads=1)
        boosts = naive_search_cases.decoder_boosts(case, graph.words)
        (hyp,) = decoder.decode([case.logprobs], boosts=boosts)
        assert hyp.reached_final == bool(texts)
        if not texts:
            continue
        assert hyp.total_cost <= texts[0].cost + 1e-4
        if is_easy(case, texts):
            equal += 1
            assert hyp.total_cost == pytest.approx(texts[0].cost, rel=1e-5, abs=1e-4)
            ties = {t.text for t in texts if t.cost < texts[0].cost + 1e-3}
            assert tuple(word.text for word in hyp.words) in ties
        else:
            assert not easy
    assert equal > 50 if easy else equal > 15


def test_easy_models_are_easy():
    orders = set()
    for i in range(40):
        rng = np.random.default_rng(i)
        arpa = naive_search_cases.easy_arpa(rng, ["a", "b", "c", "d"])
        ngrams = naive_lm.parse_arpa(arpa)
        orders.add(ngrams.order)
        exact = naive_lm.exact_scorer(ngrams, 2.0)
        epsilon = naive_lm.epsilon_scorer(ngrams, 2.0)
        for n in range(5):
            for words in itertools.product("abcd", repeat=n):
                assert exact(words) == pytest.approx(epsilon(words))
        assert all(cost >= 0 for cost in ngrams.cost.values())
    assert orders == {1, 2, 3}


# ------------------------------------------------------------------------ the cases
def test_random_cases_are_reproducible_and_varied():
    best, drawn = [], []
    for i in range(240):
        kind = naive_search_cases.KINDS[i % 6]
        case = naive_search_cases.random_case(np.random.default_rng(i), kind=kind)
        again = naive_search_cases.random_case(np.random.default_rng(i), kind=kind)
        assert repr(case) == repr(again)
        drawn.append(case)
        best.append(naive_search.best_texts(case, "max")[:2])
    assert {len(case.tokens) for case in drawn} == {3, 4, 5}
    assert {len(case.logprobs) for case in drawn} == set(range(7))
    assert sum(not texts for texts in best) >= 1
    assert sum(bool(texts and texts[0].text) for texts in best) > 90
    assert sum(len(texts[0].text) > 1 for texts in best if texts) > 40
    ties = [t for t in best if len(t) > 1 and t[1].cost - t[0].cost < 1e-9]
    assert len(ties) > 5
    for counted in (
        lambda case: case.arpa is None,
        lambda case: case.unk_cost is not None,
        lambda case: np.isneginf(case.logprobs).any(),
        lambda case: len(case.boosts) > 1,
        lambda case: case.phrases is not None and case.phrases.unit == "word",
        lambda case: case.phrases is not None and case.phrases.unit == "token",
        lambda case: case.phrases is not None and case.phrases.boundary is not None,
        lambda case: case.phrases is not None and case.boosts,
    ):
        assert 4 <= sum(map(bool, map(counted, drawn))) <= 200


def test_lexicons_have_homophones_prefixes_and_several_pronunciations():
    homophones = prefixes = several = doubled = 0
    for i in range(60):
        kind = naive_search_cases.WITH_LEXICON[i % 3]
        rng = np.random.default_rng(i)
        entries = naive_search_cases.random_case(rng, kind=kind).entries
        for one, other in itertools.permutations(entries, 2):
            homophones += one.tokens == other.tokens and one.word != other.word
            several += one.word == other.word
            shorter = len(one.tokens) < len(other.tokens)
            prefixes += shorter and other.tokens[: len(one.tokens)] == one.tokens
        doubled += any(a == b for e in entries for a, b in itertools.pairwise(e.tokens))
    assert min(homophones, prefixes, several, doubled) > 20
