"""Text formats of hypotheses, alignments, transcripts and confidences.

    write = result_writer("ctm")                    # alignment_writer for alignments
    write(utterance, [hypothesis])                  # the text of an utterance

    references = read_text("dev.txt")               # `utterance words...` a line
    read_confidences("hyp.ctm")["utt1"]             # [("hello", 0.93), ...]

Texts are plain, JSON lines, CTM, subtitles or TextGrids. `FORMATS` lists the formats,
also for the command line. Files are opened by `wfstdec.io.outputs`.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from unicodedata import normalize

from wfstdec.align.alignment import Alignment, Misfit
from wfstdec.errors import FormatError, OptionError
from wfstdec.io.subtitles import (
    SUBTITLES,
    SubtitleOptions,
    Timed,
    srt_text,
    textgrid_text,
    vtt_text,
)
from wfstdec.search.hypothesis import Hypothesis, Token, Word
from wfstdec.text.files import PathLike, atomic_write, read_lines, reading

if TYPE_CHECKING:
    from wfstdec.readable import Formatter, Shown


def text_line(
    utterance: str, hypothesis: Hypothesis | Shown, between: str | None = None
) -> str:
    """Return `utterance words...`; see `join_words`."""
    text = hypothesis.text
    if between is not None:
        text = between.join(word.text for word in hypothesis.words)
    return f"{utterance} {text}".rstrip(" ") + "\n"


def json_line(utterance: str, hypothesis: Hypothesis) -> str:
    """Return a JSON object: id, text, words with times, costs, how the search ended."""
    return _json({"id": utterance, **hypothesis.to_dict()})


def nbest_json_line(utterance: str, hypotheses: Sequence[Hypothesis]) -> str:
    """Return the object of the best hypothesis, with an array `nbest` of all."""
    each = [hypothesis.to_dict() for hypothesis in hypotheses]
    nbest = [{n: x for n, x in one.items() if n not in _OF_ALL} for one in each]
    best = each[0]
    return _json({"id": utterance, **best, "nbest": nbest})


def ctm_lines(utterance: str, hypothesis: Timed) -> str:
    """Return `utterance 1 start_s duration_s word [confidence]` for each word."""
    # The channel is always 1.
    return "".join(
        f"{utterance} 1 {word.start_s:.3f} {word.end_s - word.start_s:.3f} "
        f"{word.text}{'' if (c := word.confidence) is None else f' {c:.3f}'}\n"
        for word in hypothesis.words
    )


FORMATS: dict[str, Callable[[str, Hypothesis], str]] = {
    "text": text_line,
    "jsonl": json_line,
    "ctm": ctm_lines,
    "srt": lambda _, hypothesis: srt_text(hypothesis.words),
    "vtt": lambda _, hypothesis: vtt_text(hypothesis.words),
    "textgrid": lambda _, hypothesis: textgrid_text(hypothesis),
}
"""Formatter of an utterance's part of a file, newline included, by format."""

ENDINGS = {name: f".{name}" for name in ("jsonl", "ctm", "srt", "vtt")}
ENDINGS |= {"text": ".txt", "textgrid": ".TextGrid"}
"""Endings of file names by format."""

Write = Callable[[str, Sequence[Hypothesis]], str]
"""Formatter of an utterance and its hypotheses, best first."""


def format_named(format: str | None, path: PathLike | None = None) -> str:
    """Return the name of a format; `None` uses the file's ending, text without one."""
    if format is None:
        ending = "" if path is None else os.path.splitext(path)[1].lower()
        known = {"": "text"} | {end.lower(): name for name, end in ENDINGS.items()}
        if ending not in known:
            endings = ", ".join(ENDINGS.values())
            raise OptionError(
                f"output {os.fspath(path or '')!r}, expected one of {endings}, a name "
                "without an ending (text), or a format by name (--format)"
            )
        return known[ending]
    if format not in FORMATS:
        expected = ", ".join(map(repr, FORMATS))
        raise OptionError(f"format={format!r}, expected one of {expected}")
    return format


