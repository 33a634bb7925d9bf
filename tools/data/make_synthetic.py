"""Make a seeded set of BPE posteriors: a large vocabulary, with the truth known.

    pip install -e '.[tools]'
    python -m tools.data.make_synthetic                              # build/synthetic
    python -m tools.data.make_synthetic --level hard --out build/synthetic_hard

Writes tokens.txt, bpe.model, lexicon.txt, posteriors.npz, refs.txt, parameters.json and
README.md, and prints sizes and the greedy word error rate. The same arguments give the
same files on the same machine (SentencePiece, NumPy and the processor may change last
bits); an utterance does not depend on how many are made.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import sentencepiece

from tools.data.ctc_simulator import BLANK, Acoustics, Simulator
from tools.data.forced_alignment import spans
from wfstdec.io.results import write_text
from wfstdec.metrics import score_texts
from wfstdec.text.arpa import read_arpa
from wfstdec.text.files import atomic_write, read_lines
from wfstdec.text.lexicon import spelling_lexicon
from wfstdec.text.tokens import TokenTable, read_tokens

LEVELS = {"clean": 0.0, "mild": 0.85, "mid": 1.3, "hard": 3.5}
"""Noise by name: mild has about the token error rate of the real set."""
FRAME_SHIFT_S = 0.04
DROPOUT = 0.1
"""Of BPE merges, for the alternative spellings."""

Spellings = dict[str, list[tuple[int, ...]]]
"""Ways to spell each word, the model's first."""

README = """# Synthetic BPE posteriors

Made by `tools/data/make_synthetic.py`; parameters and figures are in `parameters.json`.
A simulated model: {vocabulary} tokens with the blank (0), frames of {shift} s, natural
log-probs float16 [T, {vocabulary}] in `posteriors.npz`. The references are sentences
that the SentencePiece model was not trained on. The language models `lm_books.*` were
estimated from all of this text, these sentences among it: word error rates with them
are too good to be compared with those of real sets, and serve to compare decoders only.
{unknown:.1f} % of the reference words are not in the lexicon.
"""


@dataclass(frozen=True)
class Corpus:
    """The text, split: `references` are the held-out sentences, in utterance order."""

    counts: Counter[str]
    training: list[str]
    references: list[list[str]]


def read_corpus(args: argparse.Namespace) -> Corpus:
    """Shuffle the different sentences; references from the front, training behind.

    What is trained on does not depend on the number of references, nor these on it.
    """
    lines = read_lines(args.text)
    counts = Counter(word for line in lines for word in line.split())
    unique = list(dict.fromkeys(line for line in lines if line))
    order = np.random.default_rng([args.seed, 2]).permutation(len(unique))
    training = order[max(0, len(order) - args.train_sentences) :].tolist()
    references = []
    for row in order[: len(order) - len(training)].tolist():
        words = unique[row].split()
        if len(references) < args.utterances and (
            args.min_words <= len(words) <= args.max_words
        ):
            references.append(words)
    if len(references) < args.utterances:
        sys.exit(
            f"{args.text}: {len(references)} held-out sentences of {args.min_words} to "
            f"{args.max_words} words, expected {args.utterances}; train on fewer"
        )
    return Corpus(counts, [unique[row] for row in sorted(training)], references)


