"""Rules of the house that a program can check."""

import ast
import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LIBRARY = sorted(ROOT.glob("wfstdec/**/*.py"))
TESTS = sorted(ROOT.glob("tests/**/*.py"))

ROOMS = (
    {"errors", "lazy"},
    {"jit"},
    {"text"},
    {"graph", "lm", "checks"},
    {"boost", "fst"},
    {"lattice"},
    {"search"},
    {"gpu"},
    {"wfst", "trie"},
    {"audio", "models"},
    {"attention"},
    {"greedy", "transducer", "align", "readable"},
    {"io", "metrics"},
    {"batch", "recipes", "doctor", "warm_up"},
    {"adapters", "transcription"},
    {"compare", "server", "batch.ray"},
    {"cli", "__main__"},
)
"""The import order: a room imports from its own row and from rows above."""

DECODING = {*"jit graph lm boost fst lattice search gpu wfst trie greedy".split()} | {
    *"transducer attention align io metrics".split()
}
"""All that makes a decoder: an encoder knows none of it."""

WITHIN = {"batch.ray"}
"""Folders of a room that are rooms of their own: they are in another row."""

STRANGERS = {
    "graph": {"lm", "checks"},
    "lm": {"graph", "checks"},
    "checks": {"graph", "lm"},
    "boost": {"fst"},
    "fst": {"boost"},
    "lattice": {"boost", "fst"},
    "trie": {"wfst", "graph"},
    "wfst": {"trie"},
    "greedy": {"wfst", "trie", "graph", "transducer", "attention"},
    "align": {"trie", "greedy", "transducer", "attention"},
    "adapters": {"wfst", "graph", "fst", "gpu", "greedy", "align"}
    | {"transducer", "attention"},
    "transducer": {"wfst", "trie", "graph", "fst", "greedy"},
    "attention": {"wfst", "trie", "graph", "fst", "gpu", "greedy", "align"},
    "audio": {*DECODING, "text", "models"},
    "models": DECODING,
    "server": {"compare", "adapters", "recipes", "doctor", "fst", "trie", "greedy"},
}
"""Rooms above, or in the row, that a room must not import all the same."""

APART = {"cpu": "gpu", "gpu": "cpu"}
"""Folders that import nothing of each other, wherever they are."""

THIRD_PARTY = {
    "numpy": "",
    "numba": "",
    "llvmlite": "jit/",  # comes with numba
    "tqdm": "",
    "matplotlib": "compare/plotting.py",
    "kaldiio": "io/",
    "kaldialign": "metrics.py",
    "kenlm": "lm/loading.py",
    "kaldifst": "fst/engine.py",
    "sentencepiece": "",
    "shtab": "cli/graphs.py",
    "cupy": "gpu/cupy_device.py",
    "torch": ("transducer/", "attention/", "models/"),
    "onnxruntime": "models/",
    "huggingface_hub": "adapters/pyctcdecode/decoder.py",
    "soundfile": "audio/sources.py",
    "av": "audio/sources.py",
    "soxr": "audio/samples.py",
    "onnx_asr": "models/",
    "kaldi_native_fbank": "models/",
    "transformers": "models/",
    "tokenizers": "models/",
    "hama": "models/",
    "nemo": "models/loading.py",
    "anyio": "server/",  # comes with starlette
    "h11": "server/uvicorn_server.py",  # comes with uvicorn
    "prometheus_client": "server/engine.py",
    "pyarrow": "batch/ray/",  # comes with ray[data]
    "ray": "batch/ray/",
    "python_multipart": "server/",
    "starlette": "server/",
    "uvicorn": ("server/uvicorn_server.py", "server/uvicorn_server.py", "cli/serve.py"),
    "websockets": "server/uvicorn_server.py",
}
"""What the library may import, and under which part of it."""


@functools.cache
def parse(path):
    return ast.parse(path.read_text("utf-8"), str(path))


def of_all(paths):
    """Make one test of all files: a test each would be thousands, all pytest's time."""

    def make(test):
        def test_all():
            broken = []
            for path in paths:
                try:
                    test(path)
                except AssertionError as error:
                    broken.append(f"{name_of(path)}: {error}")
            assert not broken, "\n".join(broken)

        test_all.__name__, test_all.__doc__ = test.__name__, test.__doc__
        return test_all

    return make


def name_of(path):
    return str(path.relative_to(ROOT))


