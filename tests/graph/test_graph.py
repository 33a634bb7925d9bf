"""Packed graphs: packing, files, fingerprints, and every invariant with its message."""

import copy
import dataclasses
import json
import os
import zipfile

import numpy as np
import pytest
from random_graphs import random_fst, random_graph
from text_graphs import text_fst, text_graph, text_tables

from wfstdec import PackedGraph, load_graph
from wfstdec.errors import FormatError, GraphError, WfstdecError
from wfstdec.graph.arcs import ARC, CARRIES_WORD, LEADS_TO_EPSILON, REPEAT
from wfstdec.text.vocabulary import Pronunciations

TEXT = """
    0 0 _  -  0
    0 1 a  A  0.5
    1 1 a' -  0
    1 2 b  B  -0.25
    2 2 b' -  0
    2 0 -  -  0.125
    2 3 -  C  1
    3 0.75
    1 0
"""


@pytest.fixture
def graph():
    return text_graph(TEXT, said=["A a", "B b", "B b b"], fillers="b")


@pytest.fixture
def saved(graph, tmp_path):
    graph.save(tmp_path / "graph.npz")
    return tmp_path / "graph.npz"


def rows(graph):
    """(state, token, repeat, word, nextstate, cost) of all arcs."""
    fst = graph.unpack()
    columns = (
        fst.arc_state(),
        fst.ilabel,
        graph.arcs["ilabel"] & REPEAT != 0,
        fst.olabel,
        fst.nextstate,
        fst.cost,
    )
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_a_graph_by_hand(graph):
    assert (graph.num_states, graph.num_arcs) == (4, 7)
    assert graph.words == ("<eps>", "A", "B", "C")
    assert graph.word_ids == {"A": 1, "B": 2, "C": 3}
    assert rows(graph) == [
        (0, 1, False, 0, 0, 0.0),
        (0, 2, False, 1, 1, 0.5),
        (1, 2, True, 0, 1, 0.0),
        (1, 3, False, 2, 2, -0.25),
        (2, 0, False, 0, 0, 0.125),
        (2, 0, False, 3, 3, 1.0),
        (2, 3, True, 0, 2, 0.0),
    ]
    assert graph.state_arc_splits.tolist() == [0, 2, 4, 7, 7]
    assert graph.state_num_epsilons.tolist() == [0, 0, 2, 0]
    assert graph.final_cost.tolist() == [np.inf, 0, np.inf, 0.75]
    assert graph.epsilon_rank.tolist() == [1, 0, 0, 1]
    carries = graph.arcs["ilabel"] & CARRIES_WORD != 0
    assert carries.tolist() == [row[3] > 0 for row in rows(graph)]
    leads = graph.arcs["ilabel"] & LEADS_TO_EPSILON != 0
    assert leads.tolist() == [row[4] == 2 for row in rows(graph)]
    assert graph.arcs.dtype == ARC and ARC.itemsize == 16


def named_arcs(fst, repeat, rename):
    """The arcs as a sorted list, states by their new names."""
    columns = (rename[fst.arc_state()], fst.ilabel, repeat, fst.olabel)
    columns += (rename[fst.nextstate], fst.cost)
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


def test_packing_keeps_every_arc_and_unpacking_gives_them_back():
    for i in range(100):
        rng = np.random.default_rng(i)
        fst, repeat, vocabulary, info = random_fst(rng)
        try:
            graph = PackedGraph.pack(fst, repeat, vocabulary, info)
        except GraphError as error:
            assert "can be reached" in str(error)
            continue
        others = [s for s in range(fst.num_states) if s != fst.start]
        rename = np.argsort([fst.start, *others])
        assert rows(graph) == sorted(rows(graph), key=lambda row: row[:3])
        unpacked = graph.unpack()
        packed_repeat = graph.arcs["ilabel"] & REPEAT != 0
        same = np.arange(graph.num_states)
        expected = named_arcs(fst, repeat, rename)
        assert named_arcs(unpacked, packed_repeat, same) == expected
        assert unpacked.start == 0
        assert unpacked.final_cost[rename].tolist() == fst.final_cost.tolist()
        again = PackedGraph.pack(unpacked, packed_repeat, vocabulary, info)
        assert again.fingerprint == graph.fingerprint


