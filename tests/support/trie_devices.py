"""The trie search in emulation: devices of all forms, with room or without; cases."""

import io

import numpy as np
from arpa_texts import arpa_of
from cuda_emulation.device import EmulatedDevice

from wfstdec import Lexicon, TrieDecoder, TrieOptions, read_arpa, token_table
from wfstdec.trie.gpu import layout as d
from wfstdec.trie.gpu.backend import DeviceBackend


def emulated(space, *, shared=True, first_entries=256, form_for=d.form_for, **device):
    """A search space on a device in emulation; `device` is for `EmulatedDevice`."""

    def make(form):
        return EmulatedDevice(
            form.threads,
            program=d.program(form.threads),
            shared_bytes=form.shared_bytes if shared else 0,
            **device,
        )

    return DeviceBackend(space, make, first_entries, form_for)


def in_blocks_of(threads):
    """Chooses forms by their threads."""
    return lambda *sizes: d.form_for(*sizes)._replace(threads=threads)


def always(form):
    return lambda *_: form


def random_arpa(rng, words, num_pairs):
    """A bigram model in which every word has a probability of its own."""
    known = ["<s>", "</s>", *words]
    unigrams = [
        f"{-99 if word == '<s>' else -rng.integers(8, 40) / 8} {word}"
        + ("" if word == "</s>" else f" {-rng.integers(0, 9) / 8}")
        for word in known
    ]
    lefts = rng.choice([word for word in known if word != "</s>"], num_pairs)
    rights = rng.choice([word for word in known if word != "<s>"], num_pairs)
    pairs = sorted({*zip(lefts.tolist(), rights.tolist(), strict=True)})
    bigrams = [f"{-rng.integers(1, 16) / 8} {a} {b}" for a, b in pairs]
    return read_arpa(io.StringIO(arpa_of("; ".join(unigrams), "; ".join(bigrams))))


def token_names(num_tokens):
    """A blank, a separator, and letters."""
    return ["<blank>", "|", *map(chr, range(0x4E00, 0x4E00 + num_tokens - 2))]


def large_decoder(rng, num_tokens, num_words, options, *, separator="|"):
    """A lexicon and a model over words, or without words one over tokens."""
    names = token_names(num_tokens)
    if num_words == 0:
        lm = random_arpa(rng, names[1:], 3 * num_tokens)
        return TrieDecoder(tokens=token_table(names), lm=lm, options=options)
    letters = np.arange(2, num_tokens)
    near = rng.choice(letters, min(12, len(letters)), replace=False)
    distinct = {
        tuple(rng.choice(near, rng.integers(1, 5)).tolist()) for _ in range(num_words)
    }
    prons = sorted(distinct)
    words = [f"W{i // 2}" for i in range(len(prons))]  # of two pronunciations each
    words[1::3] = [f"W{i}" for i in range(1000, 1000 + len(words[1::3]))]
    prons += prons[: num_words // 4]  # words with equal tokens
    words += [f"S{i}" for i in range(num_words // 4)]
    lm = random_arpa(rng, sorted({*words}), 4 * num_words)
    costs = (rng.integers(0, 4, len(words)) / 4).astype(np.float32)
    return TrieDecoder(
        tokens=token_table(names),
        lexicon=Lexicon(tuple(words), tuple(prons), costs),
        lm=lm,
        unk_cost=9.0,
        separator=separator,
        options=options,
    )


def spoken(rng, decoder, num_frames):
    """Log-probs that favour words of a decoder, float32 [T, V]."""
    num_tokens = len(decoder.tokens)
    frames = []
    while len(frames) < num_frames:
        text = [int(rng.integers(1, num_tokens))]
        if decoder.lexicon is not None:
            at = int(rng.integers(len(decoder.lexicon.pronunciations)))
            text = [*decoder.lexicon.pronunciations[at], 1]
        for token in text:
            frames += [0] * (frames[-1:] == [token]) + [token]
    logits = rng.normal(0, 1, (num_frames, num_tokens))
    logits[np.arange(num_frames), frames[:num_frames]] += rng.integers(1, 6)
    logits[:, 0] += 2
    logits -= np.logaddexp.reduce(logits, axis=1, keepdims=True)
    return logits.astype(np.float32)


def small_options(rng, **more):
    """Options of beams that a device takes."""
    drawn = {
        "beam": float(rng.choice([2.0, 5.0, 9.0])),
        "token_top_k": [None, None, 3][int(rng.integers(3))],
        "lookahead": str(rng.choice(["ngram", "unigram", "none"])),
        "lm_scale": float(rng.choice([0.5, 1.0])),
    }
    return TrieOptions(**drawn | more)
