"""`wfstdec serve` as a program, on a free port.

with Program(*searching(graph), "--processes", "2") as program:
    program.wait_until_ready()
    httpx.get(f"{program.url}/health")
"""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
MODEL = "tools.bench.row_encoder:streaming"


def searching(graph):
    return "--graph", str(graph), "--beam", "10", "--lm-scale", "0.8"


class Program:
    def __init__(self, *flags, model=MODEL, env=None, **popen):
        command = [sys.executable, "-m", "wfstdec", "serve", str(model), "--port", "0"]
        command += flags
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(env or {})},
            **popen,
        )
        self.url = self.process.stdout.readline().strip()

    @property
    def ws(self):
        return self.url.replace("http", "ws", 1)

    @property
    def workers(self):
        """Process numbers of its children."""
        pid = self.process.pid
        return [*map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]

    def wait_until_ready(self):
        assert re.fullmatch(r"https?://127\.0\.0\.1:\d+", self.url), self.errors()
        assert self.process.stdout.readline() == "ready\n"

    def errors(self):
        return self.process.communicate(timeout=60)[1]

    def end(self, seconds=40):
        return self.process.wait(seconds)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.kill()
        self.process.communicate()
