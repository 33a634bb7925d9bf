"""`wfstdec transcribe`: sound to results, faults named, runs stopped and resumed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from cli_files import build, wfstdec, write_files
from real_speech import RECIPE
from spoken import RATE, speech, write_wav

from wfstdec.cli.main import main
from wfstdec.errors import ModelError
from wfstdec.lattice import open_lattices
from wfstdec.models import load_model

soundfile = pytest.importorskip("soundfile")
DATA = Path(__file__).parents[3] / "shared" / "data"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = write_files(tmp_path_factory.mktemp("small"))
    assert build(folder, "--quiet") == 0
    (folder / "in").mkdir()
    for i, (seconds, ending) in enumerate([(2, "wav"), (3, "flac"), (60, "wav")]):
        words, sound = speech(seconds, seed=i)
        soundfile.write(folder / f"in/utt{i}.{ending}", sound, RATE, "PCM_16")
        (folder / f"in/utt{i}.said").write_text(" ".join(words))
    return folder


def spoken_texts(files, *which):
    return [(files / f"in/utt{i}.said").read_text() for i in which or range(3)]


def command(files, *more, audio="in"):
    given = ["transcribe", "spoken:logprobs", str(files / audio)]
    given += ["--tokens", str(files / "tokens.txt"), "--frame-shift", "0.02"]
    given += ["--sample-rate", str(RATE), "--graph", str(files / "graph.npz")]
    return [*given, "--threads", "1", "--workers", "2", *map(str, more)]


def test_text_is_what_was_said(files, capsys):
    assert main(command(files)) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        f"utt{i} {text}" for i, text in enumerate(spoken_texts(files))
    ]
    assert "transcribed 3 recordings" in err and "encoder " in err and "\r" not in err


@pytest.mark.parametrize("ending", "jsonl ctm srt vtt TextGrid".split())
def test_each_format_has_the_times_of_the_recording(files, ending, tmp_path):
    (tmp_path / "one.txt").write_text(f"{files / 'in/utt2.wav'}\n")
    output = tmp_path / f"hyp.{ending}"
    given = command(files, "--output", output, "--quiet", audio=tmp_path / "one.txt")
    assert main(given) == 0
    text = output.read_text()
    if ending == "jsonl":
        [entry] = map(json.loads, text.splitlines())
        assert entry["text"] == spoken_texts(files, 2)[0]
        assert entry["words"][-1]["end_s"] > 55
    elif ending == "ctm":
        assert [line.split()[4] for line in text.splitlines()] == spoken_texts(
            files, 2
        )[0].split()
    elif ending in ("srt", "vtt"):
        assert text.count("-->") > 5 and "00:00:5" in text
    else:
        assert text.startswith('File type = "ooTextFile"')


def test_boosts_lists_lattices_and_a_manifest(files, tmp_path):
    """Lattices of pieces have the pieces' own names."""
    (tmp_path / "boost.txt").write_text("zebra\t2\ncab\t1\n")
    entries = [
        {"audio_filepath": str(files / "in/utt2.wav"), "id": "long"},
        {"audio_filepath": str(files / "in/utt1.flac"), "offset": 1, "duration": 1.5},
    ]
    (tmp_path / "m.jsonl").write_text("".join(json.dumps(e) + "\n" for e in entries))
    more = ["--output", tmp_path / "hyp.jsonl", "--lattices", tmp_path / "x.lat"]
    more += ["--nbest", "3", "--boost", tmp_path / "boost.txt", "--quiet"]
    assert main(command(files, *more, audio=tmp_path / "m.jsonl")) == 0
    entries = [json.loads(x) for x in (tmp_path / "hyp.jsonl").read_text().splitlines()]
    assert [one["id"] for one in entries] == ["long", "utt1-0000100"]
    names = list(open_lattices(tmp_path / "x.lat"))
    assert len(names) > 3 and names[-1] == "utt1-0000100"
    assert all(name.startswith("long-") for name in names[:-1])
    ends = [name.split("-")[2] for name in names[:-1]]
    assert [name.split("-")[1] for name in names[1:-1]] == ends[:-1]


