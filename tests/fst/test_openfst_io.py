"""OpenFst files and text: round trips, what other tools write, what is refused."""

import gzip
import struct

import numpy as np
import pytest
from text_graphs import text_graph

from wfstdec import from_openfst, to_openfst
from wfstdec.errors import FormatError, GraphError, TokenTableError
from wfstdec.fst.arrays import arcs_of, fst_of
from wfstdec.fst.openfst import (
    FORMS,
    FstContent,
    format_fst,
    parse_fst,
    read_fst,
    read_words,
    write_fst,
)

INF = np.inf
FST = fst_of(
    [arcs_of([0, 0, 2, 2], [1, 2, 0, 3], [1, 0, 2, 0], [1, 2, 1, 2], [0.5, 0, -1, 2])],
    start=2,
    final_cost=[INF, 0.125, INF],
)
SYMBOLS = {0: "<eps>", 1: "_", 2: "a", 3: "b"}
WORDS = {0: "<eps>", 1: "hello", 2: "wörld"}
CONTENT = FstContent(FST, SYMBOLS, WORDS)
HELLO = """
    0 0 _  -   0
    0 1 a  hi  0.5
    1 1 a' -   0
    1 2 b  -   0.25
    1 2 -  ho  1.5
    2 2 b' -   0
    2 0.75
"""
LINES = """\
2 1 <eps> wörld -1
2 2 b <eps> 2
0 1 _ hello 0.5
0 2 a <eps> 0
1 0.125
"""


