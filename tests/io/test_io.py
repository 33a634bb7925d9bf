import json
import os
import pickle
import struct
import warnings

import kaldiio
import numpy as np
import pytest
from made_hypotheses import hypothesis

from wfstdec import BoostEntry
from wfstdec.errors import (
    BoostError,
    BoostWarning,
    FormatError,
    OptionError,
    ShapeError,
)
from wfstdec.io import (
    FORMATS,
    open_logprobs,
    open_output,
    read_boosts,
    read_phrase_weights,
    read_text,
    write_text,
)
from wfstdec.io.results import format_named
from wfstdec.search.hypothesis import Word


@pytest.fixture
def arrays():
    """Three utterances whose order is not that of their names."""
    rng = np.random.default_rng(0)
    lengths = {"utt-b": 5, "utt-c": 1, "utt-a": 3}
    return {u: rng.normal(size=(t, 4)).astype(np.float32) for u, t in lengths.items()}


def save_npz(folder, arrays):
    np.savez(folder / "x.npz", **arrays)
    return folder / "x.npz"


def save_ark(folder, arrays):
    kaldiio.save_ark(str(folder / "x.ark"), arrays)
    return folder / "x.ark"


def save_scp(folder, arrays):
    kaldiio.save_ark(str(folder / "y.ark"), arrays, scp=str(folder / "y.scp"))
    return folder / "y.scp"


def save_folder(folder, arrays):
    (folder / "npy").mkdir()
    for utterance, array in arrays.items():
        np.save(folder / "npy" / f"{utterance}.npy", array)
    return folder / "npy"


SAVERS = [save_npz, save_ark, save_scp, save_folder]


@pytest.mark.parametrize("save", SAVERS)
def test_every_form_gives_the_same_arrays_in_its_order(save, tmp_path, arrays):
    reader = open_logprobs(save(tmp_path, arrays))
    expected = sorted(arrays) if save is save_folder else list(arrays)
    assert reader.num_utterances == (None if save is save_ark else 3)
    for _ in range(2):  # a reader can be iterated again
        read = list(reader)
        assert [utterance for utterance, _ in read] == expected
        for utterance, array in read:
            np.testing.assert_array_equal(array, arrays[utterance])
            assert array.flags.writeable


def test_npz_keeps_float16(tmp_path):
    np.savez(tmp_path / "x.npz", u=np.zeros((2, 3), np.float16))
    [(_, array)] = open_logprobs(tmp_path / "x.npz")
    assert array.dtype == np.float16


def test_compressed_kaldi_matrices_are_read(tmp_path, arrays):
    path = tmp_path / "x.ark"
    kaldiio.save_ark(str(path), arrays, compression_method=2)
    for utterance, array in open_logprobs(path):
        np.testing.assert_allclose(array, arrays[utterance], atol=0.05)


def test_an_scp_line_without_offset_and_blank_lines(tmp_path):
    array = np.ones((2, 3), np.float32)
    kaldiio.save_mat(str(tmp_path / "one.mat"), array)
    (tmp_path / "x.scp").write_text(f"utt {tmp_path}/one.mat\n\n")
    [(utterance, read)] = open_logprobs(tmp_path / "x.scp")
    assert utterance == "utt"
    np.testing.assert_array_equal(read, array)


def test_only_what_is_asked_for_is_read(tmp_path, arrays):
    path = save_ark(tmp_path, arrays)
    path.write_bytes(path.read_bytes()[:-1])
    utterances = iter(open_logprobs(path))
    assert next(utterances)[0] == "utt-b"
    assert next(utterances)[0] == "utt-c"
    with pytest.raises(FormatError, match="utt-a: not a readable matrix"):
        next(utterances)


@pytest.mark.parametrize("save", [save_npz, save_ark, save_scp, save_folder])
@pytest.mark.parametrize("keep", [0, 1, 7, 30, 60, 100])
def test_a_truncated_file_is_a_format_error(save, keep, tmp_path, arrays):
    path = save(tmp_path, arrays)
    file = {save_scp: tmp_path / "y.ark", save_folder: path / "utt-a.npy"}.get(
        save, path
    )
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(FormatError, match=file.name):
        list(open_logprobs(path))


