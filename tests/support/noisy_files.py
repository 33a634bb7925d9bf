"""Small files with speech that is hard to make out, and what decodes it by other means.

Which words are found depends on the decoder, its language model, scales and boosts.
"""

import numpy as np
from arpa_texts import arpa_of
from cli_files import TOKENS, wfstdec, write_files

from wfstdec.io import read_text, write_text

SPOKEN = {"ab": "a b", "cab": "c a b", "c": "c"}
TOKEN_ARPA = arpa_of(
    "-0.9 <wb> -0.2; -0.6 a -0.4; -0.8 b -0.2; -0.7 c -0.3; -99 <s> -0.3; -0.9 </s>",
    "-0.1 a b; -0.3 c a; -0.4 b <wb>; -0.2 <s> c",
)
TRIE = ["--tokens", "tokens.txt", "--lexicon", "lexicon.txt", "--separator", "<wb>"]
BARE = ["--tokens", "tokens.txt", "--separator", "<wb>"]
SPEECH = ["--logprobs", "x.npz", "--ref", "ref.txt"]


def write_noisy(folder, count=24):
    """Write what commands read, a graph, and saved models of two `build-lm` folders."""
    write_files(folder)
    (folder / "pieces.arpa").write_text(TOKEN_ARPA)
    rng = np.random.default_rng(5)
    arrays, references = {}, {}
    for i in range(count):
        words = rng.choice(list(SPOKEN), size=rng.integers(1, 4)).tolist()
        tokens = " | ".join(SPOKEN[word] for word in words)
        arrays[f"utt{i}"] = noisy_logprobs(tokens, rng)
        references[f"utt{i}"] = words
    np.savez(folder / "x.npz", **arrays)
    write_text(folder / "ref.txt", references)
    build = [*TRIE, "--lm", "lm.arpa", "--output", "graph.npz", "--quiet"]
    assert wfstdec(folder, "build", *build) == 0
    words = [*TRIE, "--arpa", "lm.arpa", "--output", str(folder / "words"), "--quiet"]
    assert wfstdec(folder, "build-lm", *words) == 0
    pieces = ["--tokens", "tokens.txt", "--arpa", "pieces.arpa", "--quiet"]
    pieces += ["--output", str(folder / "pieces")]
    assert wfstdec(folder, "build-lm", *pieces) == 0
    return folder


def noisy_logprobs(text, rng):
    """Two frames a token and a blank after each, in noise."""
    rows = []
    for token in text.replace("|", "<wb>").split():
        rows += [TOKENS.index(token)] * 2 + [0]
    x = 0.6 * rng.dirichlet(np.full(len(TOKENS), 0.4), len(rows)) + 0.02
    x[np.arange(len(rows)), rows] += 0.4
    return np.log(x / x.sum(1, keepdims=True)).astype(np.float32)


def decoded(folder, *arguments):
    """The words of each utterance by `wfstdec decode`."""
    given = ["--logprobs", "x.npz", "--threads", "1", "--quiet"]
    given += ["--output", "hyp.txt", *arguments]
    assert wfstdec(folder, "decode", *given) == 0
    return read_text(folder / "hyp.txt")


def word_errors(folder, hypotheses):
    """Insertions, deletions and substitutions together, by the textbook."""
    references = read_text(folder / "ref.txt")
    assert references.keys() == hypotheses.keys()
    return sum(distance(words, hypotheses[u]) for u, words in references.items())


def distance(reference, hypothesis):
    row = list(range(len(hypothesis) + 1))
    for i, word in enumerate(reference, 1):
        before, row = row, [i]
        for j, other in enumerate(hypothesis, 1):
            changed = before[j - 1] + (word != other)
            row.append(min(before[j] + 1, row[j - 1] + 1, changed))
    return row[-1]