def test_epsilon_ranks_are_longest_chains():
    for i in range(100):
        graph = random_graph(np.random.default_rng(i))
        fst = graph.unpack()
        source, epsilon = fst.arc_state(), fst.ilabel == 0
        longest = np.zeros(graph.num_states, int)
        for _ in range(graph.num_states):
            reached = longest[source[epsilon]] + 1
            np.maximum.at(longest, fst.nextstate[epsilon], reached)
        assert graph.epsilon_rank.tolist() == longest.tolist()


def test_infinite_costs_are_no_arcs():
    graph = text_graph("0 1 a A inf\n0 1 b B 1\n1 0 - - inf\n1 0")
    assert rows(graph) == [(0, 3, False, 2, 1, 1.0)]
    assert graph.arcs["ilabel"][0] & LEADS_TO_EPSILON == 0


def test_the_callers_arrays_stay_as_they_are():
    fst, repeat, words = text_fst(TEXT)
    before = copy.deepcopy(vars(fst))
    PackedGraph.pack(fst, repeat, text_tables(words=words))
    np.testing.assert_equal(vars(fst), before)


def assert_same(one, other):
    assert one.arcs.tobytes() == other.arcs.tobytes()
    for name in ("state_arc_splits", "state_num_epsilons", "final_cost"):
        assert getattr(one, name).tobytes() == getattr(other, name).tobytes()
    assert one.epsilon_rank.tolist() == other.epsilon_rank.tolist()
    for name in ("tokens", "words", "separators", "separated", "open_word"):
        assert getattr(one.vocabulary, name) == getattr(other.vocabulary, name)
    for name in ("topology", "marks_repeats", "silence_prob"):
        assert getattr(one.info, name) == getattr(other.info, name)
    assert one.info.word_cost.tobytes() == other.info.word_cost.tobytes()
    for name in ("word", "splits", "tokens", "cost"):
        mine = getattr(one.vocabulary.pronunciations, name)
        assert mine.tolist() == getattr(other.vocabulary.pronunciations, name).tolist()
    assert one.fingerprint == other.fingerprint


def test_a_saved_graph_comes_back(tmp_path):
    for i in range(30):
        graph = random_graph(np.random.default_rng(i))
        graph.save(tmp_path / "graph.npz")
        assert_same(load_graph(tmp_path / "graph.npz"), graph)
    assert os.listdir(tmp_path) == ["graph.npz"]
    assert_same(load_graph(str(tmp_path / "graph.npz")), graph)


@pytest.mark.parametrize("name", ["graph", "graph.npz.old", "with space.npz", "é.npz"])
def test_the_name_of_the_file_is_what_was_said(graph, tmp_path, name):
    graph.save(tmp_path / name)
    assert os.listdir(tmp_path) == [name]
    assert_same(load_graph(tmp_path / name), graph)


def test_odd_tokens_and_words_come_back(tmp_path):
    words = ("<eps>", "fin's", "naïve", '"', "\\n", "a b", "\u2028")
    vocabulary = text_tables(words=words)
    graph = PackedGraph.pack(text_fst("0 0")[0], None, vocabulary)
    graph.save(tmp_path / "graph.npz")
    assert load_graph(tmp_path / "graph.npz").words == words


def test_a_saved_graph_is_the_same_file_every_time(graph, tmp_path):
    for name in ("one", "two"):
        graph.save(tmp_path / name)
    contents = [
        {name: archive.read(name) for name in archive.namelist()}
        for archive in map(zipfile.ZipFile, (tmp_path / "one", tmp_path / "two"))
    ]
    assert contents[0] == contents[1]


def test_a_write_that_fails_leaves_the_older_file(graph, saved, monkeypatch):
    before = saved.read_bytes()

    def broken(file, **arrays):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", broken)
    with pytest.raises(FormatError, match="graph.npz: cannot write: No space left"):
        graph.save(saved)
    assert saved.read_bytes() == before
    assert os.listdir(saved.parent) == ["graph.npz"]


def test_a_folder_that_is_not_there(graph, tmp_path):
    with pytest.raises(FormatError, match="none/graph.npz: cannot write: No such"):
        graph.save(tmp_path / "none" / "graph.npz")