def test_missing_and_unknown_files(tmp_path):
    with pytest.raises(FormatError, match="no such file or folder"):
        open_logprobs(tmp_path / "none.npz")
    (tmp_path / "x.csv").write_text("1,2\n")
    with pytest.raises(FormatError, match=r"found '\.csv', expected \.npz, \.ark"):
        open_logprobs(tmp_path / "x.csv")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FormatError, match=r"no \.npy file"):
        open_logprobs(tmp_path / "empty")
    (tmp_path / "x.scp").write_text("utt nowhere.ark:5\n")
    with pytest.raises(FormatError, match=r"nowhere\.ark: cannot read: No such file"):
        list(open_logprobs(tmp_path / "x.scp"))


def test_arrays_of_another_shape_or_kind_name_the_utterance(tmp_path):
    np.savez(tmp_path / "x.npz", u=np.zeros((2, 3, 4), np.float32))
    with pytest.raises(ShapeError, match=r"x\.npz: u: shape \(2, 3, 4\), expected"):
        list(open_logprobs(tmp_path / "x.npz"))
    np.savez(tmp_path / "x.npz", u=np.zeros((2, 3), np.int64))
    with pytest.raises(FormatError, match="dtype 'int64', expected floats"):
        list(open_logprobs(tmp_path / "x.npz"))


def test_pickles_are_refused_wherever_they_stand(tmp_path):
    np.savez(tmp_path / "x.npz", u=np.array([[{}]], object))
    with pytest.raises(FormatError, match=r"x\.npz: u: not a readable array"):
        list(open_logprobs(tmp_path / "x.npz"))
    (tmp_path / "x.ark").write_bytes(b"utt PKL" + pickle.dumps(np.zeros((2, 3))))
    with pytest.raises(FormatError, match="expected a Kaldi matrix"):
        list(open_logprobs(tmp_path / "x.ark"))


@pytest.mark.parametrize("target", ["cat x.ark |", "| cat x.ark"])
def test_commands_are_refused(target, tmp_path):
    (tmp_path / "x.scp").write_text(f"utt {target}\n")
    with pytest.raises(FormatError, match=r"x\.scp:1: found the command"):
        open_logprobs(tmp_path / "x.scp")
    with pytest.raises(FormatError, match="ark:.*: found the command"):
        open_logprobs(f"ark:{target}")


@pytest.mark.parametrize(
    "text, rows, columns",
    [("[0:1]", slice(0, 2), slice(None)), ("[3:4,1:2]", slice(3, 5), slice(1, 3))]
    + [("[4:7]", slice(4, 5), slice(None)), ("[,0:0]", slice(None), slice(0, 1))],
)
def test_ranges_of_an_scp_have_their_last_row(text, rows, columns, tmp_path, arrays):
    scp = save_scp(tmp_path, arrays)
    scp.write_text(scp.read_text().replace("\n", f"{text}\n", 1))
    utterance, read = next(iter(open_logprobs(scp)))
    np.testing.assert_array_equal(read, arrays[utterance][rows, columns])


@pytest.mark.parametrize("text", ["[5:6]", "[0:8]", "[0:1,4:4]", "[2:1]"])
def test_ranges_outside_of_a_matrix_are_errors(text, tmp_path, arrays):
    scp = save_scp(tmp_path, arrays)
    scp.write_text(scp.read_text().replace("\n", f"{text}\n", 1))
    with pytest.raises(FormatError, match=r"shape \(5, 4\), expected a range inside"):
        list(open_logprobs(scp))


@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("name", ["-", "ark:-", "ark,t:-", "ark,s,cs:-", "pipe"])
def test_an_ark_comes_through_a_pipe(name, text, tmp_path, arrays, monkeypatch):
    kaldiio.save_ark(str(tmp_path / "x.ark"), arrays, text=text)
    data, (end, begin) = (tmp_path / "x.ark").read_bytes(), os.pipe()
    with os.fdopen(begin, "wb") as file:
        file.write(data)  # less than what a pipe holds
    monkeypatch.setattr("sys.stdin", os.fdopen(end))
    name = f"/dev/fd/{end}" if name == "pipe" else name
    read = dict(open_logprobs(name))
    assert list(read) == list(arrays)
    for utterance, array in arrays.items():
        np.testing.assert_allclose(read[utterance], array, rtol=1e-6)


