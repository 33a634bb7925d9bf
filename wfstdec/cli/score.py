"""Score hypotheses against references as Kaldi's compute-wer does.

Utterances without a hypothesis count as deletions, and are named; where no id of the
references is one of the hypotheses, or no word, that is an error. The interval of the
WER is a bootstrap over utterances. With n-best lists (--nbest-lists) or lattices, also
how good the best text in them is; with confidences, how good these are: normalised
cross-entropy, area under the ROC curve.

Words are compared as they are written, or with --ignore-case or --normalize as these
say, in all of the files.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from wfstdec.cli.flags import add_flags
from wfstdec.cli.lattice_flags import GIVEN_LATTICES
from wfstdec.cli.text_flags import normalizer_of
from wfstdec.compare.confidence import score_confidences
from wfstdec.compare.oracle import Oracle, lattice_oracle, list_oracle, read_lists
from wfstdec.compare.plotting import check_plot, plot_reliability
from wfstdec.errors import OptionError
from wfstdec.io.text import read_confidences, read_text
from wfstdec.lattice.file import open_lattices
from wfstdec.metrics import Score, UtteranceScore, score_texts
from wfstdec.text.normalize import Normalizer
from wfstdec.text.pairing import Pairing, check_words

NAMED_AT_MOST = 20
_SIDES = ("--ref", "--hyp")

_log = logging.getLogger("wfstdec.score")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the command its flags."""
    add_flags(parser, "--ref", "--hyp", required=True)
    add_flags(parser, "--ignore-case", "--normalize")
    add_flags(parser, "--worst", "--nbest-lists")
    add_flags(parser, "--lattices", help=GIVEN_LATTICES)
    add_flags(parser, "--confidences", "--reliability")


def run(args: argparse.Namespace) -> None:
    """Read both files and print the score."""
    if args.reliability and not args.confidences:
        raise OptionError("--reliability without --confidences, expected both")
    if args.reliability:
        check_plot(args.reliability)
    normalizer = normalizer_of(args)
    references, hypotheses = read_text(args.ref), read_text(args.hyp)
    # On texts as they stand: the error can then name the flag that makes them alike.
    check_pair(references, hypotheses, normalizer)
    references = normalizer.texts(references)
    score = score_texts(references, normalizer.texts(hypotheses))
    print(report(score))
    if args.nbest_lists:
        lists = read_lists(args.nbest_lists)
        print(oracle_line("lists", list_oracle(references, lists, normalizer)))
    if args.lattices:
        lattices = open_lattices(args.lattices)
        found = lattice_oracle(references, lattices, normalizer)
        print(oracle_line("lattices", found))
    if args.confidences:
        said = read_confidences(args.confidences)
        measured = score_confidences(references, said, normalizer)
        print(measured)
        if args.reliability:
            plot_reliability({str(measured): measured.bins}, args.reliability)
    for utterance in score.worst(args.worst):
        print(aligned(utterance))


def check_pair(
    references: Mapping[str, Sequence[str]],
    hypotheses: Mapping[str, Sequence[str]],
    normalizer: Normalizer,
) -> None:
    """See that references and hypotheses are of one kind; warn where some are not."""
    pairing = Pairing.of(references, hypotheses, _SIDES)
    pairing.check()
    if pairing.remedy:
        _log.warning("%s", pairing.remedy)
    both = [name for name in references if name in hypotheses]
    said = chain.from_iterable(references[name] for name in both)
    heard = chain.from_iterable(hypotheses[name] for name in both)
    check_words(said, heard, normalizer, _SIDES)


def oracle_line(kind: str, oracle: Oracle) -> str:
    """Format a line as Kaldi does."""
    found = f"{oracle.wer:.2f} [ {oracle.errors} / {oracle.words} ]"
    return f"%WER {found} of the best in {kind}"


def report(score: Score) -> str:
    """Kaldi's lines, and which utterances are on one side only."""
    lines = [score.wer_line, score.ser_line]
    count = f"{len(score.utterances)} utterances"
    if score.interval is not None:
        lines.append(
            f"95 % interval of the WER: {score.interval} (bootstrap over {count})"
        )
    lines.append(f"Scored {count}, {len(score.missing)} without a hypothesis")
    if score.missing:
        lines.append(f"counted as deletions: {_names(score.missing)}")
    if score.extra:
        lines.append(f"without a reference, left out: {_names(score.extra)}")
    return "\n".join(lines)


def aligned(score: UtteranceScore) -> str:
    """Reference above hypothesis, word under word."""
    count = f"{score.errors.total} errors / {score.errors.reference_words} words"
    rows = zip(*columns(score.alignment()), strict=True)
    reference, hypothesis = (" ".join(row).rstrip() for row in rows)
    return f"{score.utterance}: {count}\n  ref {reference}\n  hyp {hypothesis}"


def columns(cells: Iterable[Sequence[str]]) -> list[list[str]]:
    """Columns of cells that are as wide as the widest of each column."""
    return [[one.ljust(max(map(len, some))) for one in some] for some in cells]


def _names(utterances: Sequence[str]) -> str:
    named = " ".join(utterances[:NAMED_AT_MOST])
    more = len(utterances) - NAMED_AT_MOST
    return f"{named} and {more} more" if more > 0 else named
