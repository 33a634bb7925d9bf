"""KenLM binaries where commands take an ARPA file."""

from pathlib import Path

import numpy as np
import pytest

from wfstdec import load_lm
from wfstdec.cli.main import main

FILES = Path(__file__).parents[1] / "data/kenlm"
WORDS = ["the", "cat", "sat", "on", "mat", "dog", "café"]
TOKENS = ["<blank>", "<wb>", *sorted(set("".join(WORDS)))]


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    (tmp_path / "tokens.txt").write_text("\n".join(TOKENS) + "\n", "utf-8")
    entries = [f"{word}\t{' '.join(word)}\n" for word in WORDS]
    (tmp_path / "lexicon.txt").write_text("".join(entries), "utf-8")
    arrays = {}
    for number in range(5):
        text = [[*rng.choice(WORDS), "<wb>"] for _ in range(4)]
        emitted = [TOKENS.index(token) for word in text for token in word]
        x = rng.normal(-6, 1.5, (2 * len(emitted), len(TOKENS)))
        x[np.arange(len(emitted)) * 2, emitted] = -1
        x[1::2, 0] = -0.5
        arrays[f"utt{number}"] = (x - np.logaddexp.reduce(x, 1)[:, None]).astype("f4")
    np.savez(tmp_path / "x.npz", **arrays)
    return tmp_path


def run(folder, command, lm, *more):
    given = ["--tokens", folder / "tokens.txt", "--lexicon", folder / "lexicon.txt"]
    given += ["--separator", "<wb>", *more, "--quiet"]
    given += ["--arpa" if command == "build-lm" else "--lm", FILES / lm]
    return main([command, *map(str, given)])


def decode(folder, capsys, lm, *more):
    given = ["--decoder", "trie", "--logprobs", folder / "x.npz", "--threads", "1"]
    assert run(folder, "decode", lm, *given, *more) == 0
    out = capsys.readouterr().out
    assert len(out.splitlines()) == 5
    return out


@pytest.mark.parametrize("binary", ["trie.bin", "array.bin"])
def test_the_trie_decoder_with_a_binary(folder, capsys, binary):
    want = decode(folder, capsys, "tiny.arpa")
    assert decode(folder, capsys, binary) == want


@pytest.mark.peers
@pytest.mark.share
def test_the_trie_decoder_with_the_probing_format(folder, capsys):
    pytest.importorskip("kenlm")
    want = decode(folder, capsys, "tiny.arpa", "--lookahead", "unigram")
    assert decode(folder, capsys, "probing.bin", "--lookahead", "unigram") == want
    more = ["--decoder", "trie", "--logprobs", folder / "x.npz"]
    assert run(folder, "decode", "probing.bin", *more) == 1
    assert "expected 'unigram' or 'none'" in capsys.readouterr().err


def test_a_graph_and_a_saved_model_of_a_binary(folder, capsys):
    for lm in ("tiny.arpa", "trie.bin"):
        stem = lm.partition(".")[0]
        assert run(folder, "build-lm", lm, "--output", folder / stem) == 0
        assert run(folder, "build", lm, "--output", folder / f"{stem}.npz") == 0
        graph, logprobs = folder / f"{stem}.npz", folder / "x.npz"
        given = ["--graph", graph, "--logprobs", logprobs, "--threads", "1", "--quiet"]
        assert main(["decode", *map(str, given)]) == 0
    tiny, trie = load_lm(folder / "tiny"), load_lm(folder / "trie")
    assert tiny.labels == trie.labels
    sentence = [tiny.labels.index(word) for word in ("the", "cat", "sat", "on")]
    assert trie.total(sentence) == pytest.approx(tiny.total(sentence), rel=1e-5)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 10 and lines[:5] == lines[5:]


@pytest.mark.parametrize("command", ["build", "build-lm"])
def test_a_graph_of_the_probing_format(folder, capsys, command):
    assert run(folder, command, "probing.bin", "--output", folder / "out") == 1
    assert "of the probing format, which keeps hashes" in capsys.readouterr().err
    assert not (folder / "out").exists()
