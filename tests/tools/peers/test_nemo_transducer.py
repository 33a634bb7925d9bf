"""NeMo's searches for transducers on our models: equal where they are right.

Needs `pip install --no-deps nemo-toolkit==3.0.0`. Where they differ, a test says why.
"""

import math
from pathlib import Path

import numpy as np
import pytest
from arpa_texts import arpa_of

torch = pytest.importorskip("torch")
pytest.importorskip("nemo")

from table_transducers import TableTransducer, texts_of  # noqa: E402

from tools.peers.nemo_transducer import NemoTransducer  # noqa: E402
from wfstdec import TransducerDecoder, TransducerOptions, load_transducer  # noqa: E402

RECIPE = Path(__file__).parents[3] / "graphs" / "transducer_demo"

# `</s>` for nothing, back-off too: their scores have no end of the utterance.
ARPA = arpa_of(
    "-99 <s>; 0 </s>; -0.5 a; -0.75 b; -1 c; -0.875 d; -1.25 e",
    "-0.125 <s> b; -0.25 a b; -0.0625 b c",
)
LM_SCALE = 0.4


def tables(seed, durations=(), **sizes):
    rng = np.random.default_rng(seed)
    sizes = {"num_utterances": 4, "num_frames": 6, "blank": 5, "longest": 4} | sizes
    return TableTransducer(rng, 5, durations, **sizes)


def batch(model, lengths=(6, 3, 6, 5)):
    frames = torch.stack([model.frames(u) for u in range(4)])
    return frames, torch.tensor(lengths)


def theirs(model, setting, lengths=(6, 3, 6, 5), arpa=None):
    peer = NemoTransducer(model, arpa=arpa, lm_scale=LM_SCALE)
    found = peer.decode(*batch(model, lengths), setting)
    return [
        [("".join(model.tokens[t] for t in one.tokens), one.score) for one in texts]
        for texts in found
    ]


def ours(model, setting, lengths=(6, 3, 6, 5), arpa=None):
    options = TransducerOptions(lm_scale=LM_SCALE, **setting)
    decoder = TransducerDecoder(model, lm=arpa, options=options)
    return [texts_of(hyps) for hyps in decoder.decode_nbest(*batch(model, lengths))]


@pytest.fixture
def arpa(tmp_path):
    path = tmp_path / "lm.arpa"
    path.write_text(ARPA)
    return path


@pytest.mark.parametrize("durations", [(), (1, 2, 3)])
@pytest.mark.parametrize("seed", range(10))
def test_greedy_label_looping_says_the_same(seed, durations, arpa):
    model = tables(seed, durations)
    for lm in (None, arpa):
        setting = {"strategy": "greedy"}
        for mine, peer in zip(
            ours(model, setting, arpa=lm), theirs(model, setting, arpa=lm), strict=True
        ):
            assert list(mine) == [peer[0][0]]


@pytest.mark.parametrize("head", ["rnnt", "tdt"])
def test_greedy_says_the_same_tokens_on_the_test_bed(head):
    """All 24 utterances of held-out speakers."""
    features = np.load(RECIPE / "logprobs.npz")
    model = load_transducer(RECIPE / "model.npz", head)
    options = TransducerOptions(strategy="greedy")
    decoder = TransducerDecoder(model, options=options)
    encoder = TransducerDecoder(model, input="features")
    frames = encoder.encode([features[name] for name in features.files])
    mine = [hyp.token_ids for hyp in decoder.decode(frames)]
    padded = torch.nn.utils.rnn.pad_sequence(frames, batch_first=True)
    lengths = torch.tensor([len(one) for one in frames])
    found = NemoTransducer(model).decode(padded, lengths, {"strategy": "greedy"})
    assert len(mine) == 24
    assert sum(map(len, mine)) > 1000
    assert mine == [texts[0].tokens for texts in found]


def only_one_token(seed, durations=()):
    """`a` or `b` or nothing: the beam has room for all candidates of a step.

    Theirs cuts the beam before it merges: with more it would lose what it cuts.
    """
    model = tables(seed, durations, longest=1)
    model.table[..., 2:5] = -torch.inf
    model.table = torch.log_softmax(model.table, -1)
    return model


@pytest.mark.parametrize("fusion", ["late", "early"])
@pytest.mark.parametrize("blank_scored", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_alsd_gives_the_same_scores_where_nothing_is_cut(
    seed, fusion, blank_scored, arpa
):
    """A blank of less than 0.99, and as many hypotheses as labels."""
    model = only_one_token(seed)
    model.table[:, :, 0, 5] = model.table[:, :, 0, 5].clamp(max=math.log(0.98))
    setting = {"strategy": "alsd", "beam_size": 6, "fusion": fusion}
    setting["blank_scored"] = blank_scored
    for lm in (None, arpa):
        mine = ours(model, setting, arpa=lm)
        for own, peer in zip(mine, theirs(model, setting, arpa=lm), strict=True):
            own = {text: score for text, score in own.items() if text}
            peer = {text: score for text, score in peer if text and score > -1e4}
            assert peer == pytest.approx(own, abs=1e-4)


@pytest.mark.parametrize("seed", range(5))
def test_alsd_for_tdt_differs_by_the_blank_of_duration_0(seed):
    """Without that duration, and none beyond the end, the scores are the same."""
    model = only_one_token(seed, (1,))
    setting = {"strategy": "alsd", "beam_size": 6}
    for own, peer in zip(ours(model, setting), theirs(model, setting), strict=True):
        peer = {text: score for text, score in peer if score > -1e4}
        assert peer == pytest.approx(own, abs=1e-4)


def test_aes_gives_the_same_score_or_one_that_is_wrong():
    """Theirs are lower where they lose what a second round says again.

    And some are higher than all alignments of the text together: counted twice.
    """
    same = lost = twice = 0
    for seed in range(8):
        model = tables(seed)
        setting = {"strategy": "aes", "beam_size": 4}
        setting |= {"expansion_rounds": 2, "expansion_gamma": 2.3}  # the paper's
        exact = ours(model, {"strategy": "alsd", "beam_size": 800})
        for own, peer, all_of in zip(
            ours(model, setting), theirs(model, setting), exact, strict=True
        ):
            assert all(score <= all_of[text] + 1e-6 for text, score in own.items())
            text, score = peer[0]
            if score > all_of[text] + 1e-4:
                twice += 1
            elif score == pytest.approx(own.get(text), abs=1e-4):
                same += 1
            else:
                assert own.get(text, -math.inf) > score or text not in own
                lost += 1
    assert same >= 16 and twice > 0 and lost > 0, (same, lost, twice)