def assert_same(found, expected, start=None):
    assert found.start == (expected.start if start is None else start)
    for name in ("final_cost", "state_arc_splits", "ilabel", "olabel", "nextstate"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    np.testing.assert_array_equal(found.cost, expected.cost)
    assert found.cost.dtype == np.float32


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("symbols", [True, False])
def test_what_is_written_is_read(tmp_path, form, symbols):
    path = tmp_path / "x.fst"
    content = CONTENT if symbols else FstContent(FST)
    write_fst(path, content, form)
    if form == "text" and symbols:
        found = read_fst(path, SYMBOLS, WORDS)
    else:
        found = read_fst(path)
    assert_same(found.fst, FST)
    assert (found.isymbols, found.osymbols) == (content.isymbols, content.osymbols)


@pytest.mark.parametrize("form", FORMS)
def test_graphs_keep_their_bits_but_not_their_repeats(tmp_path, form):
    graph = text_graph(HELLO)
    path = tmp_path / "x.fst"
    to_openfst(graph, path, form)
    words = graph.words if form == "text" else None
    found = from_openfst(path, tokens=graph.tokens, words=words)
    assert_same(found.unpack(), graph.unpack())
    assert (found.words, found.tokens) == (graph.words, graph.tokens)
    if form != "text":  # a file has its own table
        other = [graph.words[0], *reversed(graph.words[1:])]
        for given in (other, graph.words[:-1]):
            with pytest.raises(FormatError, match="in its own table and"):
                from_openfst(path, tokens=graph.tokens, words=given)
    assert not found.info.marks_repeats
    assert len(found.vocabulary.pronunciations) == 0


def test_gzip_is_unpacked(tmp_path):
    path = tmp_path / "x.fst.gz"
    path.write_bytes(gzip.compress(format_fst(CONTENT)))
    assert_same(read_fst(path).fst, FST)


def test_the_text_by_hand(tmp_path):
    path = tmp_path / "x.txt"
    write_fst(path, CONTENT)
    assert path.read_text(encoding="utf-8").replace("\t", " ") == LINES


def test_names_with_a_space_stay_numbers_in_text(tmp_path):
    path = tmp_path / "x.txt"
    write_fst(path, FstContent(FST, SYMBOLS | {2: " "}, WORDS))
    assert "0\t2\t2\t<eps>\t0" in path.read_text(encoding="utf-8")
    assert_same(read_fst(path, SYMBOLS | {2: " "}, WORDS).fst, FST)


def test_a_state_that_nothing_mentions_but_its_start(tmp_path):
    path = tmp_path / "x.txt"
    lonely = fst_of([arcs_of(1, 1, 1, 1)], start=0, final_cost=[INF, 0.0])
    write_fst(path, FstContent(lonely))
    assert_same(read_fst(path).fst, lonely)


def test_kaldifst_reads_and_writes_the_same(tmp_path):
    kaldifst = pytest.importorskip("kaldifst")
    path = tmp_path / "x.fst"
    for form, reader in (
        ("const", kaldifst.StdConstFst),
        ("vector", kaldifst.StdVectorFst),
    ):
        write_fst(path, FstContent(FST), form)
        theirs = reader.read(str(path))
        assert (theirs.start, theirs.num_states) == (2, 3)
        assert theirs.write(str(path))
        assert_same(read_fst(path).fst, FST)


@pytest.mark.peers
@pytest.mark.parametrize("form", ["const", "vector"])
def test_pynini_reads_and_writes_the_same(tmp_path, form):
    pynini = pytest.importorskip("pynini")
    pywrapfst = pytest.importorskip("pywrapfst")
    path = tmp_path / "x.fst"
    write_fst(path, CONTENT, form)
    theirs = pynini.Fst.read(str(path))
    assert theirs.verify()
    assert list(theirs.output_symbols()) == list(WORDS.items())
    pywrapfst.convert(theirs, form).write(str(path))
    found = read_fst(path)
    assert_same(found.fst, FST)
    assert (found.isymbols, found.osymbols) == (SYMBOLS, WORDS)


@pytest.mark.peers
@pytest.mark.parametrize("arc_type", ["log", "log64"])
def test_pyninis_other_arcs(tmp_path, arc_type):
    pynini = pytest.importorskip("pynini")
    path = tmp_path / "x.fst"
    mapped = pynini.arcmap(
        pynini.Fst.read_from_string(format_fst(CONTENT)), map_type=f"to_{arc_type}"
    )
    mapped.write(str(path))
    if arc_type == "log":
        assert_same(read_fst(path).fst, FST)
    else:
        with pytest.raises(FormatError, match="'vector' with 'log64' arcs, expected"):
            read_fst(path)


def test_aligned_const_files_and_vector_files_of_unknown_length():
    data = bytearray(format_fst(FstContent(FST)))
    flags = data.index(b"standard") + len(b"standard") + 4
    head = flags + 4 + 4 * 8
    states, arcs = data[head : head + 60], data[head + 60 :]
    struct.pack_into("<i", data, flags, 4)
    padded = bytes(data[:head]) + bytes(-head % 16) + bytes(states)
    padded += bytes(-len(padded) % 16) + bytes(arcs)
    assert_same(parse_fst(padded, "x").fst, FST)

    data = bytearray(format_fst(FstContent(FST), "vector"))
    flags = data.index(b"standard") + len(b"standard") + 4
    struct.pack_into("<q", data, flags + 4 + 8 + 8, -1)
    assert_same(parse_fst(bytes(data), "x").fst, FST)


def test_text_of_acceptors_and_of_transducers(tmp_path):
    path = tmp_path / "x.txt"
    cases = {
        "0 1 a\n1": (1, 1, 0.0),
        "0 1 a 2.5\n1": (1, 1, 2.5),
        "0 1 a b\n1": (1, 1, 0.0),
        "0 1 a b 2.5\n1": (1, 1, 2.5),
        "0 1 3 4\n1": (3, 4, 0.0),
        "0 1 3 4 2.5\n1": (3, 4, 2.5),
        "0 1 <eps> b\n1": (0, 1, 0.0),
    }
    for text, arc in cases.items():
        path.write_text(text)
        fst = read_fst(path).fst
        assert (fst.ilabel[0], fst.olabel[0], fst.cost[0]) == arc, text


def test_state_numbers_may_have_gaps_and_any_order(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("70 9 1 1 0.5\n9 3\n")
    fst = read_fst(path).fst
    assert (fst.start, fst.num_states, fst.nextstate.tolist()) == (1, 2, [0])
    assert fst.final_cost.tolist() == [3.0, INF]


def test_k2s_text(tmp_path):
    """Labels are tokens, scores log-probs, and -1 leads to the final state."""
    path = tmp_path / "x.txt"
    path.write_text("0 0 0 0 0\n0 1 1 2 -0.5\n1 2 -1 -1 -0.25\n2\n")
    tokens = text_graph(HELLO).tokens
    graph = from_openfst(path, tokens=tokens, words=["<eps>", "no", "yes"])
    fst = graph.unpack()
    assert fst.ilabel.tolist() == [1, 2]
    assert fst.olabel.tolist() == [0, 2]
    assert fst.cost.tolist() == [0.0, 0.5]
    assert fst.final_cost.tolist() == [INF, 0.25]


def test_tables_of_kaldi(tmp_path):
    """`<eps>` first, disambiguation symbols last; words from a table of `word id`."""
    (tmp_path / "tokens").write_text("<eps> 0\n<blk> 1\na 2\nb 3\n#0 4\n#1 5\n")
    (tmp_path / "words").write_text("<eps> 0\nhi 1\nho 2\n#0 3\n")
    path = tmp_path / "TLG.fst"
    to_openfst(text_graph(HELLO), path)
    graph = from_openfst(path, tokens=tmp_path / "tokens", words=tmp_path / "words")
    assert graph.tokens.names == ("<blk>", "a", "b")
    assert graph.words == ("<eps>", "hi", "ho", "#0")


def test_tables_in_the_file(tmp_path):
    path = tmp_path / "TLG.fst"
    graph = text_graph(HELLO)
    isymbols = {0: "<eps>", 1: "_", 2: "a", 3: "b", 4: "#0"}
    write_fst(path, FstContent(graph.unpack(), isymbols, dict(enumerate(graph.words))))
    found = from_openfst(path)
    assert (found.tokens, found.words) == (graph.tokens, graph.words)


@pytest.mark.parametrize("form", ["const", "vector"])
def test_truncated_anywhere(form):
    data = format_fst(CONTENT, form)
    for size in range(len(data)):
        with pytest.raises(FormatError, match="^x: "):
            parse_fst(data[:size], "x")


def test_damaged_anywhere():
    """A wrong byte is an error or another FST, never anything else."""
    for form in ("const", "vector"):
        data = bytearray(format_fst(CONTENT, form))
        for i in range(len(data)):
            for value in (0, 255):
                damaged = bytes(data[:i]) + bytes([value]) + bytes(data[i + 1 :])
                try:
                    parse_fst(damaged, "x")
                except FormatError:
                    pass


BAD_BYTES = {
    "no FST": (b"\x00\x01\x02\xff", "expected a binary OpenFst file or text"),
    "empty": (b"", "it is empty, expected the text of an FST"),
    "compact": (
        format_fst(CONTENT).replace(b"\x05\0\0\0const", b"\x10\0\0\0compact_acceptor"),
        "an FST of type 'compact_acceptor' with 'standard' arcs, expected 'const' or",
    ),
    "no start": (
        format_fst(FstContent(fst_of([arcs_of(0, 1, 1, 0)], -1, [0.0]))),
        "start state -1 of 1 states, expected one of them",
    ),
}


@pytest.mark.parametrize(("data", "message"), BAD_BYTES.values(), ids=BAD_BYTES)
def test_files_that_are_no_fst(tmp_path, data, message):
    path = tmp_path / "x.fst"
    path.write_bytes(data)
    with pytest.raises(FormatError, match=message):
        read_fst(path)


BAD_LINES = {
    "a word for a state": ("0 1 a\nx 1 a\n", r"x.txt:2: found 'x 1 a' \(invalid lit"),
    "a word for a cost": ("0 1 a b c\n", "x.txt:1: found '0 1 a b c'"),
    "too many fields": ("0 1 a hello 1 2\n", "'2' after the cost"),
    "a label that is unknown": ("0 1 _ hello\n1 2 z hello\n", "'z' is not in the symb"),
    "a word for a final cost": ("0 x\n", "x.txt:1: found '0 x'"),
    "k2 without a score": ("0 1 1 1 0\n1 2 -1 -1\n", "x.txt:2: found '1 2 -1 -1'"),
}


@pytest.mark.parametrize(("text", "message"), BAD_LINES.values(), ids=BAD_LINES)
def test_malformed_text(tmp_path, text, message):
    path = tmp_path / "x.txt"
    path.write_text(text)
    with pytest.raises(FormatError, match=message):
        read_fst(path, SYMBOLS, WORDS)


def test_files_that_cannot_be_opened(tmp_path):
    with pytest.raises(FormatError, match="cannot read: No such file"):
        read_fst(tmp_path / "none.fst")
    with pytest.raises(FormatError, match="cannot write: No such file"):
        write_fst(tmp_path / "none" / "x.fst", CONTENT)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<eps> 0\na 2\n", "ids 0 to 2 for 2 words, the first '<eps>', expected"),
        ("a 0\nb 1\n", "the first 'a', expected '<eps>' as 0 and no gaps"),
        ("<eps> 0\na\n", "words.txt:2: found 'a', expected 'word id', each id once"),
        ("<eps> 0\na 0\n", "words.txt:2: found 'a 0', expected 'word id', each id"),
        ("", "expected words by id: give words="),
    ],
)
def test_malformed_word_tables(tmp_path, text, message):
    path = tmp_path / "words.txt"
    path.write_text(text)
    with pytest.raises(FormatError, match=message):
        read_words(path)