def result_writer(
    format: str,
    *,
    nbest: int = 1,
    subtitles: SubtitleOptions | None = None,
    formatter: Formatter | None = None,
) -> Write:
    """Return a formatter of hypotheses.

    Args:
        format: One of `FORMATS`.
        nbest: Maximum number of hypotheses of an utterance.
        subtitles: Options of subtitles; plain text uses its `join` between words.
        formatter: Formatter of texts and subtitles; JSON has its output as `shown`.

    Raises:
        OptionError: Unknown format, or one without several texts, or without readable
            text.
    """
    format = format_named(format)
    if formatter is not None and format not in (*SUBTITLES, "text", "jsonl"):
        known = ", ".join(map(repr, ("text", "jsonl", *SUBTITLES)))
        raise OptionError(f"readable text in format={format!r}, expected {known}")
    shown: Any = (lambda one: one) if formatter is None else formatter
    if nbest == 1 and format in SUBTITLES:
        made: Any = SUBTITLES[format]
        return lambda _, hypotheses: made(shown(hypotheses[0]).words, subtitles)
    if nbest == 1 and format == "text":
        between = None if subtitles is None else subtitles.join
        return lambda utterance, found: text_line(utterance, shown(found[0]), between)
    if formatter is not None and format == "jsonl":
        plain = result_writer(format, nbest=nbest)

        def with_shown(utterance: str, found: Sequence[Hypothesis]) -> str:
            more = _json({"shown": shown(found[0]).to_dict()})
            return f"{plain(utterance, found)[:-2]}, {more[1:]}"

        return with_shown
    if nbest == 1:
        return lambda utterance, hypotheses: FORMATS[format](utterance, hypotheses[0])
    if format != "jsonl":
        raise OptionError(
            f"nbest={nbest} with format={format!r}, expected format 'jsonl', which "
            "can hold them"
        )
    return nbest_json_line


_OF_ALL = frozenset({"num_frames", "died_at_frame"})
"""Fields common to all hypotheses of an utterance."""


def _json(fields: dict[str, Any]) -> str:
    return json.dumps(fields, ensure_ascii=False) + "\n"


_OF_MISFITS = ("kind", "first_word", "end_word", "text")
_DIGITS = 6  # frame * shift leaves more, like 0.6000000000000001


def alignment_json_line(utterance: str, alignment: Alignment) -> str:
    """Return a JSON object: words, tokens, times, confidences, misfits, costs."""
    columns = alignment.words, alignment.positions, alignment.word_tokens
    words: list[dict[str, Any]] = []
    for word, position, (first, end) in zip(*columns, strict=True):
        own = [{"token": t.text, **_times(t)} for t in alignment.tokens[first:end]]
        words.append({"word": word.text, "position": position, **_times(word)})
        words[-1]["tokens"] = own
    fields = {
        "id": utterance,
        "text": alignment.text,
        "words": words,
        "fits": alignment.fits,
        "misfits": [
            {name: getattr(one, name) for name in _OF_MISFITS} | _times(one)
            for one in alignment.misfits
        ],
        "total_cost": _finite(alignment.total_cost),
        "excess": _finite(alignment.excess),
        "exact": alignment.exact,
        "reached_end": alignment.reached_end,
        "num_frames": int(alignment.num_frames),
    }
    return _json(fields)


def _finite(cost: float) -> float | None:
    return float(cost) if math.isfinite(cost) else None


def alignment_writer(
    format: str, *, subtitles: SubtitleOptions | None = None
) -> Callable[[str, Alignment], str]:
    """Return a formatter of alignments in one of `FORMATS`."""
    if format_named(format) == "jsonl":
        return alignment_json_line
    # All others have words with times, as hypotheses do.
    write: Callable[[str, Any], str] = result_writer(format, subtitles=subtitles)
    return lambda utterance, alignment: write(utterance, [alignment])


def _times(item: Word | Token | Misfit) -> dict[str, float | None]:
    confidence = item.confidence
    return {
        "start_s": round(float(item.start_s), _DIGITS),
        "end_s": round(float(item.end_s), _DIGITS),
        "confidence": None if confidence is None else round(confidence, _DIGITS),
    }


_SPACES = re.compile("[ \t]+")  # as in lexicons: other white space may be in words


def _json_words(line: str) -> list[str]:
    fields = json.loads(line)
    texts = _SPACES.split(fields["text"])
    if "words" in fields:  # unspaced texts need the separate words
        texts = [one["word"] for one in fields["words"]]
    return [str(fields["id"]), *filter(None, texts)]


