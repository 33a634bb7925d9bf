"""Files of lattices: what is read is what was written, damage is named."""

import json
import zipfile

import numpy as np
import pytest
from added_cases import frames, small_graph
from kaldi_archives import read_archive
from lattice_cases import random_lattice
from text_graphs import text_graph

from wfstdec import BoostEntry, WfstDecoder
from wfstdec.cli.main import main
from wfstdec.errors import FormatError, LatticeError
from wfstdec.lattice import LatticeWriter, nbest_paths, open_lattices, save_lattices
from wfstdec.lattice.arrays import check_lattice
from wfstdec.search.paths.lattice import hypotheses_of


@pytest.fixture
def path(tmp_path):
    return tmp_path / "some.lat"


def test_what_is_read_is_what_was_written(path):
    for seed in range(30):
        lattice = random_lattice(seed)
        save_lattices(path, {"one": lattice, "two": lattice})
        read = open_lattices(path)
        assert list(read) == ["one", "two"]
        found = read["two"]
        assert found.states.tobytes() == lattice.states.tobytes()
        assert found.arcs.tobytes() == lattice.arcs.tobytes()
        assert (found.words, found.tokens) == (lattice.words, lattice.tokens)
        for name in ("scales", "search_cost", "reached_final", "died_at_frame"):
            assert getattr(found, name) == getattr(lattice, name)
        nbest = [nbest_paths(one, 5) for one in (found, lattice)]
        assert nbest[0].excess == nbest[1].excess
        assert hypotheses_of(found, nbest[0]) == hypotheses_of(lattice, nbest[1])


def test_an_empty_file_has_no_lattices(path):
    save_lattices(path, {})
    assert len(open_lattices(path)) == 0


def test_one_utterance_twice_and_two_graphs_are_refused(path):
    lattice = random_lattice(1)
    other = text_graph("0 1 a X 0\n1 0", tokens="_ a b c d e")
    (foreign,) = WfstDecoder(other, backend="cpu").decode_lattice([np.zeros((1, 6))])
    with pytest.raises(LatticeError, match="has a lattice already"):
        with LatticeWriter(path) as write:
            write("one", lattice)
            write("one", lattice)
    with pytest.raises(LatticeError, match="utterance 'two': is of another graph"):
        save_lattices(path, {"one": lattice, "two": foreign})
    assert not path.exists()


def test_damage_is_named(path):
    lattice = random_lattice(3)
    with pytest.raises(FormatError, match="cannot read: No such file"):
        open_lattices(path)
    path.write_bytes(b"no lattice at all")
    with pytest.raises(FormatError, match="not a readable file of lattices"):
        open_lattices(path)
    save_lattices(path, {"one": lattice})
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FormatError, match="not a readable file of lattices"):
        open_lattices(path)
    at = whole.index(lattice.arcs.tobytes())
    path.write_bytes(whole[:at] + b"\xff" + whole[at + 1 :])
    with pytest.raises(
        FormatError, match="some.lat: utterance 'one': not a readable file"
    ):
        open_lattices(path)["one"]


def test_another_version_is_named(path):
    with zipfile.ZipFile(path, "w") as file:
        header = {"format": "wfstdec.lattices", "version": 99, "utterances": []}
        file.writestr("header.json", json.dumps(header))
    with pytest.raises(LatticeError, match="version 99, expected wfstdec.lattices ver"):
        open_lattices(path)


def test_files_of_version_1_are_read(path):
    """Files of version 1 say nothing of words of utterances."""
    lattice = random_lattice(4)
    save_lattices(path, {"one": lattice})
    with zipfile.ZipFile(path) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    header = json.loads(parts["header.json"]) | {"version": 1}
    assert not header["utterances"][0].pop("has_words")
    parts["header.json"] = json.dumps(header).encode()
    with zipfile.ZipFile(path, "w") as file:
        for name, data in parts.items():
            file.writestr(name, data)
    assert open_lattices(path)["one"].arcs.tobytes() == lattice.arcs.tobytes()


def test_words_of_an_utterance_that_are_damaged_are_named(path, tmp_path):
    decoder = WfstDecoder(small_graph(tmp_path), backend="cpu")
    boosts = [BoostEntry("nab", ["n a b"], 1.0)]
    lattices = decoder.decode_lattice(
        [frames("nab"), frames("an")], boosts=[boosts, None]
    )
    save_lattices(path, dict(zip("ab", lattices, strict=True)))
    (one, other) = open_lattices(path).values()
    assert (one.words[-1], other.words) == ("nab", decoder.graph.words)
    assert open_lattices(path).vocabulary.words == other.words
    with zipfile.ZipFile(path) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    with zipfile.ZipFile(path, "w") as file:
        for name in set(parts) - {"0.words.npz"}:
            file.writestr(name, parts[name])
    assert open_lattices(path)["b"].words == other.words
    with pytest.raises(
        FormatError, match="some.lat: utterance 'a': not a readable file"
    ):
        open_lattices(path)["a"]