def train_pieces(sentences: Sequence[str], size: int) -> bytes:
    """Train a BPE model of `size` pieces, `<unk>` the first of them."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_writer=model,
        model_type="bpe",
        vocab_size=size,
        character_coverage=1.0,
        normalization_rule_name="identity",
        unk_id=0,
        bos_id=-1,
        eos_id=-1,
        num_threads=1,
        minloglevel=2,
    )
    return model.getvalue()


def write_tokens(path: Path, pieces: Sequence[str]) -> TokenTable:
    """Write `token id` lines, the blank first; read them back."""
    with atomic_write(path, "w") as file:
        for token, name in enumerate(["<blank>", *pieces]):
            file.write(f"{name} {token}\n")
    return read_tokens(path)


def spell_words(
    words: Sequence[str], tokens: TokenTable, model: Path, alternatives: int, seed: int
) -> Spellings:
    """The model's spelling of each word, then up to so many others that it samples."""
    lexicon = spelling_lexicon(words, tokens, sentencepiece_model=model)
    pairs = zip(lexicon.words, lexicon.pronunciations, strict=True)
    spellings: Spellings = {word: [spelt] for word, spelt in pairs}
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    sentencepiece.set_random_generator_seed(seed)
    for word, own in spellings.items():
        for _ in range(alternatives):
            sampled = processor.encode(
                word, out_type=str, enable_sampling=True, alpha=DROPOUT
            )
            spelt = tuple(tokens.index(piece) for piece in sampled)
            if spelt not in own:
                own.append(spelt)
    return spellings


def write_lexicon(path: Path, spellings: Spellings, tokens: TokenTable) -> None:
    """Write `word<TAB>pieces`, one line for each spelling."""
    with atomic_write(path, "w") as file:
        for word, own in spellings.items():
            for spelt in own:
                names = " ".join(tokens.names[token] for token in spelt)
                file.write(f"{word}\t{names}\n")


def piece_counts(
    counts: Counter[str], spellings: Spellings, tokens: TokenTable
) -> np.ndarray:
    """How often the words of the lexicon use each piece in the text: [V - 1]."""
    used = np.zeros(len(tokens))
    for word, own in spellings.items():
        np.add.at(used, list(own[0]), counts[word])
    return used[1:]


def simulate(
    corpus: Corpus, spellings: Spellings, simulator: Simulator
) -> dict[str, np.ndarray]:
    """Log-probs of each reference; a word's other spellings are said now and then."""
    made = {}
    for index, words in enumerate(corpus.references):
        rng = np.random.default_rng([simulator.seed, 3, index])
        said = []
        for word in words:
            other = rng.random() < DROPOUT
            own = spellings[word]
            said.append(own[rng.integers(1, len(own))] if other and own[1:] else own[0])
        # Rare words are harder: `the` counts 0.6 times, one of a single use 1.25 times.
        difficulty = [1.25 - 0.05 * np.log(corpus.counts[word]) for word in words]
        made[f"synthetic-{index:04d}"] = simulator.utterance(said, difficulty, index)
    return made


def greedy_words(logprobs: np.ndarray, tokens: TokenTable) -> list[str]:
    """Words of the best token of each frame, repeats merged, blanks dropped."""
    best = [token for token, _, _ in spans(logprobs.argmax(1)) if token != BLANK]
    names = (tokens.names[token] for token in best)
    return "".join(names).replace("\u2581", " ").split()


def prepare_tokens(sentences: Sequence[str], args: argparse.Namespace) -> TokenTable:
    """Train the pieces; write bpe.model and tokens.txt."""
    model = train_pieces(sentences, args.pieces)
    with atomic_write(args.out / "bpe.model") as file:
        file.write(model)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    pieces = [processor.id_to_piece(i) for i in range(len(processor))]
    return write_tokens(args.out / "tokens.txt", pieces)


def prepare_words(
    corpus: Corpus, tokens: TokenTable, args: argparse.Namespace
) -> tuple[Spellings, Spellings]:
    """Write lexicon.txt; the spellings in it, and those of spoken words it lacks."""
    model = args.out / "bpe.model"
    words = read_arpa(args.arpa).words  # spelling_lexicon leaves <s> </s> <unk> out
    spellings = spell_words(words, tokens, model, args.alternatives, args.seed)
    write_lexicon(args.out / "lexicon.txt", spellings, tokens)
    spoken = (word for words in corpus.references for word in words)
    unknown = [word for word in spoken if word not in spellings]
    return spellings, spell_words(unknown, tokens, model, 0, args.seed)


