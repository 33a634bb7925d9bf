"""Make the data of graphs/librispeech_demo from the development data.

    python -m tools.data.make_demo_recipe ../shared/data graphs/librispeech_demo

Takes a few utterances of each speaker, evenly over what each has read, and those that
the boost list is for; writes the same bytes every time.
"""

from __future__ import annotations

import argparse
import gzip
import shutil
from pathlib import Path

import numpy as np

from wfstdec.io.logprobs import open_logprobs
from wfstdec.io.results import read_text, write_text

PER_SPEAKER = 3
FOR_BOOSTING = (
    "1462-170142-0030",
    "1993-147149-0014",
    "1993-147149-0027",
    "2078-142845-0016",
    "2086-149220-0004",
)


def choose(utterances: list[str]) -> list[str]:
    """Pick the demo's utterances, in the order of the file."""
    by_speaker: dict[str, list[str]] = {}
    for utterance in utterances:
        by_speaker.setdefault(utterance.split("-")[0], []).append(utterance)
    chosen = set(FOR_BOOSTING)
    for own in by_speaker.values():
        steps = (np.arange(PER_SPEAKER) + 0.5) / PER_SPEAKER
        chosen.update(own[int(step * len(own))] for step in steps)
    return [utterance for utterance in utterances if utterance in chosen]


def pack(source: Path, target: Path) -> None:
    """Gzip a file without its name and date, so that equal input gives equal bytes."""
    with target.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as file:
        file.write(source.read_bytes())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="the folder of development data")
    parser.add_argument("recipe", type=Path, help="the folder to write to")
    args = parser.parse_args()
    posteriors = args.data / "posteriors"
    references = read_text(posteriors / "librispeech_dev.txt")
    logprobs = dict(open_logprobs(posteriors / "librispeech_dev.npz"))
    chosen = choose(list(logprobs))
    args.recipe.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(
        args.recipe / "logprobs.npz", **{u: logprobs[u] for u in chosen}
    )
    write_text(args.recipe / "refs.txt", {u: references[u] for u in chosen})
    shutil.copyfile(args.data / "tokens.txt", args.recipe / "tokens.txt")
    shutil.copyfile(
        args.data / "lexicon" / "cmudict.LICENSE", args.recipe / "cmudict.LICENSE"
    )
    pack(args.data / "lexicon" / "lexicon_ipa.txt", args.recipe / "lexicon.txt.gz")
    shutil.copyfile(
        args.data / "lm" / "lm_books.3g_pruned.arpa.gz", args.recipe / "lm.arpa.gz"
    )


if __name__ == "__main__":
    main()
