"""N-gram models as arrays, independent of the file format; see `arpa.py`."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from wfstdec.jit import jit

MAX_ORDER = 6


@dataclass(frozen=True, eq=False)
class NgramTable:
    """The N n-grams of one order, in the order of the file."""

    # int32 [N, n], positions in `ArpaModel.words`, the predicted word last
    words: np.ndarray
    # float32 [N], -ln p(last word | history), inf for `-inf`; >= 0, except for n-grams
    # that KenLM adds where back-off weights are above 1
    cost: np.ndarray
    # float32 [N], -ln of the back-off weight, any sign; 0 if the file has none, and in
    # the highest order
    backoff: np.ndarray

    def __len__(self) -> int:
        return len(self.cost)


@dataclass(frozen=True, eq=False)
class ArpaModel:
    """ARPA file as arrays, with all entries in order."""

    # The unigrams in the order of their table, `<s>`, `</s>` and `<unk>` included
    words: tuple[str, ...]
    # One table per order; `ngrams[n - 1]` has the n-grams
    ngrams: tuple[NgramTable, ...]

    def __repr__(self) -> str:
        sizes = ", ".join(f"{len(table):,}" for table in self.ngrams)
        return f"ArpaModel(order={self.order}, n-grams: {sizes})"

    @property
    def order(self) -> int:
        """Highest order of n-grams."""
        return len(self.ngrams)

    @cached_property
    def index(self) -> dict[str, int]:
        """Position of each word in `words`."""
        return {word: position for position, word in enumerate(self.words)}

    @property
    def bos(self) -> int | None:
        """Position of `<s>`, if any."""
        return self.index.get("<s>")

    @property
    def eos(self) -> int | None:
        """Position of `</s>`, if any."""
        return self.index.get("</s>")

    @property
    def unk(self) -> int | None:
        """Position of `<unk>` (or `<UNK>`), if any."""
        return self.index.get("<unk>", self.index.get("<UNK>"))


OK, NUMBER, POSITIVE, FIELDS, UNKNOWN, TWICE, TOO_MANY = range(7)
LN10 = 2.302585092994046
LARGEST = 1e6  # log10; larger values are damage, and their sums would overflow
ROUNDING = 1e-3  # log10; estimators sometimes write probabilities of 1 as 1.0000001
_NEWLINE, _RETURN, _TAB, _SPACE, _BACKSLASH = b"\n\r\t \\"
_PLUS, _MINUS, _POINT, _ZERO, _NINE, _E, _I, _N, _F = b"+-.09einf"
_LOWER = 32
_POWERS_OF_TEN = np.array([float(f"1e{power}") for power in range(309)])
_HASH_MASK = (1 << 40) - 1
_HASH_FACTOR = 1000003


class Words(NamedTuple):
    """Vocabulary as ranges of the file's bytes: `data[start[w]:end[w]]`."""

    start: np.ndarray  # int64 [W]
    end: np.ndarray  # int64 [W]
    slots: np.ndarray  # int32 [2**k], a word or -1


class Rows(NamedTuple):
    """N-grams of one section, to be filled."""

    words: np.ndarray  # int32 [N, n]
    cost: np.ndarray  # float32 [N], nats
    backoff: np.ndarray  # float32 [N], nats
    slots: np.ndarray  # int32 [2**k], a row or -1


def empty_slots(size: int) -> np.ndarray:
    """Return a hash table, int32 [2**k], of -1, at most half full by `size` entries."""
    return np.full(1 << (2 * size + 1).bit_length(), -1, np.int32)


@jit
def parse_number(data: np.ndarray, start: int, end: int) -> tuple[float, bool]:
    """Parse `data[start:end]`; return the number, and whether it is valid."""
    # Up to 15 digits and exponents within 22 are correctly rounded to float64; others
    # err by a few units of the last place, far below float32.
    pos, sign = start, 1.0
    if pos < end and (data[pos] == _MINUS or data[pos] == _PLUS):
        sign = -1.0 if data[pos] == _MINUS else 1.0
        pos += 1
    if end - pos == 3 and sign < 0 and (data[pos] | _LOWER) == _I:
        infinite = (data[pos + 1] | _LOWER) == _N and (data[pos + 2] | _LOWER) == _F
        return -np.inf, infinite
    mantissa, exponent, digits, fraction = 0, 0, 0, 0
    while pos < end:
        char = int(data[pos])
        if char == _POINT and fraction == 0:
            fraction = 1
        elif _ZERO <= char <= _NINE:
            digits += 1
            # More digits do not fit into 64 bits, and do not change float32.
            if mantissa < 10**17:
                mantissa = mantissa * 10 + (char - _ZERO)
                exponent -= fraction
            else:
                exponent += 1 - fraction
        else:
            break
        pos += 1
    if pos < end and digits > 0 and (data[pos] | _LOWER) == _E:
        pos += 1
        down = pos < end and data[pos] == _MINUS
        if pos < end and (data[pos] == _MINUS or data[pos] == _PLUS):
            pos += 1
        digits, power = 0, 0
        while pos < end and _ZERO <= data[pos] <= _NINE:
            digits += 1
            power = min(power * 10 + (int(data[pos]) - _ZERO), 9999)
            pos += 1
        exponent += -power if down else power
    value = float(mantissa)
    if exponent >= 0:
        value *= _POWERS_OF_TEN[min(exponent, 308)]
    else:
        value /= _POWERS_OF_TEN[min(-exponent, 308)]
    return sign * value, pos == end and digits > 0 and value <= LARGEST


