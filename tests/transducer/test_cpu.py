"""The searches on a CPU: calls of the model, what is kept, sessions side by side."""

import io

import numpy as np
import pytest
import torch
from arpa_texts import BIGRAMS
from table_transducers import TableTransducer, texts_of

from wfstdec import TransducerDecoder, TransducerOptions, read_arpa
from wfstdec.errors import LogprobError
from wfstdec.transducer import cpu_greedy as greedy
from wfstdec.transducer import cpu_search as search
from wfstdec.transducer.cpu_arrays import store_of

BEAMS = [("alsd", ()), ("alsd", (0, 1, 2)), ("aes", ()), ("aes", (0, 1, 3))]


class Counting:
    """A table that notes what it is asked."""

    def __init__(self, seed=0, durations=(), **sizes):
        sizes = {"num_frames": 9, "longest": 6} | sizes
        self.table = TableTransducer(np.random.default_rng(seed), 3, durations, **sizes)
        self.tokens, self.blank = self.table.tokens, self.table.blank
        self.durations, self.start = self.table.durations, self.table.start
        self.predicted, self.num_joins = [], 0

    def frames(self, utterance=0):
        return self.table.frames(utterance)

    def predict(self, labels, state):
        g, state = self.table.predict(labels, state)
        self.predicted.append(set(state["node"].tolist()))
        return g, state

    def join(self, frames, g):
        self.num_joins += 1
        return self.table.join(frames, g)


def decoder_of(model, strategy, **options):
    lm = [(read_arpa(io.StringIO(BIGRAMS)), 0.5)]
    options = TransducerOptions(strategy=strategy, **options)
    return TransducerDecoder(model, lm=lm, options=options)


@pytest.mark.parametrize(("strategy", "durations"), BEAMS)
def test_the_predictor_is_asked_once_for_a_text(strategy, durations):
    for seed in range(4):
        model = Counting(seed, durations)
        decoder = decoder_of(model, strategy, beam_size=6)
        model.predicted.clear()  # what the decoder asked at its birth
        decoder.decode([model.frames()])
        texts = [node for nodes in model.predicted for node in nodes]
        assert texts and len(texts) == len(set(texts))


@pytest.mark.parametrize(("strategy", "durations"), BEAMS)
def test_what_is_forgotten_changes_nothing(strategy, durations, monkeypatch):
    sizes = {"num_utterances": 3, "num_frames": 14}
    model = Counting(1, durations, **sizes)
    frames = [model.frames(u) for u in range(3)]
    decoder = decoder_of(model, strategy, beam_size=4)
    boosts = decoder.phrase_compiler().compile({"ab": 1.0, "cab": 2.0})
    expected = decoder.decode_nbest(frames, boosts=boosts)
    laid_out = []

    def noting(*given):
        laid_out.append(given)
        return store_of(*given)

    monkeypatch.setattr(search, "store_of", noting)
    monkeypatch.setattr(search, "_ROOM", 1)
    monkeypatch.setattr(search, "_ROOM_EACH", 1)
    monkeypatch.setattr(search, "_MOST", 1)
    assert decoder.decode_nbest(frames, boosts=boosts) == expected
    assert len(laid_out) > 2


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.share(keep=8)
def test_kernels_and_operations_of_torch_find_the_same(seed):
    """All options that a step has, with a language model and phrases."""
    rng = np.random.default_rng(seed)
    durations = [(), (0, 1, 2), (1, 2), (2, 0)][seed % 4]
    model = Counting(seed, durations, num_utterances=3, num_frames=5, longest=4)
    decoder = decoder_of(
        model,
        ("alsd", "aes", "greedy")[seed % 3],
        beam_size=int(rng.integers(1, 6)),
        merge=str(rng.choice(["sum", "max"])),
        blank_scored=bool(rng.integers(2)),
        max_symbols=int(rng.integers(1, 4)),
        token_insertion=float(rng.choice([0.0, 0.4])),
        expansion_gamma=float(rng.choice([1.0, 3.0, np.inf])),
        expansion_rounds=int(rng.integers(1, 4)),
    )
    boosts = decoder.phrase_compiler().compile({"ab": 1.0, "cab": 2.0})
    frames = [model.frames(u)[:n] for u, n in enumerate((5, 0, 4))]
    found = decoder.decode_nbest(frames, boosts=[boosts, None, boosts])
    decoder._backend.dense = True
    others = decoder.decode_nbest(frames, boosts=[boosts, None, boosts])
    for mine, theirs in zip(found, others, strict=True):
        assert texts_of(mine) == texts_of(theirs)
        pairs = zip(mine, theirs, strict=True)
        assert all(one.token_frames == other.token_frames for one, other in pairs)


