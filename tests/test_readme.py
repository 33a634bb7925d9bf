"""README and the pages under docs/: what they show works, and is there."""

import importlib.util
import re
import shlex
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCS = ROOT / "docs"
AT_ROOT = [p for p in sorted(ROOT.glob("*.md")) if p.name != "README.md"]
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
FOLDERS = ("docs", "graphs", "notebooks", "tests", "tools", "wfstdec")
README_LINES = 110
CODE_LINES = 16


def test_the_code_runs(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    (code,) = re.findall(r"```python\n(.*?)```", README, re.S)
    assert len(code.strip().splitlines()) <= CODE_LINES
    names = {}
    exec(compile(code, "README.md", "exec"), names)
    best = names["best"]
    first, several = capsys.readouterr().out.splitlines()
    assert best.reached_final
    assert best.text == "i understand bartley i was wrong"
    assert first.startswith(f"{best.text} {best.total_cost} [('i', ")
    assert str(best.words[-1].end_s) in first
    assert several.count(", ") == 2 and best.text in several


def test_it_is_for_a_first_visit():
    """README: what to run comes first, every page is linked, and it stays short."""
    lines = README.splitlines()
    assert len(lines) <= README_LINES
    assert README.index("bash tools/demo.sh") < len("\n".join(lines[:40]))
    assert "(docs/index.md)" in README
    for script in re.findall(r"^bash (\S+)", README, re.M):
        assert (ROOT / script).is_file()
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    for page in PAGES[1:]:
        name = page.relative_to(DOCS)
        assert str(name) == "index.md" or f"({name})" in index, name


@pytest.mark.parametrize(
    "page", [*PAGES, *AT_ROOT], ids=lambda page: str(page.relative_to(ROOT))
)
def test_what_a_page_names_is_there(page):
    text = page.read_text(encoding="utf-8")
    for link in re.findall(r"\]\((?!http)([^)#]+)\)", text):
        assert (page.parent / link).is_file(), link
    for name in re.findall(r"`([\w./-]+/[\w.-]+\.\w+)`", text):
        assert name.split("/")[0] not in FOLDERS or (ROOT / name).exists(), name
    for run in re.findall(r"`[\w/]*?(\d{4}-\d\d-\d\d-[\w-]+\.json)`", text):
        assert (ROOT / "tools" / "bench_runs" / run).is_file(), run
    for module in re.findall(r"python -m\s+(tools[\w.]*\w)", text):
        path = ROOT / module.replace(".", "/")
        files = path.with_suffix(".py"), path / "__main__.py"
        assert any(one.is_file() for one in files) or module.endswith("NAME"), module


def test_the_commands_can_be_pasted(tmp_path, monkeypatch):
    """README's and those of `--help`, in order; `serve` stops where it would listen."""
    from wfstdec.cli.decode import (
        choose_decoder,
        load_acoustic_model,
        make_decoder,
        transcribe,
    )
    from wfstdec.cli.flags import search_options
    from wfstdec.cli.main import command_named, main, make_parser

    blocks = re.findall(r"```sh\n(cp .*?)```", README, re.S)
    copied, *commands = commands_in(
        "".join([*blocks, command_named("decode").examples])
    )
    assert copied == "cp -r graphs/librispeech_demo demo && cd demo"
    if all(map(importlib.util.find_spec, ("hama", "soundfile", "soxr"))):
        commands += commands_in(transcribe.examples)
    shutil.copytree(ROOT / "graphs" / "librispeech_demo", tmp_path / "demo")
    monkeypatch.chdir(tmp_path / "demo")
    (tmp_path / "demo" / "graph.npz").unlink(missing_ok=True)
    for command in commands:
        program, *argv = shlex.split(command, comments=True)
        assert program == "wfstdec" and main(argv) == 0, command
    assert len(commands) in (8, 10)
    for made in ("hyp.txt", "hyp.ctm", "hyp.jsonl", "words.srt")[: len(commands) - 6]:
        assert (tmp_path / "demo" / made).stat().st_size > 0
    for command in commands_in(command_named("serve").examples)[: len(commands) - 8]:
        args = make_parser("serve").parse_args(shlex.split(command)[1:])
        choose_decoder(args)
        options = search_options(args)
        spec = load_acoustic_model(args).spec
        assert make_decoder(args, options).vocabulary.tokens == spec.tokens


def commands_in(text):
    lines = text.replace("\\\n", " ").splitlines()
    return [line.strip() for line in lines if line.strip()]


def test_the_tools_are_listed():
    """Tools are listed by path or module, or by name next to one; or by a command."""
    tools = ROOT / "tools"
    listed = (tools / "README.md").read_text(encoding="utf-8")
    rows = [line for line in listed.splitlines() if line.startswith("| ")]
    names = set(re.findall(r"`([^`]+)`", "".join(rows)))
    stems = {re.split(r"[./]", name.removesuffix(".sh"))[-1] for name in names}
    paths = [path for path in tools.rglob("*.*") if path.suffix in (".py", ".sh")]
    for path in paths:
        in_command = (
            path.parent.name == "same" or path.with_name("__main__.py").exists()
        )
        if path.stem != "__init__" and not in_command:
            assert path.stem in stems, path
    known = {path.stem for path in paths} | {path.parent.name for path in paths}
    assert stems <= known
