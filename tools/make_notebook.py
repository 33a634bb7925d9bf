"""Make `notebooks/*.ipynb` of the `.py` files beside them, which are what we edit.

    python -m tools.make_notebook              # cells alone
    python -m tools.make_notebook --execute    # with outputs; the extra `notebook`

A source has its cells between `# %%` lines; those of `# %% [markdown]` are comments.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "notebooks"
MARK, MARKDOWN = "# %%", "# %% [markdown]"
TIMEOUT_S = 600
_KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}

Notebook = dict[str, Any]


def read_source(path: Path) -> Notebook:
    """The notebook of a source, without outputs."""
    cells: list[Notebook] = []
    for line in path.read_text("utf-8").splitlines():
        if line.startswith(MARK):
            cells.append({"markdown": line == MARKDOWN, "lines": []})
        else:
            cells[-1]["lines"].append(line)
    return {
        "cells": [_cell(i, **cell) for i, cell in enumerate(cells)],
        "metadata": {"kernelspec": _KERNEL, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _cell(number: int, markdown: bool, lines: list[str]) -> Notebook:
    text = "\n".join(lines).strip("\n").split("\n")
    if markdown:
        text = [line.removeprefix("#").removeprefix(" ") for line in text]
    kind = "markdown" if markdown else "code"
    cell: Notebook = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}}
    if not markdown:
        cell |= {"execution_count": None, "outputs": []}
    return cell | {"source": [line + "\n" for line in text[:-1]] + text[-1:]}


def execute(notebook: Notebook) -> Notebook:
    """Run all cells in a kernel of this interpreter; an error in one is raised."""
    import nbformat
    from nbclient import NotebookClient

    os.environ["MPLBACKEND"] = "Agg"
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    node = nbformat.reads(json.dumps(notebook), as_version=4)
    nbformat.validate(node)
    place = {"metadata": {"path": str(FOLDER)}}
    kernel = _KERNEL["name"]  # of this interpreter, as long as it is called so
    NotebookClient(
        node, kernel_name=kernel, timeout=TIMEOUT_S, resources=place
    ).execute()
    for cell in node.cells:  # times of day and what a person cannot use
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
    node.metadata = notebook["metadata"]
    return json.loads(nbformat.writes(node))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--execute", action="store_true", help="keep outputs too")
    args = parser.parse_args(argv)
    for source in sorted(FOLDER.glob("*.py")):
        notebook = read_source(source)
        if args.execute:
            notebook = execute(notebook)
        text = json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True)
        source.with_suffix(".ipynb").write_text(text + "\n", "utf-8")
        print(f"wrote {source.stem}.ipynb")
    return 0


if __name__ == "__main__":
    sys.exit(main())
