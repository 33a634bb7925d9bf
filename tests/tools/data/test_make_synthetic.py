"""The synthetic BPE set, made tiny: what must hold of every set that the tool makes."""

import numpy as np
import pytest
from arpa_texts import arpa_of

pytest.importorskip("sentencepiece")

from tools.data import (  # noqa: E402
    make_synthetic,
)
from wfstdec import read_lexicon, read_tokens
from wfstdec.io.results import read_text  # noqa: E402

WORDS = """a all and banana bee beer better bitter book boot did don't egg eggs feet
food good he hello her hers here in inn is less lesson letter little look moon need noon
of off on otter pepper physics room see seed sheep sleep soon sweet tall tell that the
them then they this to tomato tool too tree wood zoo""".split()
FILES = "tokens.txt bpe.model lexicon.txt posteriors.npz refs.txt".split()
NAMES = [f"synthetic-{index:04d}" for index in range(6)]


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Text of random sentences, and an ARPA file without the word `zoo`."""
    folder = tmp_path_factory.mktemp("sources")
    rng = np.random.default_rng(7)
    lines = [" ".join(rng.choice(WORDS, rng.integers(3, 12))) for _ in range(300)]
    (folder / "text.txt").write_text("\n".join(lines) + "\n")
    known = ["<unk>", "<s>", "</s>", *WORDS[:-1]]
    unigrams = "; ".join(f"-1.5 {word}" for word in known)
    (folder / "lm.arpa").write_text(arpa_of(unigrams))
    return folder


@pytest.fixture(scope="module")
def make(sources, tmp_path_factory):
    """Call the tool; returns the folder it wrote."""

    def call(*options):
        out = tmp_path_factory.mktemp("made")
        sizes = "--utterances 6 --pieces 64 --train-sentences 200"
        inputs = ["--text", sources / "text.txt", "--arpa", sources / "lm.arpa"]
        arguments = [*sizes.split(), *inputs, "--out", out, *options]
        make_synthetic.main([str(argument) for argument in arguments])
        return out

    return call


@pytest.fixture(scope="module")
def clean(make):
    return make("--level", "clean")


@pytest.fixture(scope="module")
def hard(make):
    return make("--level", "hard")


def load(folder):
    with np.load(folder / "posteriors.npz") as file:
        return {name: file[name] for name in file.files}


def greedy(folder):
    tokens = read_tokens(folder / "tokens.txt")
    return {
        name: tuple(make_synthetic.greedy_words(rows, tokens))
        for name, rows in load(folder).items()
    }


def test_clean_set_says_its_references(clean):
    references = read_text(clean / "refs.txt")
    assert list(references) == NAMES
    assert greedy(clean) == references
    tokens = read_tokens(clean / "tokens.txt")
    lexicon = read_lexicon(clean / "lexicon.txt", tokens)
    said = [word for words in references.values() for word in words]
    spelt = dict(zip(lexicon.words, lexicon.pronunciations, strict=True))
    repeats = [word for word in said if 0 in np.diff(spelt.get(word, ()))]
    assert repeats, "words with a token twice in a row are needed"


def test_same_seed_same_bytes(make, hard):
    again, other = make("--level", "hard"), make("--level", "hard", "--seed", "2")
    for name in FILES:
        assert (again / name).read_bytes() == (hard / name).read_bytes(), name
    assert read_text(other / "refs.txt") != read_text(hard / "refs.txt")


def test_references_are_held_out(sources):
    inputs = ["--text", str(sources / "text.txt"), "--train-sentences", "200"]
    args = make_synthetic.parse_arguments([*inputs, "--utterances", "9"])
    corpus = make_synthetic.read_corpus(args)
    assert len(corpus.training) == 200
    held_out = {" ".join(words) for words in corpus.references}
    assert len(held_out) == 9
    assert held_out.isdisjoint(corpus.training)
