"""The decoder: by hand, whatever surrounds an utterance, sessions, shapes, errors."""

import io
import math

import numpy as np
import pytest
import torch
from arpa_texts import arpa_of
from table_transducers import TableTransducer, transducer_of

from wfstdec import (
    NgramLM,
    PhraseOptions,
    TorchNgramLM,
    TransducerDecoder,
    TransducerOptions,
    read_arpa,
    token_table,
)
from wfstdec.boost.automatic import bonuses_of_lengths
from wfstdec.errors import (
    BoostError,
    LogprobError,
    OptionError,
    ShapeError,
    TokenTableError,
)
from wfstdec.transducer.beam import Source, with_room
from wfstdec.transducer.pricing import Fusion, Term
from wfstdec.transducer.steps import Searcher
from wfstdec.transducer.torch_model import (
    HeadConfig,
    TorchTransducer,
    TransducerConfig,
    TransducerNet,
)

STRATEGIES = ("greedy", "alsd", "aes")
SHARE = pytest.mark.share
LETTERS = ("<sp>", "a", "b", "c")
ARPA = arpa_of(
    "-99 <s> -0.25; -0.75 </s>; -0.5 <sp> -0.125; -0.75 a -0.5; -1 b; -0.875 c",
    "-0.125 <s> b; -0.25 a b; -0.0625 <sp> a",
)


def arpa():
    return read_arpa(io.StringIO(ARPA))


def small_net(seed=0, encoder="conv", predictor="lstm", dtype=torch.float32):
    torch.manual_seed(seed)
    heads = tuple(
        HeadConfig(name, predictor, durations)
        for name, durations in (("rnnt", ()), ("tdt", (0, 1, 2, 4)))
    )
    sizes = {"input_dim": 5, "width": 16, "dim": 16, "layers": 1}
    config = TransducerConfig(LETTERS, heads, encoder=encoder, **sizes)
    net = TransducerNet(config)
    with torch.no_grad():  # sharp enough that the searches differ
        for head in net.heads.values():
            head.joiner.tokens.weight *= 6
    return net.to(dtype)


def features(seed, lengths, size=5):
    rng = np.random.default_rng(seed)
    rows = [torch.from_numpy(rng.normal(size=(n, size)) * 2) for n in lengths]
    return [torch.log_softmax(row, 1).float() for row in rows]


def test_an_example_by_hand():
    model = transducer_of(
        [
            {"": [0.6, 0.1, 0.3], "a": [0.1, 0.1, 0.8]},
            {"": [0.1, 0.1, 0.8], "a": [0.0, 0.7, 0.3], "ab": [0.0, 0.0, 1.0]},
        ]
    )
    decoder = TransducerDecoder(model, frame_shift_s=0.5)
    (hyp,) = decoder.decode([model.frames()])
    assert [token[:5] for token in hyp.tokens] == [
        ("a", 0.0, 0.5, 0, 1),
        ("b", 0.5, 1.0, 1, 2),
    ]
    # a at 0, b at 1; both at 0; both at 1
    ab = 0.6 * 0.8 * 0.7 + 0.6 * 0.1 + 0.3 * 0.1 * 0.7
    assert math.exp(-hyp.total_cost) == pytest.approx(ab)
    assert hyp.acoustic_cost == hyp.total_cost and hyp.num_frames == 2
    assert hyp.token_ids == (0, 1) and hyp.reached_final


def test_words_are_cut_at_the_separator_or_at_the_mark():
    rows = [{"": [1.0, 0.0, 0.0], "a": [0.0, 1.0, 0.0], "ab": [1.0, 0.0, 0.0]}]
    for tokens, separator, words in (
        (["a", "|"], "|", ["a", "a"]),
        (["\u2581a", "b"], None, ["ab", "a"]),
    ):
        model = transducer_of(rows)
        model.tokens = tokens
        decoder = TransducerDecoder(model, separator=separator)
        (hyp,) = decoder.decode([model.frames()])
        assert [word.text for word in hyp.words] == words


