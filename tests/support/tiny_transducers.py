"""Tiny random transducers in the layouts that are published, as ONNX files.

    nemo_folder(folder, durations=5)     encoder-model.onnx, decoder_joint-model.onnx,
                                         vocab.txt, config.json, as of onnx-asr
    sherpa_folder(folder, durations=5)   encoder.onnx, decoder.onnx (LSTM), joiner.onnx,
                                         tokens.txt, metadata as sherpa-onnx reads them
    zipformer_folder(folder)             the same, with icefall's stateless decoder

Folders of NeMo's layouts with one seed have the same weights.
"""

import json

import numpy as np
from tiny_models import write_onnx

FEATURES, D, H, V = 80, 16, 16, 10  # features, encoder, predictor, tokens, no blank
NEMO_STRIDE, ICEFALL_STRIDE = 8, 4
PIECES = [f"\u2581w{i}" if i % 3 == 0 else f"w{i}" for i in range(V)]


def random_weights(seed, num_durations, blank=V):
    rng = np.random.default_rng(seed)

    def draw(*shape, scale=0.6):
        return (rng.standard_normal(shape) * scale).astype(np.float32)

    out = V + 1 + num_durations
    embedding = draw(V + 1, D)
    if blank == V:  # NeMo's is zeros: the blank is what is before the first token
        embedding[blank] = 0
    bias = np.zeros(out, np.float32)
    bias[blank] = 3.0 if num_durations else 5.0  # else it emits without end
    return {
        "B": bias,
        "W": draw(FEATURES, D, scale=0.25),
        "E": embedding,
        "LW": draw(1, 4 * H, D),
        "LR": draw(1, 4 * H, H),
        "JE": draw(D, out),
        "JD": draw(H, out),
        "axis1": np.array([1]),
        "axis2": np.array([2]),
        "zero": np.array([0]),
        "far": np.array([1 << 31]),
        "eight": np.array([NEMO_STRIDE]),
        "seven": np.array([NEMO_STRIDE - 1]),
        "four": np.array([ICEFALL_STRIDE]),
        "three": np.array([ICEFALL_STRIDE - 1]),
    }


def some(weights, names):
    return {name: weights[name] for name in names.split()}


NEMO_ENCODER = f"""g (float[B, {FEATURES}, T] audio_signal, int64[B] length)
    => (float[B, {D}, T2] outputs, int64[B] encoded_lengths) {{
    a = Transpose<perm=[0, 2, 1]>(audio_signal)
    kept = Slice(a, zero, far, axis1, eight)
    b = MatMul(kept, W)
    outputs = Transpose<perm=[0, 2, 1]>(b)
    more = Add(length, seven)
    encoded_lengths = Div(more, eight)
}}"""
LSTM = f"""
    e = Gather<axis=0>(E, targets)
    et = Transpose<perm=[1, 0, 2]>(e)
    y, {{after_1}}, {{after_2}} = LSTM<hidden_size={H}>(et, LW, LR, , , {{s1}}, {{s2}})
    ys = Squeeze(y, axis1)
    decoder_outputs = Transpose<perm=[1, 2, 0]>(ys)
    prednet_lengths = Identity(target_length)
"""
JOINER = """
    et2 = Transpose<perm=[0, 2, 1]>(encoder_outputs)
    dt = Transpose<perm=[0, 2, 1]>(decoder_outputs)
    je = MatMul(et2, JE)
    jd = MatMul(dt, JD)
    je4 = Unsqueeze(je, axis2)
    jd4 = Unsqueeze(jd, axis1)
    both = Add(je4, jd4)
    outputs = Add(both, B)
"""


def nemo_folder(folder, num_durations=0, seed=0, config=True, name="{}-model.onnx"):
    folder.mkdir(parents=True, exist_ok=True)
    weights = random_weights(seed, num_durations)
    used = some(weights, "W axis1 eight seven zero far")
    write_onnx(folder / name.format("encoder"), NEMO_ENCODER, used)
    states = dict(s1="input_states_1", s2="input_states_2")
    states |= dict(after_1="output_states_1", after_2="output_states_2")
    text = f"""g (float[B, {D}, T] encoder_outputs, int32[B, U] targets,
        int32[B] target_length, float[1, B, {H}] input_states_1,
        float[1, B, {H}] input_states_2)
        => (float[B, T, U, O] outputs, int32[B] prednet_lengths,
        float[1, B, {H}] output_states_1, float[1, B, {H}] output_states_2) {{
        {LSTM.format(**states)} {JOINER}
    }}"""
    used = some(weights, "E LW LR JE JD B axis1 axis2")
    write_onnx(folder / name.format("decoder_joint"), text, used)
    write_vocabulary(folder / "vocab.txt", [*PIECES, "<blk>"])
    if config:
        kind = "tdt" if num_durations else "rnnt"
        own = {"model_type": f"nemo-conformer-{kind}", "features_size": FEATURES}
        own["subsampling_factor"] = NEMO_STRIDE
        (folder / "config.json").write_text(json.dumps(own))
    return folder


