"""Punctuation and capitals on held-out books and on speech: F of each, ablations.

    python -m tools.bench.punctuation --speech-out build/lj.jsonl   # to train on
    wfstdec build-punctuation TRAIN... --tune CHOOSE... --speech build/lj.jsonl \
        --output en.punct.npz
    python -m tools.bench.punctuation --model en.punct.npz

The books are split by author: `TEST`, `CHOOSE`, the others train. Of LJ Speech, whose
transcripts are as printed, every second clip counts pauses, and the others are scored.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tools.bench.command import bare_parser
from tools.bench.data import DATA
from wfstdec import ForcedAligner
from wfstdec.errors import InputError
from wfstdec.readable.printed import CLASSES, EVENTS, read_printed
from wfstdec.readable.punctuation import ENGLISH, PunctuationModel, load_punctuation
from wfstdec.readable.training import f_score
from wfstdec.text.files import read_lines

TEST = "arthur-conan-doyle", "edith-wharton", "h-g-wells"
CHOOSE = "jack-london", "jane-austen", "joseph-conrad"
_SHOWN = "comma", "period", "question", "exclamation", "semicolon"
_PLACE = "{:32}" + "{:>12}" * (len(_SHOWN) + 1)


def book_names(authors: tuple[str, ...]) -> list[Path]:
    """Books of these authors."""
    every = sorted((DATA / "text" / "raw").glob("*.txt.xz"))
    return [path for path in every if path.name.startswith(authors)]


def aligned_speech(data: Path) -> list[dict[str, Any]]:
    """Clips of LJ Speech whose words the lexicon has: text as printed, times."""
    aligner = ForcedAligner(
        tokens=data / "tokens.txt",
        lexicon=data / "lexicon" / "lexicon_ipa.txt",
        separator="<wb>",
    )
    table = (data / "audio_train" / "ljspeech" / "text_as_printed.tsv").read_text()
    clips = []
    with np.load(data / "posteriors" / "ljspeech.npz") as logprobs:
        for name, text in (line.split("\t") for line in table.splitlines()):
            words, *_ = read_printed([text])
            try:
                alignment = aligner.align(
                    logprobs[name].astype(np.float32), " ".join(words)
                )
            except InputError:  # a word that the lexicon lacks
                continue
            times = [[word.start_s, word.end_s] for word in alignment.words]
            clips.append({"text": text, "words": times})
    return clips


def scores(name: str, printed: tuple[Any, ...], shown: Any) -> str:
    """A row: F of events and of capitals, place by place."""
    words, events, forms = printed
    kept = [i for i, word in enumerate(words) if word not in CLASSES]
    shown = shown[0], [shown[1][i] for i in kept]
    forms = [forms[i] for i in kept]
    capital = [np.array([f != f.lower() for f in fs]) for fs in (forms, shown[1])]
    pair = np.array(events), np.array(shown[0])
    each = [f_score(*pair, EVENTS.index(event)) for event in _SHOWN]
    return _PLACE.format(name, *(f"{f:.1f}" for f in [*each, f_score(*capital, True)]))


def of_speech(model: PunctuationModel, clips: list[Any], timed: bool) -> list[Any]:
    """Events and forms of clips as utterances of one stream, pauses given or not."""
    stream, events, forms = model.stream(), [], []
    for clip in clips:
        words, *_ = read_printed([clip["text"]])
        times = np.array(clip["words"])
        pauses = [*(times[1:, 0] - times[:-1, 1]), None] if timed else None
        shown = stream.end(words, pauses)
        events += shown.events
        forms += shown.forms
    return [events, forms]


def main() -> None:
    """Run from the command line."""
    parser = bare_parser(__doc__)
    parser.add_argument("--model", type=Path, default=ENGLISH)
    parser.add_argument("--speech-out", type=Path, help="write clips to train on")
    args = parser.parse_args()
    clips = aligned_speech(DATA)
    if args.speech_out:
        lines = [json.dumps(clip) + "\n" for clip in clips[::2]]
        args.speech_out.write_text("".join(lines))
        return
    model, row = load_punctuation(args.model), _PLACE.format
    print(row("", *_SHOWN, "capitals"))
    books = read_printed(ln for path in book_names(TEST) for ln in read_lines(path))
    full, none = model.scales, np.zeros(8, np.float32)
    for name, scales in {
        "network": full._replace(prior=none, asks=none * full.asks),
        "network, priors": full._replace(asks=none * full.asks),
        "all": full,
    }.items():
        started = time.process_time()
        shown = replace(model, scales=scales).punctuate(books[0])
        seconds = time.process_time() - started
        print(scores(name, books, shown), flush=True)
    print(f"{seconds / len(books[0]) * 1e6:.1f} us a word")
    printed = read_printed([clip["text"] for clip in clips[1::2]])
    print(scores("speech", printed, of_speech(model, clips[1::2], timed=False)))
    print(scores("speech, pauses", printed, of_speech(model, clips[1::2], timed=True)))


if __name__ == "__main__":
    main()
