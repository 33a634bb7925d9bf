"""ONNX triples as icefall exports them, built here: equal to the same sums in torch."""

import numpy as np
import pytest
import tiny_models
import torch
from tiny_models import onnx_transducer

from wfstdec import TransducerDecoder, TransducerOptions
from wfstdec.errors import FormatError, OptionError, ShapeError

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

V1, DIM, FEATURES, CONTEXT = 5, 6, 3, 2
TOKENS = ["<blk>", "\u2581a", "b", "c", "\u2581d"]


def weights(seed=0, outputs=V1):
    rng = np.random.default_rng(seed)
    sizes = {"w_in": (FEATURES, DIM), "embedding": (V1, DIM), "w_out": (DIM, outputs)}
    return {k: rng.normal(size=s).astype(np.float32) * 1.5 for k, s in sizes.items()}


ENCODER = f"""g (float[N, T, {FEATURES}] x, int64[N] x_lens)
    => (float[N, T2, {DIM}] encoder_out, int64[N] encoder_out_lens) {{
    half = Slice(x, starts, ends, axes, steps)
    encoder_out = MatMul(half, w_in)
    more = Add(x_lens, one)
    encoder_out_lens = Div(more, two)
}}"""
DECODER = f"""g (int64[N, {CONTEXT}] y) => (float[N, {DIM}] decoder_out) {{
    known = Max(y, zero)
    all = Gather(embedding, known)
    is_token = GreaterOrEqual(y, zero)
    mask = Cast<to=1>(is_token)
    mask3 = Unsqueeze(mask, two)
    seen = Mul(all, mask3)
    decoder_out = ReduceMean<axes=[1], keepdims=0>(seen)
}}"""
JOINER = f"""g (float[N, {DIM}] encoder_out, float[N, {DIM}] decoder_out)
    => (float[N, V] logit) {{
    sum = Add(encoder_out, decoder_out)
    inner = Tanh(sum)
    logit = MatMul(inner, w_out)
}}"""


def write_triple(folder, outputs=V1):
    """Encoder: every second frame, projected; decoder: a mean; joiner: tanh, linear."""
    given = weights(outputs=outputs)
    numbers = {"starts": [0], "ends": [1 << 31], "axes": [1], "steps": [2]}
    numbers |= {"one": 1, "two": 2}
    files = [folder / f"{name}.onnx" for name in ("encoder", "decoder", "joiner")]
    for path, text, parts, metadata in zip(
        files,
        (ENCODER, DECODER, JOINER),
        (
            {"w_in": given["w_in"], **numbers},
            {"embedding": given["embedding"], "zero": 0, "two": [2]},
            {"w_out": given["w_out"]},
        ),
        ({"subsampling_factor": 2}, {"context_size": CONTEXT, "vocab_size": V1}, {}),
        strict=True,
    ):
        tiny_models.write_onnx(path, text.replace("V]", f"{outputs}]"), parts, metadata)
    lines = "".join(f"{name} {i}\n" for i, name in enumerate(TOKENS))
    (folder / "tokens.txt").write_text(lines, "utf-8")
    return [*files, folder / "tokens.txt"]


class SameInTorch:
    """The sums of `write_triple`; the blank is moved to the end."""

    def __init__(self, durations=()):
        outputs = V1 + len(durations)
        parts = weights(outputs=outputs)
        self.parts = {name: torch.from_numpy(a) for name, a in parts.items()}
        self.tokens, self.blank, self.durations = TOKENS[1:], V1 - 1, durations
        self.input_dim, self.stride = FEATURES, 2

    def encode(self, features, lengths):
        return features[:, ::2] @ self.parts["w_in"], (lengths + 1) // 2

    def start(self, num):
        context = torch.tensor([[-1, 0]]).expand(num, CONTEXT)
        return context, self.embedded(context)

    def predict(self, labels, state):
        context = torch.cat([state[:, 1:], labels[:, None] + 1], 1)
        return self.embedded(context), context

    def embedded(self, context):
        seen = self.parts["embedding"][context.clamp(min=0)]
        return (seen * (context >= 0)[..., None]).mean(1)

    def join(self, frames, g):
        logits = torch.tanh(frames + g) @ self.parts["w_out"]
        order = [1, 2, 3, 4, 0]
        tokens = torch.log_softmax(logits[:, :V1], 1)[:, order]
        if not self.durations:
            return tokens
        return tokens, torch.log_softmax(logits[:, V1:], 1)


