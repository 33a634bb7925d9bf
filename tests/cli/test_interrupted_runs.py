"""Runs that are stopped, and outputs that are no files: real processes and devices."""

import json
import os
import resource
import signal
import stat
import subprocess
import sys
import threading
import zlib

import kaldiio
import numpy as np
import pytest
from cli_files import logprobs_of, wfstdec, write_files

from wfstdec.cli.main import main
from wfstdec.io.journal import Journal
from wfstdec.text.files import digest, read_bytes

TEXTS = ["a b | c", "c a b", "c", "a b", "c a b | c"]
WORDS = ["ab c", "cab", "c", "ab", "cab c"]


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = write_files(tmp_path_factory.mktemp("small"))
    (folder / "logprobs").mkdir()
    for i, text in enumerate(TEXTS):
        np.save(folder / f"logprobs/utt{i}.npy", logprobs_of(text))
    texts = (f"utt{i} {words}\n" for i, words in enumerate(WORDS))
    (folder / "text.txt").write_text("".join(texts))
    return folder


@pytest.fixture
def files(small, tmp_path):
    (tmp_path / "logprobs").mkdir()
    for file in small.rglob("*.*"):
        os.link(file, tmp_path / file.relative_to(small))
    return tmp_path


def command(folder, name, *more, logprobs="logprobs"):
    given = [name, "--tokens", str(folder / "tokens.txt"), "--separator", "<wb>"]
    given += ["--lexicon", str(folder / "lexicon.txt")]
    specifier, _, file = logprobs.rpartition(":")
    given += ["--logprobs", f"{specifier}:" * bool(specifier) + str(folder / file)]
    if name == "align":
        given += ["--ref", str(folder / "text.txt")]
    else:
        given += ["--decoder", "trie", "--lm", str(folder / "lm.arpa")]
        given += ["--threads", "1"]
    return [*given, *map(str, more)]


def only_third_waits(files):
    """In the place of utterance 3 a FIFO, which a reader waits at."""
    (files / "logprobs/utt3.npy").unlink()
    os.mkfifo(files / "logprobs/utt3.npy")


def in_small_batches(arguments):
    code = (
        "import sys, wfstdec.batch.decoding as d; from wfstdec.cli.main import main; "
        "d.batches.__kwdefaults__['max_utterances'] = 2; sys.exit(main(sys.argv[1:]))"
    )
    return [sys.executable, "-c", code, *arguments]


def names(folder):
    return sorted(path.name for path in folder.iterdir() if path.is_file())


def stop(process, fifo, how):
    """Send a signal when the reader waits at the FIFO; output and exit code."""
    handle = os.open(fifo, os.O_WRONLY)  # returns when somebody reads
    process.send_signal(how)
    _, err = process.communicate(timeout=60)
    os.close(handle)
    return err, process.returncode


@pytest.mark.parametrize(
    "how, code",
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)],
)
@pytest.mark.share(keep=1)
def test_a_decode_that_is_stopped_is_kept_and_resumed(how, code, files, capsys):
    """Results and lattices: the same bytes as of a run without a stop."""
    more = ["--format", "jsonl", "--mbr"]
    made = ["--output", files / "hyp", "--lattices", files / "x.lat"]
    whole = ["--output", files / "whole", "--lattices", files / "whole.lat"]
    assert main(command(files, "decode", *whole, *more, "--quiet")) == 0
    before, there = (files / "logprobs/utt3.npy").read_bytes(), names(files)
    only_third_waits(files)
    given = in_small_batches(command(files, "decode", *made, *more))
    process = subprocess.Popen(given, stderr=subprocess.PIPE, text=True)
    err, found = stop(process, files / "logprobs/utt3.npy", how)
    assert found == code
    left = {*names(files)} - {*there}
    assert left == {"hyp.partial", "hyp.journal", "x.lat.partial"}
    if how != signal.SIGKILL:
        assert "kept 2 of 5 utterances in " in err.splitlines()[-1]
        assert err.endswith("hyp.partial; continue with --resume\n")
    else:  # a torn line, as of a crash of the system, and half a lattice
        with (files / "hyp.journal").open("a") as file:
            file.write('{"done": "utt2", "en')
        with (files / "x.lat.partial").open("ab") as file:
            file.write(b"PK\3\4 and so on")
    (files / "logprobs/utt3.npy").unlink()
    (files / "logprobs/utt3.npy").write_bytes(before)
    os.utime(files / "logprobs/utt3.npy", ns=(0, 0))
    capsys.readouterr()
    assert main(command(files, "decode", *made, *more)) == 1
    err = capsys.readouterr().err
    assert "stopped after 2 utterances, expected --resume to continue" in err
    _same_dates(files)
    assert main(command(files, "decode", *made, *more, "--resume")) == 0
    err = capsys.readouterr().err
    assert "decoded 3 utterances" in err and "2 kept from an earlier run" in err
    assert (files / "hyp").read_bytes() == (files / "whole").read_bytes()
    assert (files / "x.lat").read_bytes() == (files / "whole.lat").read_bytes()
    assert {*names(files)} - {*there} == {"hyp", "hyp.journal", "x.lat"}


