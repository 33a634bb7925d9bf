"""The trained transducer of the demo, exported to NeMo's layouts: the same words."""

from pathlib import Path

import numpy as np
import pytest

for module in ("onnx", "onnxruntime", "sentencepiece", "transformers", "soxr"):
    pytest.importorskip(module)
torch = pytest.importorskip("torch")

from tiny_models import onnx_transducer  # noqa: E402

from tools.data.export_heads import export_transducer  # noqa: E402
from wfstdec import (  # noqa: E402
    TransducerDecoder,
    TransducerOptions,
    load_transducer,
)

DEMO = Path(__file__).parents[2] / "graphs" / "transducer_demo"


@pytest.fixture(scope="module", params=["rnnt", "tdt"])
def models(request, tmp_path_factory):
    """The net in torch, in three files without its encoder, and in one."""
    folder = tmp_path_factory.mktemp(request.param)
    net = load_transducer(DEMO / "model.npz", request.param)
    decoder, apart, both = export_transducer(net, folder)
    tokens = DEMO / "tokens.txt"
    return (
        net,
        onnx_transducer(None, decoder, apart, tokens),
        onnx_transducer(None, both, None, tokens),
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
