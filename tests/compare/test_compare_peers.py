"""Peers: what they are made of, and what is said where they cannot be."""

import importlib
import logging
from types import SimpleNamespace

import pytest

from wfstdec import spelling_lexicon, token_table
from wfstdec.compare import PeerInputs, peers
from wfstdec.compare.peers import import_peer, name_with_version
from wfstdec.errors import BackendError, OptionError

TOKENS = token_table(["<blank>", "\u2581a", "b"], "<blank>")
PHONES = token_table(["<blank>", "AH", "B"], "<blank>")


@pytest.fixture
def nothing_installed(monkeypatch):
    def fail(name, package=None):
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(importlib, "import_module", fail)


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("flashlight", "pip install flashlight-text"),
        ("pyctcdecode", "pip install --no-deps pyctcdecode==0.5.0"),
        ("pyctcdecode", "numpy<2"),
        ("kaldi-decoder", "pip install kaldi-decoder"),
    ],
)
def test_what_is_not_installed_says_how_it_would_be(nothing_installed, name, advice):
    with pytest.raises(BackendError) as raised:
        peers.PEERS[name](PeerInputs(TOKENS))
    assert advice in str(raised.value)


def test_none_are_available_where_none_is_installed(nothing_installed, caplog):
    caplog.set_level(logging.INFO, logger="wfstdec")
    assert peers.available_peers(PeerInputs(TOKENS)) == []
    assert [record.args[0] for record in caplog.records] == list(peers.PEERS)


@pytest.mark.parametrize("name", peers.PEERS)
def test_inputs_that_lack_what_a_peer_needs(name, monkeypatch):
    monkeypatch.setattr(importlib, "import_module", lambda name: object())
    with pytest.raises(OptionError, match="expected"):
        peers.PEERS[name](PeerInputs(TOKENS))


def test_pyctcdecode_refuses_what_tokens_do_not_spell(monkeypatch, tmp_path):
    monkeypatch.setattr(importlib, "import_module", lambda name: object())
    spelt = spelling_lexicon(["ab"], TOKENS)
    misspelt = PeerInputs(PHONES, lexicon=spelt, arpa=str(tmp_path / "lm.arpa"))
    with pytest.raises(OptionError, match="'ab' spelt as 'AHB'"):
        peers.PEERS["pyctcdecode"](misspelt)


def test_packages_are_named_with_their_version():
    assert (
        name_with_version("numpy").split()[1]
        == importlib.import_module("numpy").__version__
    )
    assert name_with_version("no-such-package-at-all") == "no-such-package-at-all"
    with pytest.raises(BackendError, match="no_such_module cannot be imported"):
        import_peer("no_such_module.inner", "do this")


def test_pyctcdecode_is_given_our_scale_and_insertion(monkeypatch):
    given = {}

    def build_ctcdecoder(labels, arpa, unigrams, alpha, beta):
        given.update(labels=labels, arpa=arpa, words=unigrams, alpha=alpha, beta=beta)

    fake = SimpleNamespace(build_ctcdecoder=build_ctcdecoder)
    monkeypatch.setattr(importlib, "import_module", lambda name: fake)
    tokens = token_table(["<blank>", "|", "a", "b"], "<blank>")
    inputs = PeerInputs(
        tokens,
        lexicon=spelling_lexicon(["ab", "b"], tokens, separator=1),
        arpa="lm.arpa",
        separator="|",
        lm_scale=0.8,
        word_insertion=0.3,
    )
    peers.PEERS["pyctcdecode"](inputs)
    assert given == {
        "labels": ["", " ", "a", "b"], "arpa": "lm.arpa", "words": ["ab", "b"],
        "alpha": 0.8, "beta": -0.3,
    }  # fmt: skip
