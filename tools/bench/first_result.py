"""CPU seconds and wall clock to the first result of each feature, in a new process.

    python -m tools.bench.first_result --output run.json
    python -m tools.bench.first_result --python venv/bin/python     an installation

Each feature of the README's snippet is timed in the order of a user's first session, in
a process of its own, twice: with an empty cache, and with what the first run left. With
`--python` it is an installed package that runs, with the code that came with it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from wfstdec.compare.machine import describe_machine

ROOT = Path(__file__).parents[2]
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


def run(python: str, recipe: Path, cache: str, cwd: Path) -> tuple[list, list]:
    """Time the features in one new process: rows and texts."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [python, "-W", "ignore", "-c", PROGRAM, str(recipe)],
        env=environment,
        cwd=cwd,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    rows, texts = json.loads(done.stdout.splitlines()[-1])
    return rows, texts


def main() -> None:
    """Time, print a table, write a run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", help="of an environment with wfstdec installed")
    parser.add_argument("--output", help="write the run to this JSON file")
    args = parser.parse_args()
    recipe = ROOT / "graphs" / "librispeech_demo"
    python, found = args.python or sys.executable, {}
    with tempfile.TemporaryDirectory() as empty:
        where = Path(empty) if args.python else ROOT
        for name in ("empty cache", "again"):
            rows, texts = run(python, recipe, f"{empty}/cache", where)
            found[name] = rows
            assert found.setdefault("texts", texts) == texts, "other texts"
    print(
        f"{'feature':12} {'cpu s':>8} {'wall s':>8} {'compiled':>8} {'again cpu s':>12}"
    )
    for first, again in zip(found["empty cache"], found["again"], strict=True):
        print(
            f"{first['feature']:12} {first['cpu_s']:8.2f} {first['wall_s']:8.2f} "
            f"{first['compiled']:8d} {again['cpu_s']:12.2f}"
        )
    if args.output:
        run_of = {"machine": describe_machine(), "installed": bool(args.python)}
        text = json.dumps({**run_of, **found}, indent=1)
        Path(args.output).write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    main()
