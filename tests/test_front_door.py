"""Public names: all are there, documented, and enough for what we show."""

import importlib
import re
from pathlib import Path

import pytest
from processes import python

import wfstdec

ROOT = Path(__file__).parent.parent
MODULES = (
    "adapters",
    "batch",
    "compare",
    "doctor",
    "errors",
    "io",
    "lattice",
    "metrics",
    "recipes",
    "transcription",
)


@pytest.mark.parametrize("name", sorted({*wfstdec.__all__} - {"__version__"}))
def test_public_names_are_there_and_documented(name):
    of_torch = ("Torch", "Transducer", "Attention", "load_transducer", "load_onnx")
    functions = {"load_attention", "rescore", "reweighed", "text_log_probs"}
    if name.startswith(of_torch) or name in functions:
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
    run = python("-c", code)
    assert run.stdout == f"False {len(wfstdec.__all__)}\n"


def test_pages_use_public_names_alone():
    """Modules that pages import, call or name; deep paths are private."""
    public = {"adapters.pyctcdecode", "adapters.torchaudio", "adapters.transformers"}
    public |= {*MODULES, "audio", "models", "batch.ray"}
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    pages += ROOT.glob("notebooks/*.py")
    authors = ("architecture.md", "gpu.md")
    for page in pages:
        if page.name in authors:
            continue
        text = page.read_text("utf-8")
        for name in re.findall(r"(?<![\w./-])wfstdec((?:\.\w+)+)", text):
            path = name.removeprefix(".")
            if path == "journal":  # the ending of a file
                continue
            held = [m for m in public if f"{path}.".startswith(f"{m}.")]
            module = max(held, key=len, default=None)
            rest = path if module is None else path[len(module) + 1 :]
            holder = importlib.import_module(f"wfstdec.{module}") if module else wfstdec
            first = rest.split(".")[0]
            names = getattr(holder, "__all__", None) or dir(holder)
            assert not first or first in names, f"{page.name}: wfstdec.{path}"


def test_messages_name_packages_that_are_on_the_index():
    """The index has no wfstdec, so none of its extras; versions are setup's."""
    setup = (ROOT / "setup.cfg").read_text("utf-8")
    found = set()
    for path in (ROOT / "wfstdec").rglob("*.py"):
        text = path.read_text("utf-8")
        assert "pip install wfstdec" not in text, path
        for named in re.findall(r"pip install ((?:'?[a-z][\w.=\[\]-]*'?[ ]?)+)", text):
            found |= set(named.replace("'", "").split())
    assert {"soundfile", "soxr", "hama==1.7.0", "cupy-cuda12x[ctk]"} <= found
    own = {
        "kenlm",
        "huggingface_hub",
        "pyctcdecode==0.5.0",
        "pygtrie",
        "transformers",
        "torch",
        "nemo_toolkit[asr]",
        "zstandard",
    }
    for name in found - own:
        package, _, version = name.partition("==")
        asked = f"=={re.escape(version)}" if version else "[>=]="
        assert re.search(rf"^    {re.escape(package)} {asked}", setup, re.M), name
