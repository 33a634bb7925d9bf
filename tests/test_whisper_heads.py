"""The weights in graphs/whisper_heads: they load, and give log-probs."""

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tools.data.whisper_heads import SIZES, load_heads  # noqa: E402
from wfstdec import TransducerDecoder, load_transducer  # noqa: E402

HEADS = Path(__file__).parent.parent / "graphs" / "whisper_heads"


def test_all_heads_read_frames_of_whisper():
    net, rng = load_heads(HEADS), np.random.default_rng(1)
    frames = rng.standard_normal((101, 384))
    for size in SIZES:
        logprobs = net.ctc_logprobs(frames, size)
        assert logprobs.shape == (26, size + 1)  # four frames are one
        assert np.exp(logprobs).sum(1) == pytest.approx(1.0, abs=1e-4)
    for head in ("rnnt", "tdt"):
        model = load_transducer(HEADS / "model.npz", head)
        decoder = TransducerDecoder(model, input="features")
        (hypothesis,) = decoder.decode([net.features(frames)])
        assert hypothesis.num_frames == 26 and np.isfinite(hypothesis.total_cost)
