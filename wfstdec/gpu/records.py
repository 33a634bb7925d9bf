"""C structs of the kernels as NumPy types: the header has the only definition.

`layout_checks` has the compiler confirm the offset and size of every field.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

KERNELS = Path(__file__).parent / "kernels"  # headers shared by all searches
NONE = 0xFFFFFFFF  # no state, no arc, no frame, no label
WARP = 32
MAX_THREADS = 512  # most threads of a block; a multiple of `WARP`
BLOCKS_PER_SM = 2  # blocks of `MAX_THREADS` for whose registers there is room
REGISTERS = 64  # most registers of a thread within these bounds
CONSTANTS = {"NONE": NONE, "WARP": WARP}
CONSTANTS |= {"MAX_THREADS": MAX_THREADS, "BLOCKS_PER_SM": BLOCKS_PER_SM}
"""Constants shared by host and kernels, in addition to records."""

POINTER = "u8"
_NUMBERS = {"u32": "u4", "u64": "u8", "float": "f4", "double": "f8"}
_STRUCTS = re.compile(r"^struct (?:alignas\(\d+\) )?(\w+) \{$", re.MULTILINE)
_FIELDS = re.compile(
    r"(?:const )?(?P<type>\w+)(?P<star>\*?) (?P<names>\w+(?:, \w+)*);", re.ASCII
)


def read_struct(header: Path, name: str, **nested: np.dtype) -> np.dtype:
    """Return the NumPy type of a C struct; pointers become 64-bit addresses."""
    found = re.search(
        rf"^struct (?:alignas\(\d+\) )?{name} {{\n(.*?)^}};",
        header.read_text("utf-8"),
        re.MULTILINE | re.DOTALL,
    )
    if found is None:
        raise ValueError(f"{header.name}: no struct {name!r}, expected its definition")
    fields: list[tuple[str, np.dtype]] = []
    for line in found[1].splitlines():
        text = line.partition("//")[0].strip()
        if text:
            fields += _fields(text, nested, f"{header.name}: {name}")
    return np.dtype(fields, align=True)


def read_structs(header: Path, **known: np.dtype) -> dict[str, np.dtype]:
    """Return the NumPy types of a header's C structs, and the known ones, by name."""
    for name in _STRUCTS.findall(header.read_text("utf-8")):
        known[name] = read_struct(header, name, **known)
    return known


def fill_options(
    task: np.ndarray, params: Any, counts: Sequence[str], names: Sequence[str]
) -> None:
    """Set fields of a TASK from the kernels' options; counts up to `NONE`."""
    for name in counts:
        task[name] = min(int(getattr(params, name)), NONE)
    for name in names:
        task[name] = getattr(params, name)
    for name, value in params.pricing._asdict().items():
        task[name] = value
    task["beam"] = params.beam + np.float32(0)  # no -0.0: kernels compare integers


def _fields(
    text: str, nested: Mapping[str, np.dtype], place: str
) -> list[tuple[str, np.dtype]]:
    found = _FIELDS.fullmatch(text)
    kind: str | np.dtype | None = None
    if found:
        kind = _NUMBERS.get(found["type"], nested.get(found["type"]))
        kind = POINTER if found["star"] else kind
    if found is None or kind is None:
        raise ValueError(f"{place}: {text!r}, expected fields of a known type")
    return [(name, np.dtype(kind)) for name in found["names"].split(", ")]


def layout_checks(
    structs: Mapping[str, np.dtype], constants: Mapping[str, int | float]
) -> str:
    """Return C++ that compiles only if structs and constants equal those here."""
    lines = ['#line 1 "layout checks"']
    # The device's compiler may pad differently from NumPy: then nothing compiles.
    for name, dtype in structs.items():
        lines.append(_check(f"sizeof({name})", dtype.itemsize, f"the size of {name}"))
        for field, (kind, offset, *_) in (dtype.fields or {}).items():
            what = f"{name}.{field}"
            lines.append(_check(f"OFFSET_OF({name}, {field})", offset, what))
            size = f"sizeof({name}::{field})"
            lines.append(_check(size, kind.itemsize, f"the size of {what}"))
    for name, value in constants.items():
        lines.append(_check(name, value, name))
    return "\n".join([*lines, ""])


def _check(found: str, expected: int | float, what: str) -> str:
    suffix = "u" if isinstance(expected, int) else "f"
    return f'static_assert({found} == {expected!r}{suffix}, "{what}");'
