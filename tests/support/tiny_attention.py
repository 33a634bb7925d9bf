"""Tiny random attention models in the layouts that are published, as ONNX files.

    optimum_whisper(folder)      encoder_model.onnx, decoder_model_merged.onnx,
                                 tokenizer.json, config.json, generation_config.json
    sherpa_whisper(folder)       tiny-encoder.onnx, tiny-decoder.onnx, tiny-tokens.txt
    nemo_canary(folder)          encoder-model.onnx, decoder-model.onnx, vocab.txt
    sherpa_canary(folder)        encoder.onnx, decoder.onnx, tokens.txt
    sherpa_moonshine(folder)     preprocess.onnx, encode.onnx, uncached_decode.onnx,
                                 cached_decode.onnx, tokens.txt

Each is traced from a torch model, which it returns: both Whispers have the same
weights, and both Canaries.
"""

import base64
import functools
import json
import warnings

import onnx
import torch
import transformers
from tiny_nemo import DIM, Classifier, Decoder, Embedding
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import DynamicCache, EncoderDecoderCache, PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import bytes_to_unicode

LAYERS, HEADS, WIDTH, POSITIONS = 2, 2, 16, 40
MARKS = (
    *("<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|de|>", "<|translate|>"),
    *("<|transcribe|>", "<|startoflm|>", "<|startofprev|>", "<|nospeech|>"),
    *("<|notimestamps|>", "<|0.00|>", "<|0.02|>"),
)
TEXTS = ["the garment of linen", "the only garment", "caf\u00e9 na\u00efve, \u4f60"]


