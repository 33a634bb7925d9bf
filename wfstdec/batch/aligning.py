"""Alignment of many utterances with their texts, from a file or from pairs."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

import numpy as np

from wfstdec.align.aligner import ForcedAligner
from wfstdec.align.alignment import Alignment
from wfstdec.batch.decoding import Tally, fields_of, progress_bar, readable
from wfstdec.errors import InputError
from wfstdec.io.journal import Restart
from wfstdec.io.logprobs import LogprobReader, open_logprobs
from wfstdec.io.outputs import open_results
from wfstdec.io.results import alignment_writer, format_named, read_text
from wfstdec.io.subtitles import SubtitleOptions
from wfstdec.text.display import named
from wfstdec.text.files import PathLike, digest
from wfstdec.text.normalize import Pairing

_SIDES = ("the texts", "the log-probs")


@dataclass
class AlignmentSummary(Tally):
    """Counts of a run; `str()` is lines for users. Others as in `Tally`."""

    frame_shift_s: float  # Seconds per frame
    num_frames: int = 0  # Number of frames
    align_s: float = 0.0  # Wall seconds in the aligner
    # Misfits of text and audio by utterance, in words
    misfits: dict[str, list[str]] = field(default_factory=dict)
    # Utterances with log-probs and without a text: skipped
    without_text: list[str] = field(default_factory=list)
    # Utterances with a text and without log-probs
    without_logprobs: list[str] = field(default_factory=list)
    remedy: str = ""  # Difference of the ids of these two; empty if unknown

    def __str__(self) -> str:
        audio_s = self.num_frames * self.frame_shift_s
        lines = [
            f"aligned {self.num_utterances} utterances, {audio_s:.1f} s of audio in "
            f"{self.align_s:.2f} s; {len(self.misfits)} have misfits{self.extras()}"
        ]
        for name in ("without_text", "without_logprobs"):
            found = getattr(self, name)
            if found:
                text = name.replace("_", " ")
                lines.append(f"{len(found)} {text}: {named(found)}")
        if self.remedy:
            lines.append(self.remedy)
        return "\n".join(lines)


def align_file(
    aligner: ForcedAligner,
    logprobs: PathLike | LogprobReader,
    ref: PathLike | Mapping[str, Sequence[str] | str],
    output: PathLike | None = None,
    *,
    format: str | None = None,
    subtitles: SubtitleOptions | None = None,
    strict: bool = False,
    restart: Restart | None = None,
    progress: bool = False,
) -> AlignmentSummary:
    """Align the utterances of a file that have a text; results are in its order.

    Args:
        aligner: Aligner for their tokens and words.
        logprobs: As in `decode_file`; likewise other arguments.
        ref: Transcripts: a file of `utterance words...` lines, or the words of each
            utterance.
        output: The file or folder to write; None is standard output.
        format: One of `wfstdec.io.FORMATS`; None uses the ending of `output`.
        subtitles: Options of subtitles.
        strict: Raise at the first utterance with a fault.
        restart: Treatment of the results of an interrupted run.
        progress: Show a progress bar if standard error is a terminal.

    Raises:
        OptionError, ShapeError, LogprobError: As in `decode_file`.
        FormatError: A file cannot be read or written, or no utterance has both
            log-probs and a text; shows how their ids differ.
        LexiconError: A text does not fit, with `strict` or for all utterances; or no
            word of any text is in the lexicon.
    """
    format = format_named(format, output)
    write = alignment_writer(format, subtitles=subtitles)
    settings = {"format": format, **fields_of(subtitles)}
    # else the settings have the user's form
    if restart is None or not restart.settings:
        settings |= fields_of(aligner.options)
    if not isinstance(ref, Mapping):
        settings["ref"] = digest(ref)
        ref = read_text(ref)
    split = (one.split() if isinstance(one, str) else one for one in ref.values())
    # Before the run: words of another case or form would fail every utterance.
    aligner.check_words(chain.from_iterable(split))
    if not isinstance(logprobs, LogprobReader):
        logprobs = open_logprobs(logprobs)
    settings["logprobs"] = digest(logprobs.path)
    summary = AlignmentSummary(aligner.frame_shift_s)
    with open_results(
        *(output, format, write, logprobs.num_utterances),
        restart=restart,
        settings=settings,
    ) as results:
        known = summary.resume(results)
        for utterance, alignment in align_all(
            aligner,
            logprobs.without(known),
            {one: words for one, words in ref.items() if one not in known},
            summary=summary,
            strict=strict,
            progress=progress and not results.on_terminal,
        ):
            results.put(utterance, alignment)
    return summary


def align_all(
    aligner: ForcedAligner,
    logprobs: Iterable[tuple[str, np.ndarray]],
    texts: Mapping[str, Sequence[str] | str],
    *,
    summary: AlignmentSummary | None = None,
    strict: bool = False,
    progress: bool = False,
) -> Iterator[tuple[str, Alignment]]:
    """Align utterances as they are read; those without a text are skipped."""
    summary = summary or AlignmentSummary(aligner.frame_shift_s)
    fail = partial(summary.fail, strict=strict)
    total = getattr(logprobs, "num_utterances", None)
    left, found = dict.fromkeys(texts), list[str]()
    with progress_bar(progress, total=total, unit=" utterances") as bar:
        for utterance, array in aligner.checked(readable(logprobs, fail)):
            bar.update()
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
                fail(error)
                summary.check()
                continue
            summary.align_s += time.perf_counter() - began
            summary.num_utterances += 1
            summary.num_frames += len(array)
            if alignment.misfits:
                summary.misfits[utterance] = list(map(str, alignment.misfits))
            summary.check()
            yield utterance, alignment
    failed = {error.utterance for error in summary.failures}
    summary.without_logprobs += [one for one in left if one not in failed]
    # Reported at the end: ids of one side may all lack a prefix.
    pairing = Pairing.of(texts, (*found, *summary.without_text), _SIDES)
    if not summary.num_kept and not failed:
        pairing.check()
    summary.remedy = pairing.remedy
    summary.check(at_end=True)
