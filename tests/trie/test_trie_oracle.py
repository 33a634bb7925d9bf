"""The trie decoder against an oracle that tries every alignment and every reading."""

import functools
import io
import math
from dataclasses import replace

import naive
import naive_search
import naive_search_cases
import numpy as np
import pytest
from arpa_texts import arpa_of
from naive_search_cases import LEXICON, hand
from oracle_cases import close_to
from reference_backends import HOST_BACKENDS
from trie_searches import SWEPT

from wfstdec import Lexicon, TrieDecoder, TrieOptions, read_arpa, token_table

pytestmark = [
    pytest.mark.filterwarnings("ignore::wfstdec.errors.BoostWarning"),
    pytest.mark.usefixtures("quiet"),
]

UNBOUNDED = {"beam": math.inf, "beam_size": 50_000, "token_top_k": None}
LOOKAHEADS = ("ngram", "unigram", "none")
MERGES = ("max", "sum")


def case_of(seed, kind, **fixed):
    rng = np.random.default_rng([seed, naive_search_cases.KINDS.index(kind)])
    return naive_search_cases.random_case(rng, kind=kind, **fixed)


@functools.cache
def drawn(seed, kind, merge, **fixed):
    case = case_of(seed, kind, **fixed)
    return case, naive_search.best_texts(case, merge)


def decoder_of(case, backend, **options):
    return TrieDecoder(
        **naive_search_cases.decoder_arguments(case),
        options=TrieOptions(**case.options | UNBOUNDED | options),
        backend=backend,
        threads=1,
    )


def decode(case, backend, **options):
    decoder = decoder_of(case, backend, **options)
    boosts = naive_search_cases.decoder_boosts(case, decoder.words)
    (hyps,) = decoder.decode_nbest([case.logprobs], boosts=boosts)
    (hyp,) = decoder.decode([case.logprobs], boosts=boosts)
    assert hyp == hyps[0]
    return hyps


def text_of(case, hyp):
    """Text as the oracle has it: without a lexicon the tokens."""
    if case.lexicon is None:
        return tuple(hyp.token_names[token] for token in hyp.token_ids)
    return tuple(word.text for word in hyp.words)


def alignment_of(case, hyp):
    """The tokens in their frames, blanks elsewhere."""
    alignment = [case.tokens.index(case.blank)] * hyp.num_frames
    for token, start, end in zip(hyp.token_ids, *hyp.token_frames, strict=True):
        assert 0 <= start < end <= hyp.num_frames
        alignment[start:end] = [token] * (end - start)
    return alignment


def assert_consistent(case, hyp, merge):
    """The parts add up, and tokens, words, times and costs are one sentence.

    In a sum over alignments the acoustic cost is theirs together: what their number
    is worth goes nowhere at an acoustic scale of 0.
    """
    parts = hyp.acoustic_cost, hyp.graph_cost, hyp.insertion_cost, hyp.boost_cost
    total = naive_search.total(case, naive_search.Parts(*parts))
    if merge == "max" or case.options.get("acoustic_scale") != 0:
        assert hyp.total_cost == pytest.approx(total, rel=1e-9, abs=1e-9)

    blank, alignment = case.tokens.index(case.blank), alignment_of(case, hyp)
    spans = naive_search.spans(alignment, blank)
    assert tuple(span.token for span in spans) == hyp.token_ids
    if merge == "max":
        cost = naive_search.alignment_cost(case, alignment)
        assert hyp.acoustic_cost == close_to(cost)

    tokens = tuple(case.tokens[token] for token in hyp.token_ids)
    words = tuple(word.text for word in hyp.words)
    frames = tuple((word.start_frame, word.end_frame) for word in hyp.words)
    if case.lexicon is None:
        assert words == naive_search.joined(case, tokens)
    readings = [
        reading
        for reading in naive_search.reader(case)(tokens)
        if case.lexicon is None or reading.words == words
    ]
    assert any(
        parts[1:] == close_to((reading.graph, reading.insertion, reading.boost))
        and (case.lexicon is None or word_frames(reading, spans) == frames)
        for reading in readings
    )


def word_frames(reading, spans):
    return naive.word_frames(naive.Segmentation(reading.pieces, 0.0), spans)


def assert_best(case, hyp, texts, merge):
    assert hyp.reached_final == bool(texts)
    if texts:
        assert hyp.total_cost == close_to(texts[0].cost)
        most = texts[0].cost + 1e-4 + 1e-5 * abs(texts[0].cost)
        assert text_of(case, hyp) in {t.text for t in texts if t.cost <= most}
        assert_consistent(case, hyp, merge)