@pytest.mark.parametrize("durations", [(), (0, 1, 2), (2, 1, 4)])
def test_frames_that_are_joined_at_once_change_nothing(durations, monkeypatch):
    sizes = {"num_utterances": 5, "num_frames": 14}
    model = Counting(2, durations, **sizes)
    frames = [model.frames(u)[: 14 - 2 * u] for u in range(5)]
    decoder = decoder_of(model, "greedy", max_symbols=2)
    boosts = decoder.phrase_compiler().compile({"ab": 1.0, "cab": 2.0})
    monkeypatch.setattr(greedy, "LEAST_ROWS", 1)
    found, called = [], []
    for window in (1, 2, 4, 20):
        monkeypatch.setattr(greedy, "AT_ONCE", window)
        model.num_joins = 0
        found.append(decoder.decode(frames, boosts=boosts))
        called.append(model.num_joins)
    assert all(hyps == found[0] for hyps in found)
    assert called == sorted(called, reverse=True) and called[2] < called[0]


@pytest.mark.parametrize("durations", [(), (0, 1, 2)])
def test_sums_are_taken_in_the_precision_of_the_model(durations):
    """float32, as the operations of torch take them: the same bits."""
    sizes = {"num_utterances": 3, "num_frames": 12, "dtype": torch.float32}
    model = Counting(5, durations, **sizes)
    for insertion in (0.0, 0.3):
        decoder = decoder_of(model, "greedy", token_insertion=insertion)
        frames = [model.frames(u) for u in range(3)]
        found = decoder.decode(frames)
        decoder._backend.dense = True
        others = decoder.decode(frames)
        assert [hyp.total_cost for hyp in found] == [hyp.total_cost for hyp in others]


def test_a_token_that_nothing_allows_is_a_blank():
    """The model alone would say one, and the language model forbids all."""
    arpa = BIGRAMS.replace("-0.5\ta", "-inf\ta").replace("-0.75\tb", "-inf\tb")
    arpa = arpa.replace("-1\tc", "-inf\tc")
    model = TableTransducer(np.random.default_rng(0), 3)
    arpa = arpa.replace("ngram 2=3\n", "").split("\\2-grams")[0] + "\\end\\\n"
    lm = [(read_arpa(io.StringIO(arpa)), 1.0)]
    options = TransducerOptions(strategy="greedy")
    decoder = TransducerDecoder(model, lm=lm, options=options)
    plain = TransducerDecoder(model, options=options)
    assert plain.decode([model.frames()])[0].token_ids
    assert decoder.decode([model.frames()])[0].token_ids == ()


@pytest.mark.parametrize("strategy", ["greedy", "alsd", "aes"])
@pytest.mark.parametrize("durations", [(), (0, 1, 2)])
def test_sessions_of_one_list_are_advanced_in_one_batch(strategy, durations):
    model = Counting(3, durations, num_utterances=4, num_frames=12)
    decoder = decoder_of(model, strategy, beam_size=3)
    boosts = decoder.phrase_compiler().compile({"ab": 1.0})
    lists = [boosts, boosts, None, boosts]
    alone = [
        decoder.decode_nbest([model.frames(u)], boosts=[one])[0]
        for u, one in enumerate(lists)
    ]
    sessions = decoder.sessions()
    names = [sessions.open(one) for one in lists]
    most = 0
    for first in range(0, 12, 3):
        chunks = {n: model.frames(u)[first : first + 3] for u, n in enumerate(names)}
        model.num_joins = 0
        sessions.advance(chunks)
        most = max(most, model.num_joins)
    assert [sessions.close_nbest(name) for name in names] == alone
    sessions, joins = decoder.sessions(), 0  # one after the other
    names = [sessions.open(one) for one in lists]
    for first in range(0, 12, 3):
        model.num_joins = 0
        for u, name in enumerate(names):
            sessions.advance({name: model.frames(u)[first : first + 3]})
        joins = max(joins, model.num_joins)
    assert most < joins
    assert [sessions.close_nbest(name) for name in names] == alone


@pytest.mark.parametrize("strategy", ["greedy", "alsd", "aes"])
def test_where_one_session_fails_none_has_moved(strategy):
    model = Counting(4, (), num_utterances=3)
    expected = decoder_of(model, strategy).decode([model.frames(0), model.frames(2)])
    decoder = decoder_of(model, strategy)
    sessions = decoder.sessions()
    names = [sessions.open(session=name) for name in "xyz"]
    good = model.table.table[1].clone()
    model.table.table[1] = torch.nan
    chunks = {name: model.frames(u)[:4] for u, name in enumerate(names)}
    with pytest.raises(LogprobError) as caught:
        sessions.advance(chunks)
    assert caught.value.utterance == "y"
    assert [sessions.partial(name).num_frames for name in names] == [0, 0, 0]
    model.table.table[1] = good
    for first in (0, 4, 8):
        sessions.advance(
            {n: model.frames(u)[first : first + 4] for u, n in enumerate(names)}
        )
    assert [sessions.close(name) for name in "xz"] == expected
