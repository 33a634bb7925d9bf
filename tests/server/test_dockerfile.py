"""The Dockerfile: its lines as the check reads them, and what it copies."""

from tools import container_check

TEXT = (container_check.ROOT / "Dockerfile").read_text("utf-8")


def test_the_lines_that_run():
    joined = container_check.run_lines(
        "FROM x\nRUN a \\\n    b\nUSER y\nRUN c\n# RUN d\n"
    )
    assert joined == ["a b", "c"]
    install, *_, warm = container_check.run_lines(TEXT)
    assert "'/src[server,models,av]'" in install and warm == "wfstdec warm-up"
    assert f"USER {container_check.NOBODY}" in TEXT


def test_what_is_copied_is_there():
    names = {path.name for path in container_check.copied_paths()}
    assert {"wfstdec", "graphs", "setup.cfg", "setup.py", "constraints.txt"} <= names
    assert all(path.exists() for path in container_check.copied_paths())
    assert not {"tests", "tools", ".git"} & names
