"""Train an n-gram language model over the pieces of a set, as an ARPA file.

    pip install -e '.[tools]'
    python -m tools.data.train_token_lm build/bench/heads-1024 --out pieces.4g.arpa

The sentences are so many of the text's different ones, evenly spaced, without those
that the set's references are; the set's SentencePiece model cuts them into pieces.
kaldingram estimates a Kneser-Ney back-off model of all n-grams seen, as SRILM does (its
count cutoffs are not offered: without the 4-grams seen once a perplexity of 37 became
7e18).
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import sentencepiece

from tools.bench.command import bare_parser
from tools.bench.data import DATA
from wfstdec.compare.speech import evenly_spaced
from wfstdec.io.results import read_text
from wfstdec.text.files import atomic_write, read_lines

TEXT = DATA / "text" / "standardebooks_9.1Mwords.txt.gz"
ORDER, SENTENCES = 4, 120_000


def training_sentences(text: Path, references: Path, count: int) -> list[str]:
    """Different sentences that are no references, evenly spaced."""
    held_out = {" ".join(words) for words in read_text(references).values()}
    unique = dict.fromkeys(line for line in read_lines(text) if line)
    return evenly_spaced([line for line in unique if line not in held_out], count)


def cut(sentences: list[str], model: Path) -> list[str]:
    """Sentences as pieces between spaces."""
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    return [
        " ".join(processor.encode(sentence, out_type=str)) for sentence in sentences
    ]


def estimate(lines: list[str], order: int) -> bytes:
    """The ARPA file of tokens between spaces.

    Raises:
        SystemExit: kaldingram is not installed.
    """
    try:
        import kaldingram  # noqa: F401
    except ImportError:
        sys.exit("kaldingram is not installed; pip install kaldingram")
    with tempfile.TemporaryDirectory() as folder:
        text, arpa = Path(folder) / "text", Path(folder) / "lm.arpa"
        text.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        options = [f"--ngram-order={order}", f"--text={text}", f"--lm={arpa}"]
        command = [sys.executable, "-m", "kaldingram.train", *options]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        return arpa.read_bytes()


def train(
    folder: Path,
    out: Path,
    *,
    text: Path = TEXT,
    order: int = ORDER,
    sentences: int = SENTENCES,
) -> None:
    """Train the model of a set and write it."""
    chosen = training_sentences(text, folder / "refs.txt", sentences)
    arpa = estimate(cut(chosen, folder / "bpe.model"), order)
    out.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(out) as file:
        file.write(arpa)


def main() -> None:
    """Run from the command line."""
    parser = bare_parser(__doc__)
    add = parser.add_argument
    add("folder", type=Path, help="a set of head_set")
    add("--out", type=Path, required=True, help="the ARPA file to write")
    add("--text", type=Path, default=TEXT, help="sentences, one a line")
    add("--order", type=int, default=ORDER)
    add("--sentences", type=int, default=SENTENCES)
    args, started = parser.parse_args(), time.perf_counter()
    train(**vars(args))
    counts = args.out.read_text("utf-8").split("\n\n")[0].splitlines()[1:]
    print(", ".join(counts), f"in {time.perf_counter() - started:.1f} s")


if __name__ == "__main__":
    main()
