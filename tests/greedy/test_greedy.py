"""Greedy decoding: the two-stage rule, its costs, and what must not change it."""

import io
import itertools
import math

import numpy as np
import pytest
from arpa_texts import arpa_of
from naive_greedy import random_case, solve

from wfstdec import (
    Boosts,
    GreedyDecoder,
    GreedyOptions,
    NgramLM,
    PhraseCompiler,
    PhraseOptions,
    TrieDecoder,
    read_arpa,
    token_table,
)
from wfstdec.boost.lists import BoostEntry, BoostList
from wfstdec.boost.phrases import by_words
from wfstdec.errors import BackendError, BoostError, OptionError, TokenTableError
from wfstdec.greedy.options import BACKENDS as GREEDY_BACKENDS

NAMES = ("<blank>", "a", "b", "c")
BIGRAMS = arpa_of(
    "-1 a -0.5; -1 b -0.5; -1 c -0.5; -99 <s> -0.5; -1 </s>",
    "-0.1 <s> b; -0.1 b c; -0.1 c </s>",
)
backends = pytest.mark.parametrize("backend", GREEDY_BACKENDS)


def decoder_of(case=None, backend="auto", **changes):
    """The library's decoder of a case, or of NAMES."""
    if case is None:
        return GreedyDecoder(tokens=token_table(NAMES), backend=backend, **changes)
    arpa = read_arpa(io.StringIO(case.arpa)) if case.arpa else None
    return GreedyDecoder(
        tokens=token_table(case.tokens, case.blank),
        lm=arpa,
        unk_cost=case.unk_cost if arpa else None,
        options=GreedyOptions(**case.options),
        backend=backend,
        threads=1,
        **changes,
    )


def phrases_of(texts, tokens, **options):
    def spell(phrases):
        return [[tuple(map(tokens.index, text.split()))] for text in phrases]

    return PhraseCompiler(spell, tokens, PhraseOptions(**options)).compile(texts)


def boosts_of(case, decoder):
    if case.phrases is None:
        return None
    return phrases_of(case.phrases.weights, decoder.tokens, **case.phrases.options)


def rows(*rows):
    """Log-probs of NAMES; a row is the probabilities in percent."""
    with np.errstate(divide="ignore"):
        return np.log(np.array(rows, np.float32) / 100)


def bigrams():
    return read_arpa(io.StringIO(BIGRAMS))


@backends
def test_the_language_model_says_which_token_and_acoustics_where(backend):
    x = rows([1, 50, 40, 9], [90, 4, 3, 3], [1, 1, 60, 38], [97, 1, 1, 1])
    [plain] = decoder_of(backend=backend).decode([x])
    assert (plain.text, plain.graph_cost) == ("a b", 0.0)
    [fused] = decoder_of(backend=backend, lm=bigrams()).decode([x])
    assert fused.text == "b c"
    assert fused.token_frames == ((0, 2), (1, 3))
    assert fused.acoustic_cost == pytest.approx(-math.log(0.4 * 0.9 * 0.38 * 0.97))
    assert fused.graph_cost == pytest.approx(0.3 * math.log(10))
    assert fused.reached_final


@backends
def test_a_token_that_stays_the_best_begins_once(backend):
    """By the published rule "a" would begin in the second frame, after "b"."""
    x = rows([1, 50, 40, 9], [1, 90, 8, 1], [1, 9, 50, 40], [97, 1, 1, 1])
    [hyp] = decoder_of(backend=backend, lm=bigrams()).decode([x])
    assert (hyp.text, hyp.token_frames) == ("b", ((0,), (3,)))
    assert hyp.acoustic_cost == pytest.approx(-math.log(0.4 * 0.08 * 0.5 * 0.97))


@backends
def test_a_token_goes_on_only_where_it_is_possible(backend):
    x = rows([1, 50, 40, 9], [1, 90, 0, 9])
    [hyp] = decoder_of(backend=backend, lm=bigrams()).decode([x])
    assert hyp.text == "b c"


@backends
def test_of_equal_costs_the_most_probable_token_begins_and_then_the_lowest(backend):
    decoder = decoder_of(backend=backend, options=GreedyOptions(acoustic_scale=0))
    assert decoder.decode([rows([1, 9, 30, 60])])[0].text == "c"
    phrases = phrases_of({"a": 1, "b": 1}, decoder.tokens)
    assert decoder.decode([rows([1, 9, 30, 60])], boosts=phrases)[0].text == "a"
    assert decoder.decode([rows([4, 32, 32, 32])])[0].text == "a"


