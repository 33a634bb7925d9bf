"""Tiny ONNX models of the shapes that toolkits export, with random weights.

Small graphs are text; `write_onnx` gives them weights and metadata.
"""

import json

import numpy as np

HEADER = '<ir_version: 8, opset_import: ["": 17]>'


def write_onnx(path, text, weights=None, metadata=None):
    """Write a graph in ONNX's text form."""
    import onnx

    model = onnx.parser.parse_model(HEADER + text)
    for name, array in (weights or {}).items():
        array = np.asarray(array)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.helper.set_model_props(model, {k: str(v) for k, v in (metadata or {}).items()})
    onnx.save(model, path)
    return path


def onnx_transducer(encoder, decoder, joiner, tokens, **how):
    """Load the files of a transducer; None for the encoder or the joiner: no file."""
    from wfstdec.models.onnx_asr_models import metadata, open_session
    from wfstdec.models.transducers import OnnxTransducer
    from wfstdec.text.lexicon import load_tokens

    files = encoder, decoder, joiner
    parts = [path and open_session(path, 1) for path in files]
    if encoder:
        how["stride"] = int(metadata(parts[0])["subsampling_factor"])
    return OnnxTransducer(*parts, load_tokens(tokens, None), **how)


def in_any_chunks(model, audio, random):
    """Rows of a streaming model for recordings that come in parts, side by side."""
    parts = [
        np.split(x, np.sort(random.integers(0, len(x) + 1, random.integers(0, 9))))
        for x in audio
    ]
    states, found = [model.start() for _ in audio], [[] for _ in audio]
    for turn in range(max(map(len, parts))):
        on = [i for i in random.permutation(len(audio)) if turn < len(parts[i])]
        new = model.step(
            [states[i] for i in on],
            [parts[i][turn] for i in on],
            [turn == len(parts[i]) - 1 for i in on],
        )
        for i, rows in zip(on, new, strict=True):
            found[i].append(rows)
    return [np.concatenate(rows) for rows in found]


def random_weights(seed, **shapes):
    """Normal numbers float32 of the shapes, small enough to keep outputs lively."""
    random = np.random.default_rng(seed)
    return {
        name: (random.standard_normal(shape) * 2 / np.sqrt(np.prod(shape[1:]))).astype(
            np.float32
        )
        for name, shape in shapes.items()
    }


def write_tokens(path, size, blank="<blk>", at=0):
    names = [f"t{i}" for i in range(size - 1)]
    names.insert(at % size if at >= 0 else size + at, blank)
    path.write_text("".join(f"{name} {i}\n" for i, name in enumerate(names)), "utf-8")
    return path


def waveform_model(path, size=6, output="log_probs", metadata=None, limit=None):
    """A causal net of 320 samples a frame: it sees 80 before it, and two frames."""
    weights = random_weights(1, first=(8, 1, 400), second=(size, 8, 3))
    weights["first"] *= 20
    weights |= {
        "one": np.array([1]),
        "hop": np.array([320]),
        "left": np.array([0, 0, 80, 0, 0, 0]),
        "before": np.array([0, 0, 2, 0, 0, 0]),
        "zero": np.array([0]),
        "most": np.array([limit or 10**9]),
        "axis": np.array([1]),
    }
    last = "Identity" if output == "logits" else "LogSoftmax<axis=-1>"
    text = f"""g (float[B, N] waveform, int64[B] waveform_lengths)
        => (float[B, T, {size}] {output}, int64[B] out_lengths) {{
        x = Unsqueeze(waveform, one)
        padded = Pad(x, left)
        hidden = Conv<strides=[320]>(padded, first)
        squashed = Tanh(hidden)
        with_past = Pad(squashed, before)
        y = Conv(with_past, second)
        t = Transpose<perm=[0, 2, 1]>(y)
        cut = Slice(t, zero, most, axis)
        {output} = {last}(cut)
        all = Div(waveform_lengths, hop)
        out_lengths = Min(all, most)
    }}"""
    return write_onnx(path, text, weights, metadata)


def nemo_folder(folder, size=7):
    """Write model.onnx, vocab.txt and config.json of a NeMo export for onnx-asr."""
    text = f"""g (float[B, 80, L] audio_signal, int64[B] length)
        => (float[B, T, {size}] logprobs) {{
        y = Conv<strides=[8], auto_pad="SAME_UPPER">(audio_signal, w)
        t = Transpose<perm=[0, 2, 1]>(y)
        logprobs = LogSoftmax<axis=-1>(t)
    }}"""
    write_onnx(folder / "model.onnx", text, random_weights(2, w=(size, 80, 9)))
    names = ["\u2581the", "\u2581", "a", "b", "c", "d", "<blk>"]
    lines = [f"{name} {i}\n" for i, name in enumerate(names)]
    (folder / "vocab.txt").write_text("".join(lines), "utf-8")
    config = {"model_type": "nemo-conformer-ctc", "subsampling_factor": 8}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def gigaam_folder(folder, size=5):
    """Write v2_ctc.onnx and v2_vocab.txt, as GigaAM's exports are called."""
    text = f"""g (float[B, 64, L] features, int64[B] feature_lengths)
        => (float[B, T, {size}] log_probs) {{
        y = Conv<strides=[4], auto_pad="SAME_UPPER">(features, w)
        t = Transpose<perm=[0, 2, 1]>(y)
        log_probs = LogSoftmax<axis=-1>(t)
    }}"""
    write_onnx(folder / "v2_ctc.onnx", text, random_weights(3, w=(size, 64, 5)))
    write_tokens(folder / "v2_vocab.txt", size, at=-1)
    return folder