@functools.cache
def byte_tokenizer():
    """A byte-level BPE of 300 tokens with Whisper's marks behind them."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=288,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator(TEXTS * 20, trainer)
    inner.add_special_tokens(list(MARKS))
    how = {"eos_token": MARKS[0], "additional_special_tokens": list(MARKS[1:])}
    return PreTrainedTokenizerFast(tokenizer_object=inner, **how)


@functools.cache
def whisper(seed=0):
    """A random Whisper whose encoder hears 30 s, 80 mels, several languages."""
    torch.manual_seed(seed)
    ids = byte_tokenizer().get_vocab()
    eos = ids[MARKS[0]]
    config = transformers.WhisperConfig(
        **{"vocab_size": len(ids), "num_mel_bins": 80, "d_model": WIDTH},
        **{"encoder_layers": 1, "decoder_layers": LAYERS, "max_source_positions": 1500},
        **{"encoder_attention_heads": 1, "decoder_attention_heads": HEADS},
        **{"encoder_ffn_dim": 8, "decoder_ffn_dim": 8, "init_std": 1.0},
        **{"pad_token_id": eos, "bos_token_id": eos, "eos_token_id": eos},
        **{"decoder_start_token_id": ids[MARKS[1]], "max_target_positions": POSITIONS},
    )
    model = transformers.WhisperForConditionalGeneration(config).eval()
    with torch.no_grad():
        model.proj_out.weight *= 0.2
    generation = model.generation_config
    generation.is_multilingual, generation._from_model_config = True, False
    generation.suppress_tokens = [1, 5, *(ids[mark] for mark in MARKS[1:])]
    generation.begin_suppress_tokens = None
    return model


def export(module, given, path, inputs, outputs, axes):
    """Trace a module; `axes`: free axes by the beginnings of names."""
    free = {
        name: dict(enumerate(sizes)) | {}
        for name in (*inputs, *outputs)
        for start, sizes in axes.items()
        if name.startswith(start)
    }
    free = {n: {i: s for i, s in ax.items() if s} for n, ax in free.items()}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module.eval(),
            tuple(given),
            str(path),
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_axes=free,
            dynamo=False,
            opset_version=17,
        )
    return path


def set_metadata(path, metadata):
    model = onnx.load(path)
    onnx.helper.set_model_props(model, {k: str(v) for k, v in metadata.items()})
    onnx.save(model, path)


class Traced(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function, *modules):
        super().__init__()
        self.function, self.modules_ = function, torch.nn.ModuleList(modules)

    def forward(self, *given):
        return self.function(*given)


def cached(model, num_layers):
    """A function of labels, frames and a past, four arrays a layer, if there is one."""
    decoder, head = model.get_decoder(), model.get_output_embeddings()

    def run(labels, frames, *past):
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        for i in range(len(past) // 4):
            key, value, *cross = past[4 * i : 4 * i + 4]
            cache.self_attention_cache.update(key, value, i)
            cache.cross_attention_cache.update(*cross, i)
            cache.is_updated[i] = True
        out = decoder(
            input_ids=labels,
            encoder_hidden_states=frames,
            past_key_values=cache,
            use_cache=True,
        )
        found = [head(out.last_hidden_state)]
        for i in range(num_layers):
            own = out.past_key_values.self_attention_cache.layers[i]
            cross = out.past_key_values.cross_attention_cache.layers[i]
            found += [own.keys, own.values, cross.keys, cross.values]
        return tuple(found)

    return Traced(run, decoder, head)


def past_names(begin):
    return [
        f"{begin}.{i}.{of}.{what}"
        for i in range(LAYERS)
        for of in ("decoder", "encoder")
        for what in ("key", "value")
    ]


def optimum_whisper(folder, merged=True, seed=0):
    """What Optimum writes; `merged=False`: a decoder with a past, one without."""
    folder.mkdir(parents=True, exist_ok=True)
    model = whisper(seed)
    encoder = model.get_encoder()
    export(
        Traced(lambda x: encoder(x).last_hidden_state, encoder),
        [torch.zeros(1, 80, 3000)],
        folder / "encoder_model.onnx",
        ["input_features"],
        ["last_hidden_state"],
        {"input": ["batch_size"], "last": ["batch_size"]},
    )
    module, frames = cached(model, LAYERS), torch.randn(2, 1500, WIDTH)
    labels, outputs = torch.zeros(2, 3, dtype=torch.int64), past_names("present")
    past = module(labels, frames)[1:]
    axes = {
        "input_ids": ["batch_size", "u"],
        "encoder_hidden_states": ["batch_size", "t"],
        "logits": ["batch_size", "u"],
        **{f"present.{i}.decoder": ["batch_size", None, "u2"] for i in range(LAYERS)},
        **{f"present.{i}.encoder": ["batch_size", None, "t2"] for i in range(LAYERS)},
    }
    axes |= {
        f"past_key_values.{i}.{of}": ["batch_size", None, size]
        for i in range(LAYERS)
        for of, size in (("decoder", "u1"), ("encoder", "t1"))
    }
    ids = ["input_ids", "encoder_hidden_states"]
    first = folder / "decoder_model.onnx"
    later = folder / "decoder_with_past_model.onnx"
    export(module, [labels, frames], first, ids, ["logits", *outputs], axes)
    names = [*ids, *past_names("past_key_values")]
    given = [labels[:, :1], frames, *past]
    export(module, given, later, names, ["logits", *outputs], axes)
    if merged:
        merge(first, later, folder / "decoder_model_merged.onnx")
    byte_tokenizer().backend_tokenizer.save(str(folder / "tokenizer.json"))
    model.config.to_json_file(folder / "config.json")
    generation = model.generation_config.to_dict()
    (folder / "generation_config.json").write_text(json.dumps(generation))
    return model


def merge(first, later, path):
    """One file of both cases, and without the two: `If` on `use_cache_branch`."""
    both = [onnx.load(one).graph for one in (later, first)]
    branches = []
    for graph, prefix in zip(both, ("then_", "else_"), strict=True):
        how = dict(rename_inputs=False, rename_outputs=True)
        graph = onnx.compose.add_prefix_graph(graph, prefix, **how)
        outputs = list(graph.output)
        if prefix == "then_":  # as Optimum does: nothing for what does not change
            for i, one in enumerate(outputs):
                if ".encoder." in one.name:
                    shape = one.type.tensor_type.shape
                    empty = torch.zeros(0, shape.dim[1].dim_value, 1, WIDTH // HEADS)
                    array = onnx.numpy_helper.from_array(empty.numpy())
                    name = f"{one.name}_none"
                    node = onnx.helper.make_node("Constant", [], [name], value=array)
                    graph.node.append(node)
                    outputs[i] = onnx.helper.make_tensor_value_info(name, 1, None)
        found = onnx.helper.make_graph(
            list(graph.node), prefix, [], outputs, list(graph.initializer)
        )
        branches.append(found)
    known = {one.name: one for graph in both for one in graph.input}
    flag = onnx.helper.make_tensor_value_info("use_cache_branch", 9, [1])
    names = [one.name for one in both[1].output]
    node = onnx.helper.make_node(
        *("If", ["use_cache_branch"], names),
        then_branch=branches[0],
        else_branch=branches[1],
    )
    inputs, outputs = [*known.values(), flag], list(both[1].output)
    graph = onnx.helper.make_graph([node], "merged", inputs, outputs)
    opsets = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    first.unlink()
    later.unlink()


def sherpa_whisper(folder, seed=0):
    """What sherpa-onnx's script writes: caches of all positions, and an offset."""
    folder.mkdir(parents=True, exist_ok=True)
    model = whisper(seed)
    encoder, decoder = model.get_encoder(), model.get_decoder()

    def encode(mel):
        frames = encoder(mel).last_hidden_state
        keys = [layer.encoder_attn.k_proj(frames) for layer in decoder.layers]
        values = [layer.encoder_attn.v_proj(frames) for layer in decoder.layers]
        return torch.stack(keys), torch.stack(values)

    def attend(attention, x, keys, values, mask=None):
        def split(one):
            return one.unflatten(-1, (HEADS, -1)).transpose(1, 2)

        query = split(attention.q_proj(x) * attention.scaling)
        scores = query @ split(keys).transpose(2, 3)
        if mask is not None:
            scores = scores + mask
        found = scores.softmax(-1) @ split(values)
        return attention.out_proj(found.transpose(1, 2).flatten(2))

    def decode(tokens, own_keys, own_values, keys, values, offset):
        size, begin = tokens.shape[1], offset[0]
        places = begin + torch.arange(size)
        x = decoder.embed_tokens(tokens) + decoder.embed_positions.weight[places]
        mask = torch.where(torch.arange(POSITIONS)[None] <= places[:, None], 0.0, -1e9)
        after = [], []
        for i, layer in enumerate(decoder.layers):
            y = layer.self_attn_layer_norm(x)
            parts = (
                (after[0], own_keys, layer.self_attn.k_proj(y)),
                (after[1], own_values, layer.self_attn.v_proj(y)),
            )
            for found, old, new in parts:
                index = places[None, :, None].expand_as(new)
                found.append(old[i].scatter(1, index, new))
            x = x + attend(layer.self_attn, y, after[0][-1], after[1][-1], mask)
            y = layer.encoder_attn_layer_norm(x)
            x = x + attend(layer.encoder_attn, y, keys[i], values[i])
            y = layer.final_layer_norm(x)
            x = x + layer.fc2(layer.activation_fn(layer.fc1(y)))
        logits = model.proj_out(decoder.layer_norm(x))
        return logits, torch.stack(after[0]), torch.stack(after[1])

    cross = ["n_layer_cross_k", "n_layer_cross_v"]
    export(
        Traced(encode, encoder, decoder),
        [torch.zeros(1, 80, 3000)],
        folder / "tiny-encoder.onnx",
        ["mel"],
        cross,
        {"mel": ["n_audio"], "n_layer": [None, "n_audio"]},
    )
    own = [torch.zeros(LAYERS, 2, POSITIONS, WIDTH)] * 2
    keys = [torch.randn(LAYERS, 2, 1500, WIDTH)] * 2
    labels = torch.zeros(2, 3, dtype=torch.int64)
    names = ["in_n_layer_self_k_cache", "in_n_layer_self_v_cache"]
    export(
        Traced(decode, model),
        [labels, *own, *keys, torch.tensor([1])],
        folder / "tiny-decoder.onnx",
        ["tokens", *names, *cross, "offset"],
        ["logits", *(name.replace("in", "out", 1) for name in names)],
        {
            "tokens": ["n_audio", "n_tokens"],
            "logits": ["n_audio", "n_tokens"],
            "in_n": [None, "n_audio"],
            "out_n": [None, "n_audio"],
            "n_layer": [None, "n_audio"],
        },
    )
    ids, letters = byte_tokenizer().get_vocab(), {}
    letters = {letter: byte for byte, letter in bytes_to_unicode().items()}
    with (folder / "tiny-tokens.txt").open("w") as file:
        for name, i in sorted(ids.items(), key=lambda pair: pair[1]):
            if name not in MARKS:
                text = bytes(letters[letter] for letter in name)
                file.write(f"{base64.b64encode(text).decode()} {i}\n")
    eot, sot, en, de, translate, task, lm, prev, silence, plain = (
        ids[mark] for mark in MARKS[:10]
    )
    own = {"n_mels": 80, "n_text_ctx": POSITIONS, "n_vocab": len(ids), "eot": eot}
    own |= {"sot": sot, "sot_sequence": f"{sot},{en},{task}", "is_multilingual": 1}
    own |= {"all_language_tokens": f"{en},{de}", "all_language_codes": "en,de"}
    own |= {"translate": translate, "transcribe": task, "no_timestamps": plain}
    own |= {"sot_lm": lm, "sot_prev": prev, "no_speech": silence}
    own |= {"non_speech_tokens": "1,5", "n_text_layer": LAYERS, "n_text_state": WIDTH}
    set_metadata(folder / "tiny-encoder.onnx", own)
    return model


