"""Folders of decoders: ours read by pyctcdecode, pyctcdecode's by us."""

import json
import shutil
import sys

import numpy as np
import pytest
from prefix_cases import PEER

from wfstdec import read_arpa
from wfstdec.adapters.pyctcdecode import (
    BeamSearchDecoderCTC,
    LanguageModel,
    build_ctcdecoder,
)
from wfstdec.errors import BackendError, FormatError, TokenTableError

LABELS = ["", "▁a", "▁b", "a", "b", "c"]
X = 3 * np.random.default_rng(0).normal(size=(15, 6))


@pytest.fixture
def saved(arpa, tmp_path):
    folder = tmp_path / "decoder"
    folder.mkdir()
    decoder = build_ctcdecoder(LABELS, arpa, ["a", "ab", "bé"], alpha=0.7)
    decoder.save_to_dir(str(folder))
    return folder, decoder


def test_what_is_saved_is_read(saved):
    folder, decoder = saved
    other = BeamSearchDecoderCTC.load_from_dir(str(folder))
    assert other.decode_beams(X) == decoder.decode_beams(X)
    attrs = json.loads((folder / "language_model" / "attrs.json").read_text())
    assert attrs["alpha"] == 0.7 and len(attrs) == 4


@PEER
def test_pyctcdecode_reads_ours(saved):
    import pyctcdecode

    folder, decoder = saved
    theirs = pyctcdecode.BeamSearchDecoderCTC.load_from_dir(str(folder))
    assert theirs.decode(X) == decoder.decode(X)


@PEER
@pytest.mark.parametrize("lm", [True, False])
def test_ours_reads_pyctcdecodes(lm, arpa, tmp_path):
    import pyctcdecode

    theirs = pyctcdecode.build_ctcdecoder(LABELS, arpa if lm else None, beta=0.5)
    (tmp_path / "theirs").mkdir()
    theirs.save_to_dir(str(tmp_path / "theirs"))
    ours = BeamSearchDecoderCTC.load_from_dir(str(tmp_path / "theirs"))
    one, two = theirs.decode_beams(X), ours.decode_beams(X)
    assert [beam[0] for beam in one] == [beam[0] for beam in two]
    assert np.allclose([b[4] for b in one], [b[4] for b in two], atol=1e-3)


def attrs(folder):
    return folder / "language_model" / "attrs.json"


def unigrams(folder):
    return folder / "language_model" / "unigrams.txt"


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        (lambda f: shutil.rmtree(f), FormatError, "cannot read"),
        (lambda f: (f / "alphabet.json").unlink(), FormatError, "'alphabet.json'"),
        (lambda f: (f / "alphabet.json").write_text("{"), TokenTableError, "no JSON"),
        (lambda f: attrs(f).parent.rename(f / "other"), FormatError, "'other'"),
        (lambda f: attrs(f).unlink(), FormatError, "'attrs.json', 'unigrams.txt'"),
        (lambda f: attrs(f).write_text("{}"), FormatError, r"attrs.json: found \[\]"),
        (lambda f: attrs(f).write_text("{"), FormatError, "attrs.json: no JSON"),
        (lambda f: unigrams(f).write_bytes(b"\xff\n"), FormatError, "expected text"),
    ],
)
def test_folders_that_are_none(change, kind, message, saved):
    change(saved[0])
    with pytest.raises(kind, match=message):
        BeamSearchDecoderCTC.load_from_dir(str(saved[0]))


def test_what_cannot_be_saved(saved, arpa, tmp_path):
    folder, decoder = saved
    with pytest.raises(FormatError, match="cannot make the folder"):
        decoder.save_to_dir(str(folder))  # there is one already
    with pytest.raises(FormatError, match="cannot write"):
        decoder.save_to_dir(str(tmp_path / "nowhere"))
    with pytest.raises(FormatError, match="has no file"):
        LanguageModel(read_arpa(arpa)).save_to_dir(str(tmp_path))
    model = LanguageModel(arpa, ["a"])
    model._unigram_set.add("é")
    with pytest.raises(FormatError, match="unigrams.txt: cannot write: .*ascii"):
        model.save_to_dir(str(tmp_path), "ascii")


def test_the_hub_needs_its_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(BackendError, match="pip install huggingface_hub"):
        BeamSearchDecoderCTC.load_from_hf_hub("someone/some-model")


def test_the_hub_is_asked_for_a_folder(saved, monkeypatch):
    folder, decoder = saved
    asked = {}

    class Hub:
        @staticmethod
        def snapshot_download(model_id, **options):
            asked.update(options, model_id=model_id)
            return str(folder)

    monkeypatch.setitem(sys.modules, "huggingface_hub", Hub)
    other = BeamSearchDecoderCTC.load_from_hf_hub("a/b", cache_dir="c", revision="d")
    assert asked == {"model_id": "a/b", "cache_dir": "c", "revision": "d"}
    assert other.decode_beams(X) == decoder.decode_beams(X)
