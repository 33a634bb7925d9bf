"""A set of real CTC log-probs over word pieces, for benchmarks and `wfstdec compare`.

    python -m tools.data.head_set --pieces 1024 --out build/bench/heads-1024

The log-probs are those of the test speakers (`tools.data.head_data`) by the heads of
graphs/whisper_heads: 214 utterances, 80 ms frames. The lexicon has the words of the
data's pruned 3-gram, cut by the SentencePiece model. Writes tokens.txt, bpe.model,
lexicon.txt, posteriors.npz, refs.txt and parameters.json.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tools.bench.data import DATA, ROOT
from tools.data.head_data import cached_frames, of_part, read_speech
from tools.data.train_heads import PIECES_256, Pieces
from tools.data.whisper_heads import SIZES, load_heads
from wfstdec.io.results import write_text
from wfstdec.text.arpa import read_arpa
from wfstdec.text.files import atomic_write
from wfstdec.text.lexicon import spelling_lexicon
from wfstdec.text.tokens import token_table

HEADS = ROOT / "graphs" / "whisper_heads"
CACHE = ROOT / "build" / "heads"
ARPA = "lm/lm_books.3g_pruned.arpa.gz"
FRAME_SHIFT_S = 0.08


def write_set(data: Path, heads: Path, cache: Path, size: int, out: Path) -> None:
    """Write all of a set."""
    speech = read_speech(data)
    frames, net = cached_frames(speech, cache), load_heads(heads)
    own = of_part(speech, "test")
    made = {one.name: net.ctc_logprobs(frames[one.name], size) for one in own}
    out.mkdir(parents=True, exist_ok=True)
    model = PIECES_256 if size == SIZES[0] else heads / "bpe1024.model"
    with atomic_write(out / "bpe.model") as file:
        file.write(model.read_bytes())
    names = [*Pieces(model.read_bytes()).names, "<blank>"]
    tokens = token_table(names, size)
    lexicon = spelling_lexicon(
        read_arpa(data / ARPA).words, tokens, sentencepiece_model=model
    )
    with atomic_write(out / "tokens.txt", "w") as file:
        file.writelines(f"{name} {i}\n" for i, name in enumerate(names))
    with atomic_write(out / "lexicon.txt", "w") as file:
        for word, spelt in zip(lexicon.words, lexicon.pronunciations, strict=True):
            file.write(f"{word}\t{' '.join(names[token] for token in spelt)}\n")
    with atomic_write(out / "posteriors.npz") as file:
        rounded = {name: rows.astype(np.float16) for name, rows in made.items()}
        np.savez_compressed(file, **rounded)
    write_text(out / "refs.txt", {one.name: one.words for one in own})
    with atomic_write(out / "parameters.json", "w") as file:
        file.write(json.dumps({"frame_shift_s": FRAME_SHIFT_S}) + "\n")


def main(argv: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--data", type=Path, default=DATA)
    add("--heads", type=Path, default=HEADS, help="what train_heads wrote")
    add("--cache", type=Path, default=CACHE, help="for Whisper's frames")
    add("--pieces", type=int, choices=SIZES, default=SIZES[1])
    add("--out", type=Path, required=True, help="folder to write to")
    args = parser.parse_args(argv)
    write_set(args.data, args.heads, args.cache, args.pieces, args.out)


if __name__ == "__main__":
    main()
