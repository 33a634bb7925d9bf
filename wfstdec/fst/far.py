"""FAR archives of OpenFst: several FSTs by name in one file.

    rules = read_far("rules.far")           # {"ITN": FstContent, ...}

Layouts, little-endian, for STTable and STList: magic, version (int32), then entries of
a key (length, bytes) and an OpenFst binary. STTable ends with the positions of the
entries and their number (int64 each), STList with an empty key.
"""

import os

from wfstdec.errors import FormatError
from wfstdec.fst.openfst import Cursor, FstContent, parse_next
from wfstdec.text.files import PathLike, read_bytes, reading

STTABLE_MAGIC, STLIST_MAGIC = 2125656924, 5656924


def read_far(path: PathLike) -> dict[str, FstContent]:
    """Read the FSTs of an STTable or STList file by key, in the order of the file."""
    place = os.fspath(path)
    with reading(path, "FAR"):
        data = memoryview(read_bytes(path))
        magic = int.from_bytes(data[:4], "little")
        if magic not in (STTABLE_MAGIC, STLIST_MAGIC):
            raise FormatError(
                f"{place}: not a FAR of type 'sttable' or 'stlist'; write it with "
                "pynini's Far(path, 'w', far_type='sttable')"
            )
        if magic == STTABLE_MAGIC:
            count = Cursor(data, place, max(0, len(data) - 8)).number("<q")
            if not 0 <= count <= len(data) // 16:
                raise FormatError(f"{place}: truncated or damaged: {count} entries")
            end = len(data) - 8 * (count + 1)
            positions = Cursor(data, place, end).numbers(f"<{count}q")
            cursors = [Cursor(data[:end], place, position) for position in positions]
            return dict(map(_entry, cursors))
        cursor, rules = Cursor(data, place, 8), {}
        while data[cursor.pos :] != b"\0\0\0\0":
            key, content = _entry(cursor)
            rules[key] = content
        return rules


def _entry(cursor: Cursor) -> tuple[str, FstContent]:
    key = cursor.string()
    place, cursor.place = cursor.place, f"{cursor.place}: rule {key!r}"
    content = parse_next(cursor)
    cursor.place = place
    return key, content