def _same_dates(files):
    """Make the journal's run one of the log-probs as they are now, without the FIFO."""
    lines = (files / "hyp.journal").read_text().split("\n")
    header = json.loads(lines[0])
    header["settings"]["logprobs"] = digest(files / "logprobs")
    del header["sum"]
    header["sum"] = zlib.crc32(json.dumps(header, ensure_ascii=False).encode())
    (files / "hyp.journal").write_text("\n".join([json.dumps(header), *lines[1:]]))


@pytest.mark.parametrize("damage", ["zeros", "note", "name", "cut"])
def test_damaged_work_is_done_again(damage, files, capsys, monkeypatch):
    """Any byte may be lost in a power cut: the result is that of a whole run."""
    whole, out = files / "whole", files / "hyp"
    assert main(command(files, "decode", "--output", whole, "--quiet")) == 0
    add = Journal.add

    def stop_at_third(self, *given):
        add(self, *given)
        if len(self.done) == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as stopped:
        stopped.setattr(Journal, "add", stop_at_third)
        main(command(files, "decode", "--output", out, "--quiet"))
    journal, part = files / "hyp.journal", files / "hyp.partial"
    lines, text = journal.read_bytes().splitlines(keepends=True), part.read_bytes()
    if damage == "zeros":
        part.write_bytes(text[:-3] + bytes(3))
    elif damage == "cut":
        part.write_bytes(text[:-3])
    else:
        old, new = {"note": (b"ends", b"Ends"), "name": (b"utt2", b"utt9")}[damage]
        lines[-1] = lines[-1].replace(old, new)
        journal.write_bytes(b"".join(lines))
    assert main(command(files, "decode", "--output", out, "--resume")) == 0
    assert "2 kept from an earlier run" in capsys.readouterr().err
    assert out.read_bytes() == whole.read_bytes()


def finished_runs(files):
    """A command line of each kind, and the output that it makes."""
    out, lat = files / "out", files / "x.lat"
    kept = ["--output", lat.with_name("kept"), "--lattices", lat, "--mbr", "--quiet"]
    assert main(command(files, "decode", *kept)) == 0
    return {
        "decode": (command(files, "decode", "--output", out), out),
        "lattices": (
            command(
                *(files, "decode", "--output", out, "--mbr"),
                *("--lattices", files / "y.lat"),
            ),
            files / "y.lat",
        ),
        "align": (command(files, "align", "--output", f"{out}.ctm"), f"{out}.ctm"),
        "folder": (
            command(files, "align", "--output", out, "--format", "srt"),
            out / "utt2.srt",
        ),
        "rescore": (["rescore", "--lattices", str(lat), "--output", str(out)], out),
        **{
            kind: (command(files, "decode", "--output", out, logprobs=kind), out)
            for kind in ("x.scp", "scp:x.scp", "ark:x.ark")
        },
    }


def write_scp(files, *, by=0.0):
    arrays = {f"utt{i}": logprobs_of(text) - by for i, text in enumerate(TEXTS)}
    ark, scp = str(files / "x.ark"), str(files / "x.scp")
    kaldiio.save_ark(ark, arrays, scp=scp)


@pytest.mark.parametrize(
    "kind",
    ["decode", "lattices", "align", "folder", "rescore"]
    + ["x.scp", "scp:x.scp", "ark:x.ark"],
)
def test_a_finished_run_is_resumed_at_once_unless_anything_changed(kind, files, capsys):
    write_scp(files)
    given, out = finished_runs(files)[kind]
    done = "nothing to do"

    def again(*more):
        capsys.readouterr()
        assert main([*given, "--resume", *map(str, more)]) == 0
        return capsys.readouterr().err

    assert done not in again()
    before = os.stat(out)
    assert done in again() and done in again()
    assert os.stat(out).st_mtime_ns == before.st_mtime_ns
    assert os.stat(out).st_ino == before.st_ino
    changed = ["--lm-scale", "0.5"] if kind == "rescore" else ["--beam", "5"]
    assert done not in again(*changed) and done in again(*changed)
    assert done not in again()
    # A file of results that is gone, or another.
    assert done in again()
    content = read_bytes(out)
    os.unlink(out)
    assert done not in again() and read_bytes(out) == content
    if kind == "folder":
        with open(out, "wb"):
            assert done not in again() and read_bytes(out) == content
    # Data that changed, in files and in those that they list.
    if kind.startswith(("x.", "scp:", "ark:")):
        write_scp(files, by=0.5)
    elif kind == "rescore":
        made = ["--lattices", files / "x.lat", "--mbr", "--beam", "7", "--quiet"]
        assert main(command(files, "decode", "--output", files / "h", *made)) == 0
    else:
        (files / "logprobs/utt1.npy").unlink()
        np.save(files / "logprobs/utt1.npy", logprobs_of("c"))
    assert done not in again() and done in again()
    # Without --resume, all is done as ever, and nothing is left.
    os.unlink(out)
    assert main(given) == 0 and os.path.exists(out)
    assert not list(files.rglob("*.journal"))


