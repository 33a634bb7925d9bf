"""Random cases for the prefix search with a language model over words.

case = random_case(seed, tmp_path)
decoder = build_ctcdecoder(case.labels, case.arpa, case.unigrams, **case.lm)
decoder.decode_beams(case.logits, **case.options)
"""

import importlib.util
from typing import NamedTuple

import numpy as np
import pytest

WORDS = ("a", "ab", "ba", "b", "cab", "abc", "bc", "cc", "aab")
PIECES = ("", "▁a", "▁b", "a", "b", "c", "▁ab", "▁c", "▁", "bc", "<unk>")
LETTERS = ("", " ", "a", "b", "c", "ab")
NOTHING_PRUNED = {
    "beam_width": 100_000,
    "beam_prune_logp": -1e9,
    "token_min_logp": -1e9,
}

PEER = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("pyctcdecode", "pygtrie", "kenlm"))),
    reason="pyctcdecode is not installed",
)


class PrefixCase(NamedTuple):
    """Arguments and input of a decoder; `arpa` is a path or None."""

    labels: list
    arpa: str | None
    unigrams: list | None
    lm: dict
    logits: np.ndarray
    options: dict


def random_arpa(rng, order, has_unk=True):
    """A model of order 2 or 3 that KenLM reads, as text."""
    unigrams = ["-99\t<s>\t-0.3", "-1.0\t</s>\t0"] + ["-2.5\t<unk>\t0"] * has_unk
    for word in WORDS:
        cost, backoff = -rng.uniform(0.5, 2), -rng.uniform(0.1, 0.6)
        unigrams.append(f"{cost:.4f}\t{word}\t{backoff:.4f}")
    pairs = {(a, b) for a in ("<s>", *WORDS[:3]) for b in WORDS[:3]}
    firsts, seconds = rng.choice([*WORDS, "<s>"], 12), rng.choice([*WORDS, "</s>"], 12)
    pairs |= {(str(a), str(b)) for a, b in zip(firsts, seconds, strict=True)}
    bigrams = []
    for a, b in sorted(pairs):
        backoff = "" if order == 2 else f"\t{-rng.uniform(0, 0.5):.4f}"
        bigrams.append(f"{-rng.uniform(0.1, 1.5):.4f}\t{a} {b}{backoff}")
    trigrams = [
        f"{-rng.uniform(0.1, 1.5):.4f}\t{a} {b} {c}"
        for a, b in sorted(pairs)
        for c in WORDS[:4]
        if (b, c) in pairs and rng.random() < 0.3
    ]
    sections = [unigrams, bigrams, trigrams][:order]
    counts = "".join(f"ngram {n}={len(s)}\n" for n, s in enumerate(sections, 1))
    bodies = "".join(
        f"\n\\{n}-grams:\n" + "\n".join(s) + "\n" for n, s in enumerate(sections, 1)
    )
    return f"\\data\\\n{counts}{bodies}\n\\end\\\n"


def random_labels(rng):
    """Pieces, or letters with a space."""
    if rng.random() < 0.5:
        return [*PIECES[: rng.integers(4, 11)], *PIECES[10:][: rng.integers(0, 2)]]
    return list(LETTERS[: rng.integers(3, 7)])


def random_logits(rng, num_frames, num_tokens):
    """Draw logits of either type, sure or unsure."""
    dtype = rng.choice([np.float32, np.float64])
    scale = rng.choice([1, 3, 6])
    return (rng.normal(size=(num_frames, num_tokens)) * scale).astype(dtype)


def random_case(seed, folder, most_frames=14):
    """A case; half of them have a language model, half of them hotwords."""
    rng = np.random.default_rng(seed)
    labels, arpa, unigrams, lm, options = random_labels(rng), None, None, {}, {}
    if rng.random() < 0.6:
        path = folder / f"{seed}.arpa"
        text = random_arpa(rng, int(rng.integers(2, 4)), bool(rng.random() < 0.7))
        path.write_text(text, "utf-8")
        arpa = str(path)
        lm = {
            "alpha": float(rng.uniform(0, 2)),
            "beta": float(2 * rng.normal()),
            "unk_score_offset": float(-rng.uniform(0, 10)),
            "lm_score_boundary": bool(rng.random() < 0.7),
        }
        if rng.random() < 0.3:
            unigrams = [str(word) for word in rng.choice(WORDS, 5, replace=False)]
    if rng.random() < 0.5:
        found = rng.choice([*WORDS, "zz", "ab ba", " "], 3)
        options["hotwords"] = [str(word) for word in found]
        options["hotword_weight"] = float(rng.choice([10, 1, -3]))
    options |= {
        "beam_width": int(rng.choice([1, 2, 5, 20, 100])),
        "beam_prune_logp": float(rng.choice([-2, -10, -1000])),
        "token_min_logp": float(rng.choice([-1, -5, -100])),
        "prune_history": bool(rng.random() < 0.5),
    }
    logits = random_logits(rng, int(rng.integers(1, most_frames)), len(labels))
    return PrefixCase(labels, arpa, unigrams, lm, logits, options)
