"""Short reprs and HTML tables of what users hold: graphs, tables, results.

few(["a", "b", "c", "d"], 3)            # "'a', 'b', 'c', ..."
short("a long text ...")                # its beginning and end, with "..."
html_table([["the", 0.1]], ["word", "start_s"], caption="the")
"""

import html
import reprlib
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

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