def test_costs_are_those_of_models_and_phrases():
    model = TorchTransducer(small_net())
    decoder = TransducerDecoder(
        *(model,),
        lm=[(arpa(), 0.5), (arpa(), 0.25)],
        separator="<sp>",
        input="features",
        options=TransducerOptions(lm_scale=0.8, token_insertion=0.3),
    )
    boosts = decoder.phrase_compiler().compile(["ab", "c"])
    lm = NgramLM.from_arpa(arpa(), decoder.tokens)
    for hyps in decoder.decode_nbest(features(0, [60, 31]), boosts=boosts):
        for hyp in hyps:
            assert hyp.graph_cost == pytest.approx(0.75 * lm.total(hyp.token_ids))
            assert hyp.boost_cost == pytest.approx(boosts.total(hyp.token_ids))
            assert hyp.insertion_cost == pytest.approx(0.3 * len(hyp.token_ids))
            parts = hyp.acoustic_cost + 0.8 * hyp.graph_cost
            parts += hyp.insertion_cost + hyp.boost_cost
            assert hyp.total_cost == pytest.approx(parts)
    twice = decoder.with_options(boost_scale=2.0)
    for hyp in twice.decode(features(0, [60, 31]), boosts=boosts):
        assert hyp.boost_cost == pytest.approx(2 * boosts.total(hyp.token_ids))