def sherpa_folder(folder, num_durations=0, seed=0):
    """Three files with LSTM states; `url` is how sherpa-onnx knows a TDT."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = random_weights(seed, num_durations)
    metadata = {
        "vocab_size": V,  # without the blank
        "normalize_type": "per_feature",
        "pred_rnn_layers": 1,
        "pred_hidden": H,
        "subsampling_factor": NEMO_STRIDE,
        "model_type": "EncDecRNNTBPEModel",
        "feat_dim": FEATURES,
        "url": "tiny-tdt" if num_durations else "tiny-rnnt",
    }
    used = some(weights, "W axis1 eight seven zero far")
    write_onnx(folder / "encoder.onnx", NEMO_ENCODER, used, metadata)
    states = dict(s1="states", s2="states2", after_1="next", after_2="next2")
    text = f"""g (int32[B, U] targets, int32[B] target_length,
        float[1, B, {H}] states, float[1, B, {H}] states2)
        => (float[B, {H}, U] decoder_outputs, int32[B] prednet_lengths,
        float[1, B, {H}] next, float[1, B, {H}] next2) {{ {LSTM.format(**states)} }}"""
    write_onnx(folder / "decoder.onnx", text, some(weights, "E LW LR axis1"))
    out = V + 1 + num_durations
    text = f"""g (float[B, {D}, T] encoder_outputs, float[B, {H}, U] decoder_outputs)
        => (float[B, T, U, {out}] outputs) {{ {JOINER} }}"""
    used = some(weights, "JE JD B axis1 axis2")
    write_onnx(folder / "joiner.onnx", text, used)
    write_vocabulary(folder / "tokens.txt", [*PIECES, "<blk>"])
    return folder


def zipformer_folder(folder, seed=1, name="{}.onnx"):
    """Three files with a stateless decoder; the blank is token 0."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = random_weights(seed, 0, blank=0)
    text = f"""g (float[N, T, {FEATURES}] x, int64[N] x_lens)
        => (float[N, T2, {D}] encoder_out, int64[N] encoder_out_lens) {{
        kept = Slice(x, zero, far, axis1, four)
        encoder_out = MatMul(kept, W)
        more = Add(x_lens, three)
        encoder_out_lens = Div(more, four)
    }}"""
    used = some(weights, "W axis1 four three zero far")
    metadata = {"model_type": "zipformer2", "version": "1", "comment": "tiny"}
    write_onnx(folder / name.format("encoder"), text, used, metadata)
    # -1 is what comes before the first blank: no embedding, as in icefall.
    text = f"""g (int64[N, 2] y) => (float[N, {D}] decoder_out) {{
        known = Max(y, zero)
        e = Gather<axis=0>(E, known)
        is_token = GreaterOrEqual(y, zero)
        mask = Cast<to=1>(is_token)
        mask3 = Unsqueeze(mask, axis2)
        masked = Mul(e, mask3)
        s = ReduceSum<keepdims=0>(masked, axis1)
        decoder_out = Tanh(s)
    }}"""
    used = some(weights, "E axis1 axis2 zero")
    metadata = {"context_size": 2, "vocab_size": V + 1}
    write_onnx(folder / name.format("decoder"), text, used, metadata)
    text = f"""g (float[N, {D}] encoder_out, float[N, {D}] decoder_out)
        => (float[N, {V + 1}] logit) {{
        je = MatMul(encoder_out, JE)
        jd = MatMul(decoder_out, JD)
        both = Add(je, jd)
        logit = Add(both, B)
    }}"""
    used = some(weights, "JE JD B")
    write_onnx(folder / name.format("joiner"), text, used, {"joiner_dim": D})
    write_vocabulary(folder / "tokens.txt", ["<blk>", *PIECES])
    return folder


def write_vocabulary(path, names):
    lines = "".join(f"{name} {i}\n" for i, name in enumerate(names))
    path.write_text(lines, encoding="utf-8")
