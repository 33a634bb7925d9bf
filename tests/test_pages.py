"""Code of the pages under docs/ runs, in the order in which it stands there.

    ```python     runs; a page's blocks share their names
    ```sh         commands of wfstdec, run one after the other
    ```console    other programs, or files of the reader's own: not run, and says why
    ```text       printed, or in a file, or a formula; ```json and ```mermaid likewise

`<!-- needs: hama soundfile -->` above a block: it runs where these can be imported;
`<!-- not run: why -->`: it is shown. All pages run in one folder where `graphs` is and
where `graph.npz` is what the quickstart builds. README's blocks are run by
`test_readme.py`, which also looks at what comes out.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path

import pytest

from wfstdec.cli.main import main

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.glob("*.md"), *DOCS.glob("evidence/*.md")])
_BLOCK = re.compile(
    r"(?:^<!-- (needs|not run): ([^>]+) -->\n)?^```(\w*)\n(.*?)^```$", re.M | re.S
)
PAGES_FOR_USERS = (
    "quickstart models streaming lexicon_and_lm contacts tuning production "
    "troubleshooting command_line doctor transcribe alignment lattices boosting words "
    "language_models output pyctcdecode torchaudio"
).split()
SHOWN = {"text", "json", "mermaid", ""}
LANGUAGES = {"python", "sh", "console", *SHOWN}


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
    """Run commands of wfstdec, in this process."""
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
    ids=lambda page: page.name,
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


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda p: p.name)
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