def broken(lattice, **changes):
    """The lattice with some values of its arrays changed: array__field=(at, value)."""
    arrays = {"states": lattice.states.copy(), "arcs": lattice.arcs.copy()}
    for name, (at, value) in changes.items():
        array, field = name.split("__")
        arrays[array][field][at] = value
    rest = {**vars(lattice), **arrays}
    fields = lattice.__dataclass_fields__
    return type(lattice)(**{name: rest[name] for name in fields})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arcs__nextstate": (0, 10**6)}, "arcs to states that are not there"),
        ({"states__frame": (-1, 77)}, "arcs that do not lead a frame on"),
        ({"arcs__olabel": (slice(None), 10**6)}, "labels that are no words"),
        ({"arcs__ilabel": (slice(None), 10**6)}, "labels that are no tokens"),
        ({"arcs__excess": (0, -1)}, "arcs of negative excess"),
        ({"arcs__excess": (slice(None), 1)}, "no best path"),
        ({"states__final_excess": (slice(None), np.inf)}, "no best end"),
    ],
)
def test_arrays_that_are_no_lattice_are_refused(changes, message):
    graph = text_graph("0 1 a A 0\n1 2 b B 0\n0 2 a C 1\n2 2 b - 0\n2 0")
    (lattice,) = WfstDecoder(graph, backend="cpu").decode_lattice([np.zeros((2, 3))])
    check_lattice(lattice)
    with pytest.raises(LatticeError, match=message):
        check_lattice(broken(lattice, **changes))


ARPA = """\\data\\
ngram 1=4

\\1-grams:
-99 <s>
-1 </s>
-0.1 {first}
-3 {second}

\\end\\
"""


def test_decode_keeps_lattices_and_rescore_prices_them_anew(tmp_path, capsys):
    graph = text_graph("0 1 a A 1\n0 2 a B 1.5\n1 3 b - 0\n2 3 b - 0.25\n3 0.5")
    graph.save(tmp_path / "g.npz")
    x = np.log(np.full((2, 3), 1 / 3, np.float32))
    np.savez(tmp_path / "x.npz", one=x, two=x)
    (tmp_path / "b.arpa").write_text(ARPA.format(first="B", second="A"))

    def run(*argv):
        assert main([str(arg) for arg in argv]) == 0
        return capsys.readouterr().out

    files = "--graph", tmp_path / "g.npz", "--logprobs", tmp_path / "x.npz"
    lattices = tmp_path / "x.lat"
    out = run("decode", *files, "--lattices", lattices, "--quiet")
    assert out == "one A\ntwo A\n" == run("decode", *files, "--quiet")
    assert list(open_lattices(lattices)) == ["one", "two"]
    rescore = "rescore", "--lattices", lattices, "--quiet"
    assert run(*rescore) == "one A\ntwo A\n"
    assert run(*rescore, "--lm", tmp_path / "b.arpa") == "one B\ntwo B\n"
    assert run(*rescore, "--lm-scale", "3", "--mbr") == "one A\ntwo A\n"
    found = json.loads(
        run(*rescore, "--nbest", "2", "--format", "jsonl").splitlines()[0]
    )
    assert [one["text"] for one in found["nbest"]] == ["A", "B"]
    line = run("decode", *files, "--confidence", "--format", "ctm", "--quiet")
    sure = 1 / (1 + np.exp(-0.75))  # B costs 0.75 more
    assert line.split()[5] == f"{sure:.3f}"
    archive = "--kaldi", tmp_path / "x.txt", "--kaldi-words", tmp_path / "words"
    run(*rescore, "--lm", tmp_path / "b.arpa", *archive)
    texts = [found for _, found in read_archive(tmp_path / "x.txt")]
    assert [[arc.word for arc in found.arcs[0]] for found in texts] == [[1, 2]] * 2
    assert (tmp_path / "words").read_text() == "<eps> 0\nA 1\nB 2\n"
    assert main([*map(str, rescore), "--kaldi-words", "x"]) == 1
    assert "--kaldi-words without --kaldi" in capsys.readouterr().err
    assert main(["rescore", "--lattices", str(tmp_path / "x.npz")]) == 1
    assert "not a readable file of lattices" in capsys.readouterr().err
    assert main([*map(str, rescore), "--mbr", "--nbest", "2"]) == 1
    assert "--mbr and --nbest 2, expected one text" in capsys.readouterr().err


def test_words_of_utterances_are_rescored_and_scored(tmp_path, capsys):
    """Added ones cost `<unk>`, or --unk-cost; references know them."""
    graph = small_graph(tmp_path)
    graph.save(tmp_path / "g.npz")
    np.savez(tmp_path / "x.npz", one=frames("nab"), two=frames("an"))
    entry = {"text": "nab", "pronunciations": ["n a b"], "bonus": 2.0}
    (tmp_path / "list").write_text(json.dumps(entry) + "\n")
    (tmp_path / "ref").write_text("one nab\ntwo an\n")
    lattices, files = tmp_path / "x.lat", ("--graph", tmp_path / "g.npz")
    boosted = "--boost", tmp_path / "list", "--logprobs", tmp_path / "x.npz"

    def run(*argv):
        assert main([*map(str, argv), "--quiet"]) == 0
        return capsys.readouterr().out

    out = run("decode", *files, *boosted, "--lattices", lattices)
    assert out == "one nab\ntwo an\n"
    rescore = "rescore", "--lattices", lattices, "--lm", tmp_path / "lm"
    lines = run(*rescore, "--format", "jsonl").splitlines()
    costs = [json.loads(line)["total_cost"] for line in lines]
    ln10 = np.log(10)
    assert costs == pytest.approx([2.5 * ln10 - 2.0, 1.5 * ln10], abs=1e-5)
    line = run(*rescore, "--unk-cost", "7", "--format", "jsonl").splitlines()[0]
    assert json.loads(line)["total_cost"] == pytest.approx(7 + 0.5 * ln10 - 2.0)
    (tmp_path / "hyp").write_text("one an\n")
    texts = "--ref", tmp_path / "ref", "--hyp", tmp_path / "hyp"
    assert "%WER 0.00 [ 0 / 2 ] of the best in lattices" in run(
        "score", *texts, "--lattices", lattices
    )
    sure = run(*rescore, "--confidence", "--format", "ctm").splitlines()[0].split()
    assert (sure[4], float(sure[5])) == ("nab", 1.0)