def test_every_change_changes_the_fingerprint(graph):
    tables = {"said": ["A a", "B b", "B b b"], "fillers": "b"}
    others = [
        text_graph(TEXT.replace("0.5", "0.25"), **tables),
        text_graph(TEXT.replace("b' -", "b -"), **tables),
        text_graph(TEXT.replace("a  A", "a  -"), **tables),
        text_graph(TEXT.replace("2 0 -", "2 1 -"), **tables),
        text_graph(TEXT.replace("3 0.75", "3 0.5"), **tables),
        text_graph(TEXT.replace("1 0\n", "1 0.0\n    0 0\n"), **tables),
        text_graph(TEXT.replace("C", "D"), **tables),
        text_graph(TEXT, **(tables | {"said": ["A a", "B b"]})),
        text_graph(TEXT, **(tables | {"said": ["A a", "B b", "A b b"]})),
        text_graph(TEXT, **(tables | {"fillers": ""})),
        text_graph(TEXT, **tables, marks_repeats=False),
        text_graph(TEXT, **tables, tokens="_ a b c"),
        text_graph(
            TEXT.replace("b", "c"), tokens="_ a c", said=["A a", "B c", "B c c"]
        ),
    ]
    fst, repeat = graph.unpack(), graph.arcs["ilabel"] & REPEAT != 0
    blank = dataclasses.replace(graph.tokens, blank=1)
    costlier = dataclasses.replace(
        graph.vocabulary.pronunciations, cost=np.ones(3, np.float32)
    )
    for changes in ({"tokens": blank}, {"entries": costlier}):
        vocabulary = dataclasses.replace(graph.vocabulary, **changes)
        others.append(PackedGraph.pack(fst, repeat, vocabulary, graph.info))
    for changes in (
        {"topology": "compact"},
        {"word_cost": np.ones(4, np.float32)},
        {"silence_prob": 0.25},
    ):
        info = dataclasses.replace(graph.info, **changes)
        others.append(PackedGraph.pack(fst, repeat, graph.vocabulary, info))
    fingerprints = {graph.fingerprint, *(other.fingerprint for other in others)}
    assert len(fingerprints) == 1 + len(others)


def changed(**columns):
    """The FST of `TEXT` with one value of some columns changed."""
    fst, repeat, words = text_fst(TEXT)
    for name, (at, value) in columns.items():
        getattr(fst, name)[at] = value
    return fst, repeat, text_tables(words=words)


BAD_FST = {
    "label over the table": (
        {"ilabel": (1, 4)},
        "arc 1: ilabel 4, expected 0 to 3; the token table has 3 tokens, blank incl",
    ),
    "negative label": ({"ilabel": (2, -1)}, "arc 2: ilabel -1, expected 0 to 3"),
    "word over the table": (
        {"olabel": (0, 4)},
        "arc 0: olabel 4, expected 0 to 3; the word table has 3 words besides <eps>",
    ),
    "nextstate": ({"nextstate": (3, 4)}, "arc 3: nextstate 4, expected 0 to 3"),
    "nan": ({"cost": (3, np.nan)}, "arc 3: cost nan, expected -1e+20 or more, or inf"),
    "-inf": ({"cost": (3, -np.inf)}, "arc 3: cost -inf, expected -1e+20 or more"),
    "huge": ({"cost": (3, -1e30)}, "expected -1e+20 or more, or inf for no arc"),
    "final nan": (
        {"final_cost": (2, np.nan)},
        "state 2: final cost nan, expected -1e+20 or more, or inf where it is not",
    ),
    "final -inf": ({"final_cost": (2, -np.inf)}, "state 2: final cost -inf, expected"),
    "epsilon loop": (
        {"nextstate": (5, 2)},
        "the epsilon arcs form a cycle (state 2 lies on it or after it), expected "
        "none: a search would not end; remove it",
    ),
    "splits": (
        {"state_arc_splits": (2, 0)},
        "row splits do not cover 7 values in order",
    ),
    "last split": ({"state_arc_splits": (4, 6)}, "row splits do not cover 7 values"),
}


@pytest.mark.parametrize(("columns", "message"), BAD_FST.values(), ids=BAD_FST)
def test_what_is_wrong_with_an_fst(columns, message):
    with pytest.raises(GraphError) as error:
        PackedGraph.pack(*changed(**columns))
    assert message in str(error.value)