def test_a_single_npy_is_one_utterance(tmp_path, arrays):
    np.save(tmp_path / "utt-b.npy", arrays["utt-b"])
    [(utterance, read)] = open_logprobs(tmp_path / "utt-b.npy")
    assert utterance == "utt-b"
    np.testing.assert_array_equal(read, arrays["utt-b"])


@pytest.mark.parametrize("name", ["x.wav", "x.MP3", "x.flac", "x.m4a"])
def test_audio_as_logprobs_names_the_command(name, tmp_path):
    (tmp_path / name).write_bytes(b"RIFF")
    with pytest.raises(FormatError, match="`wfstdec transcribe MODEL` reads audio"):
        open_logprobs(tmp_path / name)


def test_malformed_scp_line(tmp_path):
    (tmp_path / "x.scp").write_text("utt\n")
    with pytest.raises(FormatError, match=r"x\.scp:1: found 'utt', expected"):
        open_logprobs(tmp_path / "x.scp")


@pytest.mark.parametrize("first", ["-1e-05", "-3", "0", "-inf"])
def test_a_text_ark_is_of_floats_whatever_its_first_number(first, tmp_path):
    text = f"u1  [\n  {first} -2.5 \n  -0.5 -1 ]\nu2  [\n  -1 -2 ]\n"
    (tmp_path / "x.ark").write_text(text)
    read = dict(open_logprobs(tmp_path / "x.ark"))
    assert read["u1"].tolist() == [[np.float32(first), -2.5], [-0.5, -1]]
    assert read["u2"].tolist() == [[-1, -2]]


@pytest.mark.parametrize("text", ["u [\n 1 2\n", "u [\n 1 x ]\n", "u [ 1\n 1 2 ]\n"])
def test_a_damaged_text_ark_names_the_utterance(text, tmp_path):
    (tmp_path / "x.ark").write_text(text)
    with pytest.raises(FormatError, match=r"x\.ark: u: not a readable matrix"):
        list(open_logprobs(tmp_path / "x.ark"))


def test_a_matrix_of_absurd_size_is_damage(tmp_path):
    size = b"\4" + struct.pack("<i", 2**31 - 1)
    (tmp_path / "x.ark").write_bytes(b"utt \0BFM " + size + size)
    with pytest.raises(FormatError, match="not a readable matrix"):
        list(open_logprobs(tmp_path / "x.ark"))


def test_utterance_ids_must_differ_and_be_one_word(tmp_path):
    array = np.zeros((2, 3), np.float32)
    with (tmp_path / "x.ark").open("wb") as file:
        kaldiio.save_ark(file, {"u": array})
        kaldiio.save_ark(file, {"u": array})
    with pytest.raises(FormatError, match="utterance 'u' twice"):
        list(open_logprobs(tmp_path / "x.ark"))
    np.savez(tmp_path / "x.npz", **{"a b": array})
    with pytest.raises(FormatError, match="'a b', expected an id without white space"):
        list(open_logprobs(tmp_path / "x.npz"))


def test_transcripts_go_through_a_file_unchanged(tmp_path):
    transcripts = {"u2": ("der", "bär", "schläft"), "u1": ()}
    write_text(tmp_path / "x.txt", transcripts)
    assert (tmp_path / "x.txt").read_text("utf-8") == "u2 der bär schläft\nu1\n"
    assert read_text(tmp_path / "x.txt") == transcripts
    assert list(read_text(tmp_path / "x.txt")) == ["u2", "u1"]


def test_transcripts_with_tabs_blank_lines_and_carriage_returns(tmp_path):
    (tmp_path / "x.txt").write_bytes(b"u1\ta  b\r\n\r\nu2 c")
    assert read_text(tmp_path / "x.txt") == {"u1": ("a", "b"), "u2": ("c",)}


