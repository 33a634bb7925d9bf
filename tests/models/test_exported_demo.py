"""The trained transducer of the demo, exported to NeMo's layouts: the same words."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from wfstdec import (  # noqa: E402
    TransducerDecoder,
    TransducerOptions,
    load_onnx_transducer,
    load_transducer,
)

DEMO = Path(__file__).parents[2] / "graphs" / "transducer_demo"


class Predictor(nn.Module):
    def __init__(self, predictor):
        super().__init__()
        self.predictor = predictor

    def forward(self, targets, target_length, s1, s2):
        predictor = self.predictor
        out, (n1, n2) = predictor.lstm(predictor.embedding(targets.long()), (s1, s2))
        return predictor.project(out).transpose(1, 2), target_length + 0, n1, n2


class Joiner(nn.Module):
    def __init__(self, joiner):
        super().__init__()
        self.joiner = joiner

    def forward(self, encoder_outputs, decoder_outputs):
        frames, g = encoder_outputs.transpose(1, 2), decoder_outputs.transpose(1, 2)
        inner, joiner = torch.tanh(frames[:, :, None] + g[:, None]), self.joiner
        if joiner.durations is None:
            return joiner.tokens(inner)
        return torch.cat([joiner.tokens(inner), joiner.durations(inner)], -1)


class Both(nn.Module):
    def __init__(self, predictor, joiner):
        super().__init__()
        self.predictor, self.joiner = Predictor(predictor), Joiner(joiner)

    def forward(self, encoder_outputs, targets, target_length, s1, s2):
        g, length, n1, n2 = self.predictor(targets, target_length, s1, s2)
        return self.joiner(encoder_outputs, g), length, n1, n2


def export(path, module, inputs, outputs):
    """`inputs`: example arrays by name; axes of size 2 are free."""
    free = {
        name: {i: f"{name}{i}" for i, size in enumerate(one.shape) if size == 2}
        for name, one in inputs.items()
    }
    torch.onnx.export(
        module.eval(),
        tuple(inputs.values()),
        str(path),
        input_names=list(inputs),
        output_names=outputs,
        dynamic_axes=free,
        opset_version=17,
        dynamo=False,
    )
    return path


@pytest.fixture(scope="module", params=["rnnt", "tdt"])
def models(request, tmp_path_factory):
    """The net in torch, in three files without its encoder, and in one."""
    folder = tmp_path_factory.mktemp(request.param)
    net = load_transducer(DEMO / "model.npz", request.param)
    predictor, joiner, dim = net._predictor, net._joiner, net.frame_dim
    assert not predictor.stateless
    width = predictor.lstm.hidden_size
    labels = {"targets": torch.zeros(2, 1, dtype=torch.int32)}
    labels["target_length"] = torch.ones(2, dtype=torch.int32)
    labels |= {name: torch.zeros(1, 2, width) for name in ("s1", "s2")}
    frames = {"encoder_outputs": torch.zeros(2, dim, 2)}
    states = ["prednet_lengths", "next1", "next2"]
    decoder = export(
        *(folder / "decoder.onnx", Predictor(predictor), labels),
        ["decoder_outputs", *states],
    )
    given = {**frames, "decoder_outputs": torch.zeros(2, dim, 1)}
    apart = export(folder / "joiner.onnx", Joiner(joiner), given, ["outputs"])
    both = export(
        *(folder / "both.onnx", Both(predictor, joiner), frames | labels),
        ["outputs", *states],
    )
    tokens = DEMO / "tokens.txt"
    return (
        net,
        load_onnx_transducer(None, decoder, apart, tokens),
        load_onnx_transducer(None, both, None, tokens),
    )


@pytest.fixture(scope="module")
def features():
    arrays = np.load(DEMO / "logprobs.npz")
    return [arrays[name] for name in arrays.files]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("strategy", ["greedy", "alsd"])
def test_exports_give_the_tokens_of_the_net(models, features, strategy):
    net, *exported = models
    options = TransducerOptions(strategy=strategy, beam_size=4)
    own = TransducerDecoder(net, options=options, input="features")
    frames = own.encode(features)
    expected = own.decode(features, boosts=["quilter", "gospel"])
    assert sum(len(hyp.words) for hyp in expected) > 400
    for model in exported:
        assert model.durations == net.durations and model.frame_dim == net.frame_dim
        decoder = TransducerDecoder(model, options=options)
        found = decoder.decode(frames, boosts=["quilter", "gospel"])
        same = [
            a.token_ids == b.token_ids for a, b in zip(found, expected, strict=True)
        ]
        assert sum(same) >= len(same) - 1  # products are rounded otherwise
        costs = [hyp.total_cost for hyp in expected]
        assert [hyp.total_cost for hyp in found] == pytest.approx(costs, abs=0.05)
