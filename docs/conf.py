"""Sphinx: the pages of this folder, an API reference from docstrings, all flags.

sphinx-build -W --keep-going -n docs build/site       # needs the extra `docs`
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent))

import wfstdec  # noqa: E402
from wfstdec.cli.main import make_parser  # noqa: E402

project, author, copyright = "wfstdec", "the authors of wfstdec", "wfstdec"
version = release = wfstdec.__version__
extensions = "myst_parser sphinx.ext.autodoc sphinx.ext.napoleon sphinxcontrib.mermaid"
extensions = extensions.split()
myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]
mermaid_height = "auto"
html_theme, html_title = "furo", f"wfstdec {version}"
default_role = "code"  # docstrings have names between single backticks
autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
napoleon_use_ivar = True
# mypy checks types; those that are not public have no entry to link to.
nitpick_ignore_regex = [("py:(class|obj)", ".*")]
smartquotes = False  # flags have two dashes


def link_public(app, env, node, contnode):
    """Link a name to its entry, whichever module it was found in."""
    if node.get("refdomain") == "py":
        domain, end = env.domains["py"], "." + node["reftarget"].rpartition(".")[2]
        kinds = {"class", "exception", "function", "data"}
        named = {x for x in domain.objects if x.endswith(end)} - {node["reftarget"]}
        full = [x for x in named if domain.objects[x].objtype in kinds]
        if len(full) == 1:
            where = env, node["refdoc"], app.builder, node["reftype"]
            return domain.resolve_xref(*where, full[0], node, contnode)
    return None


def show_examples(app, what, name, obj, options, lines):
    """Show indented paragraphs of a docstring as code."""
    for i in range(len(lines) - 1, 0, -1):
        before = next((x for x in reversed(lines[:i]) if x), "")
        if lines[i].startswith("    ") and not lines[i - 1] and before[:1] != " ":
            lines[i:i] = ["::", ""]


def skip_fields(app, what, name, obj, skip, options):
    """Leave out what `NamedTuple` writes of its fields."""
    return (getattr(obj, "__doc__", None) or "").startswith("Alias for field") or None


def read_page(app, name, source):
    """Make links to files outside this folder downloads; write the page of flags."""
    folder = (DOCS / name).parent

    def link(found):
        inside = (folder / found[1]).resolve().is_relative_to(DOCS)
        return found[0] if inside else f"](path:{found[1]})"

    source[0] = re.sub(r"\]\((\.\./[^)#]+)(?:#[^)]*)?\)", link, source[0])
    if name == "flags":
        source[0] += "\n".join(flags())


def flags():
    """Lines of the reference of all commands and flags."""
    for name, command in make_parser()._subparsers._group_actions[0].choices.items():
        yield f"\n## {name}\n\n{command.description}\n"
        for group in command._action_groups:
            rows = [x for x in group._group_actions if "-h" not in x.option_strings]
            if rows:
                yield f"\n| {group.title} | |\n| --- | --- |"
            for one in rows:
                how = command._get_formatter()
                usage = how._format_action_invocation(one).replace("|", r"\|")
                text = how._expand_help(one) if one.help else ""
                text = re.sub(r"([|<*\[])", r"\\\1", text)
                yield f"| `{usage}` | {text} |"


def setup(app):
    """Connect the functions above."""
    app.connect("missing-reference", link_public)
    app.connect("autodoc-process-docstring", show_examples, priority=400)
    app.connect("autodoc-skip-member", skip_fields)
    app.connect("source-read", read_page)
