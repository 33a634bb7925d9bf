"""Align many utterances with their texts: from files to a file, or from pairs."""

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
    """Counts of a run; `str()` is lines for a person. Others as of `Tally`."""

    frame_shift_s: float  # Seconds per frame
    num_frames: int = 0  # Their frames
    align_s: float = 0.0  # Seconds on the wall in the aligner
    # By utterance, in words, where text and audio do not fit
    misfits: dict[str, list[str]] = field(default_factory=dict)
    # Utterances that have log-probs and no text: left out
    without_text: list[str] = field(default_factory=list)
    # Utterances that have a text and no log-probs
    without_logprobs: list[str] = field(default_factory=list)
    remedy: str = ""  # How the ids of these two differ; empty if that is unknown

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
    """Align all utterances of a file that have a text; results in its order.

    Args:
        aligner: For their tokens and words.
        logprobs: As of `decode_file`, as are the others.
        ref: The transcripts: a file of `utterance words...` lines, or the words of
            each utterance.
        output: The file or folder to write; None is standard output.
        format: One of `wfstdec.io.FORMATS`; None goes by the ending of `output`.
        subtitles: How words are cut into subtitles.
        strict: The first utterance with a fault ends the run.
        restart: What becomes of the work of an earlier run that was stopped.
        progress: Show a progress bar, where standard error is a terminal.

    Raises:
        OptionError, ShapeError, LogprobError: As of `decode_file`.
        FormatError: A file cannot be read or written, or no utterance has both
            log-probs and a text; says how their ids differ.
        LexiconError: A text does not fit, and `strict`, or so with all utterances; or
            no word of any text is in the lexicon as it is written.
    """
    format = format_named(format, output)
    write = alignment_writer(format, subtitles=subtitles)
    settings = {"format": format, **fields_of(subtitles)}
    if restart is None or not restart.settings:  # or they are there as users say them
        settings |= fields_of(aligner.options)
    if not isinstance(ref, Mapping):
        settings["ref"] = digest(ref)
        ref = read_text(ref)
    split = (one.split() if isinstance(one, str) else one for one in ref.values())
    # Before the run: words of another case or form would fail one utterance after the
    # other.
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
    """Align utterances as they are read; those without a text are left out."""
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
    # Told once at the end: ids of one side may all lack a prefix.
    pairing = Pairing.of(texts, (*found, *summary.without_text), _SIDES)
    if not summary.num_kept and not failed:
        pairing.check()
    summary.remedy = pairing.remedy
    summary.check(at_end=True)
