"""A user's own model in the trie decoder: by hand, against n-grams, oracle, errors."""

import math

import naive_search
import naive_search_cases
import numpy as np
import pytest
from conformance import with_own_model
from own_models import Batched, ById, WholeText, Wrapped
from reference_backends import HOST_BACKENDS

from wfstdec import (
    OpenVocabulary,
    TrieDecoder,
    TrieOptions,
    spelling_lexicon,
    token_table,
)
from wfstdec.errors import LanguageModelError, OptionError

pytestmark = [
    pytest.mark.filterwarnings("ignore::wfstdec.errors.BoostWarning"),
    pytest.mark.usefixtures("quiet"),
]
EVERYTHING = {"beam": math.inf, "beam_size": 100_000, "nbest": 1000}


def spelled(words, **arguments):
    """A decoder of words spelled by letters, with "|" between them."""
    tokens = token_table(["<blank>", "|", *sorted(set("".join(words)))])
    lexicon = spelling_lexicon(words, tokens, separator="|")
    arguments = {"threads": 1, "separator": "|"} | arguments
    return TrieDecoder(tokens=tokens, lexicon=lexicon, **arguments)


def frames(decoder, text):
    """Log-probs that say a text, one token and one blank after the other."""
    names = decoder.tokens.names
    x = np.full((2 * len(text), len(names)), -8, np.float32)
    x[np.arange(len(text)) * 2, [names.index(one) for one in text]] = -0.1
    x[1::2, 0] = -0.1
    return x


class Bigrams:
    """Bigram model that the page of the documentation shows."""

    def __init__(self, probs):
        self.probs = probs

    def start(self):
        return "<s>"

    def score(self, state, word):
        return -math.log(self.probs.get((state, word), 1e-6)), word

    def finish(self, state):
        return -math.log(self.probs.get((state, "</s>"), 1e-6))


@pytest.mark.parametrize("lookahead", ["unigram", "none"])
@pytest.mark.parametrize("name", HOST_BACKENDS)
def test_a_model_by_hand(name, lookahead):
    """The acoustics say "to", the model knows better."""
    probs = {("<s>", "go"): 0.5, ("go", "two"): 0.4, ("go", "to"): 0.001}
    probs |= {("two", "</s>"): 0.5, ("to", "</s>"): 0.5}
    options = TrieOptions(lookahead=lookahead, beam=30.0)
    decoder = spelled(
        ["go", "to", "two"], lm=Bigrams(probs), options=options, backend=name
    )
    x = frames(decoder, "go|two")
    x[8, decoder.tokens.index("w")] = -2.5  # as likely as a blank, all but
    x[8, 0] = -0.2
    (hyp,) = decoder.decode([x])
    assert hyp.text == "go two"
    expected = -math.log(0.5) - math.log(0.4) - math.log(0.5)
    assert hyp.graph_cost == pytest.approx(expected, rel=1e-6)
    (hyp,) = decoder.with_options(lm_scale=0.0).decode([x])
    assert hyp.text == "go to"


def draw(seed, kind):
    """A decoder with an `NgramLM`, maker of one that asks it, a case and its boosts."""
    rng = np.random.default_rng([seed, naive_search_cases.KINDS.index(kind), 3])
    case = naive_search_cases.random_case(rng, kind=kind, easy_lm=seed % 3 == 0)
    while case.arpa is None:
        case = naive_search_cases.random_case(rng, kind=kind, easy_lm=seed % 3 == 0)
    options = {
        "beam": float(rng.choice([1.0, 4.0, math.inf])),
        "beam_size": int(rng.choice([2, 6, 1000])),
        "merge": str(rng.choice(["max", "sum"])),
        "nbest": int(rng.choice([1, 4])),
        "lookahead": str(rng.choice(["unigram", "none"])),
    }
    arguments = naive_search_cases.decoder_arguments(case) | {"threads": 1}
    arguments["options"] = TrieOptions(**case.options | options)
    decoder = TrieDecoder(**arguments)

    def make(model=Wrapped, **others):
        asking = with_own_model(arguments, model)
        return TrieDecoder(**asking | {"lm": asking["lm"]()} | others)

    boosts = naive_search_cases.decoder_boosts(case, decoder.words)
    return decoder, make, case, boosts


@pytest.mark.parametrize("kind", naive_search_cases.KINDS)
def test_the_bits_of_the_same_model_in_arrays(kind):
    for seed in range(20):
        decoder, make, case, boosts = draw(seed, kind)
        want = decoder.decode_nbest([case.logprobs], boosts=boosts)
        for backend in HOST_BACKENDS:
            found = make(backend=backend)
            assert found.decode_nbest([case.logprobs], boosts=boosts) == want, seed


def test_a_pair_is_asked_for_once():
    decoder, make, case, _ = draw(0, "separator")
    found = make(threads=2)
    hyps = found.decode([case.logprobs] * 5)
    model = found.lm.model
    asked = [pair for pair in model.asked if pair[0] != model.empty()]
    assert len(set(asked)) == len(asked) > 0
    before = len(model.asked)
    assert found.decode([case.logprobs] * 2) == hyps[:2]
    assert found.with_options(beam=0.5).decode([case.logprobs])
    assert len(model.asked) == before


