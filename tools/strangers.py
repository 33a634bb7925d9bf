"""Runs some test files without extras, with the lowest and the newest numba allowed.

    python -m tools.strangers --python python3         # as CI does

Two fresh environments get what setup.cfg asks for, pytest, and soundfile for audio: no
torch, no PyAV, no peers. One has the newest versions on the newest Python found here,
the other the lowest numba. Tests run in this checkout.
"""

from __future__ import annotations

import argparse
import configparser
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tools.release import ROOT, environment, find_python, found_pythons

PLAIN = (
    "tests/audio/test_audio.py",
    "tests/jit/test_jit.py",
    "tests/jit/test_lowering.py",
    "tests/test_front_door.py",
)
"""With the newest versions: also what failed without extras before."""
LOWEST = ("tests/jit/test_lowering.py",)
"""With the lowest numba: all of its kernels are compiled."""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--python", type=Path, default=sys.executable, help="for the lowest numba"
    )
    args = parser.parse_args(argv)
    needs, lowest = requirements((ROOT / "setup.cfg").read_text("utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        newest = find_python(found_pythons()[-1])
        for name, python, packages, files in (
            ("newest", newest, needs, PLAIN),
            ("lowest", args.python, [*needs, f"numba=={lowest}.*"], LOWEST),
        ):
            begin = time.perf_counter()
            place = Path(folder, name)
            inside = environment(python, place, packages, pinned=False)
            made = time.perf_counter() - begin
            command = [inside, "-m", "pytest", "-q", "-n", "0", *files]
            # Compiled by another numba: apart from the kernels of the checkout.
            own = {"OMP_NUM_THREADS": "1", "WFSTDEC_REQUIRE_PEERS": ""}
            if name == "lowest":
                own["NUMBA_CACHE_DIR"] = folder
            code = subprocess.run(command, cwd=ROOT, env=os.environ | own).returncode
            took = time.perf_counter() - begin
            print(f"{name} numba, {python}: installed {made:.0f} s, all {took:.0f} s")
            if code:
                return code
    return 0


def requirements(declared: str) -> tuple[list[str], str]:
    """What `setup.cfg` asks for, with two small extras; the lowest numba, as 0.62."""
    config = configparser.ConfigParser()
    config.read_string(declared)
    lines = config["options"]["install_requires"].splitlines()
    for extra in ("test", "audio"):
        lines += config["options.extras_require"][extra].splitlines()
    needs = [line for line in map(str.strip, lines) if line and line[0] != "#"]
    [numba] = [line for line in needs if line.startswith("numba ")]
    return needs, re.findall(r">=\s*([\d.]+)", numba)[0]


if __name__ == "__main__":
    sys.exit(main())