@pytest.mark.parametrize("head", ["rnnt", "tdt"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.share(keep=2)
def test_a_net_gives_the_same_in_batches_and_chunks(head, dtype):
    model = TorchTransducer(small_net(dtype=dtype), head)
    decoder = TransducerDecoder(model, lm=[(arpa(), 0.3)], separator="<sp>")
    whole = TransducerDecoder(model, input="features")
    frames = whole.encode(features(1, [90, 3, 0, 50]))
    together = decoder.decode(frames)
    assert any(hyp.token_ids for hyp in together)
    sessions = decoder.sessions()
    for hyp, rows in zip(together, frames, strict=True):
        one = sessions.open()
        for first in range(0, len(rows), 5):
            sessions.advance({one: rows[first : first + 5]})
        other = sessions.close(one)
        assert other.token_ids == hyp.token_ids
        assert other.token_frames == hyp.token_frames
        assert other.total_cost == pytest.approx(hyp.total_cost, rel=1e-4)


@pytest.mark.parametrize("encoder", ["conv", "gru"])
def test_the_encoder_does_not_see_the_padding(encoder):
    model = TorchTransducer(small_net(encoder=encoder))
    decoder = TransducerDecoder(model, input="features")
    given = features(2, [41, 16, 1, 0, 7])
    together = decoder.encode(given)
    assert [len(rows) for rows in together] == [11, 4, 1, 0, 2]
    for one, rows in zip(given, together, strict=True):
        torch.testing.assert_close(decoder.encode([one])[0], rows)


def test_long_sessions_settle_their_tokens():
    rows = [{"": [0.6, 0.0, 0.4], "a": [0.0, 0.0, 1.0]}] * 3
    model = transducer_of(rows)
    model.predict = lambda labels, state: (state["node"].double()[:, None] * 0, state)
    decoder = TransducerDecoder(model, options=TransducerOptions(beam_size=2))
    frames = torch.zeros(400, 2, dtype=torch.float64)
    (whole,) = decoder.decode([frames])
    sessions = decoder.sessions()
    one = sessions.open()
    for first in range(0, 400, 20):
        sessions.advance({one: frames[first : first + 20]})
    assert sessions._sessions[one].search.beam.rows.shape[1] < 400
    assert sessions.close(one) == whole
    assert len(whole.token_ids) > 100


def fixed_searcher(strategy, head):
    net = small_net()
    model = TorchTransducer(net, head)
    tokens = token_table([*LETTERS, "<blank>"], 4)
    lm = TorchNgramLM(NgramLM.from_arpa(arpa(), tokens))
    fusion = Fusion([Term(lm, 0.5, lm.start[:1].expand(3), True)])
    options = TransducerOptions(strategy=strategy, beam_size=4)
    return Searcher(model, options, fusion, dense=True)


def three_utterances():
    lengths = torch.tensor([6, 0, 4])
    ended = torch.ones(3, dtype=torch.bool)
    generator = torch.Generator().manual_seed(0)
    frames = torch.randn(3, 6, 16, generator=generator)
    return Source(frames, torch.zeros_like(lengths), lengths, ended)


def one_step(searcher, beam, source):
    if searcher.options.strategy == "aes":
        return searcher.step_frame(beam, source, 0)
    return searcher.step(beam, source)


@pytest.mark.parametrize("head", ["rnnt", pytest.param("tdt", marks=SHARE)])
@pytest.mark.parametrize(
    "strategy", ["greedy", *(pytest.param(one, marks=SHARE) for one in ("alsd", "aes"))]
)
def test_a_step_can_be_exported(strategy, head):
    class Step(torch.nn.Module):
        def __init__(self, searcher):
            super().__init__()
            self.net, self.searcher = searcher.model.net, searcher

        def forward(self, beam, source):
            return one_step(self.searcher, beam, source)

    searcher = fixed_searcher(strategy, head)
    with torch.no_grad():
        beam, source = with_room(searcher.start(3), 8), three_utterances()
        exported = torch.export.export(Step(searcher), (beam, source), strict=False)
        searcher.start(3)
        for _ in range(2):
            expected = one_step(searcher, beam, source)
            found = exported.module()(beam, source)
            torch.testing.assert_close(found.score, expected.score)
            torch.testing.assert_close(found.rows, expected.rows)
            if strategy == "aes":
                break  # the frame is part of what was exported
            beam = expected


def test_models_that_do_not_fit():
    model = transducer_of([{"": [0.5, 0.3, 0.2]}])
    model.blank = 3
    with pytest.raises(OptionError, match="blank is 3, expected 0 to 2, with V=2"):
        TransducerDecoder(model)
    model.blank, model.durations = 2, (0, 1, 1)
    with pytest.raises(OptionError, match=r"\(0, 1, 1\), expected different"):
        TransducerDecoder(model)
    model.durations = (0,)
    with pytest.raises(OptionError, match="expected one above 0"):
        TransducerDecoder(model)
    model.durations, model.tokens = (), ["a", "a"]
    with pytest.raises(TokenTableError, match="'a'"):
        TransducerDecoder(model)
    model.tokens, model.start = ["a", "b"], lambda num: (None, torch.zeros(1, 1))
    with pytest.raises(ShapeError, match="gives 1 rows, expected 5"):
        TransducerDecoder(model)
    with pytest.raises(OptionError, match="no encoder"):
        TransducerDecoder(transducer_of([{"": [0.5, 0.3, 0.2]}]), input="features")


def test_a_joiner_of_another_size_is_named_with_both():
    model = transducer_of([{"": [0.5, 0.3, 0.2]}])
    model.tokens, model.blank = ["a", "b", "c"], 3
    with pytest.raises(ShapeError, match="gives 3 outputs, expected 4: V=3 tokens"):
        TransducerDecoder(model).decode([model.frames()])
    model = TableTransducer(np.random.default_rng(0), 2, (0, 1, 2))
    model.durations = (0, 1)
    model.tokens = ["a", "b"]
    with pytest.raises(ShapeError, match="gives 3 and 3 outputs, expected 3 and 2"):
        TransducerDecoder(model).decode([model.frames()])


class Wrapped:
    """A net whose outputs are changed on their way."""

    def __init__(self, dtype=torch.float32, head="rnnt", **changes):
        model = TorchTransducer(small_net(dtype=dtype), head)
        self.tokens, self.blank = model.tokens, model.blank
        self.durations = model.durations
        for name in ("start", "predict", "join"):
            change = changes.get(name, lambda found: found)
            setattr(self, name, changed(getattr(model, name), change))


def changed(method, change):
    return lambda *given: change(method(*given))


def layers_first(given):
    """LSTM states as torch has them: [layers, N, H]."""
    state, g = given
    return tuple(part[None] for part in state), g


def numpy_state(found):
    state, g = found
    return [part.numpy() for part in state], g


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("start", layers_first, r"state has torch.float32 \[1, 5, 16\], expected"),
        (
            *("predict", lambda found: (found[0], layers_first((found[1], 0))[0])),
            r"\[1, 5, 16\], expected \[5, ...\]",
        ),
        ("start", numpy_state, r"numpy float32 \[5, 16\], expected \[5"),
        (
            *("start", lambda found: (found[0], found[1].numpy())),
            "predictor gives numpy float32.*from_numpy",
        ),
        ("predict", lambda found: (found[0][:1], found[1]), "predictor gives 1"),
        (
            *("predict", lambda found: (found[0][:, None], found[1])),
            r"\[5, 1, 16\] after a token",
        ),
    ],
)
def test_what_a_predictor_gives_is_looked_at(name, change, message):
    with pytest.raises(ShapeError, match=message):
        TransducerDecoder(Wrapped(**{name: change}))


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda found: found[:, None], ShapeError, r"\[\d+, 1, 5\], expected"),
        (lambda found: found[:1], ShapeError, r"gives 1 rows, expected \d+"),
        (lambda found: found.numpy(), ShapeError, "joiner gives numpy float32"),
        (lambda found: (found, found), ShapeError, "2 outputs apart, expected 1"),
        (lambda found: found + 3, LogprobError, "logsumexp of 3 over its 5 outputs"),
        (lambda found: found.exp(), LogprobError, "expected 0 as of natural logs"),
    ],
    ids=["an axis more", "a row", "an array", "two", "logits", "probabilities"],
)
def test_what_a_joiner_gives_is_looked_at(strategy, change, error, message):
    options = TransducerOptions(strategy=strategy)
    decoder = TransducerDecoder(Wrapped(join=change), options=options)
    with pytest.raises(error, match=message):
        decoder.decode([torch.randn(3, 16)])


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_a_joiner_gives_of_durations_is_looked_at(strategy):
    def logits(found):
        return found[0], found[1] - 2

    model = Wrapped(head="tdt", join=logits)
    decoder = TransducerDecoder(model, options=TransducerOptions(strategy=strategy))
    with pytest.raises(LogprobError, match="of -2 over its 4 outputs, expected 0"):
        decoder.decode([torch.randn(3, 16)])
    one = Wrapped(head="tdt", join=lambda found: found[0])
    decoder = TransducerDecoder(one, options=TransducerOptions(strategy=strategy))
    with pytest.raises(ShapeError, match="1 outputs apart, expected 2: .* durations"):
        decoder.decode([torch.randn(3, 16)])


