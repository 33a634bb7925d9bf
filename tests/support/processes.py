"""Python in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
STAND_IN = ROOT / "tests" / "support" / "stand_in"


def python(*words, **more):
    """Run Python with these words, from the checkout; how it ended, and its output."""
    given = {"cwd": ROOT, "capture_output": True, "text": True}
    return subprocess.run([sys.executable, *map(str, words)], **given | more)


def on_stand_in(fault, **more):
    """The environment of a process with an imitated CuPy, and a fault."""
    paths = os.pathsep.join(map(str, (STAND_IN, ROOT)))
    return os.environ | {"PYTHONPATH": paths, "STAND_IN_FAULT": fault, **more}
