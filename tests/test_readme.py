"""What the README shows does work."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_code_runs(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    (code,) = re.findall(r"```python\n(.*?)```", README, re.S)
    assert len(code.strip().splitlines()) <= 17
    names = {}
    exec(compile(code, "README.md", "exec"), names)
    hypothesis = names["hyps"][5]
    text, times, several = capsys.readouterr().out.splitlines()
    assert text == f"{hypothesis.text} {hypothesis.total_cost} True"
    assert hypothesis.text == "i understand bartley i was wrong"
    assert str(hypothesis.words[0].end_s) in times
    assert several.count(", ") == 2 and "i understand bartley i was wrong" in several


def test_the_commands_exist():
    from wfstdec.cli.main import make_parser

    commands = set(re.findall(r"^    wfstdec (\w+)", README, re.M))
    assert commands
    for command in commands:
        make_parser().format_help().index(command)


def test_the_scripts_exist():
    for script in re.findall(r"^bash (\S+)", README, re.M):
        assert (ROOT / script).is_file()


def test_the_tools_are_listed():
    """By path or module, or by name beside one; `same` has its own list."""
    tools = ROOT / "tools"
    listed = (tools / "README.md").read_text(encoding="utf-8")
    rows = [line for line in listed.splitlines() if line.startswith("| ")]
    names = set(re.findall(r"`([^`]+)`", "".join(rows)))
    stems = {re.split(r"[./]", name.removesuffix(".sh"))[-1] for name in names}
    paths = [path for path in tools.rglob("*.*") if path.suffix in (".py", ".sh")]
    for path in paths:
        if path.stem != "__init__" and path.parent.name != "same":
            assert path.stem in stems, path
    known = {path.stem for path in paths} | {path.parent.name for path in paths}
    assert stems <= known
