"""Runs that are stopped, and outputs that are no files: real processes and devices."""

import json
import os
import resource
import signal
import stat
import subprocess
import sys
import threading

import numpy as np
import pytest
from cli_files import logprobs_of, wfstdec, write_files

TEXTS = ["a b | c", "c a b", "c", "a b", "c a b | c"]
WORDS = ["ab c", "cab", "c", "ab", "cab c"]


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The small files, with log-probs in a folder."""
    folder = write_files(tmp_path_factory.mktemp("small"))
    (folder / "logprobs").mkdir()
    for i, text in enumerate(TEXTS):
        np.save(folder / f"logprobs/utt{i}.npy", logprobs_of(text))
    texts = (f"utt{i} {words}\n" for i, words in enumerate(WORDS))
    (folder / "text.txt").write_text("".join(texts))
    return folder


@pytest.fixture
def files(small, tmp_path):
    """The same in a folder of the test's own."""
    (tmp_path / "logprobs").mkdir()
    for file in small.rglob("*.*"):
        os.link(file, tmp_path / file.relative_to(small))
    return tmp_path


def command(folder, name, *more, logprobs="logprobs"):
    given = [name, "--tokens", str(folder / "tokens.txt"), "--separator", "<wb>"]
    given += ["--lexicon", str(folder / "lexicon.txt")]
    given += ["--logprobs", str(folder / logprobs)]
    if name == "align":
        given += ["--text", str(folder / "text.txt")]
    else:
        given += ["--decoder", "trie", "--arpa", str(folder / "lm.arpa")]
        given += ["--threads", "1"]
    return [*given, *map(str, more)]


def started(arguments, **how):
    given = [sys.executable, "-m", "wfstdec", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(given, **{**pipes, **how})


def here(arguments):
    """Run a command in this process; its exit code."""
    from wfstdec.cli.main import main

    return main(arguments)


def only_third_waits(files):
    """In the place of utterance 3 a FIFO, which a reader waits at."""
    (files / "logprobs/utt3.npy").unlink()
    os.mkfifo(files / "logprobs/utt3.npy")


def in_small_batches(arguments):
    """A program that decodes two utterances at a time."""
    code = (
        "import sys, wfstdec.batch.decoding as d; from wfstdec.cli.main import main; "
        "d.batches.__kwdefaults__['max_utterances'] = 2; sys.exit(main(sys.argv[1:]))"
    )
    return [sys.executable, "-c", code, *arguments]


def names(folder):
    return sorted(path.name for path in folder.iterdir() if path.is_file())


# ------------------------------------------------------------------- stopped and resumed
def stop(process, fifo, how):
    """Send a signal when the reader waits at the FIFO; what was said, and the code."""
    handle = os.open(fifo, os.O_WRONLY)  # returns when somebody reads
    process.send_signal(how)
    _, err = process.communicate(timeout=60)
    os.close(handle)
    return err, process.returncode


@pytest.mark.parametrize(
    "how, code",
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)],
)
def test_a_decode_that_is_stopped_is_kept_and_resumed(how, code, files, capsys):
    """Results and lattices: the same bytes as of a run that nobody stopped."""
    more = ["--format", "jsonl", "--mbr"]
    made = ["--output", files / "hyp", "--lattices", files / "x.lat"]
    whole = ["--output", files / "whole", "--lattices", files / "whole.lat"]
    assert here(command(files, "decode", *whole, *more, "--quiet")) == 0
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
        assert err.endswith("hyp.partial; go on with --resume\n")
    else:  # a torn line, as of a crash of the system, and half a lattice
        with (files / "hyp.journal").open("a") as file:
            file.write('{"done": "utt2", "en')
        with (files / "x.lat.partial").open("ab") as file:
            file.write(b"PK\3\4 and so on")
    (files / "logprobs/utt3.npy").unlink()
    (files / "logprobs/utt3.npy").write_bytes(before)
    os.utime(files / "logprobs/utt3.npy", ns=(0, 0))
    capsys.readouterr()
    assert here(command(files, "decode", *made, *more)) == 1
    err = capsys.readouterr().err
    assert "stopped after 2 utterances, expected --resume to go on, or --overw" in err
    _same_dates(files)
    assert here(command(files, "decode", *made, *more, "--resume")) == 0
    err = capsys.readouterr().err
    assert "decoded 3 utterances" in err and "2 kept from an earlier run" in err
    assert (files / "hyp").read_bytes() == (files / "whole").read_bytes()
    assert (files / "x.lat").read_bytes() == (files / "whole.lat").read_bytes()
    assert {*names(files)} - {*there} == {"hyp", "x.lat"}


def _same_dates(files):
    """Make the journal's run one of the log-probs as they are now, without the FIFO."""
    from wfstdec.text.files import digest

    lines = (files / "hyp.journal").read_text().split("\n")
    header = json.loads(lines[0])
    header["settings"]["logprobs"] = digest(files / "logprobs")
    (files / "hyp.journal").write_text("\n".join([json.dumps(header), *lines[1:]]))
