"""Score hypotheses against references as Kaldi's compute-wer does.

Utterances without a hypothesis count as deletions, and are named. With n-best lists
(--nbest-lists) or lattices, also how good the best text in them is; with confidences,
how good these are: normalised cross-entropy, area under the ROC curve.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from wfstdec.cli.flags import add_flags
from wfstdec.compare.confidences import score_confidences
from wfstdec.compare.oracle import Oracle, lattice_oracle, list_oracle, read_lists
from wfstdec.compare.plotting import check_plot, plot_reliability
from wfstdec.errors import OptionError
from wfstdec.io.confidences import read_confidences
from wfstdec.io.text import read_text
from wfstdec.lattice.file import open_lattices
from wfstdec.metrics import Score, UtteranceScore, score_texts

NAMED_AT_MOST = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the command its flags."""
    add_flags(parser, "--ref", "--hyp", required=True)
    add_flags(parser, "--worst", "--nbest-lists", "--lattices", "--confidences")
    add_flags(parser, "--reliability")


def run(args: argparse.Namespace) -> None:
    """Read both files and print the score."""
    if args.reliability and not args.confidences:
        raise OptionError("--reliability without --confidences, expected both")
    if args.reliability:
        check_plot(args.reliability)
    references = read_text(args.ref)
    score = score_texts(references, read_text(args.hyp))
    print(report(score))
    if args.nbest_lists:
        print(
            oracle_line("lists", list_oracle(references, read_lists(args.nbest_lists)))
        )
    if args.lattices:
        lattices = open_lattices(args.lattices)
        print(oracle_line("lattices", lattice_oracle(references, lattices)))
    if args.confidences:
        found = score_confidences(references, read_confidences(args.confidences))
        print(found)
        if args.reliability:
            plot_reliability({str(found): found.bins}, args.reliability)
    for utterance in score.worst(args.worst):
        print(aligned(utterance))


def oracle_line(kind: str, oracle: Oracle) -> str:
    """Format a line as Kaldi does."""
    found = f"{oracle.wer:.2f} [ {oracle.errors} / {oracle.words} ]"
    return f"%WER {found} of the best in {kind}"


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
