"""Token tables in all the forms that other tools write."""

import gzip

import numpy as np
import pytest

from wfstdec import TokenTable, read_tokens, token_table
from wfstdec.errors import FormatError, TokenTableError
from wfstdec.text.tokens import BLANK_NAMES, ilabel_of, token_of


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_a_table_by_hand(tmp_path):
    tokens = read_tokens(write(tmp_path / "tokens.txt", "<blank> 0\nə 2\n<wb> 1\n"))
    assert tokens == TokenTable(("<blank>", "<wb>", "ə"), blank=0)
    assert len(tokens) == 3
    assert tokens.index("ə") == 2


def test_labels_leave_zero_to_epsilon():
    assert ilabel_of(0) == 1
    assert token_of(ilabel_of(41)) == 41
    array = np.array([0, 7], np.uint32)
    assert ilabel_of(array).dtype == np.uint32
    np.testing.assert_array_equal(ilabel_of(array), [1, 8])
    np.testing.assert_array_equal(token_of(ilabel_of(array)), array)


FORMS = {
    "one per line": ("t.txt", "<blk>\na\nb\n", "<blk> a b"),
    "no newline at the end": ("t.txt", "<blk>\na", "<blk> a"),
    "empty lines at the end": ("t.txt", "<blk>\na\n\n\n", "<blk> a"),
    "ids": ("t.txt", "a 1\n<blk> 0\nb 2\n", "<blk> a b"),
    "ids behind tabs, CRLF": ("t.txt", "<blk>\t0\r\na\t1\r\n", "<blk> a"),
    "ids behind columns of spaces": ("t.txt", "<blk>   0\na       1\n", "<blk> a"),
    "byte-order mark": ("t.txt", "\ufeff<blk> 0\na 1\n", "<blk> a"),
    "disambiguation symbols": ("t.txt", "<blk> 0\na 1\n#0 2\n#1 3\n", "<blk> a"),
    "a token like a number": ("t.txt", "<blk>\n7\n3\n", "<blk> 7 3"),
    "SentencePiece": ("m.vocab", "<blk>\t0\n▁a\t-3.25\nb\t-1e+01\n", "<blk> ▁a b"),
    "SentencePiece BPE": ("m.vocab", "<blk>\t0\n▁a\t-0\nb\t-1\n", "<blk> ▁a b"),
    "SentencePiece by content": ("t.txt", "<blk>\t0\nb\t-1.5\n", "<blk> b"),
    "Hugging Face": ("vocab.json", '{"a": 2, "<pad>": 0,\n "|": 1}', "<pad> | a"),
    "odd white space": ("t.txt", "-\n\u00a0\n\u2028\n\x85\n", "- \u00a0 \u2028 \x85"),
    "gzip": ("t.txt.gz", gzip.compress(b"<blk> 0\na 1\n"), "<blk> a"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "content", "expected"), FORMS.values(), ids=FORMS)
def test_forms(tmp_path, name, content, expected):
    tokens = read_tokens(write(tmp_path / name, content))
    assert tokens.names == tuple(expected.split(" "))
    assert tokens.names[tokens.blank] in BLANK_NAMES


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.txt", "<pad>\n \na\n"),
        ("t.txt", "<pad> 0\n  1\na 2\n"),
        ("vocab.json", '{"<pad>": 0, " ": 1, "a": 2}'),
    ],
)
def test_the_space_token_survives(tmp_path, name, content):
    assert read_tokens(write(tmp_path / name, content)).names == ("<pad>", " ", "a")


@pytest.mark.parametrize("name", BLANK_NAMES)
def test_usual_blanks_are_recognised(name):
    assert token_table(["a", name, "b"]).blank == 1


@pytest.mark.parametrize(
    ("names", "blank", "expected"),
    [
        (["<pad>", "-", "a"], None, 0),
        (["_", "-", "<blank>"], None, 2),
        (["<pad>", "-", "a"], "-", 1),
        (["<pad>", "-", "a"], 0, 0),
        (["x", "y"], "1", 1),
        (["1", "0"], "0", 1),
        (["a", "b"], 2, 2),
        (["a", "b"], "2", 2),
    ],
    ids=[
        "a mark before a sign of texts",
        "a mark before two",
        "one of two",
        "index",
        "index as text",
        "a name before an index",
        "one after the last",
        "that as text",
    ],
)
def test_the_blank_that_was_asked_for(names, blank, expected):
    tokens = token_table(names, blank)
    assert tokens.blank == expected
    assert tokens.names == (*names, "<blank>")[: max(len(names), expected + 1)]