def test_tables_that_are_missing_or_do_not_fit(tmp_path):
    path = tmp_path / "x.fst"
    graph = text_graph(HELLO)
    write_fst(path, FstContent(graph.unpack()))
    with pytest.raises(FormatError, match="x.fst: no output symbols, expected words"):
        from_openfst(path, tokens=graph.tokens)
    with pytest.raises(FormatError, match="x.fst: no input symbols, expected tokens"):
        from_openfst(path, words=graph.words)
    fewer = text_graph("0 0 _ - 0\n0 0\n", tokens="_ a").tokens
    with pytest.raises(GraphError, match="x.fst: arc .*: ilabel 3, expected 0 to 2"):
        from_openfst(path, tokens=fewer, words=graph.words)
    with pytest.raises(GraphError, match="x.fst: arc .*: olabel 2, expected 0 to 1"):
        from_openfst(path, tokens=graph.tokens, words=graph.words[:2])
    gap = {0: "<eps>", 1: "_", 3: "b"}
    write_fst(path, FstContent(graph.unpack(), gap))
    with pytest.raises(FormatError, match="no input symbol for label 2 of 3, expected"):
        from_openfst(path, words=graph.words)
    write_fst(path, FstContent(graph.unpack(), {0: "<eps>", 1: "x", 2: "a", 3: "b"}))
    with pytest.raises(TokenTableError, match="blank"):
        from_openfst(path, words=graph.words)


def test_a_graph_with_a_cycle_of_epsilons(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("0 1 0 0\n1 0 0 0\n1 1 1 1\n1\n")
    tokens = text_graph(HELLO).tokens
    with pytest.raises(GraphError, match="x.txt: the epsilon arcs form a cycle"):
        from_openfst(path, tokens=tokens, words=["<eps>", "hi"])