def test_sizes_that_disagree():
    fst, repeat, vocabulary = changed()
    for name in ("olabel", "nextstate", "cost"):
        short = dataclasses.replace(fst, **{name: getattr(fst, name)[:-1]})
        with pytest.raises(GraphError) as error:
            PackedGraph.pack(short, repeat, vocabulary)
        message = f"6 values in {name!r}, 7 in 'ilabel', expected one per arc"
        assert str(error.value) == message
    with pytest.raises(GraphError, match="8 values in 'repeat', 7 in 'ilabel'"):
        PackedGraph.pack(fst, np.zeros(8, bool), vocabulary)
    longer = dataclasses.replace(fst, final_cost=np.zeros(9, np.float32))
    with pytest.raises(GraphError, match="5 row splits for 9 rows, expected one more"):
        PackedGraph.pack(longer, repeat, vocabulary)


def test_a_start_that_is_not_there():
    fst, repeat, vocabulary = changed()
    for start in (-1, 4):
        with pytest.raises(GraphError, match=f"start state {start}, expected one of 4"):
            PackedGraph.pack(dataclasses.replace(fst, start=start), repeat, vocabulary)


def test_no_states():
    fst = dataclasses.replace(text_fst("0 0")[0], final_cost=np.zeros(0, np.float32))
    with pytest.raises(GraphError, match="no states, expected at least a start state"):
        PackedGraph.pack(fst, None, text_tables())


@pytest.mark.parametrize(
    ("text", "count"),
    [("0 1 a A 0", 0), ("0 1 a A 0\n2 0", 1), ("0 1 a A inf\n1 0", 1)],
)
def test_a_final_state_that_cannot_be_reached(text, count):
    message = (
        f"none of the {count} final states can be reached from the start, expected"
    )
    with pytest.raises(GraphError, match=message):
        text_graph(text)


def test_longer_epsilon_cycles_are_found():
    with pytest.raises(GraphError, match="the epsilon arcs form a cycle"):
        text_graph("0 1 - - 0\n1 2 - A 1\n2 0 - - 0\n2 0")
    with pytest.raises(GraphError, match="the epsilon arcs form a cycle"):
        text_graph("0 1 a - 0\n1 0\n2 3 - - 0\n3 2 - - 0")  # not even reachable
    text_graph("0 1 - - 0\n1 2 - A 1\n0 2 - - 0\n2 0 a - 0\n2 0")


BAD_TABLES = {
    "first word": ({"words": ("A", "B")}, "word 0 is ('A',), expected '<eps>'"),
    "no words": ({"words": ()}, "word 0 is (), expected '<eps>'"),
    "line break": (
        {"words": ("<eps>", "a\nb")},
        "word 1 is 'a\\nb', expected some text in one line",
    ),
    "empty word": (
        {"words": ("<eps>", "a", "")},
        "word 2 is '', expected some text in one line",
    ),
    "filler": ({"separators": (0, 3)}, "filler 3, expected 0 to 2"),
    "said word": (
        {"entries": Pronunciations.from_lists([(2, (1,))])},
        "word of a pronunciation 2, expected 1 to 1",
    ),
    "said epsilon": (
        {"entries": Pronunciations.from_lists([(0, (1,))])},
        "word of a pronunciation 0, expected 1 to 1",
    ),
    "said token": (
        {"entries": Pronunciations.from_lists([(1, (1, 3))])},
        "token of a pronunciation 3, expected 0 to 2",
    ),
    "said splits": (
        {
            "entries": Pronunciations(
                *(np.array(x, np.int32) for x in ([1], [0, 2], [1])),
                cost=np.zeros(1, np.float32),
            )
        },
        "pronunciation splits do not cover 1 values in order",
    ),
    "said order": (
        {
            "words": ("<eps>", "A", "B"),
            "entries": Pronunciations(
                *(np.array(x, np.int32) for x in ([2, 1], [0, 1, 2], [1, 1])),
                cost=np.zeros(2, np.float32),
            ),
        },
        "pronunciations are out of order, expected them by word",
    ),
}


@pytest.mark.parametrize(("changes", "message"), BAD_TABLES.values(), ids=BAD_TABLES)
def test_what_is_wrong_with_tables(changes, message):
    vocabulary = dataclasses.replace(text_tables(words=("<eps>", "A")), **changes)
    with pytest.raises(GraphError) as error:
        PackedGraph.pack(text_fst("0 0")[0], None, vocabulary)
    assert str(error.value) == message


