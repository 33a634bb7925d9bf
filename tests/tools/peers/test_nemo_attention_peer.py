"""NeMo's beam search on the attention demo: equal alone, wrong in batches.

Needs `pip install --no-deps nemo-toolkit==3.0.0`.
"""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("nemo")

from tools.peers.nemo_attention import NemoAttention  # noqa: E402
from wfstdec import AttentionDecoder, AttentionOptions, load_attention  # noqa: E402
from wfstdec.io.logprobs import open_logprobs  # noqa: E402

DEMO = Path(__file__).parents[3] / "graphs" / "attention_demo"
TRANSDUCER = DEMO.parent / "transducer_demo"
SHORT = 450
"""Frames of 20 ms: longer utterances take longer, and show nothing else."""


@pytest.fixture(scope="module")
def model():
    return load_attention(DEMO / "model.npz")


@pytest.fixture(scope="module")
def utterances(model):
    """Frames [T, D] of six short utterances."""
    found = []
    for _, rows in open_logprobs(TRANSDUCER / "logprobs.npz"):
        if len(rows) < SHORT and len(found) < 6:
            one = torch.from_numpy(rows).float()
            found.append(model.encode(one[None], torch.tensor([len(one)]))[0][0])
    assert len(found) == 6
    return found


def ours(model, utterances, beam):
    decoder = AttentionDecoder(model, options=AttentionOptions(beam_size=beam))
    return [best[0].token_ids for best in decoder.texts(utterances)]


def alone(model, utterances, beam):
    peer = NemoAttention(model, beam)
    return [peer.decode(one[None], torch.tensor([len(one)]))[0] for one in utterances]


def test_greedy_tokens_are_ours(model, utterances):
    found = alone(model, utterances, 1)
    assert found == ours(model, utterances, 1)
    assert len(set(found)) == len(found)


def test_batches_of_theirs_mix_memories(model, utterances):
    """`decoder_mems.repeat(K, 1, 1)` orders rows k * B + b, all else b * K + k.

    The prompt is the same token for all: what is another's is what the layers made of
    it by its own frames.
    """
    lengths = torch.tensor([len(one) for one in utterances])
    padded = torch.nn.utils.rnn.pad_sequence(utterances, batch_first=True)
    theirs = NemoAttention(model, 3).decode(padded, lengths)
    assert theirs != alone(model, utterances, 3)
    one_by_one = [ours(model, [one], 3)[0] for one in utterances]
    assert ours(model, utterances, 3) == one_by_one
