"""How many files one has to read: counts for one checkout, or for two side by side.

    python -m tools.ways
    python -m tools.ways --checkout ../before . --files
    python -m tools.ways --sizes
    python -m tools.ways --rooms --checkout ../before .

A frame: files that define a kernel which the per-frame kernel of a CPU search may call,
found in the sources (names are followed through imports and module constants).

Left out are `LEFT_OUT`: the tools of `jit/`, files and flags.

Sizes: modules of the host over 400 lines and of kernels over 600, each with its reason;
and modules under 100 lines that one module of their own folder alone imports.

Rooms: lines of code, without comments, docstrings and blank lines; stubs count too.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

KERNEL = re.compile(r"\b_?(n?jit|kernel|part|inlined|intrinsic)\b")
"""Decorators that make a numba kernel of a function."""
FRAMES = {"WFST": "wfst.cpu.frame", "trie": "trie.cpu.frame"}
"""Where `advance` is."""
LEFT_OUT = re.compile(
    r"(^|/)__init__\.py$|^jit/|^errors\.py$|^text/files\.py$"
    r"|^cli/(main|\w*flags|decoders)\.py$"
)

HOST_LINES, KERNEL_LINES, SMALL_LINES = 400, 600, 100
LONG = {
    "cli.flags": "one table: every flag that commands share, once",
    "graph.packed": "a public class, as arcs and as rows, and its file",
    "graph.product": "one idea: told apart, kept, checked, composed again",
    "gpu.batch": "one loop: launched, grown, put back; utterances whole or in chunks",
    "boost.compile": "a public class, with what it does and says of lists",
    "search.decoder": "a public class: what users call of every decoder",
    "adapters.pyctcdecode.decoder": "a public class: all calls of pyctcdecode's",
    "trie.decoder": "a public class, with what makes it of files and what reads it",
    "trie.reference": "one search, read top to bottom, with comments at its steps",
    "server.course": "one idea: what becomes of a stream, step by step",
    "server.engine": "one loop: a round, its stages in order",
    "server.listen": "one protocol: both ways of a socket, and how it ends",
    "lm.on_demand": "one thing: what kernels ask of a model, answered between tries",
}
"""Modules over the limits, with the reason."""
SMALL = {
    "jit.message": "what people see of compiling, apart from how it is done",
    "jit.sources": "which files a kernel is made of: text, no machine code",
    "attention.times": "one idea: the alignment of a text that is known",
    "server.finals": "what finals are, apart from when they are due",
    "server.listen_boosts": "one idea: a stream's lists, as its client changes them",
    "server.outbox": "a container, tested by itself",
    "batch.ray.folder": "what stands in the folder of a job, apart from its course",
    "fst.build_log": "logging, apart from what is built",
    "fst.oov_exits": "one step of a build, with the idea of it",
    "wfst.gpu.backend": "the search on any device, apart from CUDA: emulated in tests",
    "trie.backend_choice": "the pace of a search, apart from the decoder",
}
"""Small modules with one importer in their own folder, with the reason."""


@dataclass(frozen=True)
class Module:
    """A module of the library.

    Attributes:
        name: Dotted, without `wfstdec.`.
        path: The file.
    """

    name: str
    path: Path

    @cached_property
    def text(self) -> str:
        return self.path.read_text("utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def num_lines(self) -> int:
        return len(self.text.splitlines())

    @property
    def folder(self) -> str:
        return self.name.rpartition(".")[0]

    @cached_property
    def definitions(self) -> dict[str, ast.AST]:
        """Functions, classes and constants by name."""
        found: dict[str, ast.AST] = {}
        for node in self.tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found[node.name] = node
            elif isinstance(node, ast.Assign):
                found |= {t.id: node for t in node.targets if isinstance(t, ast.Name)}
        return found

    @cached_property
    def imported(self) -> dict[str, tuple[str, str]]:
        """Modules of the library, and names in them, by the name that stands here."""
        found = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
                "wfstdec"
            ):
                source = (node.module or "").removeprefix("wfstdec").removeprefix(".")
                for alias in node.names:
                    found[alias.asname or alias.name] = source, alias.name
        return found

    @property
    def is_of_kernels(self) -> bool:
        """Tell whether most lines of a module's definitions are of kernels."""
        lines = {True: 0, False: 0}
        for node in self.tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                lines[is_kernel(node)] += (node.end_lineno or 0) - node.lineno
        return lines[True] > lines[False]


def is_kernel(node: ast.AST) -> bool:
    """Tell whether something is a function that numba compiles."""
    return isinstance(node, ast.FunctionDef) and any(
        KERNEL.search(ast.unparse(d)) for d in node.decorator_list
    )


