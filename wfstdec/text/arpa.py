r"""Reader of ARPA language models; the only place that converts log10 to nats.

    model = read_arpa("lm.arpa.gz")
    model.words[3]                      # 'the'; model.index['the'] == 3
    model.ngrams[1].words[0]            # the first bigram: (history, word)
    model.ngrams[1].cost[0]             # -ln p(word | history)
    model.ngrams[0].backoff[3]          # -ln of the back-off weight of 'the'

`arpa_model.scan_section` reads the lines of a section; this module reads headers, and
converts statuses into errors.
"""

import os
import re
from typing import IO

import numpy as np

from wfstdec.errors import ArpaError
from wfstdec.text import arpa_model
from wfstdec.text.arpa_model import MAX_ORDER as MAX_ORDER
from wfstdec.text.arpa_model import ArpaModel as ArpaModel
from wfstdec.text.arpa_model import NgramTable as NgramTable
from wfstdec.text.files import PathLike, composed, read_bytes, reading, unpack
from wfstdec.text.kenlm import read_kenlm_header, read_kenlm_trie

DATA, END = "\\data\\", "\\end\\"
_DATA_LINE = re.compile(rb"^(?:\xef\xbb\xbf)?[ \t]*\\data\\[ \t\r]*$", re.MULTILINE)
_DECIMAL = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", re.IGNORECASE)
_COUNT = re.compile(r"ngram\s+(\d+)\s*=\s*(\d+)")


def read_arpa(source: PathLike | IO) -> ArpaModel:
    r"""Read an ARPA file, plain or gzip, or a KenLM binary, of order 1 to 6.

    Accepted variants of other tools: fields separated by tabs or spaces, `\r\n`, blank
    lines, text before `\data\` and after `\end\`, missing back-offs, n-grams whose
    history or suffix is not listed, n-grams over `<unk>`, `-99` (a number like any
    other) and `-inf`. A log10 probability in (0, 0.001] is read as a rounded 0, as
    IRSTLM writes it; higher ones are errors. In a KenLM binary the words have KenLM's
    order, and `<unk>` has KenLM's cost.

    Args:
        source: A path, or an open file of ARPA text.

    Raises:
        ArpaError: Malformed; the message names file and line. A KenLM binary of the
            probing format, whose n-grams cannot be listed.
        FormatError: The file cannot be read, its gzip stream or binary is damaged.
    """
    place = str(getattr(source, "name", "ARPA file"))
    if isinstance(source, str | os.PathLike):
        place = os.fspath(source)
    with reading(place, "language model"):
        if isinstance(source, str | os.PathLike):
            if read_kenlm_header(source) is not None:
                return read_kenlm_trie(source)
            return _Reader(read_bytes(source), place).read()
        content = source.read()
        data = content.encode() if isinstance(content, str) else content
        return _Reader(unpack(data, place), place).read()


