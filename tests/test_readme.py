"""What the README shows does work."""

import fnmatch
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
    listed = (ROOT / "tools" / "README.md").read_text(encoding="utf-8")
    rows = [line for line in listed.splitlines() if line.startswith("| ")]
    patterns = re.findall(r"`([^`]+)`", "".join(rows))
    found = [path.name for path in (ROOT / "tools").iterdir()]
    names = [name for name in found if not name.startswith(("__", "README"))]
    for name in names:
        assert any(fnmatch.fnmatch(name, one) for one in patterns), name
    for pattern in patterns:
        assert fnmatch.filter(names, pattern), pattern