CANARY = (
    *("<unk>", "<|startofcontext|>", "<|startoftranscript|>", "<|emo:undefined|>"),
    *("<|en|>", "<|de|>", "<|pnc|>", "<|noitn|>", "<|notimestamp|>", "<|nodiarize|>"),
    *("<|endoftext|>", "\u2581", "\u2581a", "b", "\u2581c", "d", "\u2581a", "b"),
)
"""Tokens of a Canary; pieces of its second language have names of the first."""
BINS, STRIDE = 80, 8


@functools.cache
def canary(seed=0):
    """Embedding, decoder, classifier, and the weights of an encoder."""
    torch.manual_seed(seed)
    num = len(CANARY)
    parts = Embedding(num).eval(), Decoder().eval(), Classifier(num).eval()
    return *parts, torch.nn.Linear(BINS, DIM).eval()


def run_canary(ids, place, mems, frames, mask):
    embedding, decoder, classifier, _ = canary()
    hidden = embedding(ids, start_pos=place)
    given = torch.ones(ids.shape), frames, mask.to(torch.float32), mems
    memories, _ = decoder(hidden, *given, return_mems=True)
    return classifier(hidden_states=memories[-1][:, -1:]), memories


def nemo_canary(folder):
    """The layout of onnx-asr."""
    folder.mkdir(parents=True, exist_ok=True)
    linear = canary()[3]

    def encode(x, length):
        frames = linear(x.transpose(1, 2)[:, ::STRIDE])
        counts = (length + STRIDE - 1) // STRIDE
        mask = torch.arange(frames.shape[1])[None] < counts[:, None]
        return frames, mask.to(torch.int64)

    def decode(ids, frames, mask, mems):
        given = list(mems.unbind(0)), frames, mask
        logits, memories = run_canary(ids, mems.shape[2], *given)
        return logits, torch.stack(memories)

    export(
        Traced(encode, linear),
        [torch.randn(2, BINS, 64), torch.tensor([64, 30])],
        folder / "encoder-model.onnx",
        ["audio_signal", "length"],
        ["encoder_embeddings", "encoder_mask"],
        {"audio": ["b", None, "t"], "length": ["b"], "encoder_": ["b", "t2"]},
    )
    ids, mask = torch.zeros(2, 3, dtype=torch.int64), torch.ones(2, 8).long()
    export(
        Traced(decode, *canary()),
        [ids, torch.randn(2, 8, DIM), mask, torch.randn(3, 2, 4, DIM)],
        folder / "decoder-model.onnx",
        ["input_ids", "encoder_embeddings", "encoder_mask", "decoder_mems"],
        ["logits", "decoder_hidden_states"],
        {
            "input_ids": ["b", "u"],
            "encoder_": ["b", "t"],
            "decoder_mems": [None, "b", "u1"],
            "decoder_hidden": [None, "b", "u2"],
            "logits": ["b", "u3"],
        },
    )
    own = {"model_type": "nemo-conformer-aed", "features_size": BINS}
    own |= {"subsampling_factor": STRIDE, "max_sequence_length": 30}
    (folder / "config.json").write_text(json.dumps(own))
    lines = (f"{name} {i}\n" for i, name in enumerate(CANARY))
    (folder / "vocab.txt").write_text("".join(lines), encoding="utf-8")