def test_frames_that_a_joiner_cannot_take():
    """A model that does not say its D is asked, and the error is ours all the same."""
    decoder = TransducerDecoder(Wrapped())
    with pytest.raises(ShapeError, match=r"frames torch.float32 \[\d+, 15\] with g"):
        decoder.decode([torch.zeros(3, 15)])
    with pytest.raises(ShapeError, match="D=15, expected D=16 as the model's encoder"):
        TransducerDecoder(TorchTransducer(small_net())).decode([torch.zeros(3, 15)])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_frames_of_another_precision_than_the_model(dtype):
    for model in (Wrapped(dtype), TorchTransducer(small_net(dtype=dtype))):
        decoder = TransducerDecoder(model)
        with pytest.raises(
            ShapeError, match=rf"torch.float32.*{dtype}.*give frames.to\({dtype}\)"
        ):
            decoder.decode([torch.zeros(3, 16)])
        assert decoder.decode([torch.zeros(3, 16, dtype=dtype)])


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_no_numbers_from_the_joiner_name_the_utterance(strategy, number):
    sizes = {"num_utterances": 4, "num_frames": 5, "longest": 5}
    model = TableTransducer(np.random.default_rng(7), 3, **sizes)
    model.table[2, 1] = number
    options = TransducerOptions(strategy=strategy, beam_size=4)
    decoder = TransducerDecoder(model, options=options)
    with pytest.raises(LogprobError, match="joiner gives NaN") as caught:
        decoder.decode([model.frames(u) for u in range(4)])
    assert caught.value.utterance == 2
    assert len(decoder.decode([model.frames(u) for u in (0, 1, 3)])) == 3


