"""Words as texts; short reprs and HTML tables of what users hold.

join_words(["hello", "world"])          # "hello world"; no space in "今天天气"
few(["a", "b", "c", "d"], 3)            # "'a', 'b', 'c', ..."
short("a long text ...")                # its beginning and end, with "..."
html_table([["the", 0.1]], ["word", "start_s"], caption="the")
"""

import html
import re
import reprlib
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

_UNSPACED = (
    # Thai, Lao, Burmese, Khmer, Tai; Han and kana, their marks and wide forms
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1950-\u19df\u1a20-\u1aaf"
    "\u2e80-\u312f\u3190-\u9fff\uf900-\ufaff\ufe30-\ufe4f\uff00-\uff9f"
    "\U0001b000-\U0001b16f\U00020000-\U000323af]"
)
"""Characters of scripts whose words have no spaces between them, and their marks."""
_NO_SPACE = re.compile(f"(?<={_UNSPACED}) (?={_UNSPACED})")


def join_words(words: Iterable[str], between: str | None = None) -> str:
    """Words as a text: `between` between them, or what is usual in their script.

    That is a space, and nothing between Chinese, Japanese, Thai, Lao, Khmer and Burmese
    characters.
    """
    return close_up(" ".join(words)) if between is None else between.join(words)


def close_up(text: str) -> str:
    """Take out the spaces between characters of a script that has none."""
    return text if text.isascii() else _NO_SPACE.sub("", text)


def extend_text(text: str, more: str) -> str:
    """The end that makes `text` and `more` one text: `more`, and a space before it."""
    joined = join_words((text[-1:], more))
    return joined[1:] if text else more


_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 60
short = _REPR.repr
"""The repr of a value of any size, in a line."""


def few(names: Sequence[Any], most: int = 4) -> str:
    """The first few of some names, each as its repr."""
    return examples(map(repr, names[: most + 1]), most)


def examples(texts: Iterable[str], most: int = 5, between: str = ", ") -> str:
    """The first few of some texts, and whether there are more."""
    listed = list(texts)
    return between.join([*listed[:most], *(["..."] if len(listed) > most else [])])


named = partial(examples, between=" ")
"""The first few of some ids or words."""


def html_table(
    rows: Iterable[Sequence[Any]], header: Sequence[str] = (), *, caption: str = ""
) -> str:
    """A table as notebooks show it; everything is escaped."""
    title = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    head = f"<thead>{_row(header, 'th')}</thead>" if header else ""
    body = "".join(_row(cells, "td") for cells in rows)
    return f"<table>{title}{head}<tbody>{body}</tbody></table>"


def _row(cells: Sequence[Any], tag: str) -> str:
    made = (f"<{tag}>{html.escape(str(cell))}</{tag}>" for cell in cells)
    return f"<tr>{''.join(made)}</tr>"