@jit
def find_word(data: np.ndarray, start: int, end: int, words: Words) -> int:
    """Return the slot of `data[start:end]`: it holds the word, or -1."""
    code = 0
    for pos in range(start, end):
        code = (code * _HASH_FACTOR + int(data[pos]) + 1) & _HASH_MASK
    last = words.slots.size - 1
    slot = (code ^ (code >> 17)) & last
    while words.slots[slot] >= 0:
        word = words.slots[slot]
        if words.end[word] - words.start[word] == end - start:
            offset, begin = 0, words.start[word]
            while offset < end - start and data[begin + offset] == data[start + offset]:
                offset += 1
            if offset == end - start:
                break
        slot = (slot + 1) & last
    return slot


@jit
def add_row(rows: Rows, row: int) -> bool:
    """Enter `rows.words[row]` in the hash table; False if it has an equal row."""
    order = rows.words.shape[1]
    code = 0
    for column in range(order):
        code = (code * _HASH_FACTOR + int(rows.words[row, column]) + 1) & _HASH_MASK
    last = rows.slots.size - 1
    slot = (code ^ (code >> 17)) & last
    while rows.slots[slot] >= 0:
        other = rows.slots[slot]
        column = 0
        while column < order and rows.words[other, column] == rows.words[row, column]:
            column += 1
        if column == order:
            return False
        slot = (slot + 1) & last
    rows.slots[slot] = row
    return True


@jit
def split_line(
    data: np.ndarray, pos: int, starts: np.ndarray, ends: np.ndarray
) -> tuple[int, int]:
    """Find the fields of the line at `pos`; return their count and the line's end."""
    # `starts` and `ends` take as many as fit; the count includes the others.
    count = 0
    while True:
        while pos < data.size and (data[pos] == _SPACE or data[pos] == _TAB):
            pos += 1
        if pos == data.size or data[pos] == _NEWLINE:
            return count, pos
        start = pos
        while (
            pos < data.size
            and data[pos] != _SPACE
            and data[pos] != _TAB
            and data[pos] != _NEWLINE
        ):
            pos += 1
        end = pos
        # Line ends of Windows; other carriage returns belong to words.
        if data[end - 1] == _RETURN and (pos == data.size or data[pos] == _NEWLINE):
            end -= 1
            if end == start:
                return count, pos
        if count < starts.size:
            starts[count], ends[count] = start, end
        count += 1


@jit
def scan_section(
    data: np.ndarray, pos: int, line: int, words: Words, rows: Rows
) -> tuple[int, int, int, int, int]:
    """Read lines from `pos` to one that begins with a backslash, or to the end."""
    order = rows.words.shape[1]
    starts, ends = np.empty(order + 2, np.int64), np.empty(order + 2, np.int64)
    row = 0
    while pos < data.size:
        count, stop = split_line(data, pos, starts, ends)
        if count > 0 and data[starts[0]] == _BACKSLASH:
            return OK, pos, line, row, 0
        if count > 0:
            if count != order + 1 and count != order + 2:
                return FIELDS, pos, line, row, count
            if row == rows.cost.size:
                return TOO_MANY, pos, line, row, 0
            logprob, valid = parse_number(data, starts[0], ends[0])
            if not valid:
                return NUMBER, pos, line, row, 0
            # Tools round: slightly above 0 is read as 0.
            if logprob > ROUNDING:
                return POSITIVE, pos, line, row, 0
            backoff = 0.0
            if count == order + 2:
                backoff, valid = parse_number(data, starts[order + 1], ends[order + 1])
                if not valid:
                    return NUMBER, pos, line, row, order + 1
            for column in range(order):
                start, end = starts[column + 1], ends[column + 1]
                slot = find_word(data, start, end, words)
                word = words.slots[slot]
                if order == 1:
                    if word >= 0:
                        return TWICE, pos, line, row, 1
                    word = row
                    words.slots[slot] = row
                    words.start[row], words.end[row] = start, end
                elif word < 0:
                    return UNKNOWN, pos, line, row, column + 1
                rows.words[row, column] = word
            if order > 1 and not add_row(rows, row):
                return TWICE, pos, line, row, 1
            rows.cost[row] = 0.0 - min(logprob, 0.0) * LN10  # never -0.0
            rows.backoff[row] = 0.0 - backoff * LN10
            row += 1
        pos = stop + 1
        line += 1
    return OK, pos, line, row, 0
