"""Rows to rows without a cluster: what an actor does, against the bare decoder."""

import io
import json
from functools import partial

import numpy as np
import pytest
from cli_files import SENTENCES, logprobs_of, small_decoder, write_files
from spoken import SpokenEncoder, speech, write_wav
from wav_files import wav_bytes

import wfstdec
from wfstdec import BoostEntry
from wfstdec.batch import BoostLists, LatticeReading
from wfstdec.batch.decoding import rating
from wfstdec.batch.ray import (
    DecodeRows,
    TranscribeRows,
    logprob_rows,
    recording_rows,
    result_schema,
)
from wfstdec.batch.ray.jobs import JobFolder
from wfstdec.batch.ray.rows import (
    are_rows,
    ids_of,
    row_boosts,
    row_recording,
    write_rows,
)
from wfstdec.boost.lists import BoostList
from wfstdec.errors import AudioError, FormatError, OptionError, WfstdecError
from wfstdec.io import BoostFile, Restart
from wfstdec.io.boost_files import boosts_of, dump_boosts
from wfstdec.lattice import open_lattices
from wfstdec.search.hypothesis import CONFIDENCES
from wfstdec.transcription import find_recordings

pa = pytest.importorskip("pyarrow", reason="needs the extra ray, of which pyarrow is")
pytest.importorskip("pyarrow.parquet")
pytest.importorskip("soundfile", reason="needs the extra audio")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def decoder(files):
    return small_decoder(files)


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def work(worker, *rows):
    names = dict.fromkeys(name for row in rows for name in row)
    given = {name: [row.get(name) for row in rows] for name in names}
    found = worker(pa.table(given))
    assert found.schema == result_schema()
    assert [one or "" for one in found["id"].to_pylist()] == [
        row.get("id") or "" for row in rows
    ]
    return found.to_pylist()


def expected(hypothesis):
    fields = hypothesis.to_dict()
    for word in fields["words"]:
        for name in CONFIDENCES:
            word.setdefault(name, None)
    return fields


def of_hypothesis(row, hypothesis):
    return {name: row[name] for name in hypothesis.to_dict()}


def test_every_form_of_logprobs_gives_the_words_of_the_bare_decoder(
    decoder, files, tmp_path
):
    arrays = {name: logprobs_of(text) for name, text in SENTENCES.items()}
    np.save(tmp_path / "utt1.npy", arrays["utt1"])
    forms = [
        ("utt1", str(tmp_path / "utt1.npy")),
        ("utt2", str(files / "x.npz")),
        ("utt3", str(files / "x.npz")),
    ]
    held = [(name, npy(array)) for name, array in arrays.items()]
    lists = [(name, array.tolist()) for name, array in arrays.items()]
    for given in (forms, held, lists):
        rows = [{"id": name, "logprobs": logprobs} for name, logprobs in given]
        for row in work(DecodeRows(decoder), *rows):
            [best] = decoder.decode([arrays[row["id"]]])
            assert of_hypothesis(row, best) == expected(best)
            assert row["error"] is row["lattice"] is row["nbest"] is row["audio_s"]


def test_sources_on_a_command_line_become_rows(decoder, files, tmp_path):
    from kaldiio import save_ark

    arrays = {name: logprobs_of(text) for name, text in SENTENCES.items()}
    ark, scp, folder = (tmp_path / name for name in ("x.ark", "x.scp", "npy"))
    save_ark(str(ark), arrays, scp=str(scp))
    folder.mkdir()
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    texts = {
        name: one.text
        for name, one in zip(arrays, decoder.decode([*arrays.values()]), strict=True)
    }
    for path in (files / "x.npz", scp, folder):
        rows = work(DecodeRows(decoder), *logprob_rows(path))
        assert {row["id"]: row["text"] for row in rows} == texts, path
    with pytest.raises(FormatError, match=r"expected its \.scp"):
        logprob_rows(ark)


