"""Code of the pages under docs/ runs, in order; the site builds.

    ```python     runs; a page's blocks share their names
    ```sh         commands of wfstdec, run one after the other
    ```console    other programs, or files of the reader's own: not run, and says why
    ```text       printed, or in a file, or a formula; ```json and ```mermaid likewise
    ```{toctree}  directives of Sphinx, and ```{eval-rst}

`<!-- needs: hama soundfile -->` above a block: it runs where these can be imported;
`<!-- not run: why -->`: it is shown. All pages run in one folder where `graphs` is and
where `graph.npz` is what the quickstart builds. README's blocks are run by
`test_readme.py`, which also looks at what comes out.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import shlex
from collections import Counter
from pathlib import Path

import pytest
from processes import python

from wfstdec.cli.flags import FLAGS
from wfstdec.cli.main import main

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
_BLOCK = re.compile(
    r"(?:^<!-- (needs|not run): ([^>]+) -->\n)?^```([\w{}-]*)\n(.*?)^```$", re.M | re.S
)
PAGES_FOR_USERS = (
    "quickstart models streaming lexicon_and_lm contacts tuning production "
    "troubleshooting command_line doctor transcribe alignment lattices boosting words "
    "language_models output pyctcdecode torchaudio grammars"
).split()
SHOWN = {"text", "json", "mermaid", "{toctree}", "{eval-rst}", "{include}", ""}
LANGUAGES = {"python", "sh", "console", *SHOWN}


def name_of(page):
    return str(page.relative_to(ROOT))


def blocks_of(page):
    """Language and text of each block; what is not to be run here is `console`."""
    blocks = []
    for found in _BLOCK.finditer(page.read_text("utf-8")):
        condition, what, language, text = found.groups()
        missing = condition == "needs" and any(
            importlib.util.find_spec(name) is None for name in what.split()
        )
        shown = missing or condition == "not run"
        blocks.append(("console" if shown else language, text))
    return blocks


def run_shell(text):
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if not words:
            continue
        assert words[0] == "wfstdec", (
            f"{line!r}: not a command of ours, take ```console"
        )
        assert main(words[1:]) == 0, line


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    """A folder as the quickstart leaves it."""
    folder = tmp_path_factory.mktemp("pages")
    (folder / "graphs").symlink_to(ROOT / "graphs")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        commands = [text for _, text in blocks_of(DOCS / "quickstart.md")]
        run_shell(next(text for text in commands if "--output graph.npz" in text))
    return folder


@pytest.mark.filterwarnings("ignore")  # a page may show what is warned of
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if {"python", "sh"} & dict(blocks_of(page)).keys()],
    ids=name_of,
)
@pytest.mark.share(keep=3)
def test_snippets_run(page, workplace, monkeypatch):
    monkeypatch.chdir(workplace)
    names = {"__name__": page.stem}
    text = page.read_text("utf-8")
    for language, code in blocks_of(page):
        if language == "sh":
            run_shell(code)
        elif language == "python":
            line = text[: text.index(code)].count("\n")
            exec(compile("\n" * line + code, str(page), "exec"), names)


@pytest.mark.parametrize("name", PAGES_FOR_USERS)
def test_pages_for_users_begin_with_what_they_are_for_and_a_snippet(name):
    """A heading, what the page is for, and before long something that runs."""
    text = (DOCS / f"{name}.md").read_text("utf-8")
    heading, empty, first, *_ = text.splitlines()
    assert heading.startswith("# ") and not empty and not first.startswith("#")
    begins = [m.start() for m in re.finditer("^```(python|sh)$", text, re.M)]
    assert begins and text[: begins[0]].count("\n") <= 45


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=name_of)
def test_blocks_run_or_say_why_not(page):
    text = page.read_text("utf-8")
    for condition, _, language, code in _BLOCK.findall(text):
        assert language in LANGUAGES, language
        assert language != "sh" or "wfstdec" in code
        assert language != "console" or condition == "not run", code
        assert language not in SHOWN or not condition, code
    # Indented text would be shown as code, and no test would see it.
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    indented = re.findall(r"\n\n {4,}\S.*", prose)
    assert not indented, indented
    assert "```" not in prose


PUBLIC = """wfstdec adapters.pyctcdecode adapters.torchaudio adapters.transformers audio
    batch batch.ray compare doctor errors io lattice metrics models readable recipes
    transcription""".split()
"""Public modules, by their names below `wfstdec`."""


def module_of(name):
    return importlib.import_module(
        "wfstdec" if name == "wfstdec" else f"wfstdec.{name}"
    )


def public_names():
    return {name for one in PUBLIC for name in members_of(module_of(one))}


def members_of(module):
    """Names of `__all__`, or what the module defines."""
    own = (
        n
        for n, x in vars(module).items()
        if getattr(x, "__module__", "") == module.__name__
    )
    return {n for n in getattr(module, "__all__", own) if not n.startswith("_")}


def test_the_reference_has_every_public_name_once():
    shown = Counter()
    for page in sorted((DOCS / "api").glob("*.md")):
        entries = re.findall(
            r"^\.\. (\S+):: wfstdec\.(\S+)(?:\n   :exclude-members: (.*))?",
            *(page.read_text("utf-8"), re.M),
        )
        for kind, name, excluded in entries:
            shown[name.rpartition(".")[2]] += 1
            if kind == "automodule":
                shown.update(members_of(module_of(name)) - {*excluded.split(", ")})
    assert {n: shown[n] for n in public_names() if shown[n] != 1} == {}


def test_the_site_builds_without_warnings(tmp_path):
    """Links, anchors and errors that docstrings name are there; so are all names."""
    for package in ("sphinx", "myst_parser", "furo", "sphinxcontrib.mermaid", "torch"):
        pytest.importorskip(package)
    run = python("-m", "sphinx", "-WnqT", "--keep-going", str(DOCS), str(tmp_path))
    assert run.returncode == 0, run.stderr
    from sphinx.util.inventory import InventoryFile

    held = InventoryFile.loads((tmp_path / "objects.inv").read_bytes(), uri="").data
    kinds = ("class", "data", "exception", "function", "module")
    found = {x.rpartition(".")[2] for kind in kinds for x in held[f"py:{kind}"]}
    assert public_names() <= found
    flags = (tmp_path / "flags.html").read_text("utf-8")
    assert not [flag for flag in FLAGS if f">{flag}" not in flags]
