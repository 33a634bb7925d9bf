"""Steps that may hang, crash or lie: each in a process of its own, under a time limit.

    runner = Runner(folder, archive, limit_s=540.0)
    runner.carry(Path("contact.tar.gz"))           # what an earlier run brought home
    runner.run([Step("search", (sys.executable, "-m", "tools.gpu.check"), 60.0)])
    print(runner.report())

What a step prints goes to a file of its own; what it came to is written, and all of it
packed into one archive, as soon as it ends. A step that does not end is killed with all
that it has started. Nothing that a step does keeps the next one from running, unless it
is a gate: where that is shut, those behind it do not run.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tarfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
OK, WRONG, FAILED = "ok", "wrong answers", "failed"
CRASHED, HUNG, MEMORY = "crashed", "timed out", "out of memory"
MISSING, LEFT = "not there", "no time left"
UNFINISHED, UNFIT, SHUT = "not finished", "unfit", "not run"
OK_STATUS, WRONG_STATUS, MISSING_STATUS, UNFINISHED_STATUS, UNFIT_STATUS = 0, 1, 3, 4, 5
"""The exit status of a step that went well; of one that found other answers than the
CPU's, whose peer is not installed, that has points left for a later run, and that found
the device unfit for what is to run on it."""
PASSES = (OK, WRONG, UNFINISHED)
"""What a gate may come to and let others through; others are trouble of the device."""
RESULTS = "steps.json"
LONGEST_LOG = 1 << 20
"""Bytes of a log that go home: half from its beginning, half from its end."""
_TAIL = 12
"""Lines of a log in the report."""
_LONGEST_DETAIL = 120
_NO_MEMORY = re.compile(r"OutOfMemoryError|DeviceMemoryError|MemoryError|out of memory")
_RAISED = re.compile(
    r"^Traceback \(most recent call last\):\n(?: .*\n|\n)*(\S.*)", re.M
)
"""What Python prints where nobody caught an error: in the group, which."""
_PATIENCE_S = 10.0
"""How long a killed process may take to go."""


@dataclass(frozen=True)
class Step:
    """Step of a chain: a command, its limits and its needs.

    Attributes:
        name: What it is called; its log is `NAME.log`.
        command: Program and arguments; `{folder}` in one stands for where files go,
            `{home}` for where they are at home at once.
        limit_s: Seconds that it may take.
        needs: A program without which there is nothing to run.
        environment: Variables that it has besides those of this process.
        gate: Whether steps behind it run only where it lets them through. It is gone
            through in every run: what was carried may be of another machine.
        shown: Whether its log stands in the report in any case.
    """

    name: str
    command: tuple[str, ...]
    limit_s: float
    needs: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    gate: bool = False
    shown: bool = False


@dataclass(frozen=True)
class Outcome:
    """Outcome of a step.

    Attributes:
        step: Its name.
        status: `OK`, or how it ended.
        seconds: It took so many.
        detail: The exit status or signal, or what is missing.
        tail: The last lines of its log, where it is not `OK`; all where it is shown.
    """

    step: str
    status: str
    seconds: float
    detail: str = ""
    tail: tuple[str, ...] = ()


class Runner:
    """Runs steps, and keeps what they leave.

    Args:
        folder: Where their files go.
        archive: The one file that goes home, written anew after each step.
        limit_s: Seconds that all steps may take together.

    Attributes:
        outcomes: By step.
    """

    def __init__(self, folder: Path, archive: Path, limit_s: float) -> None:
        self.folder, self.archive = folder, archive
        self.outcomes: dict[str, Outcome] = {}
        self._end, self._shut = time.monotonic() + limit_s, ""
        folder.mkdir(parents=True, exist_ok=True)
        archive.parent.mkdir(parents=True, exist_ok=True)

    def carry(self, archive: Path) -> None:
        """Go on where the run ended that an archive is of."""
        with tarfile.open(archive) as packed:
            packed.extractall(self.folder, filter="data")
        path = self.folder / RESULTS
        for one in json.loads(path.read_text("utf-8")) if path.exists() else ():
            outcome = Outcome(**one | {"tail": tuple(one["tail"])})
            self.outcomes[outcome.step] = outcome

    def run(self, steps: Iterable[Step]) -> None:
        """Run the steps that were not `OK` before, and gates."""
        for step in steps:
            before = self.outcomes.get(step.name)
            if before is not None and before.status == OK and not step.gate:
                continue
            print(f"--- {step.name}", flush=True)
            outcome = self._run(step)
            print(f"{step.name}: {told(outcome)}", flush=True)
            self.outcomes[step.name] = outcome
            if step.gate:
                self._shut = "" if outcome.status in PASSES else step.name
            self._write()

    def report(self) -> str:
        """A line for each step, and the end of the log of those that failed."""
        lines = []
        for outcome in self.outcomes.values():
            lines.append(f"{outcome.step:12} {told(outcome)}")
            lines += [f"    {line}" for line in outcome.tail]
        return "\n".join(lines)

    @property
    def all_ok(self) -> bool:
        """Tell whether every step that could run went well."""
        return all(one.status in (OK, MISSING) for one in self.outcomes.values())

    def _run(self, step: Step) -> Outcome:
        if self._shut:
            return Outcome(step.name, SHUT, 0.0, f"{self._shut} lets nothing through")
        if step.needs is not None and shutil.which(step.needs) is None:
            return Outcome(step.name, MISSING, 0.0, step.needs)
        left = self._end - time.monotonic()
        if left < 1.0:
            return Outcome(step.name, LEFT, 0.0)
        limit, begin = min(step.limit_s, left), time.monotonic()
        log = self.folder / f"{step.name}.log"
        before = log.stat().st_size if log.exists() else 0  # of a run that was carried
        folders = {"{folder}": self.folder, "{home}": self.archive.parent}
        status = run_alone(step, log, folders, limit)
        seconds = round(time.monotonic() - begin, 1)
        text = log.read_bytes()[before:].decode("utf-8", "replace")
        kind, detail = judge(status, text, limit)
        tail: Sequence[str] = () if kind == OK else text.splitlines()[-_TAIL:]
        tail = tuple(text.splitlines() if step.shown else tail)
        return Outcome(step.name, kind, seconds, detail, tail)

    def _write(self) -> None:
        """All that is known, into the folder and into the archive."""
        content = [asdict(one) for one in self.outcomes.values()]
        part = self.folder / f"{RESULTS}.part"
        part.write_text(json.dumps(content, indent=1), "utf-8")
        part.replace(self.folder / RESULTS)
        (self.folder / "report.txt").write_text(self.report() + "\n", "utf-8")
        part = self.archive.with_name(f"{self.archive.name}.part")
        with tarfile.open(part, "w:gz") as packed:
            for path in sorted(self.folder.iterdir()):
                if path.is_file():
                    if path.suffix == ".log":
                        shorten(path)
                    packed.add(path, path.name)
        part.replace(self.archive)


def run_alone(
    step: Step, log: Path, folders: Mapping[str, Path], limit_s: float
) -> int | None:
    """The exit status of a step, or None where it did not end in time."""
    command = list(step.command)
    for name, folder in folders.items():
        command = [word.replace(name, str(folder)) for word in command]
    with log.open("ab") as file:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=os.environ | {"PYTHONUNBUFFERED": "1"} | dict(step.environment),
                cwd=ROOT,
                start_new_session=True,  # so that all of it can be killed
            )
        except OSError as error:
            file.write(f"{error}\n".encode())
            return 127
        try:
            return process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_PATIENCE_S)


def judge(status: int | None, log: str, limit_s: float) -> tuple[str, str]:
    """How a step ended, by its exit status (None: it did not) and what it printed."""
    if status is None:
        return HUNG, f"killed after {limit_s:.0f} s"
    if status == 0:
        return OK, ""
    told_status = f"exit status {status}"
    if status == MISSING_STATUS:
        return MISSING, log.strip().splitlines()[-1] if log.strip() else told_status
    if status in (UNFINISHED_STATUS, UNFIT_STATUS):
        return (UNFINISHED if status == UNFINISHED_STATUS else UNFIT), told_status
    if status < 0:
        with contextlib.suppress(ValueError):
            told_status = signal.Signals(-status).name
    if _NO_MEMORY.search("\n".join(log.splitlines()[-200:])):
        return MEMORY, told_status
    if status < 0:
        return CRASHED, told_status
    raised = _RAISED.findall(log)
    if raised:
        return FAILED, f"{told_status}: {raised[-1][:_LONGEST_DETAIL]}"
    return (WRONG if status == WRONG_STATUS else FAILED), told_status


def told(outcome: Outcome) -> str:
    """An outcome in words."""
    detail = f" ({outcome.detail})" if outcome.detail else ""
    return f"{outcome.status}{detail}, {outcome.seconds:.1f} s"


def shorten(log: Path) -> None:
    """Leave out the middle of a log that is long."""
    size, half = log.stat().st_size, LONGEST_LOG // 2
    if size <= LONGEST_LOG:
        return
    with log.open("rb") as file:
        begin = file.read(half)
        file.seek(size - half)
        end = file.read()
    log.write_bytes(begin + b"\n... left out ...\n" + end)
