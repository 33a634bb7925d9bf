"""Random searches under a tool of compute-sanitizer, on a GPU.

python -m tools.gpu.sanitize memcheck            # exit status 1 where it finds a fault
python -m tools.gpu.sanitize racecheck --cases 12 --output report.txt
python -m tools.gpu.sanitize memcheck --added    # searches with added words
python -m tools.gpu.sanitize memcheck --trie     # of the trie
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from tools.gpu import racecheck

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "tests" / "support" / "cuda_emulation"
WORDS = {
    "wfst": ("sanitized.py",),
    "added": ("sanitized.py", "added"),
    "trie": ("sanitized_trie.py", "32"),
}
"""The script of each kind of searches, and its arguments."""
TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
FOUND = 9
"""The exit status that compute-sanitizer gives where it finds something."""


def command(
    tool: str, cases: int, program: str = "compute-sanitizer", *, kind: str = "wfst"
) -> list[str]:
    """Command line of the cases under a tool of compute-sanitizer."""
    words = [program, "--tool", tool, "--error-exitcode", str(FOUND)]
    words += ["--print-limit", "10000" if tool == "racecheck" else "20"]
    if tool == "racecheck":
        words += ["--racecheck-detect-level", "error"]
    script, *more = WORDS[kind]
    return [*words, sys.executable, str(SCRIPTS / script), str(cases), "gpu", *more]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tool", choices=TOOLS)
    parser.add_argument("--cases", type=int, default=12)
    kinds = parser.add_mutually_exclusive_group()
    for kind, what in (("added", "with added words"), ("trie", "of the trie")):
        kinds.add_argument(
            f"--{kind}", dest="kind", action="store_const", const=kind, help=what
        )
    parser.set_defaults(kind="wfst")
    parser.add_argument("--output", type=Path, help="for what it printed")
    parser.add_argument("--program", default="compute-sanitizer")
    args = parser.parse_args(argv)
    words = command(args.tool, args.cases, args.program, kind=args.kind)
    done = subprocess.run(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    print(done.stdout[-20_000:])
    if args.output is not None:
        args.output.write_text(done.stdout, "utf-8")
    agreed = f"{args.cases} cases agree" in done.stdout
    if args.tool == "racecheck" and agreed and done.returncode in (0, FOUND):
        return racecheck.main(done.stdout, "trie" if args.kind == "trie" else "wfst")
    return 0 if agreed and done.returncode == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
