"""What is public: all of it is there, documented, and enough for what we show."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import wfstdec

ROOT = Path(__file__).parent.parent
MODULES = (
    "adapters",
    "batch",
    "compare",
    "doctor",
    "errors",
    "io",
    "metrics",
    "recipes",
    "transcription",
)


@pytest.mark.parametrize("name", sorted({*wfstdec.__all__} - {"__version__"}))
def test_public_names_are_there_and_documented(name):
    if name.startswith(("Torch", "Transducer", "load_transducer")):
        pytest.importorskip("torch")
    found = getattr(wfstdec, name)
    assert found.__doc__ and found.__name__.removeprefix("wfstdec.") == name
    assert name in dir(wfstdec)


@pytest.mark.parametrize("name", MODULES)
def test_public_modules_say_what_they_have(name):
    module = getattr(wfstdec, name)
    assert module.__doc__
    for public in getattr(module, "__all__", ()):
        assert getattr(module, public).__doc__


def test_other_names_are_not_there():
    with pytest.raises(AttributeError, match="no attribute 'jump'"):
        _ = wfstdec.jump


def test_importing_the_package_imports_nothing_else():
    code = "import sys, wfstdec; print('numpy' in sys.modules, len(wfstdec.__all__))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout == f"False {len(wfstdec.__all__)}\n"


def test_the_notebook_uses_public_modules_alone():
    public = {"wfstdec", *(f"wfstdec.{name}" for name in MODULES)}
    for path in ROOT.glob("notebooks/*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("wfstdec"):
                assert node.module in public
                module = importlib.import_module(node.module)
                names = getattr(module, "__all__", dir(module))
                assert {alias.name for alias in node.names} <= set(names)
