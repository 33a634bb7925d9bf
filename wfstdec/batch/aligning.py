"""Align many utterances with their texts: from files to a file, or from pairs."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from tqdm import tqdm

from wfstdec.align.aligner import ForcedAligner
from wfstdec.align.alignment import Alignment
from wfstdec.errors import InputError
from wfstdec.io.alignments import alignment_writer
from wfstdec.io.logprobs import LogprobReader, open_logprobs
from wfstdec.io.outputs import open_results
from wfstdec.io.results import format_named
from wfstdec.io.subtitles import SubtitleOptions
from wfstdec.io.text import read_text
from wfstdec.text.pairing import Pairing

_NAMED_AT_MOST = 5
_SIDES = ("the texts", "the log-probs")
Path = str | os.PathLike[str]


@dataclass
class AlignmentSummary:
    """Counts of a run; `str()` is lines for a person.

    Attributes:
        frame_shift_s: Seconds per frame.
        num_utterances: Aligned utterances.
        num_frames: Their frames.
        align_s: Seconds on the wall in the aligner.
        misfits: By utterance, in words, where text and audio do not fit.
        without_text: Utterances that have log-probs and no text: left out.
        without_logprobs: Utterances that have a text and no log-probs.
        remedy: How the ids of these two differ; empty if nobody knows.
    """

    frame_shift_s: float
    num_utterances: int = 0
    num_frames: int = 0
    align_s: float = 0.0
    misfits: dict[str, list[str]] = field(default_factory=dict)
    without_text: list[str] = field(default_factory=list)
    without_logprobs: list[str] = field(default_factory=list)
    remedy: str = ""

    def __str__(self) -> str:
        audio_s = self.num_frames * self.frame_shift_s
        lines = [
            f"aligned {self.num_utterances} utterances, {audio_s:.1f} s of audio in "
            f"{self.align_s:.2f} s; {len(self.misfits)} have misfits"
        ]
        for name in ("without_text", "without_logprobs"):
            found = getattr(self, name)
            if found:
                named = " ".join(found[:_NAMED_AT_MOST])
                more = " ..." if len(found) > _NAMED_AT_MOST else ""
                lines.append(f"{len(found)} {name.replace('_', ' ')}: {named}{more}")
        if self.remedy:
            lines.append(self.remedy)
        return "\n".join(lines)


def align_file(
    aligner: ForcedAligner,
    logprobs: Path | LogprobReader,
    texts: Path | Mapping[str, Sequence[str] | str],
    output: Path | None = None,
    *,
    format: str | None = None,
    subtitles: SubtitleOptions | None = None,
    progress: bool = False,
) -> AlignmentSummary:
    """Align all utterances of a file that have a text; results in its order.

    Args:
        aligner: For their tokens and words.
        logprobs: As `wfstdec.io.open_logprobs` takes them, or what that gives.
        texts: A file of `utterance words...` lines, or the words of each utterance.
        output: The file, whole or not at all, or the folder, see
            `wfstdec.io.open_results`; None is standard output.
        format: One of `wfstdec.io.FORMATS`; None goes by the ending of `output`.
        subtitles: How words are cut into subtitles.
        progress: Show a progress bar, where standard error is a terminal.

    Raises:
        OptionError: No such format, or several utterances where one can be.
        FormatError: A file cannot be read or written, or no utterance has both
            log-probs and a text; says how their ids differ.
        LexiconError, ShapeError, LogprobError: A text or log-probs do not fit; the
            error has the `utterance`. No word of any text is in the lexicon as it is
            written.
    """
    format = format_named(format, output)
    write = alignment_writer(format, subtitles=subtitles)
    if not isinstance(texts, Mapping):
        texts = read_text(texts)
    split = (one.split() if isinstance(one, str) else one for one in texts.values())
    aligner.check_words(word for words in split for word in words)
    if not isinstance(logprobs, LogprobReader):
        logprobs = open_logprobs(logprobs)
    summary = AlignmentSummary(aligner.frame_shift_s)
    with open_results(output, format, write, logprobs.num_utterances) as results:
        shown = progress and not results.on_terminal
        for utterance, alignment in align_all(
            aligner, logprobs, texts, summary=summary, progress=shown
        ):
            results.put(utterance, alignment)
    return summary


def align_all(
    aligner: ForcedAligner,
    logprobs: Iterable[tuple[str, np.ndarray]],
    texts: Mapping[str, Sequence[str] | str],
    *,
    summary: AlignmentSummary | None = None,
    progress: bool = False,
) -> Iterator[tuple[str, Alignment]]:
    """Align utterances as they are read; those without a text are left out.

    Args:
        aligner: For their tokens and words.
        logprobs: Pairs of an utterance id and its log-probs, [T, V].
        texts: The words of each utterance.
        summary: Counts what is aligned.
        progress: Show a progress bar, where standard error is a terminal.

    Yields:
        Each utterance and its alignment.

    Raises:
        FormatError: No utterance has both, at the end.
        LexiconError, ShapeError, LogprobError: A text or log-probs do not fit; the
            error has the `utterance`.
    """
    summary = summary or AlignmentSummary(aligner.frame_shift_s)
    total = getattr(logprobs, "num_utterances", None)
    left, found = dict.fromkeys(texts), list[str]()
    bar = tqdm(
        logprobs, total=total, disable=None if progress else True, unit=" utterances"
    )
    for utterance, array in bar:
        if utterance not in texts:
            summary.without_text.append(utterance)
            continue
        del left[utterance]
        found.append(utterance)
        began = time.perf_counter()
        try:
            alignment = aligner.align(array, texts[utterance])
        except InputError as error:
            error.utterance = utterance
            raise
        summary.align_s += time.perf_counter() - began
        summary.num_utterances += 1
        summary.num_frames += len(array)
        if alignment.misfits:
            summary.misfits[utterance] = list(map(str, alignment.misfits))
        yield utterance, alignment
    summary.without_logprobs += left
    pairing = Pairing.of(texts, (*found, *summary.without_text), _SIDES)
    pairing.check()
    summary.remedy = pairing.remedy