def imports(tree):
    """The modules that a file imports, wherever in it."""
    for node in statements(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            if node.module == "wfstdec":  # from wfstdec import graph
                yield from (f"wfstdec.{alias.name}" for alias in node.names)
            else:
                yield node.module


KERNEL = re.compile(r"\b_?(n?jit|kernel|part|inlined|intrinsic)\b")


def is_kernel(node):
    return any(KERNEL.search(ast.unparse(d)) for d in node.decorator_list)


def functions(tree):
    for node in statements(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@functools.cache
def statements(tree):
    """All statements of a tree: quicker than `ast.walk`, which has expressions too."""
    found, waiting = [], [tree]
    while waiting:
        for child in ast.iter_child_nodes(waiting.pop()):
            if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
                found.append(child)
                waiting.append(child)
    return found


def public_definitions(tree, prefix=""):
    """Public classes, functions and methods, with their dotted names."""
    for node in tree.body:
        is_definition = isinstance(node, ast.FunctionDef | ast.ClassDef)
        if is_definition and not node.name.startswith("_"):
            yield prefix + node.name, node
            if isinstance(node, ast.ClassDef):
                yield from public_definitions(node, f"{prefix}{node.name}.")


def room_of(path):
    return room_named(path.relative_to(ROOT / "wfstdec").with_suffix("").parts)


def room_named(parts):
    """The room of a module, given the parts of its name behind `wfstdec`."""
    inner = ".".join(parts[:2])
    return inner if inner in WITHIN else parts[0]


def row_of(room):
    rows = [i for i, row in enumerate(ROOMS) if room in row]
    assert rows, f"{room!r} has no row in ROOMS: give it one"
    return rows[0]


@of_all(LIBRARY)
def test_nothing_imports_against_the_import_order(path):
    room = room_of(path)
    if room == "__init__":
        return  # the front door: lazy
    for module in imports(parse(path)):
        if module.startswith("wfstdec."):
            other = room_named(module.split(".")[1:])
            assert row_of(other) <= row_of(room), f"{room} imports {module}"
            assert other not in STRANGERS.get(room, ()), f"{room} imports {module}"


@of_all(LIBRARY)
def test_cpu_and_gpu_know_nothing_of_each_other(path):
    parts = path.relative_to(ROOT / "wfstdec").parts
    # What a device advances the host ends, by the CPU's own code and in its records.
    ended_by = "wfstdec.trie.cpu" if parts[:2] == ("trie", "gpu") else None
    for side, other in APART.items():
        if side in parts:
            for module in imports(parse(path)):
                if ended_by and module.startswith(ended_by):
                    continue
                assert other not in module.split("."), f"{path} imports {module}"


def test_no_circle_of_files():
    """Lazy imports count, and imports for type checkers."""
    found = {module: imported_files(path) for module, path in files_by_module().items()}
    done = set()
    while ready := {m for m in found.keys() - done if found[m] <= done}:
        done |= ready
    assert sorted(found.keys() - done) == [], (
        "these, or what they import, go in circles"
    )


@functools.cache
def files_by_module():
    """The files of the library by module; those that only name others are left out."""
    names = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in LIBRARY
    }
    return {m: p for m, p in names.items() if not m.endswith(("__init__", "__main__"))}


def imported_files(path):
    """The modules of the library that a file imports, wherever in it."""
    known, found = files_by_module(), set()
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {node.module, *(f"{node.module}.{a.name}" for a in node.names)}
    return found & known.keys()


@of_all(LIBRARY)
def test_third_party_modules_stay_where_they_belong(path):
    part = str(path.relative_to(ROOT / "wfstdec"))
    for module in imports(parse(path)):
        top = module.split(".")[0]
        if top == "wfstdec" or top in sys.stdlib_module_names:
            continue
        assert top in THIRD_PARTY, f"imports {module}"
        assert part.startswith(THIRD_PARTY[top]), f"imports {module}"


@of_all(LIBRARY)
def test_all_but_kernels_have_type_hints(path):
    for function in functions(parse(path)):
        arguments = function.args.posonlyargs + function.args.args
        hinted = all(a.annotation or a.arg in ("self", "cls") for a in arguments)
        assert is_kernel(function) or (hinted and function.returns), function.name


@of_all(LIBRARY)
def test_public_things_have_docstrings(path):
    tree = parse(path)
    assert ast.get_docstring(tree)
    for name, node in public_definitions(tree):
        assert ast.get_docstring(node), name


@of_all(LIBRARY)
def test_only_the_command_line_prints(path):
    calls = [node for node in ast.walk(parse(path)) if isinstance(node, ast.Call)]
    prints = [c for c in calls if isinstance(c.func, ast.Name) and c.func.id == "print"]
    assert not prints or room_of(path) == "cli"


@of_all(TESTS)
def test_no_test_module_imports_another(path):
    """Code that several tests need is in tests/support or tests/oracles."""
    for module in imports(parse(path)):
        assert not module.split(".")[-1].startswith("test_"), f"imports {module}"


def tracked_files():
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    files = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [path for path in files if path.is_file()]


def test_no_absolute_home_or_working_directory():
    folders = b"|".join(re.escape(str(f).encode()) for f in (ROOT, Path.home()))
    absolute = re.compile(rb"(?<![\w.])(?:(?:%s)/|/(?:home|Users)/\w)" % folders)
    for path in tracked_files():
        found = absolute.search(path.read_bytes())
        if path.suffix not in (".gz", ".npz") and found:
            pytest.fail(f"{name_of(path)}: {found.group()!r}")
