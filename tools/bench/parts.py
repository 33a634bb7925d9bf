"""Speech in parts, and lists of phrases of it: what tables of neural decoders are of.

    add = table_flags(parser, TABLES)
    speech, ids = parts_of(args)                          # "all", "tune" and "test"
    said, others = rare_words(references, 7), unsaid_words(lines, references, 7, seed)
    texts = by_length(features, 24, peer.decode)          # of padded rows, and lengths

The speech is that of speakers none of the demos' models was trained on: every second
utterance is for choosing settings (`tune`), the others are for telling (`test`).
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tools.bench.data import DATA
from tools.bench.report import Row
from tools.data.transducer_data import HELD_OUT
from wfstdec.compare.comparison import PhraseCounter
from wfstdec.compare.speech import Speech, evenly_spaced, read_speech


def table_flags(
    parser: argparse.ArgumentParser, tables: Iterable[str]
) -> Callable[..., Any]:
    """Add the flags of tables; what adds more of them."""
    add = parser.add_argument
    sets = DATA / "posteriors"
    add("--table", choices=sorted(tables), required=True)
    add("--logprobs", type=Path, default=sets / "librispeech_dev.npz")
    add("--ref", type=Path, default=sets / "librispeech_dev.txt")
    add("--speakers", nargs="+", default=list(HELD_OUT))
    add("--utterances", type=int, help="so many of each part, evenly spread")
    add("--lm-scale", type=float, default=0.3)
    add("--letters", type=int, default=7, help="a phrase's fewest")
    add("--text", type=Path, default=DATA / "text/standardebooks_9.1Mwords.txt.gz")
    add("--seed", type=int, default=1)
    add("--repeats", type=int, default=1)
    add("--output", type=Path, help="write all figures as JSON, row by row")
    return add


def parts_of(args: argparse.Namespace) -> tuple[Speech, dict[str, list[str]]]:
    """The speech, and the utterances of each part, evenly spread."""
    speech = read_speech(args.logprobs, args.ref)
    ids = sorted(n for n in speech.logprobs if n.split("-")[0] in args.speakers)
    chosen = {"all": ids, "tune": ids[1::2], "test": ids[::2]}
    spread = {name: evenly_spaced(own, args.utterances) for name, own in chosen.items()}
    return speech, spread


def rare_words(references: Mapping[str, Sequence[str]], letters: int) -> list[str]:
    """Words of so many letters or more that the references have once, sorted."""
    counts = Counter(word for words in references.values() for word in words)
    return sorted(w for w, n in counts.items() if n == 1 and len(w) >= letters)


def unsaid_words(
    lines: Iterable[str],
    references: Mapping[str, Sequence[str]],
    letters: int,
    seed: int,
) -> list[str]:
    """Words of a text that no reference has, of so many letters or more, shuffled."""
    said = {word for words in references.values() for word in words}
    of_text = {word for line in lines for word in line.split()}
    found = sorted(w for w in of_text if len(w) >= letters and w not in said)
    random.Random(seed).shuffle(found)
    return found


def phrase_figures(
    phrases: Iterable[str],
    references: Mapping[str, Sequence[str]],
    texts: Mapping[str, str],
) -> Row:
    """Precision, recall and F of phrases, percent; None where there are none."""
    heard = {name: text.split() for name, text in texts.items()}
    score = PhraseCounter(phrases).score(references, heard)
    names = "precision", "recall", "f_score"
    found = {name: getattr(score, name) for name in names}
    return {n: None if one is None else 100 * one for n, one in found.items()}


def by_length(
    items: Sequence[Tensor],
    batch_size: int,
    decode: Callable[[Tensor, Tensor], Sequence[Any]],
) -> list[Any]:
    """Decode in batches of like length; what was found, in the order of the items.

    Args:
        items: [T, D] each.
        batch_size: Of all batches but the last.
        decode: Gets items padded, [B, T, D], and their lengths, int64 [B].
    """
    order = sorted(range(len(items)), key=lambda i: len(items[i]))
    found: dict[int, Any] = {}
    for first in range(0, len(order), batch_size):
        group = order[first : first + batch_size]
        rows = [items[i] for i in group]
        lengths = torch.tensor([len(one) for one in rows])
        padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        found |= zip(group, decode(padded, lengths), strict=True)
    return [found[i] for i in range(len(items))]
