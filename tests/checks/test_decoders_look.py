"""Decoders, the aligner, batches and comparisons look at what they are given first."""

import warnings

import numpy as np
import pytest
from real_speech import RECIPE, speech_graph, utterances

import wfstdec
from wfstdec import batch
from wfstdec.compare import Models
from wfstdec.errors import LogprobWarning, ShapeError
from wfstdec.io import read_text
from wfstdec.search.logprobs import as_utterances

LN10 = np.float32(np.log(10))


@pytest.fixture(scope="module")
def graph():
    return speech_graph("normal")


@pytest.fixture
def decoder(graph):
    return wfstdec.WfstDecoder(graph, wfstdec.WfstOptions(beam=8.0), threads=1)


def caught(function):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        function()
    texts = [str(one.message) for one in found if one.category is LogprobWarning]
    return [
        text for text in texts if "logprobs lie" not in text
    ]  # a check of every batch


def test_a_decoder_looks_once(decoder):
    log10 = [x / LN10 for x in utterances(13)]
    decoder.decode([np.zeros((1, 43), np.float32)])  # a warm-up is no look
    [text] = caught(lambda: [decoder.decode(log10) for _ in range(3)])
    assert "logs to base 10" in text
    assert caught(lambda: decoder.with_options(beam=6.0).decode(log10)) == []


def test_a_decoder_is_silent_about_good_input(decoder):
    for door in (wfstdec.WfstDecoder.decode, one_by_one, in_sessions):
        assert caught(lambda: door(decoder, utterances(2))) == []  # noqa: B023


def test_time_first_with_lengths_and_columns_for_rows():
    x = np.zeros((60, 4, 3), np.float32)
    with pytest.raises(ShapeError, match=r"per utterance; \[T, B, V\] \(60, 4, 3\)"):
        as_utterances(x, [60] * 4, 3)
    with pytest.raises(ShapeError, match=r"expected V=3 .*; \[V, T\]\? then trans"):
        as_utterances([np.zeros((3, 60), np.float32)], None, 3)


SPREAD = np.random.default_rng(5).uniform(0, 3, 43).astype(np.float32)
BAD_INPUT = {
    "logits": (lambda x: 3 * x + 7, "logits"),
    "probabilities": (np.exp, "as it is: probabilities"),
    "log10": (lambda x: x / LN10, "logs to base 10"),
    "log2": (lambda x: x / np.float32(np.log(2)), "logs to base 2"),
    "priors": (lambda x: x - SPREAD, "far from a sum of one"),
    "blank last": (lambda x: x[:, [*range(1, 43), 0]], "the blank ('<blank>', token"),
}


def one_by_one(decoder, given):
    for x in given:
        decoder.decode([x])


def in_sessions(decoder, given):
    sessions = decoder.sessions()
    for x in given:
        session = sessions.open()
        for begin in range(0, len(x), 30):
            sessions.advance({session: x[begin : begin + 30]})
        sessions.close(session)


def after_good_batches(decoder, given):
    one_by_one(decoder, utterances(6))
    one_by_one(decoder, 14 * given)


@pytest.mark.parametrize(("change", "message"), BAD_INPUT.values(), ids=BAD_INPUT)
@pytest.mark.parametrize("door", [one_by_one, in_sessions, after_good_batches])
def test_bad_input_is_noticed_once_at_every_door(decoder, door, change, message):
    given = [change(x) for x in utterances(6)]
    found = caught(lambda: door(decoder, given))
    if door is after_good_batches and message.startswith("the blank"):
        assert found == []  # a model's blank does not change between batches
    else:
        [text] = found
        assert message in text


def test_a_run_says_it_once(decoder):
    """The batch's look replaces the decoder's own."""
    pairs = [(str(i), x / LN10) for i, x in enumerate(utterances(13))]
    [text] = caught(lambda: list(batch.decode_all(decoder, pairs)))
    assert "logs to base 10" in text


def test_a_forgotten_separator_in_a_run():
    tokens = wfstdec.read_tokens(RECIPE / "tokens.txt")
    lexicon = wfstdec.Lexicon(("a",), (tuple(range(2, 42)),), np.zeros(1, np.float32))
    trie = wfstdec.TrieDecoder(
        tokens=tokens, lexicon=lexicon, backend="reference", threads=1
    )
    pairs = [(str(i), x) for i, x in enumerate(utterances(6))]
    [text] = caught(lambda: list(trie.checked(pairs)))
    assert "--separator '<wb>'" in text


def test_an_aligner_looks_at_what_it_aligns():
    aligner = wfstdec.ForcedAligner(
        RECIPE / "tokens.txt", RECIPE / "lexicon.txt.gz", separator="<wb>"
    )
    given = np.load(RECIPE / "logprobs.npz")
    texts = read_text(RECIPE / "refs.txt")
    [utterance] = [u for u in given.files if u == "1272-135031-0021"]
    pairs = [(utterance, given[utterance].astype(np.float32) / LN10)]
    [text] = caught(lambda: list(batch.align_all(aligner, pairs, texts)))
    assert "logs to base 10" in text


def test_a_comparison_looks_too(graph):
    options = wfstdec.WfstOptions(beam=6.0)
    [search] = Models(graph=graph).wfst_searches(options, {})
    decode = search.prepare({})
    given = [x / LN10 for x in utterances(20)]
    [text] = caught(lambda: (decode(given, None), decode(given, None)))
    assert "logs to base 10" in text