class _Reader:
    def __init__(self, data: bytes, place: str) -> None:
        self.data = data
        self.bytes = np.frombuffer(data, np.uint8)
        self.place = place
        self.pos = 0
        self.line = 1

    def read(self) -> ArpaModel:
        counts = self.read_header()
        size = self.capacity(counts[0], 1)
        start, end = np.empty((2, size), np.int64)
        vocabulary = arpa_model.Words(start, end, arpa_model.empty_slots(size))
        tables = []
        for order, count in enumerate(counts, start=1):
            self.expect(f"\\{order}-grams:")
            tables.append(self.read_section(order, count, vocabulary))
        self.expect(END)
        tables[-1].backoff[:] = 0
        return ArpaModel(self.decode_words(vocabulary), tuple(tables))

    def read_header(self) -> list[int]:
        """Return the counts of all orders; stop at the first section line."""
        # Read as text, a binary would be reported as lacking `\data\`.
        if self.data.startswith(b"mmap lm"):
            raise ArpaError(
                f"{self.place}: a KenLM binary, expected its path or ARPA text"
            )
        start = _DATA_LINE.search(self.data)
        if not start:
            raise ArpaError(f"{self.place}: no line {DATA!r}, expected an ARPA file")
        self.line += self.data.count(b"\n", 0, start.end())
        self.pos = start.end()
        self.next_line()
        counts: list[int] = []
        while self.pos < len(self.data) and not self.text().startswith("\\"):
            if text := self.text():
                match = _COUNT.fullmatch(text)
                if not match or int(match[1]) != len(counts) + 1:
                    raise self.error(
                        f"found {text!r}, expected 'ngram {len(counts) + 1}=COUNT'"
                    )
                counts.append(int(match[2]))
            self.next_line()
        if not 1 <= len(counts) <= MAX_ORDER:
            raise self.error(f"order {len(counts)}, expected 1 to {MAX_ORDER}")
        if counts[0] == 0:
            raise self.error("0 1-grams, expected at least one")
        return counts

    def read_section(
        self, order: int, count: int, vocabulary: arpa_model.Words
    ) -> NgramTable:
        size = self.capacity(count, order)
        words = np.empty((size, order), np.int32)
        cost, backoff = np.empty((2, size), np.float32)
        slots = arpa_model.empty_slots(size if order > 1 else 0)
        rows = arpa_model.Rows(words, cost, backoff, slots)
        status, self.pos, self.line, found, field = arpa_model.scan_section(
            self.bytes, self.pos, self.line, vocabulary, rows
        )
        if status != arpa_model.OK:
            raise self.error(self.fault(status, order, field, count))
        if found != count:
            raise self.error(
                f"{found} {order}-grams end here, expected the header's {count}"
            )
        return NgramTable(rows.words, rows.cost, rows.backoff)

    def capacity(self, count: int, order: int) -> int:
        shortest_line = 2 * order + 2
        return min(count, (len(self.data) - self.pos) // shortest_line + 1)

    def decode_words(self, vocabulary: arpa_model.Words) -> tuple[str, ...]:
        words = []
        spans = zip(vocabulary.start.tolist(), vocabulary.end.tolist(), strict=True)
        for self.pos, end in spans:
            try:
                words.append(self.data[self.pos : end].decode())
            except UnicodeDecodeError:
                self.line = self.data.count(b"\n", 0, self.pos) + 1
                found = self.data[self.pos : end]
                raise self.error(f"word {found!r}, expected UTF-8") from None
        return composed(words)

    def fault(self, status: int, order: int, field: int, count: int) -> str:
        text = self.text()
        fields = re.split("[ \t]+", text)
        found, words = fields[min(field, len(fields) - 1)], _plural(order, "word")
        what = "probability" if field == 0 else "back-off weight"
        ngram = " ".join(fields[1 : order + 1])
        if status == arpa_model.NUMBER and _DECIMAL.fullmatch(found):
            return f"{found}, expected -1e6 to 1e6"
        return {
            arpa_model.NUMBER: f"found {found!r}, expected a log10 {what}",
            arpa_model.POSITIVE: f"log10 probability {found}, expected 0 or less",
            arpa_model.FIELDS: f"{_plural(len(fields), 'field')} in {text!r}, expected "
            f"{order + 1} or {order + 2}: a log10 probability, {words} and perhaps a "
            "back-off weight",
            arpa_model.UNKNOWN: f"word {found!r} is not a unigram, expected all words "
            "there",
            arpa_model.TWICE: f"{order}-gram {ngram!r} is listed twice, expected once",
            arpa_model.TOO_MANY: f"one {order}-gram more, expected the header's "
            f"{count}",
        }[status]

    def expect(self, heading: str) -> None:
        while self.pos < len(self.data) and not self.text():
            self.next_line()
        if self.pos >= len(self.data):
            raise self.error(f"the file ends, expected {heading!r}")
        if self.text() != heading:
            raise self.error(f"found {self.text()!r}, expected {heading!r}")
        self.next_line()

    def text(self) -> str:
        end = self.data.find(b"\n", self.pos)
        line = self.data[self.pos : end if end >= 0 else len(self.data)]
        return line.decode("utf-8", "replace").strip(" \t\r")

    def next_line(self) -> None:
        end = self.data.find(b"\n", self.pos)
        self.pos = end + 1 if end >= 0 else len(self.data)
        self.line += 1

    def error(self, message: str) -> ArpaError:
        return ArpaError(f"{self.place}:{self.line}: {message}")


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
