"""Speed of machine code made ahead against code compiled for this very processor.

    python -m tools.bench.code_ahead --python venv/bin/python --output run.json

Both decode the same log-probs by turns, each in processes of its own: the shipped
recipe (V = 43) and random speech with 1,025 tokens, at beams 8 and 13. With
`--checkout` another tree takes a turn too, such as the commit before.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from llvmlite import binding

from tools.bench.command import Run, bare_parser

ROOT = Path(__file__).parents[2]
BEAMS = (8.0, 13.0)
PROGRAM = r"""
import hashlib, json, sys, time
from pathlib import Path
import numpy as np
import wfstdec

recipe, folder, repeats = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])

def random_speech():
    # 2,000 words of one to four of 1,024 tokens; peaky log-probs of their sentences.
    rng = np.random.default_rng(7)
    V, words = 1025, 2000
    spelt = [rng.integers(1, V, rng.integers(1, 5)) for _ in range(words)]
    (folder / "tokens.txt").write_text(
        "\n".join(["<blk>", *(f"p{i}" for i in range(1, V))]) + "\n")
    (folder / "lexicon.txt").write_text("".join(
        f"w{i} {' '.join(f'p{t}' for t in s)}\n" for i, s in enumerate(spelt)))
    pairs = sorted({(int(a), int(b)) for a, b in rng.integers(0, words, (8000, 2))})
    lines = ["\\data\\", f"ngram 1={words + 2}", f"ngram 2={len(pairs)}", "",
             "\\1-grams:", "-99 <s> -0.3", "-1.5 </s>"]
    lines += [f"-3.3 w{i} -0.3" for i in range(words)]
    lines += ["", "\\2-grams:", *(f"-1.2 w{a} w{b}" for a, b in pairs)]
    lines += ["", "\\end\\"]
    (folder / "lm.arpa").write_text("\n".join(lines) + "\n")
    spoken = []
    for _ in range(20):
        tokens = np.concatenate([spelt[w] for w in rng.integers(0, words, 25)])
        frames = np.zeros(4 * len(tokens), np.int64)
        frames[1::4] = frames[2::4] = tokens
        rows = rng.normal(0, 1.5, (len(frames), V)).astype(np.float32)
        rows[np.arange(len(frames)), frames] += rng.normal(11, 3, len(frames))
        rows -= np.log(np.exp(rows).sum(1, keepdims=True))
        spoken.append(rows.astype(np.float32))
    graph = wfstdec.build_graph(tokens=folder / "tokens.txt",
        lexicon=folder / "lexicon.txt", arpa=folder / "lm.arpa")
    return graph, spoken

def recipe_speech():
    graph = wfstdec.build_graph(tokens=recipe / "tokens.txt", separator="<wb>",
        lexicon=recipe / "lexicon.txt.gz", arpa=recipe / "lm.arpa.gz")
    return graph, list(np.load(recipe / "logprobs.npz").values())

rows = []
sets = {"recipe, V = 43": recipe_speech, "random, V = 1,025": random_speech}
for name, make in sets.items():
    graph, spoken = make()
    for beam in BEAMS:
        options = wfstdec.WfstOptions(beam=beam, lm_scale=0.8)
        decoder = wfstdec.WfstDecoder(graph, options, "cpu", threads=1)
        found, seconds = decoder.decode(spoken), []
        for _ in range(repeats):
            begin = time.process_time()
            decoder.decode(spoken)
            seconds.append(time.process_time() - begin)
        bits = hashlib.blake2b(digest_size=8)
        for one in found:
            bits.update(one.text.encode() + np.float64(one.total_cost).tobytes())
        rows.append({"data": name, "beam": beam, "cpu_s": min(seconds),
                     "frames": sum(map(len, spoken)), "bits": bits.hexdigest()})
print(json.dumps(rows))
""".replace("BEAMS", repr(BEAMS))


def run(python: str, where: Path, more: dict[str, str], repeats: int) -> list[dict]:
    """Decode in one process; rows of data and beam."""
    with tempfile.TemporaryDirectory() as folder:
        recipe = ROOT / "graphs" / "librispeech_demo"
        arguments = [str(recipe), folder, str(repeats)]
        done = subprocess.run(
            [python, "-W", "ignore", "-c", PROGRAM, *arguments],
            env={**os.environ, "OMP_NUM_THREADS": "1", **more},
            cwd=where,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    return json.loads(done.stdout.splitlines()[-1])


def main(argv: list[str] | None = None) -> None:
    """Decode by turns, print, write a run."""
    parser = bare_parser(__doc__)
    add = parser.add_argument
    add("--python", default=sys.executable, help="that has code made ahead")
    add("--checkout", type=Path, help="another tree, with the Python of this process")
    add("--turns", type=int, default=2, help="of each; default 2")
    add("--repeats", type=int, default=5, help="timings in a turn; default 5")
    add("--output", type=Path, help="write all figures as JSON")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as empty:
        host = {
            "NUMBA_CPU_NAME": binding.get_host_cpu_name(),
            "NUMBA_CPU_FEATURES": binding.get_host_cpu_features().flatten(),
            "NUMBA_CACHE_DIR": f"{empty}/native",
        }
        kinds = {
            "made ahead": (args.python, Path(empty), {}),
            "native": (args.python, Path(empty), host),
        }
        if args.checkout is not None:
            kinds["other checkout"] = (sys.executable, args.checkout.resolve(), {})
        turns: dict[str, list[list[dict]]] = {kind: [] for kind in kinds}
        for _ in range(args.turns):
            for kind, (python, where, more) in kinds.items():
                turns[kind].append(run(python, where, more, args.repeats))
    rows = []
    for kind, runs in turns.items():
        for same in zip(*runs, strict=True):
            rows.append(
                {"code": kind, **same[0], "cpu_s": min(r["cpu_s"] for r in same)}
            )
    for row in rows:
        per_frame = 1e6 * row["cpu_s"] / row["frames"]
        print(
            f"{row['code']:15} {row['data']:18} beam {row['beam']:4.1f} "
            f"{per_frame:8.2f} us/frame  bits {row['bits']}"
        )
    Run("tools.bench.code_ahead", args).write(rows)


if __name__ == "__main__":
    main()
