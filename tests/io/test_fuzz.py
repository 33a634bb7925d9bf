"""Damaged files of every kind: errors that name them, or results that can be used."""

import subprocess
import sys
from pathlib import Path

import wfstdec

ROOT = Path(wfstdec.__file__).parents[1]


def test_a_short_run_of_the_fuzzer_finds_nothing():
    command = [sys.executable, "-m", "tools.fuzz", "--seed", "44", "--mutants", "30"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " mutants, 0 findings" in done.stdout
