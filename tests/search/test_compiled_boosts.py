"""`compile_boosts`: results as of the list itself, nothing compiled in use."""

import io
import os
import pickle
import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest
from added_cases import ARPA, frames, small_graph

import wfstdec
from wfstdec import BoostEntry, GreedyDecoder, TrieDecoder, WfstDecoder, read_arpa
from wfstdec.boost.compile import BoostCompiler
from wfstdec.boost.tables import BoostTables
from wfstdec.errors import BoostError, BoostWarning, OptionError
from wfstdec.text.vocabulary import Vocabulary

NAMES = [BoostEntry("nab", ["n a b"]), "an", "ban nab"]
"""A word that is added, one that is not, and a phrase with both; no numbers."""


@pytest.fixture
def graph(tmp_path):
    return small_graph(tmp_path)


def test_open_with_compiled_boosts_compiles_nothing(graph, monkeypatch):
    decoder = WfstDecoder(graph, backend="cpu")
    trie = trie_of(graph)
    opened = [
        (one, one.compile_boosts(NAMES), one.decode([frames("_nab_ban")], boosts=NAMES))
        for one in (decoder, trie)
    ]

    def refuse(*_):
        raise AssertionError("compiled, or laid out, after compile_boosts")

    monkeypatch.setattr(BoostCompiler, "_compile", refuse)
    monkeypatch.setattr(BoostTables, "_list", refuse)
    monkeypatch.setattr(BoostTables, "_lay_out", refuse)
    monkeypatch.setattr(Vocabulary, "_extended_by", refuse)
    monkeypatch.setattr("wfstdec.graph.overlay.make_edges", refuse)
    monkeypatch.setattr("wfstdec.trie.cpu.backend.build_oov_trie", refuse)
    for one, compiled, [expected] in opened:
        sessions = one.sessions()
        session = sessions.open(compiled)
        sessions.advance({session: frames("_nab_ban")})
        assert sessions.close(session) == expected
        with pytest.raises(AssertionError, match="after compile_boosts"):
            sessions.open({"nab": 1.0})  # the test sees what it should


def trie_of(graph):
    vocabulary = graph.vocabulary
    return TrieDecoder(
        tokens=vocabulary.tokens,
        lexicon=vocabulary.lexicon,
        lm=read_arpa(io.StringIO(ARPA)),
        backend="cpu",
    )


def test_sessions_go_on_while_a_list_is_compiled(graph, monkeypatch):
    decoder = WfstDecoder(graph, backend="cpu")
    ready, sessions = decoder.compile_boosts(["ban"]), decoder.sessions()
    under_way = sessions.open()
    begun, go_on = threading.Event(), threading.Event()
    usual = BoostCompiler._compile

    def slow(*given):
        begun.set()
        assert go_on.wait(60)
        return usual(*given)

    monkeypatch.setattr(BoostCompiler, "_compile", slow)
    opening = threading.Thread(target=sessions.open, args=(NAMES,))
    opening.start()
    assert begun.wait(60)
    sessions.advance({under_way: frames("_an_")})
    other = sessions.open(ready)
    assert sessions.partial(under_way).text == "an" and len(sessions) == 2
    sessions.close(other)
    assert opening.is_alive()
    go_on.set()
    opening.join(60)
    assert len(sessions) == 2


