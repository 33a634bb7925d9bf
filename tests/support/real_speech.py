"""Real speech in small: the demo's recipe with some of its words."""

import functools
from pathlib import Path

import numpy as np

import wfstdec
from wfstdec import read_lexicon, read_tokens

RECIPE = Path(__file__).parents[2] / "graphs" / "librispeech_demo"


@functools.cache
def speech_graph(topology):
    """A graph of the recipe's model and about 2,000 of its words; takes a second."""
    tokens = read_tokens(RECIPE / "tokens.txt")
    lexicon = read_lexicon(RECIPE / "lexicon.txt.gz", tokens, separator="<wb>")
    lines = (RECIPE / "refs.txt").read_text("utf-8").splitlines()
    spoken = {word for line in lines for word in line.split()[1:]}
    some = dict.fromkeys(lexicon.words)
    lexicon, _ = lexicon.restrict(spoken | set(list(some)[::20]))
    return wfstdec.build_graph(
        tokens=tokens,
        lexicon=lexicon,
        lm=RECIPE / "lm.arpa.gz",
        separator="<wb>",
        topology=topology,
    )


def utterances(step):
    """Log-probs float32 [T, V] of every `step`-th utterance of the recipe's 40."""
    with np.load(RECIPE / "logprobs.npz") as file:
        return [file[name].astype(np.float32) for name in file.files[::step]]