@pytest.mark.parametrize("make", [WholeText, ById])
@pytest.mark.parametrize("kind", ["none", "separator"])
@pytest.mark.share(keep=1)
def test_a_model_of_the_whole_text_finds_what_trying_everything_does(
    kind, make, monkeypatch
):
    model = make(3)
    monkeypatch.setattr(
        naive_search, "sentence_scorer", lambda case: WholeText(3).total
    )
    for seed in range(25):
        rng = np.random.default_rng([seed, 11])
        case = naive_search_cases.random_case(rng, kind=kind, boosts="no")
        arguments = naive_search_cases.decoder_arguments(case)
        arguments = {k: v for k, v in arguments.items() if k not in ("lm", "unk_cost")}
        for merge, name in (("max", "cpu"), ("sum", "cpu"), ("max", "reference")):
            options = {"merge": merge, "lookahead": ("none", "unigram")[seed % 2]}
            options = TrieOptions(**case.options | EVERYTHING | options)
            decoder = TrieDecoder(**arguments, lm=model, options=options, backend=name)
            (hyps,) = decoder.decode_nbest([case.logprobs])
            texts = naive_search.best_texts(case, merge)
            assert len(hyps) == max(1, len(texts)) or not hyps[0].reached_final
            if texts:
                found = sorted((hyp.text, hyp.total_cost) for hyp in hyps)
                want = sorted((" ".join(text.text), text.cost) for text in texts)
                assert [one[0] for one in found] == [one[0] for one in want], seed
                costs = [one[1] for one in want]
                assert [one[1] for one in found] == pytest.approx(costs, abs=1e-3)


def test_a_batched_model_is_asked_in_batches():
    decoder, make, case, _ = draw(0, "separator")
    found = make(Batched)
    assert found.decode([case.logprobs]) == decoder.decode([case.logprobs])
    sizes = found.lm.model.sizes
    assert len(sizes) < sum(sizes)


def test_words_that_the_model_does_not_know_are_dropped():
    class Some(WholeText):
        words = frozenset(["go"])

    options = TrieOptions(lookahead="none")
    decoder = spelled(["go", "to"], lm=Some(), options=options)
    assert decoder.words == ("<eps>", "go")
    with pytest.raises(OptionError, match="open_vocabulary with a language model"):
        spelled(
            ["go"], lm=Some(), options=options, open_vocabulary=OpenVocabulary(1.0, 0.5)
        )


@pytest.mark.parametrize(
    ("method", "answer", "message"),
    [
        ("score", 3.0, "Broken.score gave 3.0 for 'go', expected a cost and a state"),
        ("score", (math.nan, 0), "gave the cost nan for 'go', expected nats"),
        ("score", (-1.0, 0), "gave the cost -1.0 for 'go', expected 0 or more"),
        ("score", (1.0, []), "a state of the class 'list', expected one that can be"),
        ("score_batch", [], "score_batch gave 0 answers, expected 1"),
        ("finish", "x", "Broken.finish gave the cost 'x' for '</s>', expected nats"),
        ("finish_batch", [], "finish_batch gave 0 answers, expected"),
    ],
)
@pytest.mark.parametrize("name", HOST_BACKENDS)
def test_answers_that_cannot_be(name, method, answer, message):
    model = WholeText()
    model.__class__ = type("Broken", (WholeText,), {method: lambda *_: answer})
    decoder = spelled(
        ["go"], lm=model, options=TrieOptions(lookahead="none"), backend=name
    )
    x = frames(decoder, "go")
    with pytest.raises(LanguageModelError, match=message) as raised:
        decoder.decode([x[:0], x])
    assert raised.value.utterance in (0, 1)
    sessions = decoder.sessions()
    sessions.open(session="call 7")
    with pytest.raises(LanguageModelError, match="utterance 'call 7'"):
        sessions.advance({"call 7": np.concatenate([x, frames(decoder, "|go")])})
        sessions.close("call 7")


def test_errors_of_the_model_are_passed_on():
    class Down(WholeText):
        broken = True

        def score(self, state, word):
            if self.broken and word == "to":
                raise ConnectionError("no answer")
            return super().score(state, word)

    options = TrieOptions(lookahead="none", beam=5.0)
    decoder = spelled(["go", "to"], lm=Down(), options=options)
    good, bad = frames(decoder, "go|go"), frames(decoder, "to|to")
    for threads in (1, 2):
        decoder.threads = threads
        with pytest.raises(ConnectionError, match="no answer") as raised:
            decoder.decode([good, bad])
        assert raised.value.__notes__ == ["wfstdec: utterance 1"]
    decoder.lm.model.broken = False
    fresh = spelled(["go", "to"], lm=WholeText(), options=options)
    assert decoder.decode([good, bad]) == fresh.decode([good, bad])


def test_options_that_do_not_fit():
    with pytest.raises(
        OptionError, match="expected 'unigram' or 'none'; 'unigram' queries"
    ):
        spelled(["go"], lm=WholeText())
    with pytest.raises(OptionError, match="unk_cost=3.0 with a language model whose"):
        spelled(["go"], lm=WholeText(), unk_cost=3.0)
    with pytest.raises(OptionError, match="expected a file, a folder of NgramLM.save"):
        spelled(["go"], lm=3)
    model = WholeText()
    model.least_cost = 1.0
    with pytest.raises(LanguageModelError, match="least_cost is 1.0, expected nats, 0"):
        spelled(["go"], lm=model, options=TrieOptions(lookahead="none"))
