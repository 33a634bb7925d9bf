"""Copy a set with some of its utterances, evenly spread.

python -m tools.data.thin_set build/synthetic thin 60         # of make_synthetic
python -m tools.data.thin_set posteriors/dev.npz thin 600     # dev.npz and dev.txt
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from tools.bench.command import bare_parser
from wfstdec.compare.speech import evenly_spaced


def thin(source: Path, target: Path, count: int) -> None:
    """Copy all files of a set, the posteriors and references of some utterances.

    Args:
        source: A folder of make_synthetic; or posteriors with references beside them.
        target: A folder to make.
        count: Utterances to keep.
    """
    target.mkdir(parents=True)
    posteriors, references = source, source.with_suffix(".txt")
    if source.is_dir():
        posteriors, references = source / "posteriors.npz", source / "refs.txt"
        for path in source.iterdir():
            if path.suffix != ".npz" and path != references:
                shutil.copy(path, target / path.name)
    lines = evenly_spaced(references.read_text("utf-8").splitlines(), count)
    kept = {line.split()[0] for line in lines}
    text = "".join(f"{line}\n" for line in lines)
    (target / references.name).write_text(text, "utf-8")
    with np.load(posteriors) as file:
        arrays = {name: file[name] for name in file.files if name in kept}
    np.savez_compressed(target / posteriors.name, **arrays)


if __name__ == "__main__":
    parser = bare_parser(__doc__)
    parser.add_argument("source", type=Path, help="the set: a folder, or a .npz file")
    parser.add_argument("target", type=Path, help="a folder to make")
    parser.add_argument("count", type=int, help="utterances to keep")
    thin(**vars(parser.parse_args()))