@dataclass
class Library:
    """The sources of the library of a checkout."""

    root: Path
    modules: dict[str, Module] = field(init=False)

    def __post_init__(self) -> None:
        package = self.root / "wfstdec"
        paths = sorted(package.glob("**/*.py"))
        names = [".".join(p.relative_to(package).with_suffix("").parts) for p in paths]
        self.modules = {
            name: Module(name, path) for name, path in zip(names, paths, strict=True)
        }

    def find(self, module: str, name: str) -> Iterator[tuple[Module, ast.AST]]:
        """The definition of a name in a module, followed through imports."""
        here = self.modules.get(module) or self.modules.get(f"{module}.__init__")
        if here is None:
            return
        if name in here.definitions:
            yield here, here.definitions[name]
        elif name in here.imported:
            yield from self.find(*here.imported[name])

    def named_in(self, here: Module, node: ast.AST) -> Iterator[tuple[Module, ast.AST]]:
        """Definitions that a function or constant names: `name`, or `module.name`."""
        for part in ast.walk(node):
            if isinstance(part, ast.Name):
                yield from self.find(here.name, part.id)
            elif isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name):
                source = here.imported.get(part.value.id)
                if source is not None:
                    yield from self.find(".".join(filter(None, source)), part.attr)

    def kernels_from(self, module: str, name: str) -> set[tuple[str, str]]:
        """A kernel and all that it may call, each as module and name."""
        waiting = list(self.find(module, name))
        seen, found = set(), set()
        while waiting:
            here, node = waiting.pop()
            if id(node) in seen or isinstance(node, ast.ClassDef):
                continue
            seen.add(id(node))
            if is_kernel(node):
                found.add((here.name, node.name))
            elif isinstance(node, ast.FunctionDef):
                continue  # what makes kernels, when a module is imported
            waiting += self.named_in(here, node)
        return found

    def importers(self) -> dict[str, set[str]]:
        """The modules that import each module, wherever in them."""
        found: dict[str, set[str]] = {name: set() for name in self.modules}
        for here in self.modules.values():
            for source, name in here.imported.values():
                for target in (f"{source}.{name}".strip("."), source):
                    if target in found:
                        found[target].add(here.name)
                        break
        return found

    def small(self) -> dict[str, str]:
        """Small modules that one module of their folder alone imports, and that one."""
        found = {}
        for name, users in self.importers().items():
            module, user = self.modules[name], min(users, default="")
            inside = user.rpartition(".")[0] == module.folder
            if len(users) == 1 and inside and not user.endswith("__init__"):
                if module.num_lines < SMALL_LINES:
                    found[name] = user
        return found

    def long(self) -> dict[str, int]:
        """Modules over the limits, with their lines."""
        return {
            name: module.num_lines
            for name, module in self.modules.items()
            if module.num_lines > (KERNEL_LINES if module.is_of_kernels else HOST_LINES)
        }

    def frame(self, search: str) -> set[tuple[str, str]]:
        """Kernels of one frame of a search, as module and name."""
        return self.kernels_from(FRAMES[search], "advance")


def kept(files: Iterable[str]) -> list[str]:
    """Files that count."""
    return sorted(file for file in set(files) if not LEFT_OUT.search(file))


Rows = dict[str, list[str]]
"""Files, or lines of a report, by the name of a count."""


def static_rows(library: Library) -> Rows:
    """Files of a frame of each search."""
    rows = {}
    for search in FRAMES:
        kernels = library.frame(search)
        files = {f"{module.replace('.', '/')}.py" for module, _ in kernels}
        rows[f"frame of the {search}"] = kept(files)
        rows[f"frame of the {search}, kernels"] = sorted(
            f"{module}.{name}" for module, name in kernels
        )
    return rows


def code_lines(text: str) -> int:
    """Lines of a source with any code, docstrings of names left out too."""
    unseen = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER}
    unseen |= {tokenize.INDENT, tokenize.DEDENT}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in unseen:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            if isinstance(node.value.value, str):
                lines -= {*range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    return len(lines)


def room_lines(root: Path) -> Counter[str]:
    """Lines of code of each room of the package, and of tests and tools."""
    found: Counter[str] = Counter()
    for path in root.glob("**/*.py*"):
        part = path.relative_to(root).parts
        if path.suffix in (".py", ".pyi") and part[0] in ("wfstdec", "tests", "tools"):
            count = code_lines(path.read_text("utf-8"))
            found[part[0]] += count
            if part[0] == "wfstdec":
                found[f"  {part[1].partition('.')[0]}"] += count
    return found


def size_lines(library: Library) -> list[str]:
    """Long modules, and small ones that belong to another, with reasons."""
    lines = [f"{len(library.modules)} modules"]
    for name, count in sorted(library.long().items(), key=lambda one: -one[1]):
        lines.append(f"{count:5d} lines  {name}: {LONG.get(name, 'NO REASON')}")
    for name, user in library.small().items():
        reason = SMALL.get(name, "NO REASON")
        lines.append(
            f"{library.modules[name].num_lines:5d} lines  {name}, for {user} alone: "
            f"{reason}"
        )
    return lines


def main(arguments: list[str] | None = None) -> int:
    """Print the counts."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n")[0],
        epilog="What is counted: the head of tools/ways.py.",
    )
    add = parser.add_argument
    add("--checkout", nargs="+", type=Path, default=[Path()], metavar="DIR")
    add("--files", action="store_true", help="name the files, with - and + for two")
    add("--sizes", action="store_true", help="long and small modules, with reasons")
    add("--rooms", action="store_true", help="lines of code by room, and nothing else")
    args = parser.parse_args(arguments)
    if args.rooms:
        counts = [room_lines(root.resolve()) for root in args.checkout]
        for room in sorted(set().union(*counts), key=lambda one: -counts[-1][one]):
            print(f"{room:20}", *(f"{count[room]:8d}" for count in counts))
        return 0
    libraries = [Library(root.resolve()) for root in args.checkout]
    if args.sizes:
        for library in libraries:
            print(f"{library.root.name}:", *size_lines(library), sep="\n  ")
    columns = list(map(static_rows, libraries))
    print(" " * 28, *(f"{one.root.name:>10}" for one in libraries))
    for name in columns[0]:
        print(f"{name:28}", *(f"{len(column[name]):10d}" for column in columns))
        if args.files and "," not in name:
            print(*_differences([column[name] for column in columns]), sep="\n")
    return 0


def _differences(lists: list[list[str]]) -> list[str]:
    """The files of the last checkout, with what the first alone has."""
    first, last = set(lists[0]), set(lists[-1])
    marks = {(True, True): " ", (True, False): "-", (False, True): "+"}
    return [
        f"    {marks[file in first, file in last]} {file}"
        for file in sorted(first | last)
    ]


if __name__ == "__main__":
    sys.exit(main())
