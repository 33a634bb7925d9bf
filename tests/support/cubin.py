"""Machine code as NVRTC makes it: an ELF file, read without a GPU or its tools.

kernels = read_cubin(data)        # {"search_chunk": Code(registers=62, ...)}
"""

import struct
from typing import NamedTuple

_HEADER, _SECTION = struct.Struct("<16sHHIQQQIHHHHHH"), struct.Struct("<IIQQQQIIQQ")
_SYMBOL, _ATTRIBUTE = struct.Struct("<IBBHQQ"), struct.Struct("<BBH")
_SYMBOLS, _WITH_VALUE = 2, 4
_REGISTERS, _FRAME, _STACK = 0x2F, 0x11, 0x12
"""Attributes of `.nv.info`: a symbol's number and a count each."""


class Code(NamedTuple):
    """Code of a kernel.

    Attributes:
        registers: Of a thread.
        frame: Bytes of its own stack: where registers are spilled.
        num_bytes: Of its instructions.
        shared: Bytes of its variables in shared memory, with what the device reserves.
    """

    registers: int
    frame: int
    num_bytes: int
    shared: int


def read_cubin(data):
    """Code of all kernels by name.

    Raises:
        ValueError: It is no ELF file, or ends before its parts do.
    """
    if data[:4] != b"\x7fELF":
        raise ValueError("no ELF file")
    header = _HEADER.unpack_from(data)
    programs, sections, *_ = header[5:7]
    program_size, num_programs, size, count, names_at = header[9:]
    if max(programs + program_size * num_programs, sections + size * count) > len(data):
        raise ValueError(f"{len(data)} bytes end before the headers do")
    found = [_SECTION.unpack_from(data, sections + size * i) for i in range(count)]
    names = found[names_at]
    by_name = {_text(data, names[4] + one[0]): one for one in found}
    parts = {name: data[one[4] : one[4] + one[5]] for name, one in by_name.items()}
    symbols = next(one for one in found if one[1] == _SYMBOLS)
    texts = found[symbols[6]][4]  # the section that it links to has the names
    told = {}
    for kind, number, value in _attributes(parts[".nv.info"]):
        name = _SYMBOL.unpack_from(data, symbols[4] + number * _SYMBOL.size)[0]
        told[_text(data, texts + name), kind] = value
    kernels = (name[6:] for name in by_name if name.startswith(".text."))
    return {
        name: Code(
            told[name, _REGISTERS],
            max(told[name, _FRAME], told[name, _STACK]),
            len(parts[f".text.{name}"]),
            by_name[f".nv.shared.{name}"][5] if f".nv.shared.{name}" in by_name else 0,
        )
        for name in kernels
    }


def _text(data, at):
    return data[at : data.index(b"\0", at)].decode()


def _attributes(data):
    """(kind, symbol, value) of those that have both."""
    at = 0
    while at < len(data):
        form, kind, size = _ATTRIBUTE.unpack_from(data, at)
        at += _ATTRIBUTE.size
        if form == _WITH_VALUE:
            if kind in (_REGISTERS, _FRAME, _STACK):
                yield kind, *struct.unpack_from("<II", data, at)
            at += size
