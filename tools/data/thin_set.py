"""Copy a set of make_synthetic with some of its utterances, evenly spread.

python -m tools.data.thin_set build/synthetic thin 60
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import numpy as np


def thin(source: Path, target: Path, count: int) -> None:
    """Copy all files of a set, the posteriors and references of some utterances."""
    target.mkdir(parents=True)
    for path in source.iterdir():
        if path.suffix != ".npz" and path.name != "refs.txt":
            shutil.copy(path, target / path.name)
    lines = (source / "refs.txt").read_text("utf-8").splitlines()
    step = max(1, len(lines) // count)
    kept = {line.split()[0]: line for line in lines[::step][:count]}
    (target / "refs.txt").write_text("".join(f"{x}\n" for x in kept.values()), "utf-8")
    with np.load(source / "posteriors.npz") as file:
        arrays = {name: file[name] for name in file.files if name in kept}
    np.savez_compressed(target / "posteriors.npz", **arrays)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path, help="the set")
    parser.add_argument("target", type=Path, help="a folder to make")
    parser.add_argument("count", type=int, help="utterances to keep")
    thin(**vars(parser.parse_args()))