def test_a_token_is_named_as_flags_take_it():
    tokens = token_table(["<blank>", "1", "0", "a"])
    for token in range(len(tokens)):
        assert token_table(tokens.names, tokens.flag(token)).blank == token


def test_fingerprint_tells_tables_apart():
    tables = [(["-", "a", "b"], 0), (["-", "b", "a"], 0), (["-", "a", "b"], 1)]
    assert len({token_table(*table).fingerprint for table in tables}) == 3
    same = token_table(iter(["-", "a", "b"]))
    assert same.fingerprint == token_table(["-", "a", "b"], "-").fingerprint


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ey2", "token 'ey2', which the token table does not have; nearest: 'ey1'"),
        ("EY", "token 'EY', which the token table does not have; nearest: 'ey1'"),
        ("þþþ", "token 'þþþ', which the token table does not have"),
    ],
)
def test_a_missing_token_names_the_nearest(name, message):
    tokens = token_table(["<blk>", "ey1", "b"])
    with pytest.raises(TokenTableError) as raised:
        tokens.index(name)
    assert str(raised.value) == message
    with pytest.raises(TokenTableError, match=f"^lexicon.txt:3: {message}$"):
        tokens.index(name, "lexicon.txt:3")


ERRORS = [
    ("t.txt", "", None, "no tokens, expected at least a blank"),
    ("t.txt", "<blk>\na\n\na\n", None, "token 2 is empty, expected a name"),
    ("t.txt", "<blk>\nb\na\nb\n", None, "tokens 1 and 3 are both 'b', expected"),
    ("t.txt", "<blk> 0\na 1\nb 1\n", None, "'a' and 'b' both have id 1, expected"),
    ("t.txt", "<blk> 0\na 1\nb 3\n", None, "3 tokens and no id 2, expected"),
    ("t.txt", "a\nb\n", None, r"no token may be the blank, .*--blank"),
    ("t.txt", "-\n_\n", None, r"'-' and '_' may be the blank, .*--blank"),
    ("t.txt", "a\nblank\n", "blnk", "blank is 'blnk', .*nearest: 'blank'; choose"),
    ("t.txt", "a\nb\n", 3, "blank is 3, expected 0 to 2 for V=2 tokens"),
    ("t.txt", "a\nb\n", -2, "blank is -2, expected 0 to 2 for V=2 tokens"),
    ("v.json", '[["a"]]', None, "other JSON, expected {token: id} or a list"),
    ("v.json", '{"a": "0"}', None, "token 'a' has '0', expected an integer"),
    ("v.json", '{"eng": {"a": 0}, "deu": {}}', None, "each of 'eng', 'deu', expected"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "blank", "message"), ERRORS)
def test_errors(tmp_path, name, content, blank, message):
    path = write(tmp_path / name, content)
    with pytest.raises(TokenTableError, match=message) as raised:
        read_tokens(path, blank)
    assert str(raised.value).startswith(str(path))


@pytest.mark.parametrize("behind", ["", "#0 3\n#1 4\n"])
def test_epsilon_of_an_fst_is_no_token_next_to_a_blank(behind, tmp_path):
    path = write(tmp_path / "tokens.txt", f"<eps> 0\n<blk> 1\na 2\n{behind}")
    assert read_tokens(path).names == ("<blk>", "a")
    assert read_tokens(path, "<eps>").names == ("<eps>", "<blk>", "a")  # as it is given
    with pytest.raises(TokenTableError, match="'<eps>' and the blank is '<blk>',"):
        token_table(["<eps>", "<blk>", "a"])


def test_unreadable_files(tmp_path):
    with pytest.raises(FormatError, match=r"no.txt: cannot read: No such file"):
        read_tokens(tmp_path / "no.txt")
    with pytest.raises(FormatError, match=r"t.txt:2: found b'\\xff', expected UTF-8"):
        read_tokens(write(tmp_path / "t.txt", b"<blk>\n\xff\n"))
    with pytest.raises(FormatError, match=r"v.json: not a .*: line 2 column 2 .*JSON"):
        read_tokens(write(tmp_path / "v.json", '{"a": 0,\n b}'))
    half = gzip.compress(b"<blk> 0\na 1\n")[:-9]
    with pytest.raises(FormatError, match=r"t.gz: not a readable gzip file"):
        read_tokens(write(tmp_path / "t.gz", half))
