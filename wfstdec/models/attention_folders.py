"""Attention models with their encoders: ONNX exports, and models of Transformers.

    model = load_model("whisper-base-onnx", language="de")        # a SpeechModel
    decoder = AttentionDecoder(model)
    print(decoder.decode(model.encode([waveform]))[0].text)

Layouts of decoders are those of `models.onnx_attention`. The encoder's layout and the
kind of model follow from the names of inputs and tokens.
"""

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from wfstdec.errors import ModelError, needs
from wfstdec.models.attention import HfAttentionModel, dim_of, phrase_tokenizer
from wfstdec.models.encoder import (
    BatchEncoder,
    ModelOptions,
    as_array,
    one_by_one,
    read_json,
)
from wfstdec.models.onnx_asr_models import (
    metadata,
    open_session,
    run_waveforms,
    whisper_features,
)
from wfstdec.models.onnx_attention import OnnxAttention
from wfstdec.models.speech import (
    DECODERS,
    SpeechModel,
    folder_of,
    nemo_features,
    parts_of,
)
from wfstdec.models.streaming_onnx import RATE
from wfstdec.models.transducers import run_parts
from wfstdec.text.files import read_lines, reading
from wfstdec.text.lexicon import WORD_START, tokenizer_beside
from wfstdec.text.tokens import TokenTable, byte_name, names_of

Frames = Callable[[np.ndarray], np.ndarray]
"""Encoder: samples float32 [N] to frames [T, D]."""

_SAMPLES = {"whisper": 320, "moonshine": 384, "speech_to_text": 640}
"""Samples in a frame of the encoder."""
_POSITIONS = {"whisper": 448, "moonshine": 194, "canary": 1024}
"""Positions of decoders whose files do not contain them."""
_ROOM = "max_target_positions n_text_ctx max_sequence_length max_position_embeddings"
_WINDOW_S = 30.0  # Of Whisper
_MULTILINGUAL = 51865  # Outputs of the smallest multilingual Whisper

_LINE = re.compile(r"(.*)[ \t](\d+)")
_NO_TEXT = re.compile(r"<\|.*\|>|<<.*>>|</?s>|<unk>|<pad>|<unused_\d+>")
_FIRST, _LAST = "<|startoftranscript|>", "<|endoftext|>"
_CANARY = (
    *("<|startofcontext|>", _FIRST, "<|emo:undefined|>", "<|{}|>", "<|{}|>"),
    *("<|pnc|>", "<|noitn|>", "<|notimestamp|>", "<|nodiarize|>"),
)
_OF_WHISPER = {
    **{"eot": _LAST, "sot": _FIRST, "transcribe": "<|transcribe|>"},
    **{"translate": "<|translate|>", "no_timestamps": "<|notimestamps|>"},
}
"""Marks of Whisper by the key of their ids in sherpa-onnx's metadata."""

_PARTS = (
    ("preprocess", "encoder", "uncached_decode", "cached_decode"),
    ("encoder", "decoder_model_merged"),
    ("encoder", "decoder", "decoder_with_past"),
    ("encoder", "decoder"),
)
"""Files of layouts; the first whose last file exists, or any decoder, counts."""