READ = {"u2": ("der", "bär"), "u1": ("1.5",)}
TRANSCRIPTS = {
    "x.txt": "u2 der bär\nu1 1.5\n",
    "x.jsonl": '{"id": "u2", "text": "der  bär"}\n\n{"id": "u1", "text": "1.5"}\n',
    "x.ctm": ";; by hand\nu2 1 0.00 0.1 der 0.9\nu2 1 0.1 0.1 bär\nu1 1 0.0 0.1 1.5\n",
    "x.trn": "der bär (u2)\n1.5 (u1)\n",
}


@pytest.mark.parametrize("name", TRANSCRIPTS)
@pytest.mark.parametrize("by_content", [False, True])
def test_transcripts_of_every_form(name, by_content, tmp_path):
    text = TRANSCRIPTS[name]
    path = tmp_path / ("hyp" if by_content else name)
    path.write_text(text.removeprefix(";; by hand\n") if by_content else text)
    assert read_text(path) == READ


def test_a_trn_of_one_line_and_texts_that_look_like_other_forms(tmp_path):
    (tmp_path / "x.trn").write_text("der bär (u2)\n")
    assert read_text(tmp_path / "x.trn") == {"u2": ("der", "bär")}
    for text in ("u1 1 2 3 four\n", "u1 a (noise)\nu2 b (noise)\n", "u1 a (b)\n"):
        (tmp_path / "x.txt").write_text(text)
        assert list(read_text(tmp_path / "x.txt")) == [
            line.split()[0] for line in text.splitlines()
        ]