def test_a_finished_run_with_faults_still_fails(files, capsys):
    (files / "logprobs/utt4.npy").unlink()
    np.save(files / "logprobs/utt4.npy", np.full((3, 5), np.nan, np.float32))
    given = command(files, "decode", "--output", files / "hyp", "--resume")
    for _ in range(3):
        assert main(given) == 1
        assert "left out 1 of 5: utt4" in capsys.readouterr().err


def test_only_the_same_run_is_resumed(files, capsys):
    """Differences are named; --strict is no setting of results."""
    (files / "text.txt").unlink()
    lines = [f"utt{i} {words}\n" for i, words in enumerate(WORDS)]
    (files / "text.txt").write_text("".join([*lines[:3], "utt3 zebra\n", lines[4]]))
    given = command(files, "align", "--output", files / "x.ctm")
    assert main([*given, "--strict"]) == 1
    err = capsys.readouterr().err
    assert "utterance 'utt3'" in err and "'zebra'" in err
    assert "kept 3 of 5 utterances in " in err and "--resume" in err
    assert main([*given, "--resume", "--beam", "5", "--skip-cost", "1"]) == 1
    err = capsys.readouterr().err
    assert "differs: --beam 5.0, was 60.0; --skip-cost 1.0, was none; " in err
    text = (files / "lexicon.txt").read_text()
    (files / "lexicon.txt").unlink()
    (files / "lexicon.txt").write_text(text + "zebra\ta b c\n")
    assert main([*given, "--resume"]) == 1
    assert f"{files / 'lexicon.txt'} has other contents" in capsys.readouterr().err
    (files / "lexicon.txt").write_text(text)
    assert main([*given, "--resume"]) == 1
    err = capsys.readouterr().err
    assert "aligned 1 utterances" in err and "3 kept from an earlier run" in err
    assert err.count("left out: utterance 'utt3': ") == 1
    assert "left out 1 of 5: utt3" in err.splitlines()[-1]
    kept = (files / "x.ctm").read_text()
    assert main([*given, "--quiet"]) == 1
    assert (files / "x.ctm").read_text() == kept and "utt3" not in kept


def test_a_full_disk_keeps_what_is_done(files):
    """Limits on the size of files imitate one; the message is one line, and where."""
    for i in range(40):
        np.save(files / f"logprobs/more{i:02}.npy", logprobs_of("a b | c | c"))
    given = command(files, "decode", "--output", files / "hyp.jsonl", "--quiet")

    def small_disk():
        resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))

    program = [sys.executable, "-m", "wfstdec", *given]
    process = subprocess.run(
        program, preexec_fn=small_disk, capture_output=True, text=True
    )
    err = process.stderr
    assert process.returncode == 1
    first, second = err.splitlines()
    assert "cannot write: File too large" in first
    assert second.startswith("wfstdec decode: kept ") and " of 45 utter" in second
    assert main([*given, "--resume"]) == 0
    resumed = (files / "hyp.jsonl").read_text()
    assert main(given) == 0
    assert (files / "hyp.jsonl").read_text() == resumed