def load_attention(path: Path, given: ModelOptions) -> SpeechModel:
    """Load an ONNX export, from its folder or one of its files."""
    parts = parts_of(path)
    if not DECODERS & parts.keys() and "encoder" not in parts:
        what = f"{path}: a beam search inside gives texts, no log-probs"
        others = "encoder_model.onnx and decoder_model_merged.onnx of Optimum"
        raise ModelError(f"{what}, expected {others}")
    layout = next((one for one in _PARTS if one[-1] in parts), _PARTS[-1])
    if {"preprocess", "uncached_decode"} & parts.keys():
        layout = _PARTS[0]
    home = folder_of(parts, layout)
    home = home.parent if home.name == "onnx" else home
    sessions = {one: open_session(parts[one], given.threads) for one in layout}
    encoder, *later = (one for name, one in sessions.items() if name != "preprocess")
    facts: dict[str, Any] = {}
    for stem in ("preprocessor_config", "config", "generation_config"):
        facts |= read_json(home / f"{stem}.json")
    facts |= {**metadata(encoder), **metadata(later[0])}
    size = later[0].get_outputs()[0].shape[-1]
    if not isinstance(size, int):
        size = int(facts.get("n_vocab", facts.get("vocab_size", 0)))
    kind, frames, dim = _encoder(sessions.get("preprocess"), encoder, facts, given)
    names, file = _names(home, given, facts, size)
    ids = {name: i for i, name in enumerate(names)}
    eos = ids.get(_LAST, ids.get("</s>"))
    if eos is None:
        raise ModelError(f"{home}: no token {_LAST} or </s>, expected one")
    neutral = frozenset(i for i, n in enumerate(names) if _NO_TEXT.fullmatch(n))
    tokenizer: Any = file and tokenizer_beside(file)
    if file is not None and file.name == "tokenizer.json":
        how = partial(_json_tokens, str(file)), partial(_json_ids, str(file))
        tokenizer = phrase_tokenizer(*how, neutral | {eos})
    prompt = prompt_of(ids, facts, given.language, len(names))
    if encoder.get_inputs()[0].name == "audio_signal" and WORD_START in ids:
        prompt = [ids[WORD_START], *prompt]  # as in onnx-asr
    room = next((facts[n] for n in _ROOM.split() if n in facts), _POSITIONS[kind])
    net = OnnxAttention(later[0], later[-1], names, eos, prompt)
    net.positions, net.suppressed = int(room), _suppressed(facts) - {eos}
    net.neutral, net.tokenizer = neutral - {eos}, tokenizer
    net.is_marked = kind == "whisper"
    samples = _SAMPLES.get(kind, RATE * int(facts.get("subsampling_factor", 8)) // 100)
    dim = dim or frames(np.zeros(RATE, np.float32)).shape[1]
    window_s = _WINDOW_S if kind == "whisper" else 0.0
    about = given, str(home), samples / RATE, RATE
    return _model(net, frames, dim, window_s, *about)


def load_hf_attention(model: Any, processor: Any, given: ModelOptions) -> SpeechModel:
    """Return a `SpeechModel` of a model of Transformers and its processor."""
    extractor = getattr(processor, "feature_extractor", processor)
    kind, rate = model.config.model_type, extractor.sampling_rate
    ids = {name: i for i, name in names_of(processor).items()}
    prompt, facts = None, model.generation_config.to_dict()
    if _FIRST in ids:
        prompt = prompt_of(ids, facts, given.language, model.config.vocab_size)
    net = HfAttentionModel(model.eval(), processor, prompt=prompt)

    def frames(samples: np.ndarray) -> np.ndarray:
        inputs = extractor(samples, sampling_rate=rate, return_tensors="pt")
        first = next(model.parameters())
        return as_array(net.encode(**inputs.to(first.device, first.dtype))[0])

    shift = _SAMPLES[kind] / rate if kind in _SAMPLES else None
    window_s = float(extractor.chunk_length) if kind == "whisper" else 0.0
    about = given, type(model).__name__, shift, rate
    return _model(net, frames, dim_of(model.config), window_s, *about)


def _model(
    net: Any,
    frames: Frames,
    dim: int,
    window_s: float,
    given: ModelOptions,
    *about: Any,
) -> SpeechModel:
    place, shift_s, rate = about
    given = replace(given, tokens=None, blank=None)
    spec = given.spec(place, net.tokens, len(net.tokens), shift_s, rate)
    net.frame_dim = dim = dim + (window_s > 0)  # with a mark
    spec = replace(spec, family="attention", frame_dim=dim, window_s=window_s)
    return SpeechModel(BatchEncoder(spec, one_by_one(frames)), net)


def _encoder(
    before: Any, encoder: Any, facts: Mapping[str, Any], given: ModelOptions
) -> tuple[str, Frames, int]:
    """Return the kind of model, its encoder, and D of its frames, 0 if open."""
    first, out = encoder.get_inputs()[0], encoder.get_outputs()[0]
    dim = out.shape[-1] if isinstance(out.shape[-1], int) else 0

    def bins(axis: int, *keys: str) -> int:
        size = first.shape[axis]
        known = (int(facts[key]) for key in keys if key in facts)
        return size if isinstance(size, int) else next(known, 80)

    if before is not None or len(first.shape) == 2:
        return "moonshine", partial(_moonshine, before, encoder), dim
    if first.name in ("input_features", "mel"):
        features = whisper_features(bins(1, "num_mel_bins", "n_mels"), given.threads)
        if len(out.shape) == 4:  # keys and values [L, N, T, S]
            dim *= 2 * out.shape[0]
        return "whisper", partial(_whisper, encoder, features), dim
    axis = 1 if first.name == "audio_signal" else 2
    features = nemo_features(facts, bins(axis, "features_size", "feat_dim"))
    return "canary", partial(_nemo, encoder, features, axis), dim


def _whisper(encoder: Any, features: Frames, samples: np.ndarray) -> np.ndarray:
    outputs = encoder.run(None, {encoder.get_inputs()[0].name: features(samples)})
    if outputs[0].ndim == 3:
        return outputs[0][0]
    # Keys and values of cross-attention [L, 1, T, S], joined in a frame.
    both = np.stack([one[:, 0] for one in outputs[:2]])
    return both.transpose(2, 0, 1, 3).reshape(both.shape[2], -1)


def _nemo(encoder: Any, features: Frames, axis: int, samples: np.ndarray) -> np.ndarray:
    some = features(samples)
    given = np.ascontiguousarray(some.T if axis == 1 else some)[None]
    found, real = run_parts(encoder, [given], counts=np.array([len(some)]))
    return found[0, : int(real.sum())]  # a mask, or the number


def _moonshine(before: Any, encoder: Any, samples: np.ndarray) -> np.ndarray:
    if before is None:  # its features are inside
        return run_waveforms(encoder, samples[None], np.array([len(samples)]))[0][0]
    (given,) = run_parts(before, [samples[None]])
    return run_parts(encoder, [given], counts=np.array([given.shape[1]]))[0][0]


def _names(
    home: Path, given: ModelOptions, facts: Mapping[str, Any], size: int
) -> tuple[list[str], Path | None]:
    if isinstance(given.tokens, TokenTable):
        return list(given.tokens.names), None
    usual = ("tokenizer.json", "vocab.json", "vocab.txt", "*tokens.txt")
    found = [file for form in usual for file in sorted(home.glob(form))]
    if given.tokens is not None:
        found = [Path(given.tokens)]
    if not found:
        expected = f"expected one of {', '.join(usual)}, or tokens= (--tokens)"
        raise ModelError(f"{home}: found no tokens, {expected}")
    with reading(found[0], "token table", "tokens by id"):
        by_id = _by_id(found[0], facts)
    names: dict[str, None] = {}
    for i in range(size or max(by_id) + 1):
        name = by_id.get(i) or f"<unused_{i}>"
        names[f"{name}<{i}>" if name in names else name] = None
    return list(names), found[0]


def _by_id(file: Path, facts: Mapping[str, Any]) -> dict[int, str]:
    if file.suffix == ".json":
        found = read_json(file)
        vocab: Any = found["model"]["vocab"] if "model" in found else found
        if isinstance(vocab, list):  # pieces with their scores
            vocab = {name: i for i, (name, _) in enumerate(vocab)}
        by_id = {i: name for name, i in vocab.items()}
        by_id |= {one["id"]: one["content"] for one in found.get("added_tokens", ())}
        added = read_json(file.with_name("added_tokens.json"))
        return by_id | {i: name for name, i in added.items()}
    matches = filter(None, map(_LINE.fullmatch, read_lines(file)))
    pairs = [match.groups() for match in matches]
    if "sot_sequence" not in facts:
        return {int(i): name.replace(" ", WORD_START) for name, i in pairs}
    # Whisper of sherpa-onnx: bytes in base64, and marks in the metadata.
    by_id = {int(i): byte_name(base64.b64decode(name)) for name, i in pairs}
    size = int(facts["n_vocab"])
    times = int(facts.get("no_timestamps", size)) + 1
    by_id |= {i: f"<|{i}|>" for i in range(int(facts["eot"]), size)}
    by_id |= {i: f"<|{(i - times) / 50:.2f}|>" for i in range(times, size)}
    by_id |= {int(facts[key]): mark for key, mark in _OF_WHISPER.items()}
    codes = facts.get("all_language_codes", "").split(",")
    ids = facts.get("all_language_tokens", "").split(",")
    known = zip(ids, codes, strict=True)
    return by_id | {int(i): f"<|{code}|>" for i, code in known if code}


def prompt_of(
    ids: Mapping[str, int], facts: Mapping[str, Any], language: str | None, size: int
) -> list[int]:
    """Return the first tokens of the decoder: start, language, task, no timestamps."""
    code = language or "en"
    if _CANARY[0] in ids:
        names = [name.format(code) for name in _CANARY]
    elif _FIRST in ids:
        names = [_FIRST, "<|notimestamps|>"]
        if int(facts.get("is_multilingual", size >= _MULTILINGUAL)):
            names[1:1] = [f"<|{code}|>", "<|transcribe|>"]
        elif code != "en":
            what = f"language={language!r} of an English-only Whisper"
            raise ModelError(f"{what}, expected 'en'")
    else:
        names = ["<s>"]
        if (first := facts.get("decoder_start_token_id")) is not None:
            return [int(first)]
    if missing := [name for name in names if name not in ids]:
        what = f"the model has no token {missing[0]!r}"
        raise ModelError(f"{what}, expected it (language={language!r})")
    return [ids[name] for name in names]


def _suppressed(facts: Mapping[str, Any]) -> set[int]:
    if "non_speech_tokens" not in facts:
        return set(facts.get("suppress_tokens") or ())
    marks = range(int(facts["eot"]) + 1, int(facts.get("no_timestamps", 0)) + 1)
    return {*map(int, facts["non_speech_tokens"].split(",")), *marks}


@cache
def _json_tokenizer(path: str) -> Any:
    with needs(f"{path} needs tokenizers", ": pip install transformers"):
        from tokenizers import Tokenizer
    with reading(path, "tokenizer"):
        return Tokenizer.from_file(path)


def _json_tokens(path: str, text: str) -> list[str]:
    return _json_tokenizer(path).encode(text, add_special_tokens=False).tokens


def _json_ids(path: str, texts: Sequence[str]) -> list[list[int]]:
    encode = _json_tokenizer(path).encode_batch
    return [one.ids for one in encode(list(texts), add_special_tokens=False)]
