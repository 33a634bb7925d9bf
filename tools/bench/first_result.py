"""CPU seconds and wall clock to the first result of each feature, in a new process.

    python -m tools.bench.first_result --output run.json
    python -m tools.bench.first_result --python venv/bin/python     an installation

Each feature of the README's snippet is timed in the order of a user's first session, in
a process of its own, twice: with an empty cache, and with what the first run left. With
`--python` it is an installed package that runs, with the code that came with it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.bench.command import Run, bare_parser
from tools.bench.data import RECIPE, ROOT
from tools.bench.report import Columns, figure, text_figure

COLUMNS: Columns = {
    "feature": text_figure("feature"),
    "cpu s": figure("cpu_s", ".2f"),
    "wall s": figure("wall_s", ".2f"),
    "compiled": figure("compiled", "d"),
    "again cpu s": figure("again_cpu_s", ".2f"),
}
PROGRAM = r"""
import json, os, sys, time
import numba.core.event as event
import numpy as np

class Count(event.Listener):
    compiled = 0
    def on_start(self, e): pass
    def on_end(self, e): Count.compiled += 1

event.register("numba:compile", Count())
rows, last = [], [time.process_time(), time.perf_counter(), 0]

def lap(name):
    now = [time.process_time(), time.perf_counter(), Count.compiled]
    cpu, wall, compiled = (b - a for a, b in zip(last, now))
    rows.append({"feature": name, "cpu_s": round(cpu, 3), "wall_s": round(wall, 3),
                 "compiled": compiled})
    last[:] = [time.process_time(), time.perf_counter(), Count.compiled]

import wfstdec
demo = sys.argv[1] + "/"
files = {"tokens": demo + "tokens.txt", "lexicon": demo + "lexicon.txt.gz"}
wfstdec.WfstDecoder, wfstdec.TrieDecoder, wfstdec.build_graph
lap("import")
graph = wfstdec.build_graph(**files, arpa=demo + "lm.arpa.gz", separator="<wb>")
lap("build_graph")
options = wfstdec.WfstOptions(beam=13.0, lm_scale=0.8)
decoder = wfstdec.WfstDecoder(graph, options)
logprobs = list(np.load(demo + "logprobs.npz").values())
texts = [decoder.decode(logprobs[:1])[0].text]
lap("WFST")
texts.append(decoder.decode(logprobs[5:6], boosts=[{"bartley": 4.0}])[0].text)
lap("boost")
added = [wfstdec.BoostEntry("fuchs", ["f j u k s"])]
texts.append(decoder.decode(logprobs[4:5], boosts=[added])[0].text)
lap("added word")
lattice = decoder.decode_lattice(logprobs[:1])[0]
texts.append(wfstdec.lattice_hypotheses(lattice, 3)[0].text)
lap("lattice")
files |= {"lm": demo + "lm.arpa.gz", "separator": "<wb>"}
options = wfstdec.TrieOptions(beam=12.0, beam_size=256, lm_scale=0.8, nbest=3)
trie = wfstdec.TrieDecoder(**files, options=options)
lap("trie made")
texts.append([one.text for one in trie.decode_nbest(logprobs[5:6])[0]])
lap("trie n-best")
phrases = decoder.phrase_compiler().compile({"new york": 3.0})
texts.append(decoder.decode(logprobs[:1], boosts=phrases)[0].text)
lap("phrases")
sessions = decoder.sessions()
one = sessions.open()
sessions.advance({one: logprobs[0][:50]})
texts.append(sessions.partial(one).text)
lap("partial")
print(json.dumps([rows, texts]))
"""


def time_features(python: str, cache: str, cwd: Path) -> tuple[list, list]:
    """Time the features in one new process: rows and texts."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [python, "-W", "ignore", "-c", PROGRAM, str(RECIPE)],
        env=environment,
        cwd=cwd,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    rows, texts = json.loads(done.stdout.splitlines()[-1])
    return rows, texts


def main(argv: list[str] | None = None) -> int:
    """Time with an empty cache, and with what that left."""
    parser = bare_parser(__doc__)
    add = parser.add_argument
    add("--python", default=None, help="of an environment with wfstdec installed")
    add("--output", type=Path, help="write all figures as JSON")
    args = parser.parse_args(argv)
    run = Run("tools.bench.first_result", args)
    python = args.python or sys.executable
    with tempfile.TemporaryDirectory() as empty:
        where = Path(empty) if args.python else ROOT
        first, again = (
            time_features(python, f"{empty}/cache", where) for _ in range(2)
        )
    assert first[1] == again[1], "other texts"
    pairs = zip(first[0], again[0], strict=True)
    rows = [
        row | {f"again_{key}": other[key] for key in ("cpu_s", "wall_s", "compiled")}
        for row, other in pairs
    ]
    return run.finish(rows, COLUMNS, installed=bool(args.python), texts=first[1])


if __name__ == "__main__":
    main()