def features(seed, lengths):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(n, FEATURES)).astype(np.float32) for n in lengths]


@pytest.mark.parametrize("strategy", ["greedy", "alsd", "aes"])
@pytest.mark.parametrize("durations", [(), (0, 1, 2)])
def test_a_triple_says_what_the_same_sums_say(tmp_path, strategy, durations):
    files = write_triple(tmp_path, V1 + len(durations))
    model = onnx_transducer(*files, durations=durations)
    assert (model.stride, model.input_dim, model.blank) == (2, FEATURES, 0)
    options = TransducerOptions(strategy=strategy, beam_size=3)
    common = {"options": options, "input": "features"}
    given = features(0, [21, 6, 1, 0])
    found = TransducerDecoder(model, **common).decode_nbest(given)
    same = TransducerDecoder(SameInTorch(durations), **common).decode_nbest(given)
    assert any(hyps[0].words for hyps in found)
    for hyps, others in zip(found, same, strict=True):
        for hyp, other in zip(hyps, others, strict=True):
            assert hyp.text == other.text
            assert hyp.token_frames == other.token_frames
            assert hyp.total_cost == pytest.approx(other.total_cost, abs=1e-4)


def greedy_by_numpy(x, seed=0):
    """Best tokens and their frames, by the sums alone; the first context is (-1, 0)."""
    parts, context, tokens, frames = weights(seed), (-1, 0), [], []
    for t, frame in enumerate(x[::2] @ parts["w_in"]):
        seen = sum(parts["embedding"][i] for i in context if i >= 0) / CONTEXT
        best = int((np.tanh(frame + seen) @ parts["w_out"]).argmax())
        if best:
            tokens, frames, context = [*tokens, best], [*frames, t], (context[1], best)
    return tokens, frames


def test_greedy_search_begins_as_icefall_trains(tmp_path):
    """A context of two blanks gives other tokens for some of these."""
    model = onnx_transducer(*write_triple(tmp_path))
    options = TransducerOptions(strategy="greedy", max_symbols=1)
    decoder = TransducerDecoder(model, options=options, input="features")
    given = features(3, range(1, 40))
    hyps = decoder.decode(given)
    for x, hyp in zip(given, hyps, strict=True):
        tokens, frames = greedy_by_numpy(x)
        pieces = "".join(TOKENS[i] for i in tokens)
        assert hyp.text == " ".join(pieces.replace("\u2581", " ").split())
        assert list(hyp.token_frames[0]) == frames


def test_frames_need_no_encoder(tmp_path):
    _, *files = write_triple(tmp_path)
    model = onnx_transducer(None, *files)
    frames = torch.randn(9, DIM, generator=torch.Generator().manual_seed(0))
    options = TransducerOptions(max_symbols=2)
    (hyp,) = TransducerDecoder(model, options=options).decode([frames])
    (other,) = TransducerDecoder(SameInTorch(), options=options).decode([frames])
    assert hyp.text == other.text
    with pytest.raises(OptionError, match="no encoder"):
        model.encode(torch.zeros(1, 4, FEATURES), torch.tensor([4]))


def test_files_that_do_not_fit(tmp_path):
    encoder, decoder, joiner, tokens = write_triple(tmp_path)
    with pytest.raises(ShapeError, match="joiner gives 5 outputs, expected 8: V=4"):
        onnx_transducer(encoder, decoder, joiner, tokens, durations=(0, 1, 2))
    with pytest.raises(ShapeError, match="joiner takes 1 inputs, expected 2"):
        onnx_transducer(encoder, joiner, decoder, tokens)
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no model")
    with pytest.raises(FormatError, match="not a readable ONNX model"):
        onnx_transducer(encoder, decoder, broken, tokens)
