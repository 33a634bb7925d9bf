"""First runs on a person's GPU: three calls, each ten minutes at most.

    python -m tools.gpu.first_contact --out OUT          # 1: probe; search, tests
    python -m tools.gpu.first_contact --out OUT --run times --carried contact.tar.gz
                                               # 2: phases, riva, the trie, NeMo
    python -m tools.gpu.first_contact --out OUT --run sanitizers --carried ...      # 3
    python -m tools.gpu.first_contact --out OUT --steps probe         # 20 seconds of it

Every call begins with the probe (`tools.gpu.probe`): where that finds that the search
cannot run on the device, nothing else is tried. `--run benchmarks`, or their names, is
for more time. The first call is of use by itself, and so is the probe.

OUT gets three files: `probe.jsonl`, written line by line while the probe runs, and anew
after every step `contact.tar.gz`, with all logs and figures, and `report.txt`. Steps
that an earlier run did are not done again where its archive is carried in; phases and
benchmarks go on where they were. The exit status is 0 where all went well that could
run, 1 where something did not: the report says what, and how.

Where a bundle is unpacked, this is what `tools/gpu/make_bundle.sh` runs.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from tools.gpu.sanitize import TOOLS
from tools.gpu.steps import Runner, Step

ARCHIVE, REPORT = "contact.tar.gz", "report.txt"
LIMIT_S = 540.0
"""Seconds for all steps: what comes home has to be sent within ten minutes."""
_PY = sys.executable


def _module(name: str, *words: str) -> tuple[str, ...]:
    return _PY, "-m", name, *words


def _bench(name: str, *words: str) -> tuple[str, ...]:
    output = ("--output", f"{{folder}}/gpu-{name}.json", "--resume")
    return _module("tools.bench.gpu", *output, *words)


_HEADLINE = ("--settings", "7000:13", "--boosted", "0", "--dtypes", "float32")
_NCU = (
    *("ncu", "--clock-control", "none", "--launch-count", "1"),
    *("--section", "SpeedOfLight", "--section", "WarpStateStats"),
    *("--section", "MemoryWorkloadAnalysis", "--section", "SourceCounters"),
    *("--kernel-name", "search_chunk"),
    *(_PY, "-m", "tools.gpu.check", "search"),
)
PROBE = Step(
    "probe",
    _module("tools.gpu.probe", "--output", "{home}/probe.jsonl"),
    60,
    gate=True,
    shown=True,
)
"""What every call begins with."""
FIRST = (
    PROBE,
    Step("versions", _module("tools.gpu.check", "versions"), 60),
    Step("search", _module("tools.gpu.check", "search"), 150),
    Step("trie", _module("tools.gpu.check", "trie"), 120),
    Step(
        "tests",
        _module(
            "pytest", "-q", "--maxfail=8", "-m", "gpu", "-p", "no:cacheprovider",
            "--continue-on-collection-errors", "--durations=5",
        ),
        300,
        environment={
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "WFSTDEC_REQUIRE_GPU": "1",
        },
    ),
)  # fmt: skip
"""Whether it runs, and is right."""
TIMES = (
    PROBE,
    Step(
        "phases",
        _module(
            "tools.gpu.phases", "--output", "{folder}/phases.json", "--resume",
            "--minutes", "2",
        ),
        150,
    ),
    Step(
        "riva",
        _bench("riva", *_HEADLINE, "--only", "riva", "--batches", "1", "8", "128"),
        120,
    ),
    Step(
        "bench-trie",
        _bench("trie", "--profile", "trie", "--minutes", "2", "--repeats", "3"),
        200,
    ),
    Step("nemo", _module("tools.gpu.tokens", "--output", "{folder}/nemo.json"), 150),
    Step(
        "table",
        _module(
            "tools.gpu.phases", "--table", "{folder}/phases.json",
            "{folder}/gpu-riva.json", "{folder}/nemo.json",
        ),
        60,
    ),
    Step("ncu", _NCU, 120, needs="ncu"),
)  # fmt: skip
"""How long it takes, and what others take."""


def _sanitized(name: str, tool: str, *kind: str) -> Step:
    output = "--output", f"{{folder}}/{name}.txt"
    words = _module("tools.gpu.sanitize", tool, *kind, *output)
    return Step(name, words, 240, needs="compute-sanitizer")


SANITIZERS = (
    PROBE,
    *(_sanitized(tool, tool) for tool in TOOLS),
    _sanitized("memcheck-added", "memcheck", "--added"),
    *(_sanitized(f"{tool}-trie", tool, "--trie") for tool in TOOLS),
)
BENCHMARKS = (
    PROBE,
    Step("bench", _bench("dev"), LIMIT_S),
    Step(
        "threads",
        _bench(
            "threads", *_HEADLINE, "--only", "ours", "--batches", "1", "8", "128",
            "400", "--threads", "512", "256", "128", "64", "32",
        ),
        LIMIT_S,
    ),
    Step(
        "long",
        _bench(
            "long", "--long", "60", "600", "--batches", "1", "8", "--settings",
            "7000:13", "10000:17",
        ),
        LIMIT_S,
    ),
    Step(
        "bpe",
        _bench("bpe", "--sets", "../shared/bpe", "--settings", "7000:13", "3000:10"),
        LIMIT_S,
    ),
    Step("full", _bench("full", "--profile", "full"), LIMIT_S),
    Step("trie-dev", _bench("trie-dev", "--profile", "trie"), LIMIT_S),
    Step(
        "trie-bpe",
        _bench("trie-bpe", "--sets", "../shared/bpe", "--profile", "trie"),
        LIMIT_S,
    ),
)  # fmt: skip
RUNS = {
    "first": FIRST,
    "times": TIMES,
    "sanitizers": SANITIZERS,
    "benchmarks": BENCHMARKS,
}
"""The three calls, and what there is besides."""


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    names = list(dict.fromkeys(step.name for steps in RUNS.values() for step in steps))
    add("--out", type=Path, required=True, help="for the files that go home")
    add("--carried", type=Path, help="the archive of an earlier run")
    add("--run", choices=RUNS, default="first", help="which call")
    add(
        "--steps", nargs="+", choices=names, help="these steps alone, without the probe"
    )
    add("--minutes", type=float, default=LIMIT_S / 60, help="for all of them")
    add("--relative-to", type=Path, default=Path.cwd(), help="what paths are from")
    args = parser.parse_args(argv)
    args.out = args.relative_to / args.out
    if args.carried is not None:
        args.carried = args.relative_to / args.carried
    return args


def main(argv: list[str] | None = None) -> int:
    """Run the steps that are asked for."""
    args = parse_arguments(argv)
    by_name = {step.name: step for steps in RUNS.values() for step in steps}
    steps = [by_name[name] for name in args.steps] if args.steps else RUNS[args.run]
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(Path(folder), args.out / ARCHIVE, 60 * args.minutes)
        if args.carried is not None and args.carried.exists():
            runner.carry(args.carried)
        for step in steps:
            runner.run([step])
            report = Path(folder) / REPORT
            if report.exists():
                shutil.copy(report, args.out / REPORT)
        print(runner.report())
        return 0 if runner.all_ok else 1


if __name__ == "__main__":
    sys.exit(main())
