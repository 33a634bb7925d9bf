"""KenLM's probing format in the trie decoder: against the ARPA file it was made of."""

from pathlib import Path

import numpy as np
import pytest

from wfstdec import (
    KenlmModel,
    OpenVocabulary,
    TrieDecoder,
    TrieOptions,
    build_lm,
    spelling_lexicon,
    token_table,
)
from wfstdec.errors import ArpaError, BackendError, FormatError, OptionError
from wfstdec.lm.loading import read_any_lm, read_lm

FILES = Path(__file__).parents[1] / "data/kenlm"
WORDS = ["the", "cat", "sat", "on", "mat", "dog", "café", "oov"]
TOKENS = token_table(["<blank>", "|", *sorted(set("".join(WORDS)))])
peers = pytest.mark.peers


def decoder_of(lm, **arguments):
    options = TrieOptions(lookahead="unigram", nbest=3, beam=9.0, beam_size=200)
    arguments = {"lexicon": spelling_lexicon(WORDS, TOKENS, separator=1)} | arguments
    return TrieDecoder(
        tokens=TOKENS, lm=lm, options=options, separator="|", threads=1, **arguments
    )


def utterances(count=8):
    rng = np.random.default_rng(2)
    found = []
    for _ in range(count):
        text = [token for _ in range(3) for token in (*rng.choice(WORDS), "|")]
        x = rng.normal(-5, 1.5, (2 * len(text), len(TOKENS)))
        x[np.arange(len(text)) * 2, [TOKENS.names.index(one) for one in text]] = -1
        x[1::2, 0] = -0.5
        found.append(x.astype(np.float32))
    return found


@peers
def test_the_texts_and_costs_of_the_arpa_file():
    pytest.importorskip("kenlm")
    text, binary = (decoder_of(FILES / name) for name in ("tiny.arpa", "probing.bin"))
    with pytest.raises(OptionError, match="unk_cost=4.0 with a language model whose"):
        decoder_of(FILES / "probing.bin", unk_cost=4.0)
    assert binary.words == text.words and isinstance(binary.lm.model, KenlmModel)
    for want, found in zip(
        text.decode_nbest(utterances()), binary.decode_nbest(utterances()), strict=True
    ):
        assert [hyp.text for hyp in found] == [hyp.text for hyp in want]
        for one, other in zip(found, want, strict=True):
            assert one.graph_cost == pytest.approx(other.graph_cost, rel=1e-5)


@peers
def test_an_open_vocabulary_of_its_words():
    pytest.importorskip("kenlm")
    opened = {"lexicon": None, "open_vocabulary": OpenVocabulary(2.0, 1.0)}
    text, binary = (
        decoder_of(FILES / name, **opened) for name in ("tiny.arpa", "probing.bin")
    )
    assert sorted(binary.words) == sorted(text.words) and "café" in binary.words
    for want, found in zip(
        text.decode(utterances()), binary.decode(utterances()), strict=True
    ):
        assert found.text == want.text
        assert found.total_cost == pytest.approx(want.total_cost, rel=1e-4)


@peers
def test_files_that_kenlm_cannot_read(tmp_path):
    pytest.importorskip("kenlm")
    path = tmp_path / "lm.bin"
    path.write_bytes((FILES / "probing.bin").read_bytes()[:2000])
    with pytest.raises(FormatError, match="2000 bytes, expected 4552 and the words"):
        KenlmModel(path)
    with pytest.raises(FormatError, match="cannot read: No such file"):
        KenlmModel(tmp_path / "none.bin")


@peers
@pytest.mark.parametrize("at", [*range(88, 144), *range(152, 380, 4)])
def test_damaged_probing_tables_are_refused_or_harmless(tmp_path, at):
    """Header and table of words: KenLM trusts them, and may read out of bounds."""
    pytest.importorskip("kenlm")
    path = tmp_path / "lm.bin"
    whole = bytearray((FILES / "probing.bin").read_bytes())
    whole[at : at + 4] = b"\xb1\xa1\x16\x2a"
    path.write_bytes(whole)
    try:
        model = KenlmModel(path)
        for word in model.vocabulary:
            model.score(model.start(), word)
    except FormatError as error:
        assert str(path) in str(error)


def test_without_the_module(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "kenlm", None)
    with pytest.raises(BackendError, match="expected the module kenlm: pip install"):
        read_any_lm(FILES / "probing.bin")


def test_what_needs_the_ngrams():
    with pytest.raises(ArpaError, match="the trie decoder takes it as it is"):
        read_lm(FILES / "probing.bin")
    with pytest.raises(ArpaError, match="of the probing format"):
        build_lm(FILES / "probing.bin", words=("<eps>", "the"))
    assert read_lm(FILES / "trie.bin").order == 4
