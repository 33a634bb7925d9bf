"""Lattices of `wfstdec decode --decoder trie`, and what is made of them."""

import json

import pytest
from cli_files import ARPA, wfstdec, write_files

from wfstdec.lattice import open_lattices
from wfstdec.search.hypothesis import CONFIDENCES

TRIE = ["--decoder", "trie", "--tokens", "tokens.txt", "--separator", "<wb>"]
LEXICAL = [*TRIE, "--lexicon", "lexicon.txt", "--lm", "lm.arpa"]


@pytest.fixture
def files(tmp_path):
    return write_files(tmp_path)


def decode(folder, *flags):
    given = ["--logprobs", "x.npz", "--threads", "1", "--quiet", *flags]
    return wfstdec(folder, "decode", *given)


def jsonl(folder, name):
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def test_confidences_lists_lattices_and_another_model(files):
    assert decode(files, *LEXICAL, "--format", "jsonl", "--output", "plain.jsonl") == 0
    more = ["--lattices", "x.lat", "--lattice-beam", "12", "--posterior-scale", "0.5"]
    more += ["--confidence", "--format", "jsonl", "--output", "sure.jsonl"]
    assert decode(files, *LEXICAL, *more) == 0
    for one, sure in zip(
        jsonl(files, "plain.jsonl"), jsonl(files, "sure.jsonl"), strict=True
    ):
        for name in CONFIDENCES:
            assert all(0 < word.pop(name) <= 1 for word in sure["words"])
        assert (one["text"], one["words"]) == (sure["text"], sure["words"])
        assert sure["total_cost"] == pytest.approx(one["total_cost"], abs=1e-3)
    lattices = open_lattices(files / "x.lat").values()
    assert all(lattice.lattice_beam == 12 for lattice in lattices)

    (files / "other.arpa").write_text(ARPA)
    for flags in (["--lm", "other.arpa"], ["--lm-scale", "1"], []):
        given = ["--lattices", "x.lat", "--quiet", *flags, "--output", "again.txt"]
        assert wfstdec(files, "rescore", *given) == 0
        texts = [f"{one['id']} {one['text']}" for one in jsonl(files, "plain.jsonl")]
        assert (files / "again.txt").read_text().splitlines() == texts
    assert decode(files, *LEXICAL, "--mbr", "--output", "mbr.txt") == 0
    assert (files / "mbr.txt").read_text().startswith("utt2 ")


def test_bare_tokens(files, capsys):
    more = ["--confidence", "--format", "jsonl", "--output", "sure.jsonl"]
    assert decode(files, *TRIE, *more, "--lattices", "x.lat", "--nbest", "3") == 0
    for line in jsonl(files, "sure.jsonl"):
        best, *others = line["nbest"]
        assert others and len({one["text"] for one in line["nbest"]}) == len(others) + 1
        assert all(0 < word["confidence"] <= 1 for word in best["words"])
    given = ["--lattices", "x.lat", "--quiet", "--lm", "lm.arpa"]
    assert wfstdec(files, "rescore", *given) == 1
    assert "one of bare tokens" in capsys.readouterr().err


def test_a_sum_has_no_lattice(files, capsys):
    assert decode(files, *LEXICAL, "--merge", "sum", "--confidence") == 1
    assert "merge='sum' for a lattice" in capsys.readouterr().err
