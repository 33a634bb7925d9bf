"""Jobs on a real, local Ray: equal to the plain commands, killed, continued.

Drivers are processes of their own: threads of Ray outlive `ray.shutdown`.
"""

import concurrent.futures
import importlib.util
import io
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections import Counter

import numpy as np
import pytest
from cli_files import build, logprobs_of, write_files
from ray_cluster import ROOT, cluster
from spoken import FRAME, RATE, speech, write_wav

from wfstdec import WfstDecoder, WfstOptions, load_graph
from wfstdec.batch.ray import DecodeRows
from wfstdec.cli.main import main
from wfstdec.search.hypothesis import CONFIDENCES

NEEDED = ("ray", "pyarrow", "soundfile", "soxr")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]
pytestmark = pytest.mark.skipif(
    bool(MISSING), reason=f"needs {', '.join(MISSING)} (extras ray, audio)"
)
NUM_CPUS = 4


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """Where the model notes its input, and finds its orders."""
    return tmp_path_factory.mktemp("watched")


@pytest.fixture(scope="module")
def address(watched):
    with cluster(NUM_CPUS, WATCHED=str(watched)) as found:
        yield found


@pytest.fixture(scope="module")
def files(tmp_path_factory, watched):
    """A graph, log-probs and recordings, no two of one length."""
    folder = write_files(tmp_path_factory.mktemp("small"))
    assert build(folder, "--quiet") == 0
    (folder / "in").mkdir()
    lines, sizes = [], set[int]()
    for i in range(40):
        _, sound = speech(1, seed=i)
        while len(sound) in sizes:
            sound = np.concatenate([sound, np.zeros(FRAME, np.float32)])
        sizes.add(len(sound))
        write_wav(folder / f"in/utt{i}.wav", sound)
        line = {"audio_filepath": f"in/utt{i}.wav"}
        if i % 3 == 0:
            line["boosts"] = {"cab": float(i)} if i % 2 else ["cab", "c"]
        lines.append(line)
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "manifest.jsonl").write_text(text)
    return folder


def transcribe(files, audio, *more):
    given = ["transcribe", "watched:logprobs", str(audio), "--frame-shift", "0.02"]
    given += ["--tokens", str(files / "tokens.txt"), "--sample-rate", str(RATE)]
    given += ["--graph", str(files / "graph.npz"), "--threads", "1", "--workers", "1"]
    return [*given, *map(str, more)]


def on_ray(address, *more, actors=1):
    return ["--ray", address, "--actors", str(actors), *map(str, more)]


def rows_of(folder):
    import pyarrow.parquet

    rows = [
        row
        for path in sorted(folder.glob("*.parquet"))
        for row in pyarrow.parquet.read_table(path).to_pylist()
    ]
    assert max(Counter(row["id"] for row in rows).values(), default=1) == 1
    return {row["id"]: row for row in rows}


def lines_of(path):
    """The JSON lines of a plain command, by id, as rows have them."""
    found = {}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        for words in (row["words"], *(one["words"] for one in row.get("nbest", ()))):
            for word in words:
                for name in CONFIDENCES:
                    word.setdefault(name, None)
        found[row["id"]] = row
    return found


def assert_same(rows, lines):
    assert rows.keys() == lines.keys()
    for name, line in lines.items():
        assert {key: rows[name][key] for key in line} == line
        assert rows[name]["error"] is None


def test_logprobs_are_decoded_as_by_the_plain_command(files, address, tmp_path):
    """With confidences, several texts, boosts and lattices."""
    random = np.random.default_rng(1)
    arrays = {}
    for i in range(30):
        text = " | ".join(random.choice(["a b", "c", "c a b"], 1 + i % 7))
        noise = random.normal(0, 0.5, logprobs_of(text).shape)
        arrays[f"u{i}"] = (logprobs_of(text) + noise).astype(np.float32)
    np.savez(tmp_path / "x.npz", **arrays)
    lists = [{"boosts": {"c": 1.0}}, {"id": "u3", "boosts": {"cab": 2.0}}]
    text = "".join(json.dumps(one) + "\n" for one in lists)
    (tmp_path / "boosts.jsonl").write_text(text)
    given = ["decode", "--graph", str(files / "graph.npz"), "--quiet"]
    given += ["--boost", str(tmp_path / "boosts.jsonl"), "--nbest", "3", "--confidence"]
    given += ["--logprobs", str(tmp_path / "x.npz")]
    plain = [*given, "--output", str(tmp_path / "plain.jsonl")]
    assert main(plain) == 0
    ours = [*given, "--output", str(tmp_path / "rows"), *on_ray(address)]
    ours += ["--lattices", str(tmp_path / "lattices"), "--file-rows", "8"]
    assert driver_of(ours).wait(300) == 0
    assert_same(rows_of(tmp_path / "rows"), lines_of(tmp_path / "plain.jsonl"))
    assert len(list((tmp_path / "rows").iterdir())) > 2
    paths = {row["lattice"] for row in rows_of(tmp_path / "rows").values()}
    assert paths == set(map(str, (tmp_path / "lattices").iterdir()))
    before = {path: path.stat() for path in (tmp_path / "rows").iterdir()}
    assert driver_of([*ours, "--resume"]).wait(300) == 0
    assert {path: path.stat() for path in (tmp_path / "rows").iterdir()} == before


