"""An encoder with both heads: its file, and features through all of it."""

import numpy as np
import pytest
import torch

from wfstdec import AttentionDecoder, load_attention
from wfstdec.attention.torch_model import AttentionSizes, JointAttention, JointNet
from wfstdec.errors import FormatError, OptionError, ShapeError
from wfstdec.transducer.torch_model import TransducerConfig, TransducerNet

PIECES = ("\u2581a", "b", "c")


def net_of(encoder="gru", **sizes):
    torch.manual_seed(0)
    config = TransducerConfig(
        PIECES, (), input_dim=5, width=8, dim=12, layers=1, encoder=encoder
    )
    own = AttentionSizes(4, 12, 12, heads=2, layers=2, positions=30, **sizes)
    return JointNet(config, own)


def features_of(*lengths):
    generator = torch.Generator().manual_seed(1)
    rows = [torch.randn(n, 5, generator=generator) for n in lengths]
    return [row.log_softmax(-1) for row in rows]


@pytest.mark.parametrize("encoder", ["gru", "conv"])
def test_what_was_saved_is_what_is_loaded(tmp_path, encoder):
    net = net_of(encoder, inner=20)
    net.save(tmp_path / "model.npz", torch.float32)
    model = load_attention(tmp_path / "model.npz")
    assert model.joint_net.config == net.config
    assert model.joint_net.attention.sizes == net.attention.sizes
    (features,) = features_of(13)
    lengths = torch.tensor([13])
    found, counts = model.encode(features[None], lengths)
    expected, _ = net.eval().encoder(features[None], lengths)
    assert torch.equal(found, expected) and counts.tolist() == [4]
    labels = torch.tensor([[3, 0, 2]])
    assert torch.equal(
        model.net(found, counts, labels), net.attention(found, counts, labels)
    )
    assert torch.equal(model.ctc(found), net.ctc(found).log_softmax(-1))


def test_ctc_log_probs_are_of_the_pieces_and_a_blank_behind_them():
    model = JointAttention(net_of())
    frames, _ = model.encode(torch.stack(features_of(13)), torch.tensor([13]))
    logprobs = model.ctc(frames)
    assert logprobs.shape == (1, 4, len(PIECES) + 1)
    assert torch.allclose(logprobs.exp().sum(-1), torch.ones(1, 4))
    assert (*model.tokens[: model.eos],) == PIECES and model.eos == len(PIECES)


def test_what_does_not_fit_is_refused(tmp_path):
    model = JointAttention(net_of())
    decoder = AttentionDecoder(model, input="features")
    with pytest.raises(ShapeError, match="F=7 numbers a frame, the model expects F=5"):
        decoder.decode([np.zeros((4, 7), np.float32)])
    with pytest.raises(ShapeError, match="D=7, expected D=12"):
        AttentionDecoder(model).decode([np.zeros((4, 7), np.float32)])
    with pytest.raises(OptionError, match="input='logprobs'"):
        AttentionDecoder(model, input="logprobs")
    del model.input_dim
    with pytest.raises(OptionError, match="a model that has no encoder"):
        AttentionDecoder(model, input="features")
    path = tmp_path / "model.npz"
    TransducerNet(TransducerConfig(PIECES)).save(path)
    with pytest.raises(FormatError, match="not a readable attention model"):
        load_attention(path)
    (tmp_path / "text.npz").write_text("no")
    with pytest.raises(FormatError, match="not a readable attention model"):
        load_attention(tmp_path / "text.npz")