@pytest.mark.parametrize("backend", HOST_BACKENDS)
@pytest.mark.parametrize("merge", MERGES)
@pytest.mark.parametrize(
    ("text", "words"), [("see", "sea"), ("se-e", "see"), ("seaaa", "sea"), ("s", "")]
)
def test_lexicons_without_a_separator(text, words, merge, backend):
    case = hand(text, lexicon=LEXICON)
    (hyp,) = decode(case, backend, merge=merge)
    assert hyp.text == words
    assert_best(case, hyp, naive_search.best_texts(case, merge), merge)


@pytest.mark.parametrize("backend", HOST_BACKENDS)
def test_the_last_word_needs_no_separator(backend):
    for text in ("sea", "sea|", "|sea", "|sea|"):
        case = hand(text, "-sea|", lexicon=LEXICON, separator="|")
        (hyp,) = decode(case, backend)
        assert hyp.text == "sea"
        assert_best(case, hyp, naive_search.best_texts(case, "max"), "max")


@pytest.mark.parametrize("backend", HOST_BACKENDS)
@pytest.mark.parametrize("merge", MERGES)
def test_a_sentence_that_is_not_finished(merge, backend):
    case = hand("sss", lexicon=LEXICON)
    case.logprobs[:, [0, 2, 3, 4, 5]] = -np.inf
    assert naive_search.best_texts(case, merge) == []
    (hyp,) = decode(case, backend, merge=merge)
    assert not hyp.reached_final


@pytest.mark.parametrize("backend", SWEPT)
@pytest.mark.parametrize("kind", naive_search_cases.KINDS)
@pytest.mark.parametrize("merge", MERGES)
@pytest.mark.share(keep=4)
def test_nothing_pruned(merge, kind, backend):
    long_enough = 0
    for i in range(30):
        case, texts = drawn(i, kind, merge)
        (hyp,) = decode(case, backend, merge=merge, lookahead=LOOKAHEADS[i % 3])
        assert_best(case, hyp, texts, merge)
        long_enough += len(hyp.token_ids) > 1
    assert long_enough > 5


IMPOSSIBLE = arpa_of("-99 <s> 0; -1 </s>; -inf A 0; -inf B 0", "-0.1 <s> A")
"""The empty history can say nothing, another can."""


def impossible(text, backend, **options):
    """Two words of one token each; at the first frame A's, then a blank."""
    logprobs = np.log([[0.1, 0.8, 0.1], [0.8, 0.1, 0.1]])
    decoder = TrieDecoder(
        tokens=token_table(["<blank>", "a", "b"]),
        lexicon=Lexicon(("A", "B"), ((1,), (2,)), np.zeros(2, np.float32)),
        lm=read_arpa(io.StringIO(text)),
        options=TrieOptions(**UNBOUNDED | options),
        backend=backend,
    )
    return decoder.decode([logprobs])[0]


@pytest.mark.parametrize("backend", HOST_BACKENDS)
@pytest.mark.parametrize("lookahead", LOOKAHEADS)
@pytest.mark.parametrize("lm_scale", [0.0, 1.0])
def test_words_that_only_some_histories_have(lm_scale, lookahead, backend):
    hyp = impossible(IMPOSSIBLE, backend, lookahead=lookahead, lm_scale=lm_scale)
    assert hyp.text == "A"
    lm_cost = lm_scale * 1.1 * math.log(10)
    assert hyp.total_cost == close_to(lm_cost - 2 * math.log(0.8))


@pytest.mark.parametrize("backend", HOST_BACKENDS)
@pytest.mark.parametrize("merge", MERGES)
@pytest.mark.parametrize("lookahead", LOOKAHEADS)
@pytest.mark.parametrize("lm_scale", [0.0, 1.0])
def test_no_word_and_no_end_is_possible(lm_scale, lookahead, merge, backend):
    text = IMPOSSIBLE.replace("-0.1\t", "-inf\t").replace("-1\t", "-inf\t")
    options = {"lookahead": lookahead, "merge": merge, "lm_scale": lm_scale}
    hyp = impossible(text, backend, **options)
    assert hyp.text == "" and not hyp.reached_final
    assert math.isfinite(hyp.total_cost)


@pytest.mark.parametrize("backend", SWEPT)
@pytest.mark.parametrize("boosts", naive_search_cases.BOOSTS)
@pytest.mark.parametrize("merge", MERGES)
def test_boosts(merge, boosts, backend):
    boosted = 0
    for i in range(45):
        kind = naive_search_cases.WITH_LEXICON[i % 3]
        case, texts = drawn(i, kind, merge, boosts=boosts)
        (hyp,) = decode(case, backend, merge=merge, lookahead=LOOKAHEADS[i % 3])
        assert_best(case, hyp, texts, merge)
        boosted += hyp.boost_cost != 0
    assert boosted > 3 or boosts == "no"