def _ctm_words(line: str) -> list[str]:
    utterance, _, start, duration, word, *_ = line.split()
    float(start), float(duration)
    return [utterance, word]


def _trn_words(line: str) -> list[str]:
    words, _, utterance = line.removesuffix(")").rpartition("(")
    if not line.endswith(")") or not utterance:
        raise ValueError("no id at the end")
    return [utterance, *filter(None, _SPACES.split(words))]


_FORMS: dict[str, tuple[str, Callable[[str], list[str]]]] = {
    ".jsonl": ("lines of JSON with 'id' and 'text'", _json_words),
    ".ctm": ("CTM, 'utterance channel start_s duration_s word'", _ctm_words),
    ".trn": ("SCTK's trn, 'words... (utterance)'", _trn_words),
    "text": ("text, 'utterance words...'", lambda line: _SPACES.split(line)),
}
"""Formats of transcripts by ending, with a parser of a line's id and words."""
_CTM = re.compile(r"\S+ \S+ \d+\.\d+ \d+\.\d+ \S+( [\d.]+)?")
_TRN = re.compile(r".*\(([^()\s]+)\)")


def _form_of(lines: Sequence[str]) -> str:
    if lines[0].startswith("{") and lines[0].endswith("}") and '"' in lines[0]:
        return ".jsonl"
    if all(map(_CTM.fullmatch, lines)):
        return ".ctm"
    # A line of text may end in brackets; only in trn all lines do.
    ids = {found[1] for line in lines if (found := _TRN.fullmatch(line))}
    return ".trn" if len(ids) == len(lines) > 1 else "text"


def read_text(path: PathLike) -> dict[str, tuple[str, ...]]:
    """Read the words of each utterance, in file order; words may be missing.

    The format follows from the ending, else from all lines: text (`utterance
    words...`), our JSON lines and CTM, or SCTK's trn (`words... (utterance)`). Words
    are read in Unicode's form NFC.

    Raises:
        FormatError: Another format, or a repeated utterance.
    """
    rows = [line.strip(" 	") for line in read_lines(path)]
    lines = [(number, row) for number, row in enumerate(rows, 1) if row]
    if not lines:
        raise FormatError(f"{path}: no lines, expected 'utterance words...'")
    ending = os.path.splitext(os.fspath(path).removesuffix(".gz"))[1].lower()
    form, words_of = _FORMS.get(ending) or _FORMS[_form_of([row for _, row in lines])]
    transcripts: dict[str, list[str]] = {}
    for number, line in lines:
        if line.startswith(";;") and words_of is _ctm_words:  # a comment
            continue
        with reading(f"{path}:{number}", f"line {line[:60]!r}", form):
            utterance, *words = words_of(line)
        if utterance in transcripts and words_of is not _ctm_words:
            raise FormatError(
                f"{path}:{number}: utterance {utterance!r} a second time, read as "
                f"{form}; expected once"
            )
        words = [normalize("NFC", word) for word in words]
        transcripts.setdefault(utterance, []).extend(words)
    return {utterance: tuple(words) for utterance, words in transcripts.items()}


def write_text(path: PathLike, transcripts: Mapping[str, Iterable[str]]) -> None:
    """Write text for `read_text` atomically."""
    with atomic_write(path, "w") as file:
        for utterance, words in transcripts.items():
            file.write(" ".join((utterance, *words)) + "\n")


Confidences = dict[str, list[tuple[str, float]]]


def read_confidences(path: PathLike) -> Confidences:
    """Read words with confidences by utterance, from CTM or JSON lines."""
    found: Confidences = {}
    expected = "words with confidences of `wfstdec decode --confidence`"
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        with reading(f"{path}:{number}", f"line {line[:60]!r}", expected):
            if line.startswith("{"):
                fields = json.loads(line)
                words = [(one["word"], one["confidence"]) for one in fields["words"]]
                utterance = fields["id"]
            else:  # CTM; words may have other white space in them
                utterance, _, _, _, word, share = line.split(" ")
                words = [(word, share)]
            pairs = [(str(word), _share(share)) for word, share in words]
        found.setdefault(str(utterance), []).extend(pairs)
    return found


def _share(text: str | float) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise ValueError(text)
    return value