def test_a_blank_that_is_not_there():
    tokens = dataclasses.replace(text_tables().tokens, blank=3)
    vocabulary = dataclasses.replace(text_tables(), tokens=tokens)
    with pytest.raises(GraphError, match="blank 3, expected 0 to 2"):
        PackedGraph.pack(text_fst("0 0")[0], None, vocabulary)


@pytest.mark.parametrize("costs", [[], [1.0, 2.0], [np.nan], [np.inf]])
def test_costs_of_pronunciations_that_are_none(costs):
    entries = Pronunciations.from_lists([(1, (1,))])
    entries = dataclasses.replace(entries, cost=np.array(costs, np.float32))
    vocabulary = text_tables(words=("<eps>", "A"))
    vocabulary = dataclasses.replace(vocabulary, entries=entries)
    with pytest.raises(GraphError, match=r"costs of pronunciations .*, expected 1 fin"):
        PackedGraph.pack(text_fst("0 0")[0], None, vocabulary)


def rewrite(path, **changes):
    """Save the arrays of a graph file again, some of them changed; None leaves out."""
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    for name, change in changes.items():
        arrays[name] = change(arrays[name].copy())
    np.savez(path, **{name: a for name, a in arrays.items() if a is not None})


def text_change(**values):
    """A change of the JSON object in an array of bytes."""

    def change(array):
        content = json.loads(array.tobytes()) | values
        content = {key: value for key, value in content.items() if value is not None}
        return np.frombuffer(json.dumps(content).encode(), np.uint8)

    return change


def set_arc(field, at, value):
    def change(arcs):
        arcs[field][at] = value
        return arcs

    return change


def swap_first_arcs(arcs):
    arcs[[0, 1]] = arcs[[1, 0]]
    return arcs


BAD_FILES = {
    "other version": (
        {"header": text_change(version=99)},
        "graph format version 99, this wfstdec reads version 5; build the graph again",
    ),
    "no version": (
        {"header": text_change(version=None)},
        "not a readable graph file (KeyError: 'version'), expected what",
    ),
    "other kind": ({"header": text_change(format="lm")}, "has no wfstdec graph header"),
    "no header": (
        {"header": lambda _: None},
        "not a readable graph file (KeyError: 'header')",
    ),
    "header is a list": (
        {"header": lambda _: np.frombuffer(b"[1]", np.uint8)},
        "not a readable graph file (TypeError: ",
    ),
    "part is missing": (
        {"final_cost": lambda _: None},
        "not a readable graph file (KeyError: 'final_cost')",
    ),
    "meta is no JSON": ({"meta": lambda a: a[1:]}, "not a readable graph file ("),
    "tokens are no text": (
        {"tokens": lambda a: a * 0 + 255},
        "not a readable graph file (UnicodeDecodeError: ",
    ),
    "type of a part": (
        {"final_cost": lambda a: a.astype(np.float64)},
        "array 'final_cost' is float64 with 1 axes, expected float32 with one",
    ),
    "topology is a number": ({"meta": text_change(topology=5)}, "topology is 5, expec"),
    "other topology": (
        {"meta": text_change(topology="ring")},
        "topology 'ring', expected one of ('normal', ",
    ),
    "meta is a list": (
        {"meta": lambda _: np.frombuffer(b"[]", np.uint8)},
        "not a readable graph file (TypeError: ",
    ),
    "blank is no number": (
        {"meta": text_change(blank=[])},
        "blank is [], expected int",
    ),
    "filler beyond int64": (
        {"meta": text_change(fillers=[1 << 70])},
        "not a readable graph file (OverflowError: ",
    ),
    "names that are numbers": (
        {"tokens": lambda _: np.frombuffer(b"[1, 2, 3]", np.uint8)},
        "fillers or tokens of other types, expected integers, names",
    ),
    "axes of a part": ({"arcs": lambda a: a[None]}, "with 2 axes, expected"),
    "arcs are cut": ({"arcs": lambda a: a[:-1]}, "row splits do not cover 6 values"),
    "splits are cut": (
        {"state_arc_splits": lambda a: a[:-1]},
        "4 row splits for 4 rows, expected one more",
    ),
    "another token table": (
        {"tokens": lambda _: np.frombuffer(b'["_", "a"]', np.uint8)},
        "expected 0 to 1",  # the filler, which is looked at first
    ),
    "other names": (
        {"tokens": lambda _: np.frombuffer(b'["_", "a", "c"]', np.uint8)},
        "the file is damaged; build the graph again",
    ),
    "label": (
        {"arcs": set_arc("ilabel", 1, CARRIES_WORD | 4)},
        "arc 1: ilabel 4, expected 0 to 3; the token table has 3 tokens",
    ),
    "word": (
        {"arcs": set_arc("olabel", 1, 4)},
        "arc 1: olabel 4, expected 0 to 3; the word",
    ),
    "nextstate": (
        {"arcs": set_arc("nextstate", 6, 1 << 31)},
        "arc 6: nextstate 2147483648, expected 0 to 3",
    ),
    "cost": ({"arcs": set_arc("cost", 6, np.inf)}, "arc 6: cost inf, expected -1e+20"),
    "flag": (
        {"arcs": set_arc("ilabel", 1, 2)},
        "arc 1: its flags do not match the arc",
    ),
    "epsilon flag": (
        {"arcs": set_arc("ilabel", 3, CARRIES_WORD | 3)},
        "arc 3: its flags do not match the arc",
    ),
    "order": (
        {"arcs": swap_first_arcs},
        "arc 1: it is out of order: rows are sorted by label, epsilons first",
    ),
    "another cost": (
        {"arcs": set_arc("cost", 6, 3.0)},
        "the file is damaged; build the graph again",
    ),
    "no finals": (
        {"final_cost": lambda a: np.full_like(a, np.inf)},
        "none of the 0 final states can be reached",
    ),
    "cycle": (
        {"arcs": set_arc("nextstate", 5, 2)},
        "arc 5: its flags do not match the arc",
    ),
}


