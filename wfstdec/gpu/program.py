"""The kernels of a search as one text, for any compiler.

    PROGRAM = Program("search.cu", KERNELS, kernels=("search_chunk", ...), ...)
    PROGRAM.source()     # with everything that it includes, and checks of the layout
    PROGRAM.source((("PHRASES", 0),))       # the same, compiled for less

A kernel file includes headers of its own folder and of `wfstdec/gpu/kernels`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from wfstdec.gpu.records import CONSTANTS, KERNELS, MAX_THREADS, layout_checks

Macros = tuple[tuple[str, int], ...]
"""What a kernel is compiled for: macros and values; without any, for everything."""


@dataclass(frozen=True, eq=False)
class Program:
    """The kernels of a search, and what a device has to know of them.

    Attributes:
        file: The kernel file, in `folder`.
        folder: Where it is, with the headers that only it includes.
        kernels: Names of the kernels; the first is the search, for whose blocks a
            multiprocessor is divided up.
        own_bytes: Shared memory that the variables of a block take at most.
        shared_bytes: Of so many bytes of shared memory that a block of the search may
            have besides its own variables, those that it makes use of.
        structs: The NumPy type of each record that host and kernels share.
        constants: The value of each constant that both have.
        block_threads: Threads of the search's blocks, the most first. Smaller blocks
            are more side by side: a large batch takes them.
    """

    file: str
    folder: Path
    kernels: tuple[str, ...]
    own_bytes: int
    shared_bytes: Callable[[int], int]
    structs: Mapping[str, np.dtype] = field(repr=False)
    constants: Mapping[str, int | float] = field(repr=False)
    block_threads: tuple[int, ...] = (MAX_THREADS,)

    def source(self, macros: Macros = ()) -> str:
        """The file with all that it includes, and checks of the records."""
        checks = layout_checks(self.structs, CONSTANTS | dict(self.constants))
        head = "".join(f"#define {name} {value}\n" for name, value in macros)
        return head + join_includes(self.file, self.folder) + checks


def join_includes(file: str, folder: Path) -> str:
    """A kernel file with the headers that it includes put in, each once."""
    done: set[str] = set()

    def read(name: str) -> str:
        done.add(name)
        path = folder / name
        text = (path if path.exists() else KERNELS / name).read_text("utf-8")
        lines = []
        for number, line in enumerate(text.splitlines(), 1):
            if line.startswith('#include "'):
                other = line.split('"')[1]
                body = "" if other in done else read(other)
                # Errors of the compiler name the file as it is in the repository.
                line = f'{body}#line {number + 1} "{name}"'
            lines.append("" if line == "#pragma once" else line)
        return f'#line 1 "{name}"\n' + "\n".join(lines) + "\n"

    return read(file)