def test_a_bad_utterance_is_named_and_left_out(files, capsys):
    """NaN, another V, no floats, a damaged file: the others have the same bits."""
    given = command(files, "decode", "--output", files / "hyp.jsonl")
    assert main([*given, "--quiet"]) == 0
    good = (files / "hyp.jsonl").read_text()
    nan = logprobs_of("c")
    nan[1, 2] = np.nan
    np.save(files / "logprobs/bad_nan.npy", nan)
    np.save(files / "logprobs/bad_v.npy", nan[:, :4])
    np.save(files / "logprobs/bad_ints.npy", np.zeros((3, 5), int))
    (files / "logprobs/bad_file.npy").write_bytes(b"no array")
    capsys.readouterr()
    assert main(given) == 1
    assert (files / "hyp.jsonl").read_text() == good
    err = capsys.readouterr().err
    for name, why in [
        ("bad_nan", "logprobs has nan in frame 1"),
        ("bad_v", "logprobs has V=4 tokens, expected V=5"),
        ("bad_ints", "dtype 'int64', expected floats"),
        ("bad_file", "not a readable .npy"),
    ]:
        [line] = [one for one in err.splitlines() if f"utterance '{name}'" in one]
        assert why in line
    assert "decoded 5 utterances" in err and "; 4 left out" in err
    assert err.splitlines()[-1].startswith("wfstdec decode: left out 4 of 9: bad_")
    assert main([*given, "--strict"]) == 1
    assert (files / "hyp.jsonl").read_text() == good  # of before; nothing else is left
    assert not (files / "hyp.jsonl.journal").exists()


def test_a_bad_lattice_is_left_out_and_a_stopped_rescoring_resumed(files, capsys):
    made = ["--output", files / "hyp", "--lattices", files / "x.lat", "--mbr"]
    assert main(command(files, "decode", *made, "--quiet")) == 0
    data = (files / "x.lat").read_bytes()
    at = data.index(b"2.arcs.npy") + 200
    (files / "x.lat").write_bytes(data[:at] + b"??" + data[at + 2 :])
    given = ["rescore", "--lattices", str(files / "x.lat"), "--lm-scale", "0.9"]
    kaldi = ["--kaldi", str(files / "x.ark"), "--kaldi-words", str(files / "words")]
    given += ["--output", str(files / "hyp.txt"), *kaldi]
    capsys.readouterr()
    assert main([*given, "--strict"]) == 1
    assert "kept 2 of 5 utterances" in capsys.readouterr().err
    assert main([*given, "--resume"]) == 1
    err = capsys.readouterr().err
    assert "x.lat: utterance 'utt2': not a readable file of lattices" in err
    assert "2 lattices in " in err and "; 2 kept from an earlier run; 1 left out" in err
    parts = [(files / name).read_bytes() for name in ("hyp.txt", "x.ark", "words")]
    assert main([*given, "--quiet"]) == 1
    assert parts == [
        (files / name).read_bytes() for name in ("hyp.txt", "x.ark", "words")
    ]
    texts = parts[0].decode().splitlines()
    assert [line.split()[0] for line in texts] == ["utt0", "utt1", "utt3", "utt4"]


def test_what_is_no_regular_file_is_written_in_place(files, capfd):
    """A FIFO, a device, a link, and /dev/stdout stay what they are."""
    assert main(command(files, "decode", "--quiet")) == 0
    text = capfd.readouterr().out
    os.mkfifo(files / "fifo")
    read = []
    reader = threading.Thread(target=lambda: read.append((files / "fifo").read_text()))
    reader.start()
    assert main(command(files, "decode", "--quiet", "--output", files / "fifo")) == 0
    reader.join()
    assert read == [text] and stat.S_ISFIFO(os.stat(files / "fifo").st_mode)
    (files / "link").symlink_to("target")
    (files / "target").write_text("old")
    assert main(command(files, "decode", "--quiet", "--output", files / "link")) == 0
    assert (files / "target").read_text() == text and (files / "link").is_symlink()
    assert main(command(files, "decode", "--quiet", "--output", "/dev/stdout")) == 0
    assert capfd.readouterr().out == text
    assert main(command(files, "decode", "--output", "/dev/stdout", "--resume")) == 1
    assert "--resume with results on /dev/stdout, expected" in capfd.readouterr().err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")
@pytest.mark.parametrize("minor", [3, 7], ids=["null", "full"])
def test_a_device_stays_a_device(minor, files, capfd):
    """/dev/null, which root once replaced by a file, and /dev/full stay."""
    device = files / "device"
    try:
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, minor))
        device.open("wb").close()
    except OSError:
        pytest.skip("no devices can be made here")
    given = command(files, "decode", "--quiet", "--output", device)
    assert main(given) == (0 if minor == 3 else 1)
    assert stat.S_ISCHR(os.stat(device).st_mode)
    err = capfd.readouterr().err
    assert ("cannot write: No space left on device" in err) == (minor == 7)
    given = ["build", "--tokens", "tokens.txt", "--lexicon", "lexicon.txt"]
    given += ["--lm", "lm.arpa", "--separator", "<wb>", "--output", "graph.npz"]
    (files / "graph.npz").symlink_to(device)
    assert wfstdec(files, *given, "--quiet") == (0 if minor == 3 else 1)
    assert stat.S_ISCHR(os.stat(device).st_mode)
