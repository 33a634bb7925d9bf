"""Searches with added words: small graphs by hand, random cases."""

import naive
import numpy as np
from naive_added import random_added_case
from oracle_cases import graph_by_files
from random_graphs import random_logprobs, random_options

import wfstdec
from wfstdec import BoostEntry, WfstDecoder

ARPA = (
    "\\data\\\nngram 1=5\n\n\\1-grams:\n-99 <s>\n-0.5 </s>\n-1 an\n-1 ban\n"
    "-2 <unk>\n\n\\end\\\n"
)


def small_graph(folder, topology="normal", separator=None, **options):
    """Words `an` and `ban` of the tokens a b n, and perhaps a separator."""
    texts = {
        "tokens": "<blk>\na\nb\nn\n|\n",
        "lexicon": "an a n\nban b a n\n",
        "arpa": ARPA,
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    files = {name: folder / name for name in texts}
    return wfstdec.build_graph(
        **files, topology=topology, separator=separator, **options
    )


def frames(text, names="_abn|"):
    """Log-probs that allow one token a frame."""
    x = np.full((len(text), len(names)), -np.inf, np.float32)
    x[np.arange(len(text)), [names.index(token) for token in text]] = 0
    return x


def boosts_of(case, listed):
    """A list as users give it."""
    boosts = dict(case.boosts)
    for word, _, bonus in listed:
        said = [one.tokens for one in listed if one.word == word]
        boosts[word] = BoostEntry(word, said, bonus)
    return boosts


def with_phrases(rng, case, boosts):
    """The list with phrases of its words and the lexicon's, or of tokens."""
    words = [*boosts, *sorted(case.usable_words)]
    some = {
        " ".join(rng.choice(words, size=2)): float(rng.choice([1.5, 9.0, -1.0]))
        for _ in range(rng.integers(0, 4))
    }
    return boosts | some


def drawn_search(rng, folder):
    """A decoder of the reference, log-probs, and what is boosted."""
    topology = str(rng.choice(naive.TOPOLOGIES))
    case, listed = random_added_case(rng, topology=topology, num_frames=6)
    graph = graph_by_files(case, folder)
    x = random_logprobs(rng, int(rng.integers(0, 14)), len(graph.tokens))
    boosts = boosts_of(case, listed)
    if rng.random() < 0.5:
        boosts = with_phrases(rng, case, boosts)
    return WfstDecoder(graph, random_options(rng), "reference"), x, boosts