@pytest.mark.share
def test_shards_with_boosts_and_a_damaged_one(files, address, tmp_path, capfd):
    paths = sorted((files / "in").iterdir())[:12]
    (tmp_path / "shards").mkdir()
    boosts = {"cab": 3.0}
    for i in range(3):
        file = tmp_path / f"shards/{i}.tar"
        with tarfile.open(file, "w") as tar:
            for path in paths[4 * i : 4 * i + 4]:
                tar.add(path, path.name)
                add(tar, f"{path.stem}.json", json.dumps({"boosts": boosts}).encode())
    os.truncate(file, os.path.getsize(file) * 2 // 3)
    output = tmp_path / "rows"
    given = transcribe(files, tmp_path / "shards", "--output", output, "--quiet")
    assert driver_of([*given, *on_ray(address)]).wait(300) == 1
    assert "left out 1 of " in capfd.readouterr().err
    rows = rows_of(output)
    [bad] = [row for row in rows.values() if row["error"] is not None]
    assert bad["id"].endswith("2.tar") and "damaged or cut short" in bad["error"]
    del rows[bad["id"]]
    assert {*rows} >= {path.stem for path in paths[:8]} and 8 < len(rows) < 12
    (tmp_path / "b.txt").write_text("cab\t3\n")
    (tmp_path / "all.txt").write_text("".join(f"{path}\n" for path in paths))
    given = transcribe(files, tmp_path / "all.txt", "--boost", tmp_path / "b.txt")
    assert main([*given, "--output", str(tmp_path / "plain.jsonl"), "--quiet"]) == 0
    lines = lines_of(tmp_path / "plain.jsonl")
    assert_same(rows, {name: lines[name] for name in rows})
    before = len(list(output.iterdir()))
    given = transcribe(files, tmp_path / "shards", "--output", output, "--quiet")
    assert driver_of([*given, *on_ray(address, "--resume")]).wait(300) == 1
    assert len(list(output.iterdir())) == before


def add(tar, name, data):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


def test_a_killed_driver_and_a_killed_worker_lose_no_row_and_double_none(
    files, address, watched, tmp_path
):
    import soundfile

    manifest = files / "manifest.jsonl"
    assert (
        main(
            transcribe(files, manifest, "--output", tmp_path / "plain.jsonl", "--quiet")
        )
        == 0
    )
    bad = tmp_path / "in" / "bad.wav"
    bad.parent.mkdir()
    bad.write_bytes(b"RIFF")
    with_bad = files / "with_bad.jsonl"
    with_bad.write_text(
        manifest.read_text() + json.dumps({"audio_filepath": str(bad)}) + "\n"
    )
    output = tmp_path / "rows"
    given = transcribe(files, with_bad, "--output", output, "--quiet")
    given += on_ray(address, "--file-rows", "3", "--batch-rows", "2", actors=2)
    (watched / "slow").write_text("0.15")
    driver = driver_of(given)
    committed = tmp_path / "rows.job" / "checkpoint"
    wait_until(lambda: len(names_in(committed)) >= 3, driver)
    driver.kill()
    assert driver.wait() == -signal.SIGKILL
    wait_until(lambda: not still_heard(watched))
    # As if it had been killed between a file and its checkpoint.
    last = names_in(committed)[-1]
    last.rename(last.with_name(f"{last.stem}.pending.parquet"))
    done = ids_in(committed)
    assert 6 <= len(done) < 40
    (watched / "heard").write_text("")
    (watched / "slow").write_text("0.02")
    lengths = {
        path.stem: soundfile.info(path).frames for path in (files / "in").iterdir()
    }
    left = sorted(set(lengths) - set(done))
    (watched / "deadly").write_text(str(lengths[left[len(left) // 2]]))
    driver = driver_of([*given, "--resume"])
    assert driver.wait(300) == 1  # bad.wav
    assert not (watched / "deadly").exists(), "no worker was killed"
    counts = Counter(map(int, (watched / "heard").read_text().split()))
    again = [name for name in done if counts[lengths.get(name, -1)]]
    assert again == [], "finished rows were done again"
    rows = rows_of(output)
    assert "bad.wav" in rows.pop("bad")["error"]
    assert_same(rows, lines_of(tmp_path / "plain.jsonl"))
    (watched / "slow").unlink()


def driver_of(argv):
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests/support")])
    return subprocess.Popen(
        [sys.executable, "-m", "wfstdec", *argv],
        env=os.environ | {"PYTHONPATH": paths, "WATCHED": "none"},
    )


def wait_until(is_so, driver=None, seconds=240):
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "too late"
        assert driver is None or driver.poll() is None, "the driver has ended"
        time.sleep(0.05)


def names_in(folder):
    found = folder.glob("*.parquet")
    return [path for path in found if not path.name.endswith(".pending.parquet")]


def ids_in(folder):
    import pyarrow.parquet

    tables = [pyarrow.parquet.read_table(path) for path in names_in(folder)]
    return [name for table in tables for name in table["id"].to_pylist()]


def still_heard(watched):
    size = (watched / "heard").stat().st_size
    time.sleep(1)
    return (watched / "heard").stat().st_size != size


@pytest.mark.share
def test_the_class_in_a_pipeline_of_ones_own(files, address, tmp_path):
    """A decoder goes to the actors as a pickle; nothing else of ours is there."""
    import pyarrow.parquet

    graph = load_graph(files / "graph.npz")
    decoder = WfstDecoder(graph, WfstOptions(beam=9.0), frame_shift_s=0.02, threads=1)
    texts = ["c", "a b | c", "c a b | c", "a b"]
    rows = [
        {"id": str(i), "logprobs": logprobs_of(text).tolist(), "boosts": '{"c": 1.5}'}
        for i, text in enumerate(texts)
    ]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "m.parquet")
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, context) as pool:
        given = address, str(tmp_path / "m.parquet"), decoder
        by_id = pool.submit(decoded_on_ray, *given).result(300)
    expected = decoder.decode([logprobs_of(text) for text in texts], boosts={"c": 1.5})
    for i, hypothesis in enumerate(expected):
        assert by_id[str(i)]["text"] == hypothesis.text
        assert by_id[str(i)]["total_cost"] == hypothesis.total_cost
        assert by_id[str(i)]["boost_cost"] == hypothesis.boost_cost


def decoded_on_ray(address, path, decoder):
    import ray

    with ray.init(address, log_to_driver=False):
        found = ray.data.read_parquet(path).map_batches(
            DecodeRows,
            fn_constructor_args=(decoder,),
            batch_format="pyarrow",
            batch_size=3,
            compute=ray.data.ActorPoolStrategy(size=1),
            num_cpus=1,
        )
        return {row["id"]: row for row in found.take_all()}


def test_what_would_wait_for_ever_is_an_error(files, address, tmp_path, capfd):
    given = transcribe(files, files / "in", "--output", tmp_path / "rows")
    driver = driver_of([*given, "--ray", address, "--actors", "3"])
    assert driver.wait(300) == 1
    assert "expected at least 5 CPUs" in capfd.readouterr().err
    assert not list((tmp_path / "rows").iterdir())


def test_flags_that_do_not_go_together(files, tmp_path, capsys):
    given = transcribe(files, files / "in", "--ray", "local")
    for more, message in (
        ([], "--ray without --output"),
        (["--output", tmp_path / "x", "--format", "ctm"], "--format with --ray"),
        (["--output", tmp_path / "x", "--strict"], "--strict with --ray"),
    ):
        assert main([*given, *map(str, more)]) == 1
        assert message in capsys.readouterr().err
    assert main(transcribe(files, files / "in", "--actors", "2")) == 1
    assert "--actors 2 without --ray" in capsys.readouterr().err
