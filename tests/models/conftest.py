"""Speech, and the real ONNX model where it is there."""

from pathlib import Path

import numpy as np
import pytest

SHARED = Path(__file__).parents[2].parent / "shared" / "data"


@pytest.fixture(scope="session")
def real_model():
    """Path of hama 1.3.13's ONNX model and of its tokens."""
    pytest.importorskip("onnxruntime")
    folder = SHARED / "model"
    if not folder.is_dir():
        pytest.skip("no shared/data/model next to the checkout")
    model = folder / "hama-1.3.13_asr_waveform_fp16.onnx"
    return model, folder / "hama-1.3.13_tokens.txt"


@pytest.fixture(scope="session")
def real_audio():
    """Paths of LibriSpeech's recordings."""
    if not (SHARED / "audio").is_dir():
        pytest.skip("no shared/data/audio next to the checkout")
    return sorted((SHARED / "audio").glob("*.mp3"))


@pytest.fixture(scope="session")
def speech():
    """Two seconds of noise with an envelope at 16 kHz, float32 [32000]."""
    random = np.random.default_rng(7)
    envelope = np.abs(np.sin(np.arange(32000) / 3000))
    return (0.2 * envelope * random.standard_normal(32000)).astype(np.float32)
