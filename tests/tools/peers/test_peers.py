"""Peers: what they are made of, and the messages where they cannot be."""

import importlib
import logging
from types import SimpleNamespace

import pytest
from noisy_files import SPEECH, TRIE, write_noisy

from tools.peers import compare, ctc
from tools.peers.interface import PeerInputs, PeerSearch, import_peer, name_with_version
from wfstdec import spelling_lexicon, token_table
from wfstdec.compare import load_comparison
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
    ],
)
def test_what_is_not_installed_says_how_it_would_be(nothing_installed, name, advice):
    with pytest.raises(BackendError) as raised:
        ctc.PEERS[name](PeerInputs(TOKENS))
    assert advice in str(raised.value)


def test_none_are_available_where_none_is_installed(nothing_installed, caplog):
    caplog.set_level(logging.INFO)
    assert ctc.available_peers(PeerInputs(TOKENS)) == []
    assert [record.args[0] for record in caplog.records] == list(ctc.PEERS)


def test_a_peer_is_a_search_named_by_what_its_settings_differ_in():
    class Echo:
        name, requests = "echo 1.0", []

        def settings(self):
            return [{"size": 1, "width": 9}, {"size": 2, "width": 9}]

        def decode(self, utterances, setting):
            self.requests.append(setting)
            return ["a"] * len(utterances)

    search = PeerSearch(Echo())
    assert search.settings == [{"size": 1}, {"size": 2}]
    assert search.facts.options == {"width": 9} and not search.takes_boosts
    [outcome] = search.prepare(search.settings[1])([None], None)
    assert outcome.text == "a" and Echo.requests == [{"size": 2, "width": 9}]


@pytest.mark.share
def test_all_peers_get_what_the_command_line_has(tmp_path, monkeypatch):
    inputs = []
    monkeypatch.setattr(ctc, "available_peers", lambda one: inputs.append(one) or [])
    files = write_noisy(tmp_path)
    monkeypatch.chdir(files)
    given = ["--graph", "graph.npz", *TRIE, "--lm", "lm.arpa", *SPEECH, "--quiet"]
    given += ["--lm-scale", "0.7", "--word-insertion", "0.2", "--json", "c.json"]
    given += ["--wfst", "beam=9", "--trie", "beam_size=9", "--repeats", "1"]
    compare.main(given)
    [one] = inputs
    assert (one.lm_scale, one.word_insertion) == (0.7, 0.2)
    assert (one.arpa, one.separator) == ("lm.arpa", "<wb>")
    assert one.graph.num_arcs and set(one.lexicon.words) > {"ab", "rare"}
    assert len(load_comparison("c.json").points) == 2


@pytest.mark.parametrize("name", ctc.PEERS)
def test_inputs_that_lack_what_a_peer_needs(name, monkeypatch):
    monkeypatch.setattr(importlib, "import_module", lambda name: object())
    with pytest.raises(OptionError, match="expected"):
        ctc.PEERS[name](PeerInputs(TOKENS))


def test_pyctcdecode_refuses_what_tokens_do_not_spell(monkeypatch, tmp_path):
    monkeypatch.setattr(importlib, "import_module", lambda name: object())
    spelt = spelling_lexicon(["ab"], TOKENS)
    misspelt = PeerInputs(PHONES, lexicon=spelt, arpa=str(tmp_path / "lm.arpa"))
    with pytest.raises(OptionError, match="'ab' spelt as 'AHB'"):
        ctc.PEERS["pyctcdecode"](misspelt)


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
    ctc.PEERS["pyctcdecode"](inputs)
    assert given == {
        "labels": ["", " ", "a", "b"], "arpa": "lm.arpa", "words": ["ab", "b"],
        "alpha": 0.8, "beta": -0.3,
    }  # fmt: skip