@backends
def test_boosts_decide_and_a_phrase_half_said_is_worth_nothing(backend):
    decoder = decoder_of(backend=backend)
    phrases = phrases_of({"c b": 1.0}, decoder.tokens, weights_are_totals=True)
    x = rows([1, 45, 14, 40], [90, 4, 3, 3], [1, 1, 60, 38], [97, 1, 1, 1])
    whole, half = decoder.decode([x, x[:2]], boosts=phrases)
    assert (whole.text, whole.boost_cost) == ("c b", -1.0)
    assert (half.text, half.boost_cost) == ("c", 0.0)


def test_words_of_pieces_and_of_separators():
    pieces = token_table(["<blank>", "\u2581a", "b", "\u2581"])
    x = np.full((5, 4), -9, np.float32)
    x[np.arange(5), [1, 2, 0, 2, 1]] = -0.1
    [hyp] = GreedyDecoder(tokens=pieces, frame_shift_s=0.5).decode([x])
    assert [word.text for word in hyp.words] == ["abb", "a"]
    assert (hyp.words[0].start_s, hyp.words[0].end_s) == (0.0, 2.0)
    [hyp] = decoder_of(separator="b").decode([x])
    assert [word.text for word in hyp.words] == ["a", "a"]


def random_logprobs(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(20, 4)).astype(np.float32)
    if seed % 2:
        x = np.round(x)  # ties
        x[:, 1:][rng.random((20, 3)) < 0.3] = -np.inf
    return x


@backends
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.share(keep=8)
def test_without_models_it_is_plain_greedy_decoding(seed, backend):
    x = random_logprobs(seed)
    options = GreedyOptions(acoustic_scale=[1, 0.3, 0][seed % 3])
    [hyp] = decoder_of(backend=backend, options=options).decode([x])
    assert list(hyp.token_ids) == [v for v, _ in itertools.groupby(x.argmax(1)) if v]


def checked(case, hypothesis, answer):
    tokens = [(t.text, t.start_frame, t.end_frame) for t in hypothesis.tokens]
    assert tokens == answer.tokens
    assert hypothesis.died_at_frame == answer.died_at
    assert hypothesis.reached_final == (answer.died_at is None)
    options = GreedyOptions(**case.options)
    insertion = options.token_insertion * len(tokens)
    costs = (answer.acoustic, answer.graph, answer.boost, insertion)
    found = (
        hypothesis.acoustic_cost,
        hypothesis.graph_cost,
        hypothesis.boost_cost,
        hypothesis.insertion_cost,
    )
    assert found == pytest.approx(costs, rel=1e-5, abs=1e-3)
    total = options.acoustic_scale * found[0] + options.lm_scale * found[1]
    assert hypothesis.total_cost == pytest.approx(total + found[2] + found[3])


@pytest.mark.parametrize("first", range(0, 400, 50))
@pytest.mark.share(keep=3)
def test_the_rule_over_strings(first):
    compared = 0
    for seed in range(first, first + 50):
        case = random_case(np.random.default_rng(seed))
        answer = solve(case)
        if answer is None:
            continue
        decoder = decoder_of(case)
        [hyp] = decoder.decode([case.logprobs], boosts=boosts_of(case, decoder))
        checked(case, hyp, answer)
        compared += 1
    assert compared > 40


def test_a_saved_model_is_mapped(tmp_path):
    NgramLM.from_arpa(bigrams(), token_table(NAMES)).save(tmp_path / "lm")
    x = rows([1, 50, 40, 9])
    decoder = decoder_of(lm=tmp_path / "lm")
    assert decoder.decode([x]) == decoder_of(lm=bigrams()).decode([x])


@backends
def test_an_utterance_without_frames(backend):
    decoder = decoder_of(backend=backend, lm=bigrams())
    [hyp] = decoder.decode([np.zeros((0, 4), np.float32)])
    assert (hyp.text, hyp.num_frames, hyp.reached_final) == ("", 0, True)
    assert hyp.total_cost == pytest.approx(1.5 * math.log(10))  # `</s>` after `<s>`


@backends
def test_a_frame_where_nothing_is_possible(backend):
    x = rows([1, 50, 40, 9], [0, 0, 0, 0], [1, 50, 40, 9])
    [hyp] = decoder_of(backend=backend).decode([x])
    assert (hyp.text, hyp.died_at_frame, hyp.num_frames) == ("a", 1, 1)
    assert not hyp.reached_final