def sherpa_canary(folder):
    """The layout of sherpa-onnx: a memory for each layer, positions with the labels."""
    folder.mkdir(parents=True, exist_ok=True)
    linear = canary()[3]

    def encode(x, length):
        frames = linear(x[:, ::STRIDE])
        counts = (length + STRIDE - 1) // STRIDE
        mask = torch.arange(frames.shape[1])[None] < counts[:, None]
        return frames, counts, mask

    def decode(ids, *given):
        *mems, frames, mask = given
        logits, memories = run_canary(ids[:, :-1], ids[0, -1], mems, frames, mask)
        return logits, *memories

    export(
        Traced(encode, linear),
        [torch.randn(1, 64, BINS), torch.tensor([64])],
        folder / "encoder.onnx",
        ["x", "x_len"],
        ["enc_states", "enc_len", "enc_mask"],
        {"x": ["N", "T"], "x_len": ["N"], "enc_len": ["N"], "enc_": ["N", "T2"]},
    )
    ids, mask = torch.tensor([[1, 4]], dtype=torch.int32), torch.ones(1, 8).bool()
    mems = [torch.randn(1, 4, DIM) for _ in range(3)]
    names = [f"decoder_mems_list_{i}" for i in range(3)]
    export(
        Traced(decode, *canary()),
        [ids, *mems, torch.randn(1, 8, DIM), mask],
        folder / "decoder.onnx",
        ["decoder_input_ids", *names, "enc_states", "enc_mask"],
        ["logits", *(f"next_decoder_mem_list_{i}" for i in range(3))],
        {
            "decoder_input_ids": [None, "u"],
            "decoder_mems": [None, "u1"],
            "next": [None, "u2"],
            "enc_": [None, "t"],
        },
    )
    own = {"model_type": "EncDecMultiTaskModel", "vocab_size": len(CANARY)}
    own |= {"normalize_type": "per_feature", "subsampling_factor": STRIDE}
    own |= {"feat_dim": BINS, "num_decoder_layers": 3, "decoder_hidden_size": DIM}
    set_metadata(folder / "encoder.onnx", own)
    names = (name.replace("\u2581", " ") for name in CANARY)
    lines = (f"{name} {i}\n" for i, name in enumerate(names))
    (folder / "tokens.txt").write_text("".join(lines), encoding="utf-8")


