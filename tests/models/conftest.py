"""Speech, and the real ONNX model where it is there."""

from pathlib import Path

import numpy as np
import pytest



def shared_data():
    """The folder of real data beside the checkout, wherever the checkout is."""
    for parent in Path(__file__).parents:
        for folder in (parent / "shared" / "data", parent.parent / "shared" / "data"):
            if (folder / "model").is_dir():
                return folder
    return None


@pytest.fixture(scope="session")
def real_model():
    """Path of hama 1.3.13's ONNX model and of its tokens."""
    pytest.importorskip("onnxruntime")
    folder = shared_data()
    if folder is None:
        pytest.skip("no shared/data/model beside this checkout")
    model = folder / "model" / "hama-1.3.13_asr_waveform_fp16.onnx"
    return model, folder / "model" / "hama-1.3.13_tokens.txt"


@pytest.fixture(scope="session")
def real_audio():
    """Paths of LibriSpeech's recordings."""
    folder = shared_data()
    if folder is None:
        pytest.skip("no shared/data/audio beside this checkout")
    return sorted((folder / "audio").glob("*.mp3"))


@pytest.fixture(scope="session")
def speech():
    """Two seconds of noise with an envelope at 16 kHz, float32 [32000]."""
    random = np.random.default_rng(7)
    envelope = np.abs(np.sin(np.arange(32000) / 3000))
    return (0.2 * envelope * random.standard_normal(32000)).astype(np.float32)