@pytest.mark.parametrize(("changes", "message"), BAD_FILES.values(), ids=BAD_FILES)
def test_what_is_wrong_with_a_file(saved, changes, message):
    rewrite(saved, **changes)
    with pytest.raises((GraphError, FormatError)) as error:
        load_graph(saved)
    assert str(error.value).startswith(f"{saved}: ")
    assert message in str(error.value)


def test_files_that_are_no_graphs(tmp_path):
    path = tmp_path / "x.npz"
    message = f"{path}: not a readable graph file"
    np.save(tmp_path / "x.npy", np.zeros(3))
    contents = [b"", b"text", b"PK\x03\x04", (tmp_path / "x.npy").read_bytes()]
    for content in contents:
        path.write_bytes(content)
        with pytest.raises(FormatError) as error:
            load_graph(path)
        assert str(error.value).startswith(message)
        assert "expected what `wfstdec build` writes; build it again" in str(
            error.value
        )
    np.savez(path, np.zeros(3))
    with pytest.raises(
        FormatError, match="not a readable graph file .KeyError: 'header'"
    ):
        load_graph(path)
    np.savez(path, header=np.array([{}], object))
    with pytest.raises(FormatError, match="not a readable graph file"):
        load_graph(path)


def test_paths_that_cannot_be_read(saved, tmp_path):
    with pytest.raises(FormatError, match="none.npz: cannot read: No such file or di"):
        load_graph(tmp_path / "none.npz")
    with pytest.raises(FormatError, match="Is a directory"):
        load_graph(tmp_path)
    if os.geteuid() != 0:
        saved.chmod(0)
        with pytest.raises(FormatError, match="Permission denied"):
            load_graph(saved)


def test_truncated_and_damaged_bytes_never_pass_as_a_graph(saved, graph):
    """Either an error of ours, or the same graph: some bytes of a zip mean nothing."""
    whole, rng = saved.read_bytes(), np.random.default_rng(0)
    damaged = [whole[:n] for n in range(0, len(whole), 29)]
    for i in range(0, len(whole), 5):
        flipped = bytearray(whole)
        flipped[i] ^= 1 << int(rng.integers(8))
        damaged.append(bytes(flipped))
    refused = 0
    for content in damaged:
        saved.write_bytes(content)
        try:
            assert load_graph(saved).fingerprint == graph.fingerprint
        except WfstdecError as error:
            refused += str(error).startswith(f"{saved}: ")
    assert refused > 0.7 * len(damaged)
