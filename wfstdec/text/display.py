"""Texts from words; short reprs and HTML tables of objects.

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
"""Characters of scripts without spaces between words, and their marks."""
_NO_SPACE = re.compile(f"(?<={_UNSPACED}) (?={_UNSPACED})")


def join_words(words: Iterable[str], between: str | None = None) -> str:
    """Return words as a text, with `between` or the usual separator of their script.

    Usual is a space, or nothing between Chinese, Japanese, Thai, Lao, Khmer and Burmese
    characters.
    """
    return close_up(" ".join(words)) if between is None else between.join(words)


def close_up(text: str) -> str:
    """Remove the spaces between characters of unspaced scripts."""
    return text if text.isascii() else _NO_SPACE.sub("", text)


def extend_text(text: str, more: str) -> str:
    """Return the continuation of `text` by `more`, with a space if needed."""
    joined = join_words((text[-1:], more))
    return joined[1:] if text else more


_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 60
short = _REPR.repr
"""Return the repr of a value, in a line of limited length."""


def few(names: Sequence[Any], most: int = 4) -> str:
    """Return the first few names, each as its repr."""
    return examples(map(repr, names[: most + 1]), most)


def examples(texts: Iterable[str], most: int = 5, between: str = ", ") -> str:
    """Return the first few texts, with "..." if there are more."""
    listed = list(texts)
    return between.join([*listed[:most], *(["..."] if len(listed) > most else [])])


named = partial(examples, between=" ")
"""Return the first few ids or words."""


def html_table(
    rows: Iterable[Sequence[Any]], header: Sequence[str] = (), *, caption: str = ""
) -> str:
    """Return a table for notebooks; everything is escaped."""
    title = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    head = f"<thead>{_row(header, 'th')}</thead>" if header else ""
    body = "".join(_row(cells, "td") for cells in rows)
    return f"<table>{title}{head}<tbody>{body}</tbody></table>"


def _row(cells: Sequence[Any], tag: str) -> str:
    made = (f"<{tag}>{html.escape(str(cell))}</{tag}>" for cell in cells)
    return f"<tr>{''.join(made)}</tr>"