MOONSHINE = (
    *("<unk>", "<s>", "</s>", "\u2581a", "b", "\u2581c", "d"),
    *("<0xC3>", "<0xA9>", "\u2581e"),
)


def sherpa_moonshine(folder, seed=0):
    """Four files whose inputs have no names, of a decoder with keys and values."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    listen = torch.nn.Conv1d(1, WIDTH, 384, stride=384).requires_grad_(False)
    embed, places = (
        torch.nn.Embedding(len(MOONSHINE), WIDTH),
        torch.nn.Embedding(200, WIDTH),
    )
    linear = torch.nn.ModuleList(
        torch.nn.Linear(WIDTH, WIDTH) for _ in range(6 * LAYERS)
    )
    head = torch.nn.Linear(WIDTH, len(MOONSHINE))

    def features(samples):
        return 20 * listen(samples[:, None]).transpose(1, 2)

    def encode(x, length):
        return torch.tanh(x) + 0 * length.sum()

    def attend(query, key, value):
        return (query @ key.transpose(1, 2)).softmax(-1) @ value

    def decode(labels, frames, count, *past):
        x, after = embed(labels.long()) + places(count.long() - 1)[:, None], []
        for i in range(LAYERS):
            ask, key, value, ask_frames, frame_key, frame_value = linear[
                6 * i : 6 * i + 6
            ]
            own = [key(x), value(x)]
            if past:
                own = [torch.cat([past[4 * i + k], own[k]], 1) for k in (0, 1)]
            cross = past[4 * i + 2 : 4 * i + 4] or [
                frame_key(frames),
                frame_value(frames),
            ]
            x = x + attend(ask(x), *own)
            x = x + attend(ask_frames(x), *cross)
            after += [*own, *cross]
        return 3 * head(x) + 0 * frames.sum(), *after

    parts = embed, places, linear, head
    axes = {"args_0": [None, "n"], "out": [None, "t"]}
    export(
        Traced(features, listen),
        [torch.randn(1, 16000)],
        folder / "preprocess.onnx",
        ["args_0"],
        ["out"],
        axes,
    )
    export(
        Traced(encode),
        [torch.randn(1, 40, WIDTH), torch.tensor([40], dtype=torch.int32)],
        folder / "encode.onnx",
        ["args_0", "args_1"],
        ["out"],
        axes,
    )
    labels, count = torch.ones(1, 1, dtype=torch.int32), torch.tensor([1]).int()
    frames = torch.randn(1, 40, WIDTH)
    past = decode(labels, frames, count)[1:]
    names = [f"args_{i}" for i in range(3)]
    outputs = ["logits", *(f"state_{i}" for i in range(len(past)))]
    axes = {"args_1": [None, "t"]} | {n: [None, f"u_{n}"] for n in outputs[1:]}
    given = [labels, frames, count]
    module = Traced(decode, *parts)
    export(module, given, folder / "uncached_decode.onnx", names, outputs, axes)
    states = [f"args_{i + 3}" for i in range(len(past))]
    axes |= {name: [None, f"u_{name}"] for name in states}
    given = [labels, frames, count, *past]
    path = folder / "cached_decode.onnx"
    export(module, given, path, [*names, *states], outputs, axes)
    lines = (f"{name}\t{i}\n" for i, name in enumerate(MOONSHINE))
    (folder / "tokens.txt").write_text("".join(lines), encoding="utf-8")


def session(path):
    import onnxruntime

    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