def test_what_is_wrong_with_a_row_stands_in_it_alone(decoder, files):
    good = {"id": "good", "logprobs": npy(logprobs_of("c a b"))}
    bad = logprobs_of("c")
    bad[1, 2] = np.nan
    held = good["logprobs"]
    wrong = [
        ({"id": "nan", "logprobs": npy(bad)}, "has nan in frame 1"),
        ({"id": "no file", "logprobs": str(files / "none.npy")}, "cannot be read"),
        ({"id": "none in it", "logprobs": str(files / "x.npz")}, "cannot be read"),
        ({"id": "integers", "logprobs": npy(np.zeros((3, 5), int))}, "expected floats"),
        ({"id": "pickled", "logprobs": npy(np.array([None]))}, "cannot be read"),
        ({"id": "narrow", "logprobs": npy(np.zeros((3, 4), np.float32))}, "V=4"),
        ({"id": "list", "logprobs": held, "boosts": "{"}, "expected JSON"),
        ({"id": None, "logprobs": held}, "expected a text"),
        (good, "twice"),
        ({"id": "known", "error": "shard.tar: damaged"}, "shard.tar: damaged"),
    ]
    first, *found = work(DecodeRows(decoder), good, *(row for row, _ in wrong))
    assert first["text"] == "cab" and first["error"] is None
    for row, (_, message) in zip(found, wrong, strict=True):
        assert message in row["error"], row
        assert row["text"] is row["words"] is row["total_cost"] is None


class Rude(SpokenEncoder):
    def encode(self, waveforms):
        if any(len(one) == 1600 for one in waveforms):
            raise RuntimeError("rude")
        return super().encode(waveforms)


def test_errors_that_name_no_row_are_of_the_rows_that_raise_them_alone(decoder):
    worker = TranscribeRows(lambda: wfstdec.Transcriber(Rude(), decoder, workers=2))
    sounds = [speech(2, seed=i)[1] for i in range(3)]
    silent = np.zeros(1600, np.float32)
    for at in range(4):
        given = [*sounds[:at], silent, *sounds[at:]]
        rows = [{"id": f"r{i}", "audio": wav_bytes(one)} for i, one in enumerate(given)]
        found = work(worker, *rows)
        assert found[at]["error"] == "RuntimeError: rude"
        texts = [row["text"] for i, row in enumerate(found) if i != at]
        assert texts == [" ".join(speech(2, seed=i)[0]) for i in range(3)]


def test_every_form_of_audio_gives_the_words_of_the_bare_transcriber(decoder, tmp_path):
    words, sound = speech(40, seed=3)
    path = write_wav(tmp_path / "a.wav", sound)
    transcriber = wfstdec.Transcriber(SpokenEncoder(), decoder, workers=1)
    best = transcriber(path)
    data = path.read_bytes()
    forms = [{"audio": one} for one in (str(path), path.as_uri(), data)]
    forms += [{"audio": {"bytes": data, "path": None}}]
    forms += [{"audio": {"bytes": None, "path": str(path)}}]
    forms += [{"audio_filepath": str(path), "duration": 3.0}]
    for form in forms:  # of one type each, as columns are
        [row] = work(TranscribeRows(transcriber), {"id": "a", **form})
        assert of_hypothesis(row, best) == expected(best), form
        assert row["audio_s"] == len(sound) / 16000
    part = {"id": "a", "audio": str(path), "offset": 10.0, "duration": 5.0}
    [row] = work(TranscribeRows(transcriber), part)
    assert row["audio_s"] == 5.0 and 3 < len(row["text"].split()) < len(words)
    [row] = work(TranscribeRows(transcriber), {"id": "a", "audio": "nowhere://x.wav"})
    assert "cannot read" in row["error"]
    [row] = work(TranscribeRows(transcriber), {"id": "a", "audio": "no.wav"})
    with pytest.raises(AudioError) as error:
        transcriber("no.wav")
    assert row["error"] == str(error.value).replace("utterance 'audio': ", "")
    [row] = work(TranscribeRows(transcriber), {"id": "a", "text": "no audio"})
    assert "expected a path or bytes" in row["error"]


