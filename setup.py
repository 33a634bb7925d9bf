"""Building the package: kernels are compiled ahead, so that first results come at once.

It takes two minutes of CPU time or more, and 1.5 GB for each process: as many run as
cores and memory have room for. `WFSTDEC_COMPILE=0 pip install` leaves it out: kernels
are then compiled when they are first used. Names of `wfstdec.warm_up.ALL` in its place
compile these alone. All else is in `setup.cfg`.
"""

import os
import platform
import subprocess
import sys
import time
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

ASKED = os.environ.get("WFSTDEC_COMPILE", "1")
COMPILES = ASKED != "0" and (platform.machine() == "x86_64" and sys.platform == "linux")
PROGRAM = """
import sys
from pathlib import Path
from wfstdec.warm_up import USUAL, compile_ahead
print(compile_ahead(Path(sys.argv[1]), sys.argv[2:] or USUAL))
"""


class BuildWithKernels(build_py):
    """Copy the package, then compile kernels into the copy."""

    def run(self):
        """Do both; without kernels the package works all the same."""
        super().run()
        if COMPILES and not self.editable_mode:
            self.compile_kernels(Path(self.build_lib).resolve())

    def compile_kernels(self, root):
        """Compile, and say how long it took."""
        sys.stderr.write("compiling kernels, two minutes of CPU time or more ...\n")
        begin, before = time.perf_counter(), os.times()
        ways = ASKED.split() if ASKED != "1" else []
        paths = [str(root), os.environ.get("PYTHONPATH", "")]
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(root / "wfstdec"), *ways],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            capture_output=True,
            text=True,
            cwd=root,
        )
        after = os.times()
        spent = after.children_user + after.children_system
        spent -= before.children_user + before.children_system
        wall = time.perf_counter() - begin
        if done.returncode:
            last = done.stderr.strip().splitlines()[-1:]
            sys.stderr.write(f"not compiled, at first use instead: {last}\n")
        else:
            sys.stderr.write(
                f"compiled {done.stdout.strip()} kernels in {wall:.0f} s, "
                f"{spent:.0f} s of CPU time\n"
            )


class MaybeForOneSystem(Distribution):
    """A package with machine code in it, or not."""

    def has_ext_modules(self):
        """Whether the wheel is for one Python and one system."""
        return COMPILES


setup(cmdclass={"build_py": BuildWithKernels}, distclass=MaybeForOneSystem)