def test_language_models_and_boosts_over_other_tokens():
    model = transducer_of([{"": [0.5, 0.3, 0.2]}])
    other = NgramLM.from_arpa(arpa(), token_table([*LETTERS, "<blank>"], 4))
    with pytest.raises(OptionError, match="over 5 tokens, expected one over the 3"):
        TransducerDecoder(model, lm=other)
    turned = token_table(["b", "a", "<blank>"], 2)
    other = NgramLM.from_arpa(arpa(), turned)
    with pytest.raises(OptionError, match="number 0 is 'b' there and 'a' here"):
        TransducerDecoder(model, lm=other)
    with pytest.raises(OptionError, match="weight nan, expected a number"):
        TransducerDecoder(model, lm=[(arpa(), float("nan"))])
    decoder = TransducerDecoder(model)
    larger = TransducerDecoder(TorchTransducer(small_net()))
    boosts = larger.phrase_compiler().compile(["ab"])
    with pytest.raises(BoostError, match="over 5 tokens, expected 3"):
        decoder.decode([model.frames()], boosts=boosts)
    phrases = decoder.phrase_compiler(
        PhraseOptions(uniform=True, weights_are_totals=True)
    ).compile({"a": 1.0})
    hyps = [decoder.decode([model.frames()], boosts=b) for b in ({"a": 1.0}, phrases)]
    assert hyps[0] == hyps[1] and hyps[0][0].boost_cost == -1.0
    automatic = decoder.phrase_compiler().compile(["a"])
    hyps = [decoder.decode([model.frames()], boosts=b) for b in (["a"], automatic)]
    assert hyps[0] == hyps[1]
    bonus = bonuses_of_lengths(len(decoder.tokens), {"a": 1})["a"]
    assert hyps[0][0].boost_cost == pytest.approx(-bonus, abs=1e-4)


def test_frames_that_do_not_fit():
    model = TorchTransducer(small_net())
    decoder = TransducerDecoder(model)
    frames = torch.zeros(3, 16)
    assert decoder.decode(frames) == decoder.decode([frames])
    with pytest.raises(ShapeError, match="1 axes"):
        decoder.decode(frames[0])
    with pytest.raises(ShapeError, match=r"int64 \(3, 16\), expected floating"):
        decoder.decode([frames.long()])
    with pytest.raises(ShapeError, match="length 4, expected 0 to 3"):
        decoder.decode([frames], [4])
    encoding = TransducerDecoder(model, input="features")
    with pytest.raises(ShapeError, match="F=4 numbers a frame, the model expects F=5"):
        encoding.decode(features(0, [8], 4))
    with pytest.raises(OptionError, match="sessions of features"):
        encoding.sessions().open()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategy": "beam"}, "strategy='beam', expected 'greedy', 'alsd', 'aes'"),
        ({"merge": "mean"}, "merge='mean'"),
        ({"beam_size": 0}, "beam_size=0, expected 1"),
        ({"max_symbols": 0}, "max_symbols=0, expected 1"),
        ({"lm_scale": -1}, "lm_scale=-1"),
        ({"expansion_beta": -1}, "expansion_beta=-1, expected 0 or more"),
        ({"expansion_gamma": math.nan}, "expansion_gamma=nan"),
        ({"expansion_rounds": 0}, "expansion_rounds=0"),
        ({"blank_scored": 1}, "blank_scored=1, expected True or False"),
    ],
)
def test_options_out_of_range(options, message):
    with pytest.raises(OptionError, match=message):
        TransducerOptions(**options)
