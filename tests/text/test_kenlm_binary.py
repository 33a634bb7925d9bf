"""KenLM binaries: against the ARPA file they were made of, against KenLM, damaged."""

import io
import struct
from pathlib import Path

import naive_lm
import numpy as np
import pytest
from arpa_texts import random_sentences

from wfstdec import NgramLM, read_arpa
from wfstdec.errors import ArpaError, FormatError
from wfstdec.text.kenlm import read_kenlm_header

LN10 = np.log(10)
FILES = Path(__file__).parents[1] / "data/kenlm"
KINDS = {
    "trie": "trie",
    "quant": "quantised trie",
    "array": "array-compressed trie",
    "quant_array": "quantised array-compressed trie",
}
LOSSLESS = ("trie", "array")


@pytest.fixture(scope="module")
def arpa():
    return read_arpa(FILES / "tiny.arpa")


def grams_of(model):
    """n-gram -> cost and back-off."""
    found = {}
    for table in model.ngrams:
        rows = [tuple(model.words[w] for w in row) for row in table.words.tolist()]
        values = zip(table.cost.tolist(), table.backoff.tolist(), strict=True)
        found |= zip(rows, values, strict=True)
    return found


def scorer(model):
    """The oracle's costs of sentences."""
    grams = grams_of(model)
    parsed = naive_lm.Ngrams(
        model.order,
        {gram: cost for gram, (cost, _) in grams.items()},
        {gram: backoff for gram, (_, backoff) in grams.items()},
    )
    return naive_lm.exact_scorer(parsed, None, map_unknown=True)


@pytest.mark.parametrize("name", LOSSLESS)
def test_all_ngrams_of_the_file_it_was_made_of(name, arpa):
    found, want = grams_of(read_arpa(FILES / f"{name}.bin")), grams_of(arpa)
    assert set(want) < set(found)  # KenLM adds suffixes that are not listed
    del want[("<s>",)]  # it is never predicted
    for gram, values in want.items():
        assert found[gram] == pytest.approx(values, rel=1e-6, abs=1e-7), gram


@pytest.mark.parametrize("name", LOSSLESS)
def test_sentences_cost_what_they_cost_by_the_arpa_file(name, arpa):
    table = ("<eps>", *(word for word in arpa.words if word[0] != "<"), "oov")
    binary = NgramLM.from_arpa(FILES / f"{name}.bin", table)
    text, score = NgramLM.from_arpa(arpa, table), scorer(arpa)
    rng = np.random.default_rng(0)
    for sentence in random_sentences(rng, list(table[1:]), 300):
        ids = [table.index(word) for word in sentence]
        assert binary.total(ids) == pytest.approx(text.total(ids), rel=1e-5, abs=1e-5)
        assert binary.total(ids) == pytest.approx(score(tuple(sentence)), rel=1e-5)


@pytest.mark.peers
@pytest.mark.parametrize("name", KINDS)
def test_kenlm_agrees_on_every_ngram_and_on_sentences(name):
    kenlm = pytest.importorskip("kenlm")
    path = FILES / f"{name}.bin"
    peer, model = kenlm.Model(str(path)), read_arpa(path)
    table = ("<eps>", *(word for word in model.words if word[0] != "<"), "oov")
    lm, score = NgramLM.from_arpa(model, table), scorer(model)
    assert peer.order == model.order
    sentences = random_sentences(np.random.default_rng(1), list(table[1:]), 500)
    sentences += [
        gram for gram in grams_of(model) if not {"<s>", "</s>", "<unk>"} & set(gram)
    ]
    for sentence in sentences:
        want = -peer.score(" ".join(sentence)) * LN10
        ids = [table.index(word) for word in sentence]
        assert lm.total(ids) == pytest.approx(want, rel=1e-5, abs=1e-4), sentence
        assert score(tuple(sentence)) == pytest.approx(want, rel=1e-5, abs=1e-4)


def changed(tmp_path, name, change):
    data = bytearray((FILES / f"{name}.bin").read_bytes())
    path = tmp_path / "lm.bin"
    path.write_bytes(bytes(change(data) or data))
    return path


def put(at, value):
    def change(data):
        data[at : at + len(value)] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put(49, b"4"), "format version 4', expected format version 5; build it"),
        (put(0, b"mmap lm http://kheafield.com/code incomplete\n"), "never finished"),
        (put(56, struct.pack(">fff", 0, 1, -0.5)), "of another machine"),
        (lambda data: data[:30], "it ends after 30 bytes, within its header"),
        (lambda data: data[:120], "it ends after 120 bytes, within its header"),
        (put(88, b"\x01"), "order 1, expected 2 to 6"),
        (put(96, b"\x07"), "model type 7, search version 1: a truncated or damaged"),
        (put(108, struct.pack("<Q", 1 << 60)), "n-grams in 2272 bytes"),
        (put(100, b"\x00"), "without its words, expected them"),
        (lambda data: data[:-1], "12 whole words at its end, not 13|13 whole words"),
        (lambda data: data[:600], "600 bytes, at least"),
        (put(140, b"\xff" * 400), "truncated or damaged"),
    ],
)
def test_damaged_files(tmp_path, change, message):
    path = changed(tmp_path, "trie", change)
    with pytest.raises(FormatError, match=message) as raised:
        read_arpa(path)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize("name", KINDS)
def test_every_truncation_is_an_error(tmp_path, name):
    whole = (FILES / f"{name}.bin").read_bytes()
    for size in [*range(len(b"mmap lm"), len(whole), 41), len(whole) - 1]:
        path = changed(tmp_path, name, lambda data, size=size: data[:size])
        with pytest.raises(FormatError, match=r"bytes|words"):
            read_arpa(path)


@pytest.mark.parametrize("name", KINDS)
def test_damage_is_found_or_does_no_harm(tmp_path, name):
    rng = np.random.default_rng(7)
    size, found = (FILES / f"{name}.bin").stat().st_size, 0
    for _ in range(150):
        at, value = int(rng.integers(88, size)), rng.bytes(1)
        path = changed(tmp_path, name, put(at, value))
        try:
            model = read_arpa(path)
        except FormatError:
            found += 1
            continue
        assert all((table.words < len(model.words)).all() for table in model.ngrams)
    assert found > 10


def test_what_cannot_be_listed():
    with pytest.raises(ArpaError, match="of the probing format, which keeps hashes"):
        read_arpa(FILES / "probing.bin")


def test_an_open_file_cannot_be_a_binary():
    with pytest.raises(ArpaError, match="a KenLM binary, expected its path or ARPA"):
        read_arpa(io.BytesIO((FILES / "trie.bin").read_bytes()))


def test_versions_of_the_parts(tmp_path):
    header = read_kenlm_header(FILES / "quant.bin")
    at = header.size + 8 + 8 * header.counts[0]
    path = changed(tmp_path, "quant", put(at, b"\x01"))
    with pytest.raises(FormatError, match="quantisation of version 1, 5 and 4 bits"):
        read_arpa(path)
    header = read_kenlm_header(FILES / "array.bin")
    at = header.size + 8 + 8 * header.counts[0] + 16 * (header.counts[0] + 2)
    path = changed(tmp_path, "array", put(at, b"\x03"))
    with pytest.raises(FormatError, match="array compression of version 3, expected 0"):
        read_arpa(path)