def test_a_bad_file_is_named_and_left_out(files, tmp_path, capsys):
    (tmp_path / "in").mkdir()
    for i in (0, 1):
        name = f"in/utt{i}." + ("wav", "flac")[i]
        (tmp_path / name).write_bytes((files / name).read_bytes())
    data = (files / "in/utt2.wav").read_bytes()
    (tmp_path / "in/cut.wav").write_bytes(data[: len(data) // 2])
    (tmp_path / "in/none.mp3").write_bytes(b"")
    given = command(files, "--output", tmp_path / "hyp", audio=tmp_path / "in")
    assert main(given) == 1
    err = capsys.readouterr().err
    assert "left out: cut.wav: utterance 'cut': cut short: " in err
    assert "left out 2 of 4: cut none" in err.splitlines()[-1].replace(",", "")
    texts = [f"utt{i} {text}" for i, text in enumerate(spoken_texts(files, 0, 1))]
    assert (tmp_path / "hyp").read_text().splitlines() == texts
    assert main([*given, "--strict", "--overwrite"]) == 1


def test_what_a_command_cannot_do_is_said_before_the_graph_is_loaded(files, capsys):
    given = ["spoken:logprobs", "in/utt0.wav"]
    assert wfstdec(files, "transcribe", *given) == 1
    assert "--decoder wfst without --graph" in capsys.readouterr().err
    assert wfstdec(files, "transcribe", *given, "--graph", "no.npz") == 1
    assert "--tokens" in capsys.readouterr().err
    with pytest.raises(ModelError):
        load_model("spoken:nothing_there")


@pytest.mark.parametrize(
    "how, code", [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130)]
)
@pytest.mark.share(keep=1)
def test_kill_9_in_the_midst_of_200_files_and_resume(how, code, files, tmp_path):
    """Each once, none lost: the bytes of a run without a stop."""
    (tmp_path / "in").mkdir()
    for i in range(200):
        words, sound = speech(0.4 + i % 3, seed=100 + i)
        write_wav(tmp_path / f"in/r{i:03}.wav", sound)
    whole, hyp = tmp_path / "whole.jsonl", tmp_path / "hyp.jsonl"
    given = command(files, "--quiet", audio=tmp_path / "in")
    assert main([*given, "--output", str(whole)]) == 0
    fifo = tmp_path / "in/r120.wav"
    data = fifo.read_bytes()
    fifo.unlink()
    os.mkfifo(fifo)
    support = Path(__file__).parents[1] / "support"
    process = subprocess.Popen(
        [sys.executable, "-m", "wfstdec", *given, "--output", str(hyp)],
        env=os.environ | {"PYTHONPATH": str(support)},
        stderr=subprocess.PIPE,
    )
    handle = os.open(fifo, os.O_WRONLY)  # returns when somebody reads
    partial = tmp_path / "hyp.jsonl.partial"
    until = time.monotonic() + 60
    while (
        not (partial.exists() and partial.stat().st_size) and time.monotonic() < until
    ):
        time.sleep(0.02)
    process.send_signal(how)
    process.communicate(timeout=60)
    os.close(handle)
    assert process.returncode == code and not hyp.exists()
    done = partial.read_bytes().count(b"\n")
    assert 0 < done <= 120
    fifo.unlink()
    fifo.write_bytes(data)
    assert main([*given, "--output", str(hyp), "--resume"]) == 0
    assert hyp.read_bytes() == whole.read_bytes()
    names = [json.loads(line)["id"] for line in hyp.read_text().splitlines()]
    assert names == [f"r{i:03}" for i in range(200)]


def test_a_finished_transcription_is_resumed_at_once(files, tmp_path, capsys):
    for i in range(2):
        write_wav(tmp_path / f"r{i}.wav", speech(0.4 + i, seed=i)[1])
    output = tmp_path / "hyp.jsonl"  # in the folder of the recordings
    given = command(files, "--output", output, "--resume", audio=tmp_path)

    def is_done():
        assert main(given) == 0
        return "nothing to do" in capsys.readouterr().err

    assert not is_done() and is_done() and is_done()
    write_wav(tmp_path / "r1.wav", speech(0.9, seed=7)[1])
    assert not is_done() and is_done()
    write_wav(tmp_path / "r2.wav", speech(0.9, seed=8)[1])
    assert not is_done() and is_done()
    assert output.read_text().count("\n") == 3


@pytest.mark.skipif(not (DATA / "model").is_dir(), reason="the model is not there")
def test_the_real_model_is_decode_of_its_bare_logprobs(tmp_path):
    """onnxruntime, one utterance at a time, saved, `wfstdec decode`: word for word."""
    onnxruntime = pytest.importorskip("onnxruntime")
    from wfstdec.audio.reading import read_audio

    model = next((DATA / "model").glob("*.onnx"))
    tokens = next((DATA / "model").glob("*_tokens.txt"))
    audio = sorted((DATA / "audio").glob("*.mp3"))[::15]
    session = onnxruntime.InferenceSession(str(model))
    first, second = (one.name for one in session.get_inputs())
    arrays = {}
    for path in audio:
        waveform = read_audio(path, 16000).waveform[None]
        lengths = np.array([waveform.shape[1]])
        rows, frames = session.run(None, {first: waveform, second: lengths})
        arrays[path.stem] = rows[0, : frames[0]]
    np.savez(tmp_path / "x.npz", **arrays)
    search = ["--decoder", "trie", "--tokens", str(tokens), "--blank", "<blank>"]
    search += ["--lexicon", str(RECIPE / "lexicon.txt.gz"), "--separator", "<wb>"]
    search += ["--lm", str(RECIPE / "lm.arpa.gz")]
    search += ["--lm-scale", "0.8", "--beam", "10", "--threads", "1", "--quiet"]
    search += ["--frame-shift", "0.02", "--format", "ctm"]
    ours, bare = str(tmp_path / "ours"), str(tmp_path / "bare")
    (tmp_path / "some.txt").write_text("".join(f"{path}\n" for path in audio))
    given = ["--logprobs", str(tmp_path / "x.npz"), "--output", bare]
    assert main(["decode", *search, *given]) == 0
    given = [str(model), str(tmp_path / "some.txt"), "--output", ours]
    given += ["--sample-rate", "16000"]
    assert main(["transcribe", *given, *search]) == 0
    assert Path(ours).read_bytes() == Path(bare).read_bytes()
    assert len(Path(ours).read_text().splitlines()) > 20