TONE = """g (int32[B, 2400, 1] signal, float16[B, 3] state)
    => (float[B, 10, 4] logprobs, float16[B, 3] state_next) {
    x = Cast<to=1>(signal)
    pieces = Reshape(x, shape)
    y = MatMul(pieces, w)
    old = Cast<to=1>(state)
    past = ReduceSum<keepdims=1>(old, last)
    bias = Unsqueeze(past, last)
    z = Add(y, bias_w)
    zz = Mul(z, scale)
    shifted = Mul(bias, direction)
    all = Add(zz, shifted)
    logprobs = LogSoftmax<axis=-1>(all)
    level = ReduceMean<axes=[1, 2], keepdims=0>(pieces)
    column = Unsqueeze(level, last)
    small = Mul(column, scale)
    half = Mul(old, h)
    new = Add(half, small)
    state_next = Cast<to=10>(new)
}"""
"""T-one's shape: frames of 300 ms of 8 kHz, 10 outputs each, one state."""


def tone_model(path, metadata=None):
    weights = random_weights(4, w=(240, 4), bias_w=(4,), direction=(4,))
    weights |= {
        "shape": np.array([0, 10, 240]),
        "last": np.array([1]),
        "scale": np.float32(1e-3),
        "h": np.float32(0.5),
    }
    return write_onnx(path, TONE, weights, metadata)


