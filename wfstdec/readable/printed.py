"""Printed text as words, events after them, and written forms.

    words, events, forms = read_printed(["“Yes,” said Mr. Bly. “Why?”"])
    words                # ["yes", "said", "mr", "bly", "why"]
    events               # [COMMA, NONE, NONE, PERIOD, QUESTION]
    forms                # ["Yes", "said", "Mr.", "Bly", "Why"]

Quotation marks and brackets are dropped, hyphens are spaces. A word that a period
nearly always follows, such as `Mr.`, is an abbreviation that includes the period.
"""

import functools
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable

EVENTS = "none comma period question exclamation colon semicolon dash".split()
"""Names of the events after a word, by number."""
NONE, COMMA, PERIOD, QUESTION, EXCLAMATION, COLON, SEMICOLON, DASH = range(8)
MARKS = ("", ",", ".", "?", "!", ":", ";", " –")  # Suffix of a word for each event
SENTENCE_ENDS = (PERIOD, QUESTION, EXCLAMATION)
CLASSES = "NUM ORD MONEY TIME DATE".split()
"""Classes of words with digits in the output of ITN."""
_EVENT_OF = {**{m: e for e, m in enumerate(MARKS) if e}, "—": DASH, "–": DASH}
_EVENT_OF |= {"…": PERIOD, "؟": QUESTION, "،": COMMA, "؛": SEMICOLON, "。": PERIOD}
_STRENGTH = (0, 2, 5, 7, 6, 4, 3, 1)
"""The strongest of several marks after a word counts: `?—` is a question."""
_PIECES = re.compile(r"(?:[^\W_]|(?<=\w)['’.,:](?=\w)|[\u0300-\u036f])+|[^\w\s]|_")
_SHAPES = (
    ("MONEY", re.compile(r"[$£€¥][\d.,]+|[\d.,]+[$£€¥]")),
    ("TIME", re.compile(r"\d{1,2}:\d\d")),
    ("ORD", re.compile(r"\d+(st|nd|rd|th|er|e)")),
    ("NUM", re.compile(r".*\d.*")),
)
_SHORT = {"mister": "mr", "missus": "mrs"}  # Short forms as printed in books
_MOSTLY, _OFTEN = 0.85, 8


@functools.lru_cache(maxsize=4096)
def plain(form: str) -> str:
    """Return a decoder's word for a written form."""
    word = unicodedata.normalize("NFC", form).replace("’", "'").lower()
    word = word.strip(".'").replace(".", "") if word.strip(".'") else word
    return _SHORT.get(word, word)


def class_of(form: str) -> str | None:
    """Return the class of a written form with digits; None for others."""
    return next((name for name, shape in _SHAPES if shape.fullmatch(form)), None)


def read_printed(
    paragraphs: Iterable[str],
) -> tuple[list[str], list[int], list[str]]:
    """Return words, events and written forms of paragraphs, of equal lengths."""
    words: list[str] = []
    events: list[int] = []
    forms: list[str] = []
    for paragraph in paragraphs:
        begin = len(words)
        for piece in _PIECES.findall(paragraph):
            if piece[0].isalnum():
                form = piece.replace("’", "'")
                words.append(class_of(form) or plain(form))
                events.append(NONE)
                forms.append(form)
            elif len(words) > begin and (event := _EVENT_OF.get(piece)):
                if _STRENGTH[event] > _STRENGTH[events[-1]]:
                    events[-1] = event
    _attach_abbreviations(words, events, forms)
    return words, events, forms


def _attach_abbreviations(
    words: list[str], events: list[int], forms: list[str]
) -> None:
    count = Counter(words)
    ended = Counter(w for w, e in zip(words, events, strict=True) if e == PERIOD)
    # A period follows nearly every occurrence of an abbreviation.
    short = {
        word
        for word, n in ended.items()
        if n >= _OFTEN and n > _MOSTLY * count[word] and word not in CLASSES
    }
    for i, word in enumerate(words):
        dotted = "." in forms[i] and word not in CLASSES
        if events[i] == PERIOD and (word in short or dotted):
            events[i] = NONE
            forms[i] += "."