def test_boosts_of_a_row_stand_in_place_of_the_common_ones(decoder):
    array = npy(logprobs_of("c"))
    lists = BoostLists(BoostFile({"c": 1.0}, {"own": {"c": 2.0}}))
    rows = [
        {"id": "common"},
        {"id": "own"},
        {"id": "text", "boosts": '{"c": 3.0}'},
        {"id": "none", "boosts": "{}"},
        {"id": "empty", "boosts": ""},
    ]
    rows = [row | {"logprobs": array} for row in rows]
    found = work(DecodeRows(decoder, lists), *rows)
    costs = [row["boost_cost"] for row in found]
    for row, cost, bonus in zip(found, costs, (1, 2, 3, 0, 1), strict=True):
        boosts = {"c": bonus} if bonus else None
        [best] = decoder.decode([logprobs_of("c")], boosts=boosts)
        assert cost == best.boost_cost and row["text"] == "c"
    assert len(set(costs)) == 4
    of_decoder = {id(decoder): lists}
    made = DecodeRows(lambda: decoder, lambda given: of_decoder[id(given)])
    [row] = work(made, rows[1])
    assert row["boost_cost"] == costs[1]


@pytest.mark.parametrize(
    "given",
    ['{"a b": 2.5, "c": null}', {"a b": 2.5, "c": None, "d": None}, [("a b", 2.5)]],
    ids=("json", "struct", "map"),
)
def test_boosts_in_a_column(given):
    wanted = {"a b": 2.5, "c": None} if isinstance(given, str) else {"a b": 2.5}
    assert row_boosts({"boosts": given}) == wanted


def test_boosts_go_through_json_unchanged():
    entries = {"fuchs": BoostEntry("fuchs", ["f j u k s"], 4.0), "c": 2.0, "d": None}
    for boosts in (entries, {"c": 2.0, "a b": None}):
        back = BoostList.of(boosts_of(json.loads(dump_boosts(boosts))))
        given = BoostList.of(boosts)
        assert back.pronunciations == given.pronunciations
        assert list(back.numbers.items()) == list(given.numbers.items())


def test_confidences_lists_and_lattices(decoder, tmp_path):
    rows = [
        {"id": name, "logprobs": npy(logprobs_of(text))}
        for name, text in SENTENCES.items()
    ]
    rows.append({"id": "bad", "logprobs": npy(np.zeros((3, 4), np.float32))})
    reading = LatticeReading(3, confidence=True)
    worker = DecodeRows(decoder, nbest=3, lattices=reading, keep=tmp_path / "lattices")
    found = work(worker, *rows)
    [path] = {row["lattice"] for row in found[:-1]}
    lattices = open_lattices(path)
    assert list(lattices) == list(SENTENCES) and found[-1]["lattice"] is None
    for row in found[:-1]:
        rows_of_it = logprobs_of(SENTENCES[row["id"]]).astype(np.float32)
        rated = rating(reading, rows_of_it, decoder.tokens.blank)
        hypotheses = rated(row["id"], lattices[row["id"]])
        assert of_hypothesis(row, hypotheses[0]) == hypotheses[0].to_dict()
        assert [one["text"] for one in row["nbest"]] == [one.text for one in hypotheses]
    assert work(worker, *rows) == found  # once more: the same file, whole
    assert [str(one) for one in (tmp_path / "lattices").iterdir()] == [path]


