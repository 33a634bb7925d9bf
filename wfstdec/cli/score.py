"""Score hypotheses against references as Kaldi's compute-wer does.

Utterances without a hypothesis count as deletions, and are named.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from wfstdec.cli.flags import add_flags
from wfstdec.io.text import read_text
from wfstdec.metrics import Score, UtteranceScore, score_texts

HELP = "word error rate of hypotheses"
NAMED_AT_MOST = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the command its flags."""
    add_flags(parser, "--ref", "--hyp", required=True)
    add_flags(parser, "--worst")


def run(args: argparse.Namespace) -> None:
    """Read both files and print the score."""
    score = score_texts(read_text(args.ref), read_text(args.hyp))
    print(report(score))
    for utterance in score.worst(args.worst):
        print(aligned(utterance))


def report(score: Score) -> str:
    """Kaldi's lines, and which utterances are on one side only."""
    lines = [score.wer_line, score.ser_line]
    count = f"{len(score.utterances)} utterances"
    lines.append(f"Scored {count}, {len(score.missing)} without a hypothesis")
    if score.missing:
        lines.append(f"counted as deletions: {_names(score.missing)}")
    if score.extra:
        lines.append(f"without a reference, left out: {_names(score.extra)}")
    return "\n".join(lines)


def aligned(score: UtteranceScore) -> str:
    """Reference above hypothesis, word under word."""
    pairs = score.alignment()
    widths = [max(map(len, pair)) for pair in pairs]
    rows = [
        " ".join(word.ljust(width) for word, width in zip(words, widths, strict=True))
        for words in zip(*pairs, strict=True)
    ]
    count = f"{score.errors.total} errors / {score.errors.reference_words} words"
    reference, hypothesis = (row.rstrip() for row in rows)
    return f"{score.utterance}: {count}\n  ref {reference}\n  hyp {hypothesis}"


def _names(utterances: Sequence[str]) -> str:
    named = " ".join(utterances[:NAMED_AT_MOST])
    more = len(utterances) - NAMED_AT_MOST
    return f"{named} and {more} more" if more > 0 else named
