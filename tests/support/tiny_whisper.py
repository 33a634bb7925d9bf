"""Random models of Whisper's shape, of a few tokens, and a tokenizer for them.

    model, tokenizer = tiny_whisper(seed=0), letter_tokenizer()
    model.generate(features(2), num_beams=5, max_new_tokens=4)

Ten outputs: four letters, the end, the beginning, a mark, and three timestamps. All but
letters and the end are suppressed, so that a text is letters.
"""

import functools
import itertools

import torch
import transformers
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

LETTERS = "abcd"
EOS, SOT, MARK, FIRST_TIME = 4, 5, 6, 7
NUM_FRAMES = 20
VOCABULARY = (
    *LETTERS,
    *("<|endoftext|>", "<|startoftranscript|>", "<|notimestamps|>"),
    *("<|0.00|>", "<|0.02|>", "<|0.04|>"),
)


def tiny_whisper(seed, *, temperature=1.0, dtype=torch.float32):
    """A random Whisper of one layer, which has opinions by `temperature`."""
    torch.manual_seed(seed)
    config = transformers.WhisperConfig(
        **{"vocab_size": len(VOCABULARY), "num_mel_bins": 4, "d_model": 8},
        **{"encoder_layers": 1, "decoder_layers": 1, "max_source_positions": 10},
        **{"encoder_attention_heads": 1, "decoder_attention_heads": 1},
        **{"encoder_ffn_dim": 8, "decoder_ffn_dim": 8, "max_target_positions": 40},
        **{"pad_token_id": EOS, "bos_token_id": EOS, "eos_token_id": EOS},
        **{"decoder_start_token_id": SOT, "begin_suppress_tokens": None},
        **{"init_std": 1.0, "suppress_tokens": None},
    )
    model = transformers.WhisperForConditionalGeneration(config).eval().to(dtype)
    with torch.no_grad():
        model.proj_out.weight *= temperature
    generation = model.generation_config
    generation.suppress_tokens = [SOT, MARK, *range(FIRST_TIME, len(VOCABULARY))]
    generation.no_timestamps_token_id = MARK
    generation.max_length = 40
    return model


def features(num, seed=0, frames=NUM_FRAMES):
    """Noise as features of `num` utterances, [num, 4, frames]."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(num, 4, frames, generator=generator)


@functools.cache
def letter_tokenizer():
    """A tokenizer whose tokens are letters, and marks."""
    ids = {name: i for i, name in enumerate(VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token=VOCABULARY[EOS]))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.add_special_tokens(list(VOCABULARY[EOS:]))
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=VOCABULARY[EOS],
        unk_token=VOCABULARY[EOS],
        additional_special_tokens=list(VOCABULARY[SOT : MARK + 1]),
    )


@torch.no_grad()
def log_probs(model, frames, longest, prompt=(SOT,)):
    """Log-probs after each text of an utterance, [V] each, as `generate` has them."""
    encoded = model.get_encoder()(frames[None])
    found = {}
    for length in range(longest + 1):
        texts = list(itertools.product(range(len(LETTERS)), repeat=length))
        ids = torch.tensor([[*prompt, *text] for text in texts])
        state = encoded.last_hidden_state.expand(len(texts), -1, -1)
        out = model(encoder_outputs=(state,), decoder_input_ids=ids)
        logits = out.logits[:, -1].float()
        logits = torch.log_softmax(logits, -1)
        logits[:, model.generation_config.suppress_tokens] = -torch.inf
        found.update(zip(texts, logits.double().numpy(), strict=True))
    return found


SMALL = {"pad_token_id": EOS, "bos_token_id": EOS, "eos_token_id": EOS}
SMALL |= {"vocab_size": 10, "decoder_start_token_id": SOT}


def moonshine(num):
    """A random Moonshine, and noise for `num` utterances; the second is shorter."""
    config = transformers.MoonshineConfig(
        **SMALL,
        **{"hidden_size": 8, "intermediate_size": 16, "encoder_num_hidden_layers": 1},
        **{"decoder_num_hidden_layers": 2, "encoder_num_attention_heads": 1},
        **{"decoder_num_attention_heads": 1, "initializer_range": 1.0},
    )
    model = transformers.MoonshineForConditionalGeneration(config)
    mask = torch.ones(num, 4000, dtype=torch.int64)
    mask[1, 2500:] = 0
    return model, {"input_values": torch.randn(num, 4000), "attention_mask": mask}


def speech_to_text(num):
    """A random Speech2Text, and noise like `moonshine`'s."""
    config = transformers.Speech2TextConfig(
        **SMALL,
        **{"d_model": 8, "encoder_layers": 1, "decoder_layers": 2},
        **{"encoder_attention_heads": 1, "decoder_attention_heads": 1},
        **{"encoder_ffn_dim": 8, "decoder_ffn_dim": 8, "input_feat_per_channel": 4},
        **{"conv_channels": 8, "init_std": 1.0},
    )
    model = transformers.Speech2TextForConditionalGeneration(config)
    mask = torch.ones(num, 24, dtype=torch.int64)
    mask[1, 11:] = 0
    return model, {"input_features": torch.randn(num, 24, 4), "attention_mask": mask}
