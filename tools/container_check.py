"""Does what the Dockerfile does, where no container can be built, and tries the server.

    python tools/container_check.py --python .venv/bin/python
    python tools/container_check.py --quick             # as CI does

Its RUN lines run as a script in a fresh environment, on a copy of what COPY would
take. Then the server starts as nobody (where this runs as root, by an interpreter that
others may run), without a home that can be written, and has to say that it is ready, to
transcribe a recording, and to end in order. The image itself is not built. Nothing but
the standard library is needed, and an index to install from.

With `--quick` the installation compiles one way ahead, and the others are warm with the
kernels that tests of this checkout have compiled: minutes of CPU time less.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NOBODY = 65534
"""The user that the Dockerfile names."""
MODEL = "row_encoder:streaming"
"""Reads log-probs out of audio: what a recording says is then known."""
PREPARE = """
import sys, wave
import numpy as np
import wfstdec
from wfstdec import recipes
from row_encoder import audio_of_rows, rounded_rows

recipe = recipes.find_recipe()
graph = wfstdec.build_graph(**recipes.inputs_of(recipe))
graph.save("graph.npz")
logprobs = np.load(recipe / "logprobs.npz")
with wave.open("talk.wav", "wb") as file:
    file.setnchannels(1)
    file.setsampwidth(2)
    file.setframerate(16000)
    file.writeframes(audio_of_rows(rounded_rows(logprobs[logprobs.files[0]])).tobytes())
"""
SAID = "only unfortunately his own work never does get good"
"""The words of the recording."""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--python", default=sys.executable, help="makes the environment"
    )
    parser.add_argument(
        "--quick", action="store_true", help="with the kernels of this checkout"
    )
    args = parser.parse_args(argv)
    if args.quick:
        os.environ["WFSTDEC_COMPILE"] = "greedy"
    lines = run_lines((ROOT / "Dockerfile").read_text("utf-8"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)  # for the unprivileged user
        subprocess.run([args.python, "-m", "venv", str(folder / "env")], check=True)
        python = folder / "env" / "bin" / "python"
        source = _copied(folder / "src")
        for line in lines:
            print(f"RUN {line}", flush=True)
            _run(["sh", "-ec", line.replace("/src", str(source))], folder, python)
            if args.quick:
                _bring_kernels(folder / "env")
        data = folder / "data"
        data.mkdir(mode=0o755)
        shutil.copy(ROOT / "tools" / "bench" / "row_encoder.py", data)
        _run([str(python), "-c", PREPARE], data, python)
        with serving(data, python) as (url, process):
            _ask(url, data / "talk.wav")
            process.send_signal(signal.SIGTERM)
            if code := process.wait(60):
                raise SystemExit(f"the server's exit code is {code}, expected 0")
    print("the server of the Dockerfile's lines runs; the image itself is unbuilt")
    return 0


def run_lines(dockerfile: str) -> list[str]:
    """The commands of RUN, in order, continued lines joined."""
    joined = re.sub(r"\\\n\s*", "", dockerfile)
    return re.findall(r"^RUN (.*)$", joined, re.M)


def copied_paths() -> Iterator[Path]:
    """Paths that COPY takes by .dockerignore: the lines that begin with `!`."""
    for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines():
        if line.startswith("!") and line.count("/") == 0:
            yield ROOT / line[1:]


def _copied(folder: Path) -> Path:
    folder.mkdir()
    ignore = shutil.ignore_patterns("__pycache__", "graph_*.npz", "*.kernel")
    for path in copied_paths():
        if path.is_dir():
            shutil.copytree(path, folder / path.name, ignore=ignore)
        else:
            shutil.copy(path, folder)
    return folder


def _bring_kernels(environment: Path) -> None:
    """Copy machine code of this checkout to where the installed sources look for it."""
    for path in (ROOT / "wfstdec").rglob("__pycache__/*"):
        if path.suffix in (".kernel", ".part"):
            for package in environment.glob("lib/python*/site-packages/wfstdec"):
                copy = package / path.relative_to(ROOT / "wfstdec")
                copy.parent.mkdir(exist_ok=True)
                shutil.copy(path, copy)


def _variables(python: Path, home: Path) -> dict[str, str]:
    """The environment of a container: no caches of this machine, its own programs."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(("PIP_", "SSL_", "LANG", "WFSTDEC_"))
        or name.lower().endswith("_proxy")
    }
    path = f"{python.parent}:{os.environ['PATH']}"
    return kept | {"PATH": path, "HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1"}


def _run(command: list[str], folder: Path, python: Path) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        env=_variables(python, folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"{command[-1]}\n{done.stdout[-3000:]}")


@contextlib.contextmanager
def serving(data: Path, python: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run the server as the container would, and wait until it is ready."""
    is_nobody = os.geteuid() == 0 and readable_by_all(python.resolve())
    print(f"serving as {'nobody' if is_nobody else 'the same user'}", flush=True)
    command = [str(python.parent / "wfstdec"), "serve", MODEL]
    command += ["--graph", "graph.npz", "--lm-scale", "0.8", "--port", "0"]
    variables = _variables(python, Path("/proc/nobody")) | {"PYTHONPATH": str(data)}
    process = subprocess.Popen(
        command,
        cwd=data,
        env=variables,
        stdout=subprocess.PIPE,
        text=True,
        user=NOBODY if is_nobody else None,
        group=NOBODY if is_nobody else None,
        extra_groups=[] if is_nobody else None,
    )
    try:
        assert process.stdout is not None
        began = time.monotonic()
        url = process.stdout.readline().strip()
        answer = process.stdout.readline().strip()
        if answer != "ready":
            raise SystemExit(f"{url!r}, {answer!r}: expected an address, then 'ready'")
        print(f"ready after {time.monotonic() - began:.1f} s", flush=True)
        yield url, process
    finally:
        process.kill()
        process.wait()


def readable_by_all(path: Path) -> bool:
    """Tell whether a path leads through no folder that its owner keeps closed."""
    return all(part.stat().st_mode & 0o005 == 0o005 for part in path.parents)


def _ask(url: str, recording: Path) -> None:
    """Ask for readiness, the page and a transcription.

    Raises:
        SystemExit: Something else came than was expected.
    """
    for path in ("/ready", "/"):
        with urllib.request.urlopen(url + path, timeout=30) as answer:
            if answer.status != 200:
                raise SystemExit(f"{path}: {answer.status}, expected 200")
    head = b'--cut\r\nContent-Disposition: form-data; name="file"; filename="a.wav"'
    body = head + b"\r\n\r\n" + recording.read_bytes() + b"\r\n--cut--\r\n"
    request = urllib.request.Request(
        f"{url}/v1/audio/transcriptions",
        body,
        {"Content-Type": "multipart/form-data; boundary=cut"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        text = json.load(answer)["text"]
    if text != SAID:
        raise SystemExit(f"the server found {text!r}, expected {SAID!r}")


if __name__ == "__main__":
    sys.exit(main())