def write_notes(
    args: argparse.Namespace, sizes: Mapping[str, float], figures: Mapping[str, object]
) -> None:
    """Write README.md and parameters.json."""
    names = "utterances pieces train_sentences alternatives min_words max_words seed"
    notes = {
        "text": args.text.name,
        "arpa": args.arpa.name,
        **{name: getattr(args, name) for name in names.split()},
        "frame_shift_s": FRAME_SHIFT_S,
        "acoustics": asdict(Acoustics(noise=args.noise)),
        "sentencepiece": sentencepiece.__version__,
        "numpy": np.__version__,
        "sizes": sizes,
        "figures": figures,
    }
    with atomic_write(args.out / "parameters.json", "w") as file:
        file.write(json.dumps(notes, indent=2) + "\n")
    unknown = 100.0 * sizes["words not in the lexicon"] / sizes["words"]
    with atomic_write(args.out / "README.md", "w") as file:
        file.write(
            README.format(
                vocabulary=sizes["tokens"], shift=FRAME_SHIFT_S, unknown=unknown
            )
        )


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--data", type=Path, default=Path("../shared/data"), help="development data")
    add("--text", type=Path, help="sentences, one a line (default: those of --data)")
    add("--arpa", type=Path, help="the lexicon's words (default: lm_books.3g_pruned)")
    add("--out", type=Path, default=Path("build/synthetic"), help="folder to write to")
    add("--utterances", type=int, default=300)
    add("--pieces", type=int, default=1024, help="V without the blank (1024)")
    add("--train-sentences", type=int, default=300_000, help="for SentencePiece")
    add("--level", default="mid", help=f"{', '.join(LEVELS)}, or the noise as a number")
    add("--alternatives", type=int, default=0, help="further spellings of a word")
    add("--min-words", type=int, default=5)
    add("--max-words", type=int, default=50)
    add("--seed", type=int, default=1)
    args = parser.parse_args(argv)
    if args.utterances < 1:
        parser.error(f"--utterances {args.utterances}, expected at least 1")
    books = "standardebooks_9.1Mwords.txt.gz"
    args.text = args.text or args.data / "text" / books
    args.arpa = args.arpa or args.data / "lm" / "lm_books.3g_pruned.arpa.gz"
    try:
        args.noise = LEVELS[args.level] if args.level in LEVELS else float(args.level)
        if not 0.0 <= args.noise < np.inf:
            raise ValueError
    except ValueError:
        parser.error(
            f"--level {args.level!r}, expected {', '.join(LEVELS)} or a number"
        )
    return args


def main(argv: Sequence[str] | None = None) -> None:
    """Make the set, write it, and say what it is like."""
    args, started = parse_arguments(argv), time.perf_counter()
    args.out.mkdir(parents=True, exist_ok=True)
    corpus = read_corpus(args)
    tokens = prepare_tokens(corpus.training, args)
    lexicon, unknown = prepare_words(corpus, tokens, args)
    used = piece_counts(corpus.counts, lexicon, tokens)
    spellings = lexicon | unknown
    acoustics = Acoustics(noise=args.noise)
    simulator = Simulator(tokens.names[1:], used, acoustics, args.seed)
    logprobs = simulate(corpus, spellings, simulator)
    references = dict(zip(logprobs, corpus.references, strict=True))
    with atomic_write(args.out / "posteriors.npz") as file:
        np.savez_compressed(file, **logprobs)
    write_text(args.out / "refs.txt", references)
    sizes = {
        "utterances": len(references),
        "words": sum(map(len, references.values())),
        "words not in the lexicon": sum(
            word in unknown for words in references.values() for word in words
        ),
        "frames": sum(map(len, logprobs.values())),
        "tokens": len(tokens),
    }
    guesses = {name: greedy_words(rows, tokens) for name, rows in logprobs.items()}
    wer = score_texts(references, guesses).wer
    write_notes(args, sizes, {"greedy word error rate %": wer})
    print(f"greedy word error rate {wer:.2f} %")
    print(", ".join(f"{count} {name}" for name, count in sizes.items()))
    print(f"{args.out}: {time.perf_counter() - started:.1f} s")


if __name__ == "__main__":
    main()