def test_boosts_of_another_decoder_are_refused(graph, tmp_path):
    decoder = WfstDecoder(graph, backend="cpu")
    compiled = decoder.compile_boosts({"ban": 4.0})
    (tmp_path / "other").mkdir()
    others = [
        WfstDecoder(small_graph(tmp_path / "other", separator="|"), backend="cpu"),
        trie_of(graph),
        GreedyDecoder(tokens=graph.tokens),
    ]
    x = frames("_ban_")
    for other in others:
        with pytest.raises(OptionError, match="utterance 1: boosts compiled for dec"):
            other.decode([x, x], boosts=[None, compiled])
        with pytest.raises(OptionError, match="expected .* compile them by this one"):
            other.sessions().open(compiled)
        with pytest.raises(OptionError, match="^boosts compiled for decoder"):
            other.compile_boosts(compiled)
    scaled = decoder.with_options(boost_scale=0.5)
    with pytest.raises(OptionError, match=r"boost_scale=1\.0, expected 0\.5"):
        scaled.decode([x], boosts=compiled)
    assert decoder.with_options(beam=5.0).decode([x], boosts=compiled)
    equal = WfstDecoder(small_graph(tmp_path), backend="reference")
    assert equal.decode([x], boosts=compiled) == decoder.decode([x], boosts=compiled)


def test_compiled_boosts_work_in_another_process(graph, tmp_path):
    decoder = WfstDecoder(graph, backend="cpu")
    graph.save(tmp_path / "graph.npz")
    compiled = decoder.compile_boosts(NAMES)
    (tmp_path / "boosts").write_bytes(pickle.dumps(compiled))
    np.save(tmp_path / "x.npy", frames("_nab_ban"))
    program = """
import pickle, sys, numpy, wfstdec
decoder = wfstdec.WfstDecoder(wfstdec.load_graph("graph.npz"), backend="cpu")
boosts = decoder.compile_boosts(pickle.load(open("boosts", "rb")))
print(*map(repr, decoder.decode([numpy.load("x.npy")], boosts=boosts)), sep="")
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": wfstdec.__path__[0] + "/.."},
    )
    [expected] = decoder.decode([frames("_nab_ban")], boosts=NAMES)
    assert done.stdout.strip() == repr(expected), done.stderr


def test_unknown_words_are_told_once(graph):
    decoder = WfstDecoder(graph, backend="cpu")
    with pytest.warns(BoostWarning, match="'zzz'"):
        compiled = decoder.compile_boosts(["zzz"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        decoder.decode([frames("_an_")], boosts=compiled)


def test_what_is_no_list_is_refused(graph):
    decoder = WfstDecoder(graph, backend="cpu")
    with pytest.raises(
        BoostError, match="^boosted word {'an': 1.0}, expected a string"
    ):
        decoder.compile_boosts([{"an": 1.0}, {"ban": 2.0}])
    with pytest.raises(BoostError, match="^bonus 'much' of 'an'"):
        decoder.compile_boosts({"an": "much"})


def test_a_list_that_changed_in_place_is_another_list(graph):
    decoder, rows = WfstDecoder(graph, backend="cpu"), [frames("_an_nab_ban")]
    bonuses = {"an": 2.0, "nab": BoostEntry("nab", ["n a b"], 1.0), "ban nab": 1.5}
    names = ["an", BoostEntry("nab", ["n a b"], 1.0)]
    changes = [
        lambda: None,
        lambda: bonuses.update({"an": 3.0}),
        lambda: bonuses.update({"nab": BoostEntry("nab", ["n a b"], 1.25)}),
        lambda: bonuses.update({"nab": BoostEntry("nab", ["n a a b"], 1.25)}),
        lambda: bonuses.update({"ban": -1.0}),
        lambda: bonuses.pop("ban nab"),
        lambda: names.append("ban nab"),
        lambda: names.__setitem__(1, BoostEntry("nab", ["n a b"], 4.0)),
    ]
    seen = []
    for change in changes:
        change()
        for given in (bonuses, names):
            compiled = decoder.compile_boosts(given)
            fresh = WfstDecoder(graph, backend="cpu")
            assert decoder.decode(rows, boosts=given) == fresh.decode(
                rows, boosts=dict(given) if given is bonuses else list(given)
            )
            seen.append((given is bonuses, compiled))
    costs = {
        decoder.decode(rows, boosts=compiled)[0].total_cost for _, compiled in seen
    }
    assert len(costs) >= len(changes) - 1  # the changes count
