"""The run on a GPU machine, rehearsed: whatever a step does, the others come home."""

import importlib
import os
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
from cupy_stand_in import stand_in
from processes import ROOT, STAND_IN, on_stand_in
from processes import python as run_python
from tiny_sets import write_sets

from tools.bench import gpu
from tools.bench.data import load_set
from tools.gpu import first_contact, sanitize
from tools.gpu.racecheck import ALLOWED, allowed_lines, hazards, not_meant
from tools.gpu.sanitize import TOOLS, command
from tools.gpu.steps import LONGEST_LOG, Runner, Step
from wfstdec.errors import BackendError
from wfstdec.gpu import cupy_device

needs_compiler = pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")


def python(name, code, limit_s=30.0, **more):
    return Step(name, (sys.executable, "-c", code), limit_s, **more)


HANGS = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("child", child.pid, flush=True)
time.sleep(600)
"""
NOTED = """
import subprocess
error = subprocess.TimeoutExpired("ncu", 3)
error.add_note("of utterance 3\\nand 4")
raise error
"""
TOLD = {
    "crash": ("import os; os.abort()", "crashed (SIGABRT)"),
    "wrong": ("print('NOT THE SAME'); exit(1)", "wrong answers (exit status 1)"),
    "memory": (
        "raise MemoryError('cudaErrorMemoryAllocation')",
        "out of memory (exit status 1)",
    ),
    "no peer": ("print('nothing there'); exit(3)", "not there (nothing there)"),
    "error": ("raise SystemExit(7)", "failed (exit status 7)"),
    "not done": ("raise SystemExit(4)", "not finished (exit status 4)"),
    "unfit": ("raise SystemExit(5)", "unfit (exit status 5)"),
    "raised": (
        "raise AttributeError('no such kernel')",
        "failed (exit status 1: AttributeError: no such kernel)",
    ),
    "raised with a note": (
        NOTED,
        "failed (exit status 1: subprocess.TimeoutExpired: Command 'ncu' timed out "
        "after 3 seconds)",
    ),
}
"""Python, and what is told of a step that runs it."""
FAULTS = [
    (python("hang", HANGS, 3.0), "timed out (killed after 3 s)"),
    *((python(name, code), told) for name, (code, told) in TOLD.items()),
    (
        Step("no such program", ("there-is-no-such-program",), 5.0),
        "failed (exit status 127)",
    ),
    (
        Step("not there", ("nothing",), 5.0, needs="there-is-no-such-program"),
        "not there (there-is-no-such-program)",
    ),
]
GOOD = (
    "import pathlib; print('fine'); pathlib.Path(r'{folder}/%s.json').write_text('7')"
)


def unpacked(archive, folder):
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return {path.name: path for path in folder.iterdir()}


@pytest.mark.share
def test_every_fault_leaves_the_other_steps_unharmed(tmp_path):
    runner = Runner(tmp_path / "work", tmp_path / "home" / "all.tar.gz", 120.0)
    steps = [python("first", GOOD % "first")]
    for step, _ in FAULTS:
        steps += [step, python(f"after {step.name}", GOOD % f"after {step.name}")]
    runner.run(steps)
    for step, told in FAULTS:
        assert runner.outcomes[f"after {step.name}"].status == "ok"
        assert f"{step.name:12} {told}" in runner.report()
    assert not runner.all_ok
    found = unpacked(runner.archive, tmp_path / "read")
    assert {"first.json", "after hang.json", "hang.log", "report.txt"} <= set(found)
    assert "NOT THE SAME" in runner.report()
    # With all that it had started.
    child = int(found["hang.log"].read_text().split("child ")[1].split()[0])
    state = Path(f"/proc/{child}/status")
    assert not state.exists() or "zombie" in state.read_text()


def test_what_a_step_left_is_home_before_the_next_one_ends(tmp_path):
    archive = tmp_path / "all.tar.gz"
    code = (
        "import tarfile\n"
        f"names = tarfile.open({str(archive)!r}).getnames()\n"
        "assert {'first.json', 'first.log', 'steps.json', 'report.txt'} <= set(names)"
    )
    runner = Runner(tmp_path / "work", archive, 60.0)
    runner.run([python("first", GOOD % "first"), python("second", code)])
    assert runner.all_ok, runner.report()


def test_a_run_goes_on_from_what_was_carried_home(tmp_path):
    flaky = "import pathlib; assert pathlib.Path(r'{folder}/again').exists()"
    steps = [python("first", GOOD % "first"), python("flaky", flaky)]
    one = Runner(tmp_path / "one", tmp_path / "one.tar.gz", 60.0)
    one.run(steps)
    assert one.outcomes["flaky"].status == "failed"
    other = Runner(tmp_path / "other", tmp_path / "other.tar.gz", 60.0)
    other.carry(one.archive)
    (other.folder / "again").touch()
    before = (other.folder / "first.log").read_text()
    other.run(steps)
    assert other.all_ok and (other.folder / "first.json").read_text() == "7"
    assert (other.folder / "first.log").read_text() == before == "fine\n"


@pytest.mark.parametrize(
    ("code", "open_"),
    [
        ("print('a line')", True),
        ("raise SystemExit(1)", True),
        ("raise SystemExit(4)", True),
        ("raise SystemExit(5)", False),
        ("raise SystemExit(3)", False),
        ("raise ValueError('no such kernel')", False),
        ("import os; os.abort()", False),
        ("import time; time.sleep(60)", False),
    ],
)
def test_a_gate_that_is_shut_lets_nothing_through(tmp_path, code, open_):
    runner = Runner(tmp_path / "work", tmp_path / "all.tar.gz", 60.0)
    gate = python("gate", code, 2.0, gate=True, shown=True)
    runner.run([gate, python("late", GOOD % "late")])
    late = runner.outcomes["late"]
    assert late.status == ("ok" if open_ else "not run")
    assert (runner.folder / "late.json").exists() == open_
    if not open_:
        assert late.detail == "gate lets nothing through" and not runner.all_ok
    assert ("    a line" in runner.report()) == ("a line" in code), "shown in any case"


def test_a_gate_is_gone_through_in_every_run(tmp_path):
    """Carried results may be of another machine."""
    once = "import pathlib; assert not pathlib.Path(r'{home}/again').exists()"
    steps = [python("gate", once, gate=True), python("late", "raise SystemExit(4)")]
    one = Runner(tmp_path / "one", tmp_path / "home" / "one.tar.gz", 60.0)
    one.run(steps)
    assert [o.status for o in one.outcomes.values()] == ["ok", "not finished"]
    other = Runner(tmp_path / "other", tmp_path / "home" / "other.tar.gz", 60.0)
    other.carry(one.archive)
    (tmp_path / "home" / "again").touch()
    other.run(steps)
    assert [o.status for o in other.outcomes.values()] == ["failed", "not run"]


def test_the_time_of_all_steps_is_limited(tmp_path):
    runner = Runner(tmp_path / "work", tmp_path / "all.tar.gz", 3.0)
    begin = time.monotonic()
    sleep = "import time; time.sleep(60)"
    runner.run([python("long", sleep, 50.0), python("late", "pass", 50.0)])
    assert time.monotonic() - begin < 20
    assert runner.outcomes["long"].status == "timed out"
    assert runner.outcomes["late"].status == "no time left"


def test_long_logs_lose_their_middle(tmp_path):
    code = "print('begin'); print('x' * 3_000_000); print('end')"
    runner = Runner(tmp_path / "work", tmp_path / "all.tar.gz", 60.0)
    runner.run([python("loud", code)])
    log = unpacked(runner.archive, tmp_path / "read")["loud.log"].read_text()
    assert len(log) < LONGEST_LOG + 100
    assert log.startswith("begin") and log.endswith("end\n") and "left out" in log


def test_a_run_begins_with_its_gate_and_steps_are_modules_that_there_are():
    for steps in first_contact.RUNS.values():
        assert steps[0].name == "probe" and steps[0].gate
        assert not any(step.gate for step in steps[1:])
        for step in steps:
            assert step.limit_s <= first_contact.LIMIT_S < 600
            module = step.command[2]
            path = ROOT / f"{module.replace('.', '/')}.py"
            assert module == "pytest" or step.name == "ncu" or path.exists()


# ------------------------------------------------------------ the real steps, no GPU
def contact(tmp_path, fault, *words):
    """`first_contact` in a process, with a stand-in for CuPy: (status, report)."""
    environment = on_stand_in(fault, CUPY_CACHE_DIR=str(tmp_path / "kernels"))
    out = ["--out", "home", "--relative-to", tmp_path]
    done = run_python("-m", "tools.gpu.first_contact", *out, *words, env=environment)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, (tmp_path / "home" / "report.txt").read_text()


@needs_compiler
@pytest.mark.parametrize(
    ("fault", "status"),
    [
        ("", "ok"),
        ("hang", "timed out"),
        ("crash", "crashed"),
        ("wrong", "wrong answers"),
        ("memory", "out of memory"),
    ],
)
@pytest.mark.share
def test_a_gpu_that_goes_wrong(tmp_path, fault, status, monkeypatch):
    words = ["--steps", "search", "versions"]
    if fault == "hang":  # as long as compiling may take here, not as long as there
        words += ["--minutes", "0.5"]
    code, report = contact(tmp_path, fault, *words)
    lines = report.splitlines()
    search = next(line for line in lines if line.startswith("search "))
    assert status in search, report
    if fault != "hang":  # which leaves no time
        assert any(line.startswith("versions     ok") for line in lines), report
        assert code == (1 if fault else 0)
    found = unpacked(tmp_path / "home" / "contact.tar.gz", tmp_path / "read")
    assert {"search.log", "steps.json", "report.txt"} <= set(found)
    assert len(list((tmp_path / "home").iterdir())) == 2
    if fault == "wrong":
        assert "NOT THE SAME AS ON THE CPU" in found["search.log"].read_text()


@needs_compiler
@pytest.mark.parametrize(
    ("fault", "gate", "versions"),
    [("no files", "ok", "ok"), ("no device", "unfit", "not run")],
)
@pytest.mark.share
def test_a_call_begins_with_the_probe(tmp_path, fault, gate, versions):
    code, report = contact(
        tmp_path, fault, "--steps", "probe", "versions", "--minutes", "1"
    )
    outcomes = {line.split(" ")[0]: line for line in report.splitlines()}
    assert outcomes["probe"].split(maxsplit=1)[1].startswith(gate), report
    assert outcomes["versions"].split(maxsplit=1)[1].startswith(versions), report
    assert code == (1 if fault == "no device" else 0)
    home = sorted(path.name for path in (tmp_path / "home").iterdir())
    assert home == ["contact.tar.gz", "probe.jsonl", "report.txt"]
    assert "  gate: " in report, "what the probe found stands in the report"
    if fault == "no files":
        log = unpacked(tmp_path / "home" / "contact.tar.gz", tmp_path / "read")
        assert "loaded by its bytes" in log["versions.log"].read_text()


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("tools.gpu.check", ["search"]),
        ("tools.gpu.check", ["trie"]),
        ("tools.gpu.check", ["versions"]),
        ("tools.gpu.phases", ["--output", "x.json"]),
        ("tools.bench.gpu", ["--output", "x.json", "--only", "riva"]),
    ],
)
def test_no_graph_is_built_where_there_is_no_device(module, words, monkeypatch):
    """A minute of a call is worth more than what a graph says of a GPU."""
    tool = importlib.import_module(module)
    no_device = stand_in(None)
    cupy_device.load_cupy.cache_clear()
    monkeypatch.setitem(sys.modules, "cupy", no_device)
    for name in ("load_set", "make_case", "recipes"):
        if hasattr(tool, name):
            monkeypatch.delattr(tool, name)  # a NameError, were it used
    with pytest.raises(BackendError, match="finds no usable GPU"):
        tool.main(words)
    cupy_device.load_cupy.cache_clear()


@pytest.mark.share
def test_the_tests_of_a_gpu_that_is_not_there_do_not_pass(tmp_path):
    """All of them skipped would be told as none failed."""
    environment = on_stand_in("no device", WFSTDEC_REQUIRE_GPU="1")
    path = ROOT / "tests" / "wfst" / "test_on_gpu.py"
    done = run_python("-m", "pytest", "-q", "-m", "gpu", path, env=environment)
    assert done.returncode not in (0, 5), done.stdout
    assert "a GPU is required: backend 'cuda' finds no usable GPU" in done.stderr


def make_bundle(tmp_path, **more):
    """A bundle without data."""
    listed = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    bundle = tmp_path / "contact.sh"
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = os.environ | {"DATA": str(tmp_path / "none"), "PATH": path, **more}
    made = ["bash", str(ROOT / "tools/gpu/make_bundle.sh"), str(bundle)]
    subprocess.run(made, env=environment, check=True, capture_output=True)
    return bundle


def run_bundle(tmp_path, bundle, *words):
    """Run it on a machine with a stand-in for CuPy, from another folder."""
    environment = os.environ | {
        "PYTHONPATH": str(STAND_IN),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "CONTACT_FOLDER": str(tmp_path / "unpacked"),
    }
    machine = tmp_path / "machine"
    machine.mkdir(exist_ok=True)
    return subprocess.run(
        ["bash", str(bundle), "--out", "home", *words],
        cwd=machine,
        env=environment,
        capture_output=True,
        text=True,
    )


def wheel(path, name, body="x = 1"):
    """A wheel of one module."""
    info = f"{name}-1.dist-info"
    with zipfile.ZipFile(path / f"{name}-1-py3-none-any.whl", "w") as file:
        file.writestr(f"{name}.py", body)
        about = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n"
        file.writestr(f"{info}/METADATA", about)
        file.writestr(
            f"{info}/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        file.writestr(f"{info}/RECORD", "")


@needs_compiler
@pytest.mark.share
def test_a_wheel_that_does_not_fit_leaves_the_others_and_the_run(tmp_path):
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    wheel(wheels, "aaa")
    wheel(wheels, "zzz")
    (wheels / "mmm-1-cp27-cp27m-win32.whl").write_bytes(b"none that fits")
    bundle = make_bundle(tmp_path, WHEELS=str(wheels))
    done = run_bundle(tmp_path, bundle, "--help")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (
        "left out, pip does not install it: mmm-1-cp27-cp27m-win32.whl" in done.stderr
    )
    site = tmp_path / "unpacked" / "site"
    assert (site / "aaa.py").exists() and (site / "zzz.py").exists()


@needs_compiler
@pytest.mark.share
def test_the_bundle_runs_itself_outside_the_checkout(tmp_path):
    bundle = make_bundle(tmp_path, WHEELS="none")
    assert bundle.stat().st_size < 10_000_000, "without packages and data"
    for words in ([], ["--carried", "home/contact.tar.gz"]):
        done = run_bundle(tmp_path, bundle, "--steps", "versions", *words)
        assert done.returncode == 0, done.stdout + done.stderr
    machine = tmp_path / "machine"
    assert "--- versions" not in done.stdout, "it was done before"
    home = sorted(path.name for path in (machine / "home").iterdir())
    assert home == ["contact.tar.gz", "report.txt"]
    assert [path.name for path in machine.iterdir()] == ["home"]
    log = unpacked(machine / "home" / "contact.tar.gz", tmp_path / "read")
    assert "a stand-in" in log["versions.log"].read_text()


@pytest.mark.share
def test_the_bundle_has_data_once_and_no_more_than_batches_need(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    write_sets(data)
    demo = ROOT / "graphs" / "librispeech_demo" / "lm.arpa.gz"
    shutil.copy(demo, data / "lm" / "lm_books.3g_pruned.arpa.gz")
    shutil.move(data / "lm" / "tiny.arpa.gz", data / "lm" / "lm_books.3g.arpa.gz")
    rows = {f"utt-{i}": np.zeros((1, 5), np.float16) for i in range(700)}
    np.savez(data / "posteriors" / "librispeech_dev.npz", **rows)
    said = "".join(f"{name} ab\n" for name in rows)
    (data / "posteriors" / "librispeech_dev.txt").write_text(said)
    bundle = make_bundle(tmp_path, WHEELS="none", DATA=str(data))
    assert bundle.stat().st_size < 10_000_000
    done = run_bundle(tmp_path, bundle, "--help")
    assert done.returncode == 0, done.stdout + done.stderr
    found = tmp_path / "unpacked" / "shared" / "data"
    pruned = found / "lm" / "lm_books.3g_pruned.arpa.gz"
    assert pruned.is_symlink() and pruned.read_bytes() == demo.read_bytes()
    other = found / "lm" / "lm_books.3g.arpa.gz"
    assert not other.is_symlink() and other.read_text().startswith("\\data")
    speech = load_set("dev", found)
    assert len(speech.logprobs) == len(speech.references) == 600 >= 512


# ---------------------------------------------------------------------- sanitizers
def hazard(first, second):
    return (
        "========= Error: Race reported between Write access at search_chunk+0x6f40 in "
        f"{first}\n=========     and Read access at search_chunk+0x71d0 in {second} "
        "[96 hazards]\n=========\n"
    )


@pytest.mark.parametrize("search", ALLOWED)
def test_races_that_are_meant_pass_and_others_do_not(search):
    assert len(allowed_lines(search)) == len(ALLOWED[search][1])
    lines = sorted(f"{file}:{line}" for file, line in allowed_lines(search))
    meant = "========= COMPUTE-SANITIZER\n" + hazard(lines[0], lines[-1])
    meant += hazard(f"/some/where/{lines[1]}", lines[1])
    assert len(hazards(meant)) == 2 and not_meant(meant, search) == []
    for wrong in (
        hazard(lines[0], "search.cu:1"),
        hazard("table.cuh:2", lines[0]),
        hazard("0x1230", lines[0]),
    ):
        (one,) = not_meant(meant + wrong, search)
        assert "Race reported" in one.text and "and Read access" in one.text
    summary = (
        "========= RACECHECK SUMMARY: 2 hazards displayed (2 errors, 0 warnings)\n"
    )
    assert not_meant(meant + summary, search) == []


def test_the_trie_goes_through_all_sanitizers(tmp_path):
    steps = {step.name: step for step in first_contact.SANITIZERS}
    for tool in TOOLS:
        command = steps[f"{tool}-trie"].command
        assert command[command.index("tools.gpu.sanitize") + 1] == tool
        assert "--trie" in command
    # Its races are judged by its own list: line by line what racecheck would print.
    program = tmp_path / "compute-sanitizer"
    (slot,) = [line for line in allowed_lines("trie") if line[0] == "merge.cuh"]
    place = "{}:{}".format(*slot)
    (tmp_path / "log").write_text(hazard(place, place) + "12 cases agree\n")
    program.write_text(f"#!/bin/sh\ncat '{tmp_path}/log'\nexit 9\n")
    program.chmod(0o755)
    words = ["racecheck", "--program", str(program)]
    assert sanitize.main([*words, "--trie"]) == 0 and sanitize.main(words) == 1


def test_every_benchmark_of_a_call_is_one():
    """Flags that are wrong would be told on the GPU machine, in minutes that cost."""
    every = [step for steps in first_contact.RUNS.values() for step in steps]
    benches = [step for step in every if "tools.bench.gpu" in step.command]
    assert {"bench", "bench-trie", "trie-dev", "trie-bpe"} <= {s.name for s in benches}
    for step in benches:
        words = [word.format(folder=".", home=".") for word in step.command[3:]]
        args = gpu.parse_arguments(words)
        assert args.resume and max(args.batches) <= 512
    trie = next(step for step in benches if step.name == "bench-trie")
    args = gpu.parse_arguments([w.format(folder=".") for w in trie.command[3:]])
    assert {size for size, _ in args.trie} == {16, 32, 128} and args.minutes == 2


@pytest.mark.parametrize(
    ("printed", "returned", "expected"),
    [
        ("12 cases agree", 0, 0),
        ("12 cases agree", 9, 1),
        ("nothing", 0, 1),
    ],
)
def test_a_sanitizer_is_believed_where_the_searches_ran(
    tmp_path, printed, returned, expected
):
    program = tmp_path / "compute-sanitizer"
    program.write_text(f"#!/bin/sh\necho '{printed}'\nexit {returned}\n")
    program.chmod(0o755)
    output = tmp_path / "told.txt"
    words = ["memcheck", "--program", str(program), "--output", str(output)]
    assert sanitize.main(words) == expected
    assert printed in output.read_text()
    assert command("memcheck", 12, kind="added")[-2:] == ["gpu", "added"]
    assert command("memcheck", 12, kind="trie")[-3:] == ["12", "gpu", "32"]
    racecheck = command("racecheck", 12)
    at = racecheck.index("--racecheck-detect-level")
    assert racecheck[at + 1] == "error"
    # Races that are meant are told by an exit status too.
    if printed != "nothing":
        assert sanitize.main(["racecheck", "--program", str(program)]) == 0