@backends
def test_tokens_that_the_model_lacks(backend):
    text = BIGRAMS.replace("ngram 1=5", "ngram 1=4").replace("-1\ta\t-0.5\n", "")
    lm = read_arpa(io.StringIO(text))
    x = rows([1, 60, 30, 9], [97, 1, 1, 1], [0, 100, 0, 0])
    [hyp] = decoder_of(backend=backend, lm=lm).decode([x])
    assert (hyp.text, hyp.died_at_frame) == ("b", 2)
    [hyp] = decoder_of(backend=backend, lm=lm, unk_cost=0.1).decode([x])
    assert (hyp.text, hyp.died_at_frame) == ("b a", None)


@pytest.mark.parametrize("decoder", [GreedyDecoder, TrieDecoder])
def test_boosts_of_words_say_what_to_do(decoder):
    words = ("<eps>", "new", "york")
    compiler = PhraseCompiler(by_words({"new": 1, "york": 2}), words)
    made = decoder(tokens=token_table(NAMES))
    for boosts, found in [
        ([BoostEntry("new", [["a"]])], "pronunciations or two lists"),
        (
            Boosts({"new": 2.0}, phrases_of(["a b"], token_table(NAMES))),
            "pronunciations or two lists",
        ),
        (compiler.compile(["new york"]), "phrases of words"),
        (Boosts(phrases=compiler.compile(["new york"])), "phrases of words"),
    ]:
        with pytest.raises(BoostError, match=f"{found}, but .* a PhraseCompiler with"):
            made.sessions().open(boosts)
    assert made.decode([rows([1, 50, 40, 9])], boosts={})[0].text == "a"


@pytest.mark.parametrize("decoder", [GreedyDecoder, TrieDecoder])
def test_lists_are_phrases_as_tokens_spell_them(decoder):
    """Numbers are nats of the whole phrase; without one it is worth its labels."""
    made, x = decoder(tokens=token_table(NAMES)), rows([1, 60, 30, 9], [1, 30, 60, 9])
    options = PhraseOptions(weights_are_totals=True)
    for given in ({"a b": 2.5, "c": -1.0}, ["a b", "b c"], ("b",)):
        entries = given if isinstance(given, dict) else dict.fromkeys(given)
        phrases = made.phrase_compiler(options).compile(BoostList(entries))
        [hyp], [same] = (made.decode([x], boosts=one) for one in (given, phrases))
        assert hyp == same and hyp.boost_cost != 0


def test_phrases_of_another_table():
    phrases = phrases_of(["a b"], token_table([*NAMES, "d"]))
    with pytest.raises(BoostError, match="phrases over 5 tokens, expected 4"):
        decoder_of().sessions().open(phrases)


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"backend": "cuda"}, BackendError, "backend 'cuda', expected one of 'auto', "),
        ({"separator": "x"}, TokenTableError, "separator: token 'x', which the"),
        ({"blank": "x"}, TokenTableError, "'x'"),
        ({"threads": 0}, OptionError, "threads=0, expected 1 or more"),
        ({"frame_shift_s": 0}, OptionError, "frame_shift_s=0, expected seconds"),
    ],
)
def test_arguments_that_mean_nothing(arguments, error, message):
    with pytest.raises(error, match=message):
        decoder_of(**arguments)


@pytest.mark.parametrize(
    "option", [{"lm_scale": -1}, {"acoustic_scale": math.inf}, {"blank_penalty": "1"}]
)
def test_options_that_mean_nothing(option):
    with pytest.raises(OptionError, match=f"{next(iter(option))}="):
        GreedyOptions(**option)


@pytest.mark.parametrize("decoder", [GreedyDecoder, TrieDecoder])
def test_a_model_of_other_labels(decoder):
    lm = NgramLM.from_arpa(bigrams(), ("<eps>", "a", "b"))
    with pytest.raises(
        OptionError, match="over 3 words, expected one over the 4 token"
    ):
        decoder(tokens=token_table(NAMES), lm=lm)
    lm = NgramLM.from_arpa(bigrams(), token_table(NAMES))
    with pytest.raises(OptionError, match="unk_cost=2.0 with a built language model"):
        decoder(tokens=token_table(NAMES), lm=lm, unk_cost=2.0)
