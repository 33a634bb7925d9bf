"""Phrases are cut as the model cuts text: by its tokenizer, unasked."""

import importlib.util
import logging
import pickle
import shutil
from pathlib import Path

import pytest
from table_transducers import transducer_of

from wfstdec import TransducerDecoder
from wfstdec.attention.model import TimedModel
from wfstdec.errors import BoostWarning, FormatError, OptionError
from wfstdec.text.lexicon import SentencePieceFile
from wfstdec.transducer.decoder import open_model

sentencepiece = pytest.importorskip("sentencepiece")
DEMO = Path(__file__).parents[2] / "graphs" / "transducer_demo"
PHRASES = ["whispering", "the unfortunate gentleman", "astonishment"]


def small_model(tokenizer=None):
    model = transducer_of([{"": [0.25, 0.25, 0.25, 0.25]}], ["\u2581a", "b", "ab"])
    model.tokenizer = tokenizer
    return model


def spelling(decoder, text, **more):
    compiler = decoder.phrase_compiler(**more)
    [[found]] = compiler.speller([text])
    return [decoder.tokens.names[token] for token in found]


def test_a_function_cuts_phrases():
    plain = TransducerDecoder(small_model())
    assert spelling(plain, "aab") == ["\u2581a", "ab"]
    cut = TransducerDecoder(small_model(lambda text: ["\u2581a", "b", "b"]))
    assert spelling(cut, "aab") == ["\u2581a", "b", "b"]


@pytest.mark.parametrize("name", ["encode_as_pieces", "tokenize", "text_to_tokens"])
def test_tokenizers_of_other_projects_cut_phrases(name):
    class Theirs:
        pass

    setattr(Theirs, name, lambda self, text: ["\u2581a", "b"])
    decoder = TransducerDecoder(small_model(Theirs()))
    assert spelling(decoder, "aab") == ["\u2581a", "b"]


def test_what_cuts_nothing_is_an_error():
    decoder = TransducerDecoder(small_model(3))
    with pytest.raises(OptionError, match="tokenizer is a int, expected a function"):
        decoder.phrase_compiler()


def test_the_model_beside_a_net_is_used_unasked():
    """The pieces are SentencePiece's own, and not the fewest that there can be."""
    processor = sentencepiece.SentencePieceProcessor(model_file=str(DEMO / "bpe.model"))
    model = open_model(DEMO / "model.npz", "rnnt")
    for given in (model, TimedModel(model)):
        decoder = TransducerDecoder(given)
        for phrase in PHRASES:
            assert spelling(decoder, phrase) == processor.encode(phrase, out_type=str)
    model.tokenizer = None
    fewest = [spelling(TransducerDecoder(model), phrase) for phrase in PHRASES]
    assert fewest != [processor.encode(phrase, out_type=str) for phrase in PHRASES]
    asked = TransducerDecoder(model)
    for phrase in PHRASES:
        found = spelling(asked, phrase, sentencepiece_model=DEMO / "bpe.model")
        assert found == processor.encode(phrase, out_type=str)


def test_pieces_that_the_own_tokenizer_does_not_cut_are_told():
    model = open_model(DEMO / "model.npz", "rnnt")
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(DEMO / "bpe.model"))
    model.tokenizer = lambda text: (
        [*text] if text == "fish" else pieces.encode(text, out_type=str)
    )
    given = {"sentencepiece_model": DEMO / "bpe.model"}
    compiler = TransducerDecoder(model).phrase_compiler(**given)
    with pytest.warns(
        BoostWarning, match="1 boosted phrases have other pieces.*'fish'"
    ):
        compiler.compile(["fish", *PHRASES])


def test_a_model_beside_that_is_of_other_pieces_is_left_out(caplog):
    decoder = TransducerDecoder(small_model(SentencePieceFile(DEMO / "bpe.model")))
    with caplog.at_level(logging.WARNING, "wfstdec.boost"):
        assert spelling(decoder, "aab") == ["\u2581a", "ab"]
    assert "bpe.model has no piece 'ab', which is a token" in caplog.text


def test_without_sentencepiece_it_is_said(monkeypatch, caplog):
    model = open_model(DEMO / "model.npz", "rnnt")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    decoder = TransducerDecoder(model)
    with caplog.at_level(logging.WARNING, "wfstdec.boost"):
        assert spelling(decoder, "whispering")
    assert "needs sentencepiece (pip install sentencepiece)" in caplog.text


def test_files_are_read_late_and_pickled_by_their_path(tmp_path):
    path = tmp_path / "tokenizer.model"
    file = SentencePieceFile(path)
    with pytest.raises(FormatError, match="not a readable SentencePiece model"):
        file("a")
    shutil.copy(DEMO / "bpe.model", path)
    expected = file("whispering")
    made = pickle.loads(pickle.dumps(file))
    assert made.path == str(path) and made("whispering") == expected