@pytest.mark.parametrize(
    "name, text, message",
    [
        ("x.jsonl", '{"id": "u"}\n', "x.jsonl:1: .* expected lines of JSON with 'id'"),
        ("x.jsonl", "u a b\n", "x.jsonl:1: .* expected lines of JSON with 'id'"),
        ("x.ctm", "u a b\n", "x.ctm:1: .* expected CTM, 'utterance channel"),
        ("x.trn", "u a b\n", r"x.trn:1: .* expected SCTK's trn"),
        ("x.trn", "a (u)\nb (u)\n", "'u' a second time, read as SCTK's trn"),
        ("x.txt", "i am\ni was\n", "'i' a second time, read as text, 'utterance"),
    ],
)
def test_faults_of_transcripts_name_the_form(name, text, message, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(FormatError, match=message):
        read_text(tmp_path / name)


@pytest.mark.parametrize("name", ["h.json", "h.csv", "h.tsv", "h.txt.gz", "a.b/h.xml"])
def test_outputs_with_unknown_endings_are_errors(name):
    with pytest.raises(
        OptionError, match=r"expected one of \.jsonl, .*\.txt, .*a name"
    ):
        format_named(None, name)
    assert format_named("ctm", name) == "ctm"


@pytest.mark.parametrize(
    "name", [None, "-", "h", "h.txt", "h.TXT", "a.b/h", "/dev/stdout"]
)
def test_outputs_without_ending_are_text(name):
    assert format_named(None, name) == "text"


def test_bad_transcripts(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("u1 a\nu1 b\n")
    with pytest.raises(FormatError, match=r"x\.txt:2: utterance 'u1' a second time"):
        read_text(path)
    path.write_text("\n")
    with pytest.raises(FormatError, match=r"x\.txt: no lines"):
        read_text(path)
    path.write_bytes(b"u1 a\nu2 \xff\n")
    with pytest.raises(FormatError, match=r"x\.txt:2: found b'\\xff', expected UTF-8"):
        read_text(path)
    with pytest.raises(FormatError, match=r"none\.txt: cannot read"):
        read_text(tmp_path / "none.txt")
    with pytest.raises(FormatError, match="cannot write"):
        write_text(tmp_path / "nowhere" / "x.txt", {"u": ("a",)})


def test_boosts_for_all(tmp_path):
    path = tmp_path / "boosts.txt"
    path.write_text("# names\nquilter\t4.0\n\nmason\t3\n#hash\t-1.5\nnew  york\t2\n")
    boosts = read_boosts(path)
    expected = {"quilter": 4.0, "mason": 3.0, "#hash": -1.5, "new york": 2.0}
    assert boosts.of("any") == expected
    assert boosts.own == {}


def test_boosts_by_utterance(tmp_path):
    path = tmp_path / "boosts.jsonl"
    lines = [
        {"id": "u1", "boosts": {"quilter": 4}},
        {"boosts": {"mason": 2.5}},
        {"id": "u2", "boosts": {}},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    boosts = read_boosts(path)
    assert boosts.of("u1") == {"quilter": 4.0}
    assert boosts.of("u2") is None  # its own, empty list
    assert boosts.of("u3") == {"mason": 2.5}


def test_bonuses_may_be_left_out(tmp_path):
    path = tmp_path / "b.txt"
    path.write_text("quilter\nnew  york\nhatton\t4\ncatch 22\t\nroute one\t2\n")
    none = dict.fromkeys(("quilter", "new york", "catch 22"))
    assert read_boosts(path).common == none | {"hatton": 4.0, "route one": 2.0}
    assert read_boosts(path).favoured == {*none, "hatton", "route one"}
    lines = [
        {"boosts": ["quilter", "new york"]},
        {"id": "u", "boosts": {"quilter": None, "hatton": -1}},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    boosts = read_boosts(path)
    assert boosts.of("other") == {"quilter": None, "new york": None}
    assert boosts.of("u") == {"quilter": None, "hatton": -1.0}


@pytest.mark.parametrize(
    ("line", "numbers", "is_questioned"),
    [
        ("route 66", {"route 66": None}, True),
        ("new  york  4.5", {"new york 4.5": None}, True),
        ("boeing -747", {"boeing -747": None}, True),
        ("route 66\t", {"route 66": None}, False),
        ("route 66\t4", {"route 66": 4.0}, False),
        ("route\t66", {"route": 66.0}, False),
        ("747", {"747": None}, False),
        ("b12 c3", {"b12 c3": None}, False),
        ("buzz infinity", {"buzz infinity": None}, False),
        ('{"boosts": ["route 66"]}', {"route 66": None}, False),
    ],
)
@pytest.mark.parametrize("read", [read_boosts, read_phrase_weights])
def test_only_a_tab_separates_a_number(line, numbers, is_questioned, read, tmp_path):
    (tmp_path / "b").write_text(line + "\n")
    if read is read_phrase_weights:
        (tmp_path / "b").write_text(line.replace("boosts", "phrases") + "\n")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert read(tmp_path / "b").common == numbers
    messages = [str(one.message) for one in caught if one.category is BoostWarning]
    assert ["end in a number" in one and "b:1" in one for one in messages] == [
        True
    ] * is_questioned


def test_words_come_with_pronunciations(tmp_path):
    path = tmp_path / "b.jsonl"
    fuchs = {"text": "fuchs", "pronunciations": ["f j u k s"], "bonus": 4}
    lines = [
        fuchs,
        {"text": "new  york"},
        {"boosts": ["quilter", {"text": "may", "bonus": -1.0}]},
        {"id": "u", "text": "may", "pronunciations": ["m a", "m e"]},
        {"id": "u", "boosts": {"quilter": 2.0}},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    boosts = read_boosts(path)
    assert boosts.of("other") == {
        "fuchs": BoostEntry("fuchs", ["f j u k s"], 4.0),
        "new york": BoostEntry("new york"),
        "quilter": None,
        "may": BoostEntry("may", bonus=-1.0),
    }
    own = {"may": BoostEntry("may", ["m a", "m e"]), "quilter": 2.0}
    assert boosts.of("u") == own
    assert boosts.favoured == {"fuchs", "new york", "quilter", "may"}


def test_an_empty_boost_file_boosts_nothing(tmp_path):
    (tmp_path / "b.txt").write_text("")
    assert read_boosts(tmp_path / "b.txt").of("u") is None


@pytest.mark.parametrize(
    "text, message",
    [
        ("a\t1\t2\n", r"b:1: found 'a\\t1\\t2'"),
        ("a\t1\na\t2\n", r"b:2: 'a' a second time"),
        ("a\tone\n", r"b:1: the bonus of 'a' is 'one', expected a number"),
        ("a\tinf\n", r"b:1: the bonus of 'a' is 'inf'"),
        ('{"id": "u"\n', r"b:1: .*expected \{\"id\": utterance"),
        ('{"id": "u", "words": {}}\n', r"b:1: found"),
        ('{"id": 3, "boosts": {}}\n', r"b:1: found"),
        ('{"boosts": ["a", " "]}\n', r"b:1: .*expected"),
        ('{"boosts": ["a", "a "], "more": 1}\n', r"b:1: found"),
        ('{"phrases": ["a"]}\n', r"b:1: found"),
        ('{"text": "a", "weight": 1}\n', r"b:1: found"),
        ('{"text": "a", "pronunciations": [""]}\n', r"b:1: a pronunciation of 'a' is"),
        ('{"text": "a", "pronunciations": "b"}\n', r"b:1: pronunciations of 'a' are"),
        ('{"text": "a", "bonus": "x"}\n', r"b:1: bonus 'x' of 'a', expected"),
        ('{"boosts": [{"name": "a"}]}\n', r"b:1: .*text"),
        ('{"text": "a"}\n{"boosts": ["a"]}\n', r"b:2: 'a' a second time"),
        ('{"boosts": {}}\n{"boosts": {}}\n', r"b:2: the common list a second time"),
        ('{"id": "u", "boosts": {}}\n' * 2, r"b:2: id 'u' a second time"),
        ("new york\nnew  york\t3\n", r"b:2: 'new york' a second time"),
        ('{"boosts": {"a": 4, "b": 1, "a": 5}}\n', r"b:1: 'a' a second time"),
        ('{"id": "u", "id": "v", "boosts": {}}\n', r"b:1: 'id' a second time"),
        ("\t4\n", r"b:1: .*expected"),
        ('{"boosts": {"": 4}}\n', r"b:1: .*expected"),
    ],
)
def test_bad_boosts(text, message, tmp_path):
    (tmp_path / "b").write_text(text)
    with pytest.raises(BoostError, match=message):
        read_boosts(tmp_path / "b")


WORDS = (
    Word("hello", 0.1, 0.30000000000000004, 5, 15),
    Word("wörld", 0.5, 1.0, 25, 50),
)


def test_result_formats():
    hyp = hypothesis(WORDS, 2.5)
    assert FORMATS["text"]("u1", hyp) == "u1 hello wörld\n"
    assert FORMATS["ctm"]("u1", hyp) == (
        "u1 1 0.100 0.200 hello\nu1 1 0.500 0.500 wörld\n"
    )
    line = FORMATS["jsonl"]("u1", hyp)
    assert line.endswith("\n") and line.count("\n") == 1
    read = json.loads(line)
    assert read["id"] == "u1" and read["text"] == "hello wörld"
    assert read["words"][0] == {"word": "hello", "start_s": 0.1, "end_s": 0.3}
    assert read["total_cost"] == 2.5 and read["reached_final"] is True


def test_confidences_stand_in_results():
    hyp = hypothesis([WORDS[0]._replace(confidence=0.9876543), WORDS[1]])
    lines = FORMATS["ctm"]("u1", hyp).splitlines()
    assert lines == ["u1 1 0.100 0.200 hello 0.988", "u1 1 0.500 0.500 wörld"]
    known, unknown = json.loads(FORMATS["jsonl"]("u1", hyp))["words"]
    assert known["confidence"] == 0.987654
    assert "confidence" not in unknown


def test_results_of_a_search_that_died():
    hyp = hypothesis(cost=float("inf"), reached_final=False, died_at_frame=0)
    assert FORMATS["text"]("u1", hyp) == "u1\n"
    assert FORMATS["ctm"]("u1", hyp) == ""
    read = json.loads(FORMATS["jsonl"]("u1", hyp))
    assert read["total_cost"] is None
    assert read["reached_final"] is False and read["died_at_frame"] == 0


def test_output_files_appear_whole_or_not_at_all(tmp_path, capsys):
    with pytest.raises(RuntimeError), open_output(tmp_path / "x.txt") as file:
        file.write("half")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    with open_output(tmp_path / "x.txt") as file:
        file.write("whole\n")
    assert (tmp_path / "x.txt").read_text() == "whole\n"
    for path in (None, "-"):
        with open_output(path) as file:
            file.write("out\n")
    assert capsys.readouterr().out == "out\nout\n"
