"""FAR archives of OpenFst: several FSTs by name in one file.

    rules = read_far("rules.far")           # {"ITN": FstContent, ...}

Layouts, little-endian, of STTable and STList: magic, version (int32), then entries of a
key (length, bytes) and an OpenFst binary. STTable ends with the number of entries,
their positions and their number again (int64 each), STList with an empty key.
"""

import os
import struct

from wfstdec.errors import FormatError
from wfstdec.fst.openfst import Cursor, FstContent, parse_next
from wfstdec.text.files import PathLike, read_bytes, reading

STTABLE_MAGIC, STLIST_MAGIC = 2125656924, 5656924


def read_far(path: PathLike) -> dict[str, FstContent]:
    """Return the FSTs of an STTable or STList file by key, in file order."""
    place = os.fspath(path)
    with reading(path, "FAR"):
        data = memoryview(read_bytes(path))
        magic = int.from_bytes(data[:4], "little")
        if magic not in (STTABLE_MAGIC, STLIST_MAGIC):
            raise FormatError(
                f"{place}: not a FAR of type 'sttable' or 'stlist'; write it with "
                "pynini's Far(path, 'w', far_type='sttable')"
            )
        cursor, rules = Cursor(data, place, 8), dict[str, FstContent]()
        if magic == STLIST_MAGIC:
            while data[cursor.pos :] != b"\0\0\0\0":
                rules.update([_entry(cursor)])
            return rules
        count = Cursor(data, place, max(8, len(data) - 8)).number("<q")
        positions = []
        for _ in range(min(count, len(data))):
            positions.append(cursor.pos)
            rules.update([_entry(cursor)])
        # Entries are contiguous: the table at the end is redundant.
        table = count, *positions, count
        if data[cursor.pos :] != struct.pack(f"<{len(table)}q", *table):
            raise FormatError(f"{place}: truncated or damaged table of {count} entries")
        return rules


def _entry(cursor: Cursor) -> tuple[str, FstContent]:
    key = cursor.string()
    place, cursor.place = cursor.place, f"{cursor.place}: rule {key!r}"
    content = parse_next(cursor)
    cursor.place = place
    return key, content