def test_rows_of_a_manifest_of_nemo(decoder, tmp_path):
    words, sound = speech(3, seed=8)
    write_wav(tmp_path / "a.wav", sound)
    lines = [
        {"audio_filepath": "a.wav", "duration": 3.0},
        {"audio_filepath": "a.wav", "offset": 1.0, "id": "b", "boosts": {"cab": 2.0}},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "m.jsonl").write_text(text)
    sources = find_recordings([tmp_path / "m.jsonl"])
    rows = list(recording_rows(sources))
    assert [row["id"] for row in rows] == ["a", "b"]
    assert row_recording(rows[0]).duration_s is None
    assert row_recording(rows[1]).start_s == 1.0
    assert row_boosts(rows[1]) == sources[1].boosts == {"cab": 2.0}
    make = partial(wfstdec.Transcriber, SpokenEncoder(), decoder, workers=1)
    assert work(TranscribeRows(make), rows[0])[0]["text"] == " ".join(words)
    (tmp_path / "m.jsonl").write_text('{"audio_filepath": "a.wav", "boosts": 3}\n')
    with pytest.raises(WfstdecError, match=r"m\.jsonl:1: .*expected words"):
        find_recordings([tmp_path / "m.jsonl"])


def test_manifests_are_checked_before_anything_runs(tmp_path, files):
    path = tmp_path / "m.parquet"
    write_rows([{"id": "a", "audio": "x.wav"}, {"id": "b", "logprobs": "y.npy"}], path)
    assert ids_of([path]).to_pylist() == ["a", "b"]
    assert are_rows([path]) and are_rows([tmp_path])
    assert not are_rows([files / "x.npz"]) and not are_rows([files])
    with pytest.raises(FormatError, match="together"):
        are_rows([path, files / "x.npz"])
    write_rows([{"id": "a"}, {"id": "b"}, {"id": "a"}], tmp_path / "twice.parquet")
    with pytest.raises(FormatError, match="1 ids occur twice, such as 'a'"):
        ids_of([tmp_path / "twice.parquet"])
    with pytest.raises(FormatError, match="twice"):
        ids_of([path, path])
    (tmp_path / "bad.parquet").write_bytes(b"PAR1")
    with pytest.raises(FormatError, match="not readable as Parquet"):
        ids_of([tmp_path / "bad.parquet"])
    pa.parquet.write_table(pa.table({"name": ["a"]}), tmp_path / "no.parquet")
    with pytest.raises(FormatError, match="columns name, expected one named id"):
        ids_of([tmp_path / "no.parquet"])


def test_a_folder_is_of_one_run_with_one_set_of_settings(tmp_path):
    output = tmp_path / "words"
    given = {"settings": {"beam": 3.0, "graph": "g"}, "called": "--{}".format}
    with JobFolder(output, Restart(**given)) as folder:
        with pytest.raises(FormatError, match="a run that has not ended"):
            with JobFolder(output, Restart(**given, resume=True)):
                pass
        assert folder.files() == []
    folder.checkpoints.mkdir()
    for path in (output / "a.parquet", folder.checkpoints / "a.parquet"):
        path.write_bytes(b"")
    with pytest.raises(OptionError, match="expected --resume to continue"):
        with JobFolder(output, Restart(**given)):
            pass
    other = {**given, "settings": {"beam": 4.0, "graph": "g"}}
    with pytest.raises(OptionError, match=r"differs: --beam 4\.0, was 3\.0"):
        with JobFolder(output, Restart(**other, resume=True)):
            pass
    with JobFolder(output, Restart(**given, resume=True)) as folder:
        assert folder.files() == [output / "a.parquet"]
        assert folder.committed() == [folder.checkpoints / "a.parquet"]
        pending = folder.checkpoints / "b.pending.parquet"
        pending.write_bytes(b"")
        assert folder.committed() == []
    with JobFolder(output, Restart(**other, overwrite=True)) as folder:
        assert folder.files() == folder.committed() == []
    with JobFolder(output, Restart(**other, resume=True)):
        pass
    (output / "other.txt").write_text("of somebody")
    with pytest.raises(OptionError, match="expected a new folder"):
        with JobFolder(output, Restart(**other, resume=True)):
            pass
    with pytest.raises(OptionError, match="expected a new folder"):
        with JobFolder(tmp_path, Restart()):
            pass