@pytest.mark.parametrize("kind", ["tokens_separator", "pieces"])
def test_words_of_bare_tokens_end_with_their_last_token(kind):
    """A planted fault that left it out of their frames was not found."""
    several = 0
    for i in range(40):
        case = case_of(i, kind, plain=True, boosts="no")
        (hyp,) = decode(case, "reference")
        begins, ends = hyp.token_frames
        for word in hyp.words:
            assert word.start_frame in begins and word.end_frame in ends
            inside = [
                case.tokens[token]
                for token, begin, end in zip(hyp.token_ids, begins, ends, strict=True)
                if word.start_frame <= begin and end <= word.end_frame
            ]
            text = "".join(inside)
            assert text.replace(naive_search.PIECE_START, "") == word.text
            several += len(inside) > 1
    assert several > 5


@pytest.mark.parametrize("backend", SWEPT)
@pytest.mark.parametrize("kind", [*naive_search_cases.WITH_LEXICON, "tokens"])
@pytest.mark.parametrize("merge", MERGES)
def test_all_texts_each_once(merge, kind, backend):
    several = 0
    for i in range(12):
        case, texts = drawn(i, kind, merge, num_tokens=3 + i % 2, num_frames=5 - i % 6)
        hyps = decode(case, backend, merge=merge, nbest=10_000)
        if not texts:
            assert not any(hyp.reached_final for hyp in hyps)
            continue
        found = {text_of(case, hyp): hyp.total_cost for hyp in hyps}
        assert len(found) == len(hyps)
        assert found == close_to({text.text: text.cost for text in texts})
        assert [hyp.total_cost for hyp in hyps] == close_to([t.cost for t in texts])
        for hyp in hyps:
            assert_consistent(case, hyp, merge)
        several += len(hyps) > 2
    assert several > 4


@pytest.mark.parametrize("backend", SWEPT)
@pytest.mark.parametrize("kind", ["pieces", "tokens_separator"])
def test_texts_that_tokens_spell_in_several_ways(kind, backend):
    dropped = 0
    for i in range(24):
        case, texts = drawn(i, kind, "max", num_frames=3)
        if not texts:
            continue
        least = {}
        for text in texts:
            written = " ".join(naive_search.joined(case, text.text))
            least.setdefault(written, text.cost)
        hyps = decode(case, backend, merge="max", nbest=5)
        assert len({hyp.text for hyp in hyps}) == len(hyps)
        assert len(hyps) == min(5, len(least))
        assert hyps[0].total_cost == close_to(texts[0].cost)
        for hyp in hyps:
            assert hyp.total_cost >= least[hyp.text] - 1e-4
        dropped += len(least) < len(texts)
    assert dropped > 5


BOUNDS = [
    {"beam": 0.0},
    {"beam": 1.0},
    {"beam": 4.0},
    {"beam_size": 1},
    {"beam_size": 2},
    {"beam_size": 5},
    {"token_top_k": 1},
    {"token_top_k": 2, "beam": 3.0, "beam_size": 4},
]


@pytest.mark.parametrize("backend", SWEPT)
@pytest.mark.parametrize("merge", MERGES)
def test_a_pruned_search_finds_nothing_cheaper_than_there_is(merge, backend):
    finished = costlier = 0
    for i in range(36):
        kind = naive_search_cases.KINDS[i % 6]
        case, texts = drawn(i, kind, merge)
        least = {text.text: text.cost for text in texts}
        for number, bounds in enumerate(BOUNDS):
            lookahead = LOOKAHEADS[number % 3]
            (hyp,) = decode(case, backend, merge=merge, lookahead=lookahead, **bounds)
            if not hyp.reached_final:
                continue
            finished += 1
            cost = least[text_of(case, hyp)]
            assert hyp.total_cost >= cost - 1e-4 - 1e-5 * abs(cost)
            costlier += hyp.total_cost > texts[0].cost + 1e-3
            assert_consistent(case, hyp, merge)
    assert finished > 100 and costlier > 20


@pytest.mark.parametrize("backend", HOST_BACKENDS)
@pytest.mark.parametrize(("cost", "is_kept"), [(5.0, True), (6.0, False)])
def test_what_a_word_is_boosted_by_counts_for_the_token_behind_it(
    cost, is_kept, backend
):
    """A planted fault that dropped the token before the boost was not found."""
    case = hand("", "-abc", lexicon="a a\nbc b c\n", boosts={"a": 1.5})
    x = np.full((3, 4), -np.inf, np.float32)
    x[0, 1] = x[1, 1] = x[2, 3] = 0.0
    x[1, 2] = -cost
    case = replace(case, logprobs=x)
    texts = naive_search.best_texts(case, "max")
    assert [(text.text, text.cost) for text in texts] == [(("a", "bc"), cost - 1.5)]
    (hyp,) = decode(case, backend, beam=4.0)
    assert_best(case, hyp, texts if is_kept else [], "max")
