"""Small random decoders of torchaudio's kind, and what they are to decode."""

from pathlib import Path

import numpy as np

LETTERS = "abc"


def random_case(
    seed, folder, *, with_lexicon, with_lm, separator=True, homophones=True
):
    """Arguments of `ctc_decoder` and emissions; the LM lacks one in three words."""
    rng = np.random.default_rng(seed)
    tokens = list("-|" + LETTERS)
    rng.shuffle(tokens)
    folder = Path(folder)
    arguments = {"lexicon": None, "tokens": tokens, "lm": None}
    names = list(tokens)
    if with_lexicon:
        names = [f"w{i}" for i in range(rng.integers(1, 7))]
        lines, taken = {}, set()
        for name in names:
            for _ in range(rng.integers(1, 3)):
                spelt = " ".join(rng.choice(list(LETTERS), rng.integers(1, 4)))
                if homophones or spelt not in taken:
                    lines[f"{name} {spelt}{' |' * separator}"] = None
                    taken.add(spelt)
        arguments["lexicon"] = str(folder / f"lexicon{seed}.txt")
        Path(arguments["lexicon"]).write_text("\n".join(lines) + "\n", "utf-8")
    if with_lm:
        known = [name for name in names if rng.random() < 0.7] or names[:1]
        arguments["lm"] = str(folder / f"lm{seed}.arpa")
        Path(arguments["lm"]).write_text(random_arpa(rng, known), "utf-8")
    frames = int(rng.integers(0, 9))
    spread = rng.choice([0.5, 2.0, 6.0])
    emissions = rng.normal(0.0, spread, (frames, len(tokens))).astype(np.float32)
    return arguments, emissions


def random_options(seed, *, pruned=False):
    """Options of `ctc_decoder`; without `pruned` nothing is left out."""
    rng = np.random.default_rng([seed, 1])
    options = {
        "nbest": 5,
        "lm_weight": float(rng.choice([0.0, 0.5, 2.0, 3.5])),
        "word_score": float(rng.choice([0.0, -1.25, 1.5])),
        "unk_score": float(rng.choice([-np.inf, -np.inf, -2.0, 0.5])),
        "sil_score": float(rng.choice([0.0, -0.75, 0.5])),
        "log_add": bool(rng.random() < 0.5),
    }
    if not pruned:
        return options | {"beam_size": 100_000, "beam_threshold": 1e6}
    return options | {
        "beam_size": int(rng.integers(1, 12)),
        "beam_threshold": float(rng.choice([2.0, 10.0, 50.0])),
        "beam_size_token": [None, 1, 2, 4][rng.integers(0, 4)],
    }


def random_arpa(rng, words):
    """A bigram model over words, `<unk>` in three of four; no probabilities really."""
    unigrams = ["<s>", "</s>", *words]
    if rng.random() < 0.75:
        unigrams.append("<unk>")
    lines = []
    for word in unigrams:
        backoff = "" if word == "</s>" else f"\t{-rng.random():.4f}"
        lines.append(f"{-3 * rng.random():.4f}\t{word}{backoff}")
    pairs = {
        (str(rng.choice(["<s>", *words])), str(rng.choice(["</s>", *words])))
        for _ in range(4)
    }
    bigrams = [f"{-2 * rng.random():.4f}\t{a} {b}" for a, b in sorted(pairs)]
    return "\n".join(
        ["\\data\\", f"ngram 1={len(lines)}", f"ngram 2={len(bigrams)}", ""]
        + ["\\1-grams:", *lines, "", "\\2-grams:", *bigrams, "", "\\end\\", ""]
    )