def tone_folder(folder):
    """Write model.onnx and config.json as onnx-asr wants T-one's."""
    tone_model(folder / "model.onnx")
    config = {
        "model_type": "t-one-ctc",
        "decoder_params": {"vocabulary": ["a", "b", " "]},
        "encoder_params": {"reduction_kernel_size": 3},
        "pad_token_id": 3,
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def _state_lines(states, mean):
    """Graph text: each state halves and takes up the mean; `past` [B, 1, 1] of all."""
    lines, terms = [], []
    for name, rank, axis in states:
        others = [i for i in range(rank) if i != axis]
        shape = [1] * rank
        shape[axis] = -1
        lines += [
            f"s_{name} = ReduceMean<axes={others}, keepdims=0>({name})",
            f"c_{name} = Constant<value_ints={shape}>()",
            f"m_{name} = Reshape({mean}, c_{name})",
            f"h_{name} = Mul({name}, half)",
            f"new_{name} = Add(h_{name}, m_{name})",
        ]
        terms.append(f"s_{name}")
    lines.append(f"summed = Sum({', '.join(terms)})")
    lines.append("past = Unsqueeze(summed, last_axes)")
    return "\n".join(lines)


def _state_weights(seed, size, kernel):
    """Weights of a convolution over 80 mels, and the numbers of `_state_lines`."""
    weights = random_weights(seed, w=(size, 80, kernel), direction=(size,))
    return weights | {"half": np.float32(0.5), "last_axes": np.array([1, 2])}


def zipformer2_model(path, size=5, output="log_probs"):
    """Write icefall's streaming Zipformer2; `encoder_out` is not normalised."""
    last = "LogSoftmax<axis=-1>" if output == "log_probs" else "Identity"
    states = {}
    for tag, dim, left, kernel in (
        ("0_0", 8, 6, 2),
        ("1_0", 12, 3, 1),
        ("1_1", 12, 3, 1),
    ):
        states |= {
            f"key_{tag}": ([left, "N", 4], 1),
            f"nonlin_{tag}": ([1, "N", left, 3 * dim // 4], 1),
            f"val1_{tag}": ([left, "N", 4], 1),
            f"val2_{tag}": ([left, "N", 4], 1),
            f"conv1_{tag}": (["N", dim, kernel], 0),
            f"conv2_{tag}": (["N", dim, kernel], 0),
        }
    states["embed"] = ["N", 128, 3, 19], 0

    def form(prefix):
        return ", ".join(
            f"float[{', '.join(map(str, shape))}] {prefix}{name}"
            for name, (shape, _) in states.items()
        )

    moved = [(name, len(shape), axis) for name, (shape, axis) in states.items()]
    text = f"""g (float[N, 45, 80] x, {form("")}, int64[N] processed_lens)
        => (float[N, 8, {size}] {output}, {form("new_")},
            int64[N] new_processed_lens) {{
        level = ReduceMean<axes=[1, 2], keepdims=0>(x)
        {_state_lines(moved, "level")}
        t = Transpose<perm=[0, 2, 1]>(x)
        y = Conv<strides=[4]>(t, w)
        yt = Transpose<perm=[0, 2, 1]>(y)
        moved = Mul(past, direction)
        sum = Add(yt, moved)
        {output} = {last}(sum)
        new_processed_lens = Add(processed_lens, step)
    }}"""
    weights = _state_weights(5, size, 17) | {"step": np.array([32])}
    metadata = {
        "model_type": "zipformer2",
        "encoder_dims": "8,12",
        "query_head_dims": "2,2",
        "value_head_dims": "2,2",
        "num_heads": "2,2",
        "num_encoder_layers": "1,2",
        "cnn_module_kernels": "5,3",
        "left_context_len": "6,3",
        "T": 45,
        "decode_chunk_len": 32,
    }
    return write_onnx(path, text, weights, metadata)


def nemo_streaming_model(path, size=5, output="logprobs", **metadata):
    """Write NeMo's export: window 25, shift 16; raw `outputs` [B, D, T]."""
    shape, last = f"B, T, {size}", "LogSoftmax<axis=-1>"
    if output == "outputs":
        shape, last = f"B, {size}, T", "Transpose<perm=[0, 2, 1]>"
    states = [("channel", 4, 0), ("time", 4, 0)]
    text = f"""g (float[B, 80, L] audio_signal, int64[B] length,
            float[B, 2, 3, 4] channel, float[B, 2, 4, 3] time, int64[B] channel_len)
        => (float[{shape}] {output}, int64[B] encoded_lengths,
            float[B, 2, 3, 4] new_channel, float[B, 2, 4, 3] new_time,
            int64[B] new_channel_len) {{
        level = ReduceMean<axes=[1, 2], keepdims=0>(audio_signal)
        {_state_lines(states, "level")}
        y = Conv<strides=[8]>(audio_signal, w)
        yt = Transpose<perm=[0, 2, 1]>(y)
        moved = Mul(past, direction)
        sum = Add(yt, moved)
        {output} = {last}(sum)
        encoded_lengths = Div(length, eight)
        new_channel_len = Add(channel_len, one)
    }}"""
    weights = _state_weights(6, size, 17)
    weights |= {"eight": np.array([8]), "one": np.array([1])}
    own = {
        "window_size": 25,
        "chunk_shift": 16,
        "subsampling_factor": 8,
        "vocab_size": size - 1,
        "normalize_type": "",
        "cache_last_channel_dim1": 2,
        "cache_last_channel_dim2": 3,
        "cache_last_channel_dim3": 4,
        "cache_last_time_dim1": 2,
        "cache_last_time_dim2": 4,
        "cache_last_time_dim3": 3,
        "model_type": "EncDecHybridRNNTCTCBPEModel",
    }
    return write_onnx(path, text, weights, own | metadata)


def wenet_model(path, size=5):
    """WeNet: chunks of 4 frames, 2 to the left; what the mask has is in every frame."""
    states = [("attn_cache", 4, 1), ("conv_cache", 4, 1)]
    text = f"""g (float[N, T, 80] x, int64[1] offset, int64[1] required_cache_size,
            float[2, 1, C, 8] attn_cache, float[2, 1, 4, 2] conv_cache,
            bool[1, 1, M] attn_mask)
        => (float[N, 4, {size}] log_probs, float[2, 1, C, 8] new_attn_cache,
            float[2, 1, 4, 2] new_conv_cache) {{
        all_level = ReduceMean<axes=[1, 2], keepdims=0>(x)
        level = Mul(all_level, tenth)
        {_state_lines(states, "level")}
        t = Transpose<perm=[0, 2, 1]>(x)
        y = Conv<strides=[4]>(t, w)
        yt = Transpose<perm=[0, 2, 1]>(y)
        mask = Cast<to=1>(attn_mask)
        there = ReduceSum(mask, last_axes)
        both = Add(past, there)
        moved = Mul(both, direction)
        at = Cast<to=1>(offset)
        scaled = Mul(at, hundredth)
        where = Mul(scaled, direction)
        sum0 = Add(yt, moved)
        sum = Add(sum0, where)
        log_probs = LogSoftmax<axis=-1>(sum)
    }}"""
    weights = _state_weights(7, size, 7)
    weights |= {"tenth": np.float32(0.1), "hundredth": np.float32(0.01)}
    metadata = {
        "model_type": "wenet_ctc",
        "chunk_size": 4,
        "left_chunks": 2,
        "head": 1,
        "num_blocks": 2,
        "output_size": 4,
        "cnn_module_kernel": 3,
        "right_context": 6,
        "subsampling_factor": 4,
        "vocab_size": size,
    }
    return write_onnx(path, text, weights, metadata)
